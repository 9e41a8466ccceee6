"""The options of scripts are those of oarsub, and are read as oarsub reads them."""

import pytest

from oar.cli import oarsub
from oar.cli.oarsub_parts.options import OarsubOptions
from oar.cli.oarsub_parts.script_options import NOT_IN_SCRIPTS, scan
from oar.lib.submission.script_lines import OPTIONS, joined, option_of, values_of


def test_they_have_the_names_that_oarsub_knows() -> None:
    declared = {
        str(parameter.name): set(parameter.opts)
        for parameter in oarsub.main.params
        if parameter.name not in NOT_IN_SCRIPTS | {"words"} and not str(parameter.name).startswith("as_")
    }
    assert {option.name: set(option.spellings) for option in OPTIONS} == declared


@pytest.mark.parametrize(
    "line",
    [
        "#OAR -l nodes=1",
        "#OAR -lnodes=1 -n x",
        "#OAR -p \"gpu = 'YES'\"",
        "#OAR --property=a='b'",
        "#OAR --name  two words",
        "#OAR -n 'a b' --hold -t besteffort -t deploy",
        "#OAR --array 5%2",
        "#OAR --array=3",
        "#OAR --ar 12",
        "#OAR --env A=-1",
        "#OAR --notify mail:a@b.c -k",
        "#OAR --after 12 --anterior=13",
        "#OAR -k 600",
        "#OAR -k 600 --signal 2",
        "#OAR -p a=1\n#OAR -p b=2\n#OAR --nodelist n1\n#OAR --nodelist n2\n#OAR -n x\n#OAR -n y",
    ],
)
def test_a_line_means_what_it_means_to_oarsub(line: str) -> None:
    text = f"#!/bin/sh\n{line}\r\n"
    read = scan(text, "script", oarsub.main.params)
    found = {name: joined(option_of(name), value) for name, value in values_of(text).items()}
    assert found == {name: getattr(read.options, name) for name in read.names}
    assert set(found) <= set(OarsubOptions._fields)


def test_a_file_that_begins_with_no_comment_has_no_options() -> None:
    assert values_of("sleep 1\n#OAR -n x\n") == {}
