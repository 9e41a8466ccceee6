"""Names, commands, options and files of the documentation exist; its generated parts are up to date."""

import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import click
import pytest
from installer import tables as programs
from packager import contents

from docs import generate
from oar.cli.common.command import Command
from oar.cli.common.options import ADMIN, RESERVATIONS, USER, BadOption
from oar.cli.oarsub_parts import job_shell
from oar.lib.config.files import Config
from oar.lib.jobs.queue_policies import POLICIES
from oar.lib.jobs.states import JOB_MOVES, JobState
from oar.lib.submission import dependencies
from oar.lib.submission.checks import Code
from oar.lib.submission.resource_request import parse_request
from tests.documents import DOCUMENTS, SOURCE, links, literals, matches, programs_of, typed

BY_NAME = pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
GUIDE = SOURCE / "docs" / "user-guide.rst"

#: Programs of the sources, and the files in which their options are declared.
OF_SOURCES = {
    "setup/demo": "setup/showcase.py",
    "setup/test": "setup/suite.py",
    "setup/cluster": "setup/room/main.py",
    "setup/install": "setup/installer/main.py",
    "setup/package": "setup/packager/main.py",
}
#: What has a name like a command and is none: accounts, a schema, a key, the program that travels to nodes, policies.
METRICS = {
    *(
        "oar_job_steps_total",
        "oar_jobs_ended_total",
        "oar_job_wait_seconds",
        "oar_round_seconds",
        "oar_round_phase_seconds",
        "oar_round_jobs",
        "oar_module_passes_total",
    ),
    *("oar_round_age_seconds", "oar_api_streams", "oar_api_feed_lag_seconds", "oar_jobs", "oar_jobs_waiting"),
    *("oar_reservations", "oar_reservation_missing_slots", "oar_nodes", "oar_events_to_check"),
    *("oar_api_requests_total", "oar_api_request_seconds", "oar_api_threads_busy", "oar_api_worker_restarts_total"),
    *("oar_oldest_wait_seconds", "oar_resources", "oar_job_steps_total", "oar_jobs_ended_total"),
    *("oar_job_launch_seconds", "oar_job_run_seconds", "oar_database_sessions", "oar_server_role"),
    *("oar_job_wait_seconds", "oar_module_passes_total", "oar_module_failures_total", "oar_runner_actions"),
    *("oar_module_last_duration_seconds", "oar_server_start_seconds", "oar_modules_up", "oar_database_seconds"),
    *("oar_jobs_submitted_total", "oar_job_start_error_seconds", "oar_actions_pending"),
    *("oar_user_jobs", "oar_user_resources", "oar_project_jobs", "oar_project_resources"),
    *("oar_queue_active", "oar_queues_stopped_by_oar", "oar_resources_suspected", "oar_task_success_age_seconds"),
    *("oar_launches_failed_total", "oar_launch_holds", "oar_policy_file_errors", "oar_runner_ready"),
    *("oar_module_success_age_seconds", "oar_module_period_seconds"),
    *("oar_take_overs_total", "oar_last_take_over_seconds"),
    *("oar_database_up", "oar_database_lag_seconds", "oar_database_timeline"),
}
PACKAGES = {package.name for package in contents.PACKAGES}
NO_COMMANDS = {
    *("oar", "oar_ro", "oar_public", "oar_event", "oar_job_end", "oarsh_key", "oarexec"),
    *(*POLICIES, *METRICS, *PACKAGES),
}


@cache
def commands() -> dict[str, Command]:
    """Every command that is made of ``@oar_command``."""
    return {str(command.name): command for style in (USER, ADMIN) for command in generate.commands(style)}


@cache
def installed() -> set[str]:
    """The name of every program that an installation may have."""
    names = {
        *programs.USER_COMMANDS,
        *programs.ADMIN_COMMANDS,
        *programs.READABLE_COMMANDS,
        *programs.ROOT_COMMANDS,
        *programs.MODULES,
        *programs.API_PROGRAMS,
    }
    there = {name for name in names if programs.is_there(programs.module_of(name))}
    return there | {programs.COMMAND_SERVER} | set(programs.OTHER_NAMES) | {*programs.NODE_TOOLS, programs.AGENT}


def is_left_over(path: Path) -> bool:
    """Whether a file was left by a tool: what Python compiled, caches of the checks."""
    return path.suffix == ".pyc" or any(part.endswith("_cache") for part in path.parts)


@cache
def words_of_sources() -> set[str]:
    """Every word of everything but documentation and tests, with and without dots and dashes."""
    files = [SOURCE / "Makefile", SOURCE / "pyproject.toml"]
    for top in ("oar", "setup", "etc", "bench", ".ci"):
        files += [path for path in sorted((SOURCE / top).rglob("*")) if path.is_file() and not is_left_over(path)]
    words = {word for path in files for word in re.findall(r"[\w.-]+", path.read_text())}
    return words | {path.name for path in files} | {part for word in words for part in re.split(r"[.-]", word)}


def is_in_sources(word: str) -> bool:
    return word in words_of_sources()


def looks_like_ours(program: str) -> bool:
    return bool(re.fullmatch(r"(oar[a-z_-]*|setup/\w+|kao|sentinelle|detect_new_resources\.sh)", program))


# -- generated parts --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(generate.DOCS.rglob("*.rst")), ids=lambda path: path.name)
def test_generated_parts_are_what_the_generator_writes(path: Path) -> None:
    text = path.read_text()
    assert generate.renewed(text) == text, "run python -m docs.generate"


def test_every_part_that_can_be_generated_is_used() -> None:
    text = "".join(path.read_text() for path in generate.DOCS.rglob("*.rst"))
    assert set(generate.PARTS) == set(re.findall(r"^\.\. generated: ([\w-]+)$", text, re.MULTILINE))


def test_every_key_and_every_command_has_an_entry() -> None:
    configuration = (generate.DOCS / "configuration.rst").read_text()
    assert not [option.key for option in Config.options() if f"``{option.key}``" not in configuration]
    text = (generate.DOCS / "commands.rst").read_text()
    assert not [name for name in commands() if f"\n{name}\n{'-' * len(name)}\n" not in text]


# -- names ------------------------------------------------------------------------------------------------------------


@BY_NAME
def test_names_in_capitals_are_in_the_code(path: Path) -> None:
    names = {word for text in literals(path) for word in re.findall(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b", text)}
    assert not {name for name in names if not is_in_sources(name)}


@BY_NAME
def test_names_of_tables_and_functions_are_in_the_code(path: Path) -> None:
    names = {text for text in literals(path) if re.fullmatch(r"[a-z]+(?:_[a-z]+)+", text)}
    assert not {name for name in names if not is_in_sources(name)}


@BY_NAME
def test_names_of_classes_are_in_the_code(path: Path) -> None:
    names = {text for text in literals(path) if re.fullmatch(r"(?:[A-Z][a-z]+){2,}", text)}
    assert not {name for name in names if not is_in_sources(name)}


@BY_NAME
def test_files_of_the_sources_exist(path: Path) -> None:
    names = {text for text in literals(path) if re.fullmatch(r"(oar|setup|tests|docs|etc|bench|\.ci)/[\w./*-]*", text)}
    assert not {name for name in names if not list(SOURCE.glob(name.rstrip("/")))}


@BY_NAME
def test_installed_files_are_named_as_the_code_names_them(path: Path) -> None:
    places = re.compile(r"(?:/etc/oar|/usr(?:/local)?/lib/oar|/var/lib/oar|/run/oar|/etc/sudoers\.d|~oar)/([\w.-]+)")
    names = {name.rstrip(".") for text in [*literals(path), *typed(path)] for name in places.findall(text)}
    assert not {name for name in names if not is_in_sources(name)}


@BY_NAME
def test_links_lead_somewhere(path: Path) -> None:
    assert not [target for target in links(path) if not (path.parent / target).exists()]


# -- commands ---------------------------------------------------------------------------------------------------------


def command_lines(path: Path) -> Iterator[list[str]]:
    """Every call of a program of ours in a document, its placeholders filled."""
    for line in [*typed(path), *literals(path)]:
        if "[" in line:  # how a command may be called, not a call
            continue
        filled = re.sub(r"<[a-z ]+>", "1", line)
        try:
            found = list(programs_of(filled))
        except ValueError:  # half a quotation
            continue
        for words in found:
            rest = words[words[0] == "sudo" :] if words else []
            if rest and looks_like_ours(rest[0]):
                yield rest


@BY_NAME
def test_programs_that_are_named_exist(path: Path) -> None:
    assert not {words[0] for words in command_lines(path)} - installed() - set(OF_SOURCES) - NO_COMMANDS


@BY_NAME
def test_commands_are_called_with_options_that_they_have(path: Path) -> None:
    for name, *arguments in command_lines(path):
        command = commands().get(name)
        if command is not None and arguments:
            try:
                command.make_context(name, list(arguments))
            except click.exceptions.Exit:
                pass
            except (BadOption, click.UsageError) as error:
                if "requires an argument" not in str(error):  # the text speaks of the option alone
                    pytest.fail(f"{path.name}: {name} {' '.join(arguments)}: {error}", pytrace=False)


@BY_NAME
def test_programs_of_the_sources_are_called_with_options_that_they_have(path: Path) -> None:
    for name, *arguments in command_lines(path):
        if name in OF_SOURCES:
            text = (SOURCE / OF_SOURCES[name]).read_text()
            for word in arguments:
                if word.startswith("--"):
                    assert word.partition("=")[0].removeprefix("--") in text, f"{name} {word}"


EVERY_COMMAND = [command for style in (USER, RESERVATIONS, ADMIN) for command in generate.commands(style)]


@pytest.mark.parametrize("command", EVERY_COMMAND, ids=lambda command: command.name)
def test_each_command_has_examples_that_its_own_declaration_accepts(command: Command) -> None:
    assert command.examples
    for line in command.examples:
        name, *arguments = next(programs_of(line))
        assert name == command.name
        command.make_context(name, arguments)


@pytest.mark.parametrize("command", EVERY_COMMAND, ids=lambda command: command.name)
def test_the_help_of_a_command_ends_with_its_examples(command: Command) -> None:
    text = command.get_help(click.Context(command, info_name=command.name)).partition("\nExamples:\n")[2]
    assert not [line for line in command.examples if line not in text]


def test_each_entry_of_the_reference_of_commands_has_examples() -> None:
    entries = re.split(r"^(.+)\n-+$", (generate.DOCS / "commands.rst").read_text(), flags=re.MULTILINE)[1:]
    assert not [name for name, text in zip(entries[::2], entries[1::2], strict=True) if "\nExamples:\n\n``" not in text]


# -- what the guide says of oarsub ------------------------------------------------------------------------------------


def test_requests_of_the_guide_can_be_read() -> None:
    requests = [text.removeprefix("-l ").strip('"') for text in literals(GUIDE) if text.startswith("-l ")]
    assert len(requests) > 15
    for request in requests:
        parse_request(request, with_memory=True)


def test_dependencies_of_the_guide_can_be_read() -> None:
    forms = [text.removeprefix("-a ").strip("'") for text in literals(GUIDE) if text.startswith("-a ")]
    assert len(forms) > 5
    assert dependencies.parse(forms)


def test_exit_codes_of_oarsub_in_the_guide_are_those_of_the_code() -> None:
    text = GUIDE.read_text()
    table = text[text.index("Exit codes of ``oarsub``") : text.index("Exit codes of ``oardel``")]
    told = {int(number) for number in re.findall(r"^(\d+) ", table, re.MULTILINE)}
    of_sessions = {job_shell.NO_DIRECTORY, job_shell.TERMINATED, job_shell.BROKEN}
    assert told == {int(code) for code in Code} | of_sessions | {0, 2, 254}


def test_the_usual_way_of_a_job_is_one_that_exists() -> None:
    text = (generate.DOCS / "how-it-works.rst").read_text()
    way = re.search(r"^    (Waiting(?: --> \w+)+)$", text, re.MULTILINE)
    assert way
    states = [JobState(word) for word in way[1].split(" --> ")]
    assert all(after in JOB_MOVES[before] for before, after in pairwise(states))


# -- how examples are compared ----------------------------------------------------------------------------------------


def test_a_placeholder_stands_for_the_same_wherever_it_is() -> None:
    shown = ("OAR_JOB_ID=<job>", "Deleting the job = <job> ...REGISTERED.")
    assert matches(shown, "OAR_JOB_ID=12\nDeleting the job = 12 ...REGISTERED.\n", {}) == {"job": "12"}
    assert matches(shown, "OAR_JOB_ID=12\nDeleting the job = 13 ...REGISTERED.\n", {}) is None


def test_dots_stand_for_any_lines() -> None:
    assert matches(("a", "...", "z"), "a\nb\nc\nz\n", {}) == {}
    assert matches(("a", "..."), "a\n", {}) == {}
    assert matches(("a",), "a\nb\n", {}) is None
