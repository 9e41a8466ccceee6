"""How the words of a command line become what click is given."""

import pytest

from oar.cli.common.command import Command
from oar.cli.common.option_reader import OptionReader
from oar.cli.common.options import RESERVATIONS, USER, BadOption, PlainOption
from oar.cli.oaralter import main as oaralter
from oar.cli.oardel import main as oardel
from oar.cli.oarhold import main as oarhold
from oar.cli.oarnodes import main as oarnodes
from oar.cli.oarnodesetting import main as oarnodesetting
from oar.cli.oarresume import main as oarresume
from oar.cli.oarstat import main as oarstat
from oar.cli.oarsub import main as oarsub
from oar.cli.qralter import main as qralter
from oar.cli.qrstat import main as qrstat
from oar.cli.qrsub import main as qrsub


def read(command: Command, words: str) -> list[str]:
    return OptionReader(command.params, USER).read(words.split())


@pytest.mark.parametrize("words", ["-r 26,27", "-r26,27", "--resource=26,27", "--resource 26,,27,", "-r 26 -r 27"])
def test_a_list_of_numbers_is_that_many_of_them(words: str) -> None:
    assert read(oarnodes, f"-s {words}") == ["--state", "--resource", "26", "--resource", "27", "--"]


@pytest.mark.parametrize("words", ["-j 26,28-30", "-j26,28-30", "--job=26,28-30", "-sj 26,28-30"])
def test_a_list_of_jobs_belongs_to_its_option(words: str) -> None:
    assert [word for word in read(oarstat, words) if word != "--state"] == ["--job", "26,28-30", "--"]
    assert read(oarstat, "-j 120[3-7] 8") == ["--job", "120[3-7]", "--", "8"]


@pytest.mark.parametrize("words", ["-j ,", "-j x,3"])
def test_what_does_not_begin_as_a_list_of_numbers_is_another_word(words: str) -> None:
    assert read(oarstat, words) == ["--job", "", "--", words.split()[1]]


def test_all_wrong_options_are_reported_at_once() -> None:
    with pytest.raises(BadOption) as error:
        OptionReader(oarsub.params, USER, command="oarsub").read(["--ntasks", "4", "--hodl", "-z", "-z", "-l"])
    assert str(error.value).splitlines() == [
        *("Unknown option: ntasks", "# Here: -l core=NUMBER", "Unknown option: hodl", "# Did you mean --hold?"),
        *("Unknown option: z", "Option l requires an argument"),
    ]


@pytest.mark.parametrize("words", ["-ar 53", "-ar=53", "--ar 53", "--ar=53"])
def test_a_name_of_several_letters_behind_one_dash(words: str) -> None:
    assert read(oarsub, words) == ["--advance-reservation", "53", "--"]


def test_it_does_not_take_the_letters_of_others() -> None:
    assert read(oarsub, "-a r") == ["--anterior", "r", "--"]


@pytest.mark.parametrize(
    ("command", "words", "value"),
    [
        (oarstat, "--states H -t R", ["--states", "H,R"]),
        (oarstat, "--sql a=1 -S b=2", ["--sql", "(a=1) AND (b=2)"]),
        (oarstat, "--fields id --fields name,user", ["--specified-field", "id,name,user"]),
        (oarsub, "-p a=1 -p b=2 -p c=3", ["--property", "((a=1) AND (b=2)) AND (c=3)"]),
        (oarsub, "-l a -l b -t x -t y", ["--resource", "a", "--resource", "b", "--type", "x", "--type", "y"]),
        (oardel, "--state W --state R", ["--state", "W,R"]),
        (oarnodes, "--sql a=1 --sql b=2", ["--sql", "(a=1) AND (b=2)"]),
        (oarnodesetting, "--sql a=1 --sql b=2", ["--sql", "(a=1) AND (b=2)"]),
    ],
)
def test_lists_and_conditions_that_are_given_several_times_are_joined(
    command: Command, words: str, value: list[str]
) -> None:
    reader = OptionReader(command.params, USER)
    assert reader.read(words.split()) == [*value, "--"]
    assert not reader.repeated


def test_letters_are_joined() -> None:
    assert OptionReader(qrstat.params, RESERVATIONS).read(["-s", "r", "-s", "w"]) == ["-state", "rw", "--"]


@pytest.mark.parametrize(
    ("command", "words", "name", "value"),
    [
        (oarsub, "-q a -q b -q c", "--queue", "c"),
        (oarsub, "--checkpoint 1 --checkpoint=2", "--checkpoint", "2"),
        (oarstat, "-u alice -u bob", "--user", "bob"),
        (oarstat, "--name a --name b", "--name", "b"),
        (oaralter, "-n a -n b", "--name", "b"),
        (oarsub, "-C 1 -C 2", "--connect", "2"),
    ],
)
def test_of_other_options_the_last_value_counts(command: Command, words: str, name: str, value: str) -> None:
    reader = OptionReader(command.params, USER)
    assert reader.read(words.split()) == [name, value, "--"]
    assert list(reader.repeated.values()) == [(name, value)]


def test_the_same_value_twice_needs_no_remark() -> None:
    reader = OptionReader(oarsub.params, USER)
    assert (reader.read(["-q", "a", "--queue=a"]), reader.repeated) == (["--queue", "a", "--"], {})


def test_each_option_with_a_condition_or_a_list_of_states_is_joined() -> None:
    names = {"sql", "resubmit_sql", "properties", "states"}
    commands = [oaralter, oardel, oarhold, oarnodes, oarnodesetting, oarresume, oarstat, oarsub, qralter, qrstat, qrsub]
    options = [
        (command.name, option.name)
        for command in commands
        for option in command.params
        if isinstance(option, PlainOption) and option.name in names and not (option.is_flag or option.join)
    ]
    assert options == []
