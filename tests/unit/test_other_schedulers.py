"""What options of other schedulers are called here: what is named in their place exists."""

import re
from importlib import import_module

import click
import pytest

from oar.cli.common.option_reader import _WAYS, way_here

EVERY = sorted((command, option) for command, ways in _WAYS.items() for option in ways)


def options_of(command: str) -> set[str]:
    parameters = import_module(f"oar.cli.{command}").main.params
    return {name for each in parameters if isinstance(each, click.Option) for name in each.opts}


@pytest.mark.parametrize(("command", "option"), EVERY)
def test_the_way_here_is_an_option_that_exists(command: str, option: str) -> None:
    way = way_here(command, option)
    named = set(re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", way))
    other_command = re.match(r"\n# Here: (oar\w+) ", way)
    assert named <= options_of(other_command[1] if other_command else command)


@pytest.mark.parametrize(("command", "option"), EVERY)
def test_an_option_that_is_ours_needs_no_way(command: str, option: str) -> None:
    assert f"-{option}" not in options_of(command) or len(option) > 1
    assert f"--{option}" not in options_of(command)
