"""How the words of a command line become what click is given."""

import pytest

from oar.cli.common.command import Command
from oar.cli.common.option_reader import OptionReader
from oar.cli.common.options import USER
from oar.cli.oarstat import main as oarstat
from oar.cli.oarsub import main as oarsub


def read(command: Command, words: str) -> list[str]:
    return OptionReader(command.params, USER).read(words.split())


@pytest.mark.parametrize("words", ["-j 26,27", "-j26,27", "--job=26,27", "--job 26,,27,", "-j 26 -j 27"])
def test_a_list_of_numbers_is_that_many_of_them(words: str) -> None:
    assert read(oarstat, f"-s {words}") == ["--state", "--job", "26", "--job", "27", "--"]


@pytest.mark.parametrize("words", ["-j ,", "-j x,3"])
def test_what_does_not_begin_as_a_list_of_numbers_is_another_word(words: str) -> None:
    assert read(oarstat, words) == ["--job", "", "--", words.split()[1]]


@pytest.mark.parametrize("words", ["-ar 53", "-ar=53", "--ar 53", "--ar=53"])
def test_a_name_of_several_letters_behind_one_dash(words: str) -> None:
    assert read(oarsub, words) == ["--advance-reservation", "53", "--"]


def test_it_does_not_take_the_letters_of_others() -> None:
    assert read(oarsub, "-a r") == ["--anterior", "r", "--"]
