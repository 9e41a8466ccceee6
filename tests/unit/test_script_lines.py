"""The options of scripts are those of oarsub, and are read as oarsub reads them."""

import pytest

from oar.cli import oarsub
from oar.cli.oarsub_parts.script_options import scan
from oar.lib.submission.script_lines import joined, values_of


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
    assert {name: joined(name, values) for name, values in values_of(text).items()} == read.values


def test_a_file_that_begins_with_no_comment_has_no_options() -> None:
    assert values_of("sleep 1\n#OAR -n x\n") == {}
