"""The manual: a page for everything that people type, with all that the documents say of it, in clean roff."""

import re
import subprocess
from functools import cache

import click
import manpages
import pytest
from installer import tables

from docs import generate, manual_sections
from oar.cli.common.command import Command
from oar.cli.common.options import ADMIN, RESERVATIONS, USER
from oar.lib.config.files import Config
from oar.lib.submission.checks import Code

COMMANDS: tuple[Command, ...] = (*generate.commands(USER), *generate.commands(ADMIN))


@cache
def pages() -> dict[str, manpages.Page]:
    texts = ((generate.DOCS / f"{name}.rst").read_text() for name in ("commands", "configuration"))
    return {page.name: page for page in manpages.pages(*texts)}


@cache
def shown(name: str) -> str:
    """What a terminal shows of a page, each word as it stands in the source."""
    done = subprocess.run(
        ["groff", "-ww", "-man", "-Tutf8", "-P-cbou", "-rLL=999n"],
        input=pages()[name].text,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.parametrize("name", sorted(pages()))
def test_roff_has_nothing_to_complain_about(name: str) -> None:
    page = pages()[name]
    if page.text.startswith(".so "):
        assert page.text.split()[1] in {each.path for each in pages().values()}
        return
    done = subprocess.run(
        ["groff", "-ww", "-man", "-Tutf8", "-z"], input=page.text, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert page.text.isascii()


def test_everything_that_people_type_has_a_page_in_its_section() -> None:
    typed = (*tables.USER_COMMANDS, *tables.ADMIN_COMMANDS, *tables.READABLE_COMMANDS, *tables.ROOT_COMMANDS)
    there = {name for name in typed if tables.is_there(tables.module_of(name))} | set(tables.USER_TOOLS)
    assert not there - set(pages())
    assert {pages()[str(command.name)].section for command in generate.commands(USER)} == {1}
    assert {pages()[str(command.name)].section for command in generate.commands(ADMIN)} == {8}
    assert pages()["oar.conf"].path == "man5/oar.conf.5"


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_a_page_tells_every_option_of_its_command_and_what_it_is_for(command: Command) -> None:
    text = shown(str(command.name))
    for option in command.get_params(click.Context(command, **command.context_settings)):
        if isinstance(option, click.Option):
            assert all(name in text for name in option.opts)
            assert " ".join((option.help or "").split()) in " ".join(text.split())


def test_a_page_shows_the_examples_of_its_command() -> None:
    text = shown("oarstat").partition("EXAMPLES\n")[2].partition("SEE ALSO")[0]
    assert all(line in text for command in COMMANDS if command.name == "oarstat" for line in command.examples)


def test_the_overview_has_a_line_for_each_command() -> None:
    text = shown("oar")
    assert pages()["oar"].path == "man7/oar.7"
    assert not [command.name for command in COMMANDS if f"       {command.name} " not in text.replace("\n", " \n")]


def test_oar_conf_tells_every_key() -> None:
    text = shown("oar.conf")
    assert not [option.key for option in Config.options() if option.key not in text]


def test_nothing_of_the_marks_of_the_documents_is_left() -> None:
    marks = ("`", "\n.. ", "::\n")
    assert not [name for name, page in pages().items() if any(mark in page.text for mark in marks)]


def test_a_form_that_is_not_known_is_no_page() -> None:
    text = "For users\n=========\n\noarx\n----\n\nSays what::\n\n    this\n"
    with pytest.raises(ValueError, match="this"):
        list(manpages.pages(text, "Configuration\n=============\n\nText.\n"))


def test_a_page_has_the_common_sections_and_those_of_its_command() -> None:
    text = shown("oarsub")
    titles = ("OPTIONS", "EXAMPLES", "EXIT STATUS", "ENVIRONMENT", "FILES", "SEE ALSO")
    assert [text.index(f"\n{title}\n") for title in titles] == sorted(text.index(f"\n{title}\n") for title in titles)
    section = text.partition("EXIT STATUS\n")[2].partition("ENVIRONMENT")[0]
    statuses = re.findall(r"^ {7}(\d+)\b", section, re.MULTILINE)
    assert {"0", "130", *(str(int(code)) for code in Code)} <= set(statuses)
    assert statuses == sorted(statuses, key=int)
    assert "/etc/oar/oar.conf" in text
    assert "~/.oarsubrc" in text


def test_exit_statuses_are_those_of_commands_that_exist() -> None:
    assert {name for texts in manual_sections.BY_COMMAND.values() for name in texts} <= {
        each.name for each in COMMANDS
    } | {each.name for each in generate.commands(RESERVATIONS)}


@pytest.mark.parametrize("command", [each for each in COMMANDS if each.topics], ids=lambda command: command.name)
def test_topics_contain_every_option_but_those_of_all_commands(command: Command) -> None:
    topics = command.options_by_topic(click.Context(command))
    last = {name for option in topics["Other options"] for name in option.opts}
    assert last <= {"--completion", "-V", "--version", "--debug", "-h", "--help"}
    declared = {name for option in command.params for name in option.opts}
    assert not [name for names in command.topics.values() for name in names if name not in declared]
    assert all(f"\n{topic}:\n" in command.get_help(click.Context(command)) for topic in topics)
    assert all(topic in shown(str(command.name)) for topic in topics)
