"""Writes the generated parts of the documentation: ``python -m docs.generate``.

A generated part is between two comments, ``.. generated: NAME`` and ``.. end of generated``; the rest is written by
hand.  ``tests/unit/test_docs.py`` fails if a part differs from the output of this program.
"""

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from textwrap import wrap
from typing import TypeGuard

import click

from docs import manual_sections
from oar.cli.common.command import Command
from oar.cli.common.options import ADMIN, RESERVATIONS, USER, Style
from oar.lib.config.files import GROUPS
from oar.lib.config.keys import UNREAD, Config
from oar.lib.config.kinds import Key
from oar.lib.db.schema import TABLES
from oar.lib.history.event_consequences import CONSEQUENCES, EXEC_EVENTS, Consequence, ResubmitRule, Suspects
from oar.lib.jobs.ends import EndCode, ExecCode
from oar.lib.jobs.fields import FIELDS
from oar.lib.jobs.reasons import ReasonCode
from oar.lib.jobs.states import FINAL, JOB_MOVES, STATE_LETTERS, JobState
from oar.lib.nodes.states import ResourceState
from oar.modules.automaton import LANES, MODULE_OF_TAG, NEXT_MODULES

DOCS = Path(__file__).resolve().parent
SOURCE = DOCS.parent

_PART = re.compile(r"(?<=^\.\. generated: )([\w-]+)\n\n.*?(?=^\.\. end of generated$)", re.MULTILINE | re.DOTALL)
_MEANING = re.compile(r"^    (\w+) = [^#\n]*#: (.*)$", re.MULTILINE)


# -- texts ------------------------------------------------------------------------------------------------------------


def code(text: str) -> str:
    """Return a text formatted as code."""
    return f"``{text}``"


def definition(term: str, *lines: str) -> str:
    """Return an entry of a list of definitions."""
    return f"{term}\n" + "".join(f"    {line}\n" for line in lines if line) + "\n"


def title(text: str, underline: str) -> str:
    """Return a heading."""
    return f"{text}\n{underline * len(text)}\n\n"


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Return a table with one line for each row."""
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    rule = "  ".join("=" * width for width in widths)

    def line(row: tuple[str, ...]) -> str:
        return "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()

    return "\n".join([rule, line(head), rule, *map(line, rows), rule]) + "\n\n"


def block(text: str) -> str:
    """Return a literal block."""
    return "::\n\n" + "".join(f"    {line}".rstrip() + "\n" for line in text.splitlines()) + "\n"


def meanings(enumeration: type[Enum]) -> Mapping[str, str]:
    """Return the meaning of each member: its attribute ``meaning``, else the comment in the source."""
    declared = {member.name: str(member.meaning) for member in enumeration if hasattr(member, "meaning")}
    return declared or dict(_MEANING.findall(inspect.getsource(enumeration)))


# -- oar.conf ---------------------------------------------------------------------------------------------------------


def keys() -> str:
    """Return every key of oar.conf in its group; unused keys at the end."""
    fixed = [option for option in Config.options() if option.fixed]
    unused = UNREAD | {option.name for option in fixed}
    parts, heading = [], ""
    for option in Config.options():
        if option.name in GROUPS:
            heading = title(GROUPS[option.name], "-")
        if option.name not in unused:
            parts.append(heading + _key(option))
            heading = ""
    names = [code(option.key) for option in Config.options() if option.name in UNREAD]
    if names:
        parts.append(title("Keys of later releases", "-"))
        parts.append(
            "These keys are accepted, and their values are checked. Nothing in this release uses them.\n"
            "``oar-conf --check`` names those that a file sets.\n\n"
        )
        parts.append("\n".join([*(f"{name}," for name in names[:-1]), f"{names[-1]}."]) + "\n\n")
    parts.append(title("Keys without effect", "-"))
    parts.append(
        "These keys of OAR 2 and OAR 3 are accepted, so that a file of theirs can be read. They have no effect, and\n"
        "need none: why is said here, and by ``oar-conf --check`` of those that a file sets to another value.\n\n"
    )
    parts.extend(definition(code(option.key), option.doc) for option in fixed)
    return "".join(parts)


def _key(option: "Key[object]") -> str:
    value = option.text(option.default) if option.shipped is None else option.shipped
    default = f"Default: {code(value)}." if value else "Default: none."
    if option.shipped is not None:
        bare = option.text(option.default)
        default = f"The sample file sets {code(value)}; without the key: {code(bare) if bare else 'none'}."
    older = f"Older names: {', '.join(map(code, option.aliases))}." if option.aliases else ""
    return definition(code(option.key), option.doc, f"Value: {option.kind.name}. {default}", older)


# -- commands ---------------------------------------------------------------------------------------------------------


def commands(style: Style) -> Iterator[Command]:
    """Return every command of a family by name."""
    for path in sorted((SOURCE / "oar" / "cli").glob("*.py")):
        if "@oar_command(" in path.read_text():
            main = importlib.import_module(f"oar.cli.{path.stem}").main
            if main.style is style:
                yield main


def _commands(style: Style) -> str:
    return "".join(map(_command, commands(style)))


def _command(command: Command) -> str:
    name = command.name or ""
    context = click.Context(command, **command.context_settings)
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    topics = command.options_by_topic(context)
    parts = [title(name, "-"), f"{code(usage)}\n\n", inspect.cleandoc(command.help or "") + "\n\n"]
    examples = [definition(code(line), effect) for line, effect in command.examples.items()]
    for topic, options in topics.items():
        parts += [f"**{topic}**\n\n"] if len(topics) > 1 else []
        parts += map(_option, options)
    parts += ["Examples:\n\n", *examples]
    return "".join(parts) + _sections(manual_sections.sections(command))


def _sections(sections: Mapping[str, manual_sections.Texts]) -> str:
    parts: list[str] = []
    for heading, texts in sections.items():
        parts += [f"{heading}:\n\n", *(definition(code(name), text) for name, text in texts.items())]
    return "".join(parts)


def common_sections() -> str:
    """Return the exit statuses, variables and files of all commands."""
    return _sections(manual_sections.COMMON)


def _option(option: click.Option) -> str:
    metavar = "" if option.is_flag or option.count else f" {option.metavar or option.type.name.upper()}"
    return definition(", ".join(code(name + metavar) for name in option.opts), option.help or "")


def _tool(name: str) -> str:
    """Return the options of a program for nodes, which declares them in its usage text."""
    tree = ast.parse((SOURCE / "oar" / "tools" / name).read_text())
    usage: str = next(ast.literal_eval(node.value) for node in tree.body if _names_usage(node))
    options = re.findall(r"^  (-.+?)  +(.+)$", usage, re.MULTILINE)
    return "".join(definition(code(option), _sentence(said)) for option, said in options)


def _names_usage(node: ast.stmt) -> TypeGuard[ast.Assign]:
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "USAGE"


# -- states -----------------------------------------------------------------------------------------------------------


def job_states() -> str:
    """Return each state of a job with its letter and its meaning."""
    said = meanings(JobState)
    rows = [(code(state), STATE_LETTERS[state], _sentence(said[state.name])) for state in JobState]
    return table(("state", "letter", "meaning"), rows)


def job_moves() -> str:
    """Return a diagram of the transitions between states."""
    lines = []
    for state, targets in JOB_MOVES.items():
        following = [each for each in JobState if each in targets]
        if state in FINAL:
            lines.append(f"{state}  (final)")
        for number, target in enumerate(following):
            lines.append(f"{state:<16} --+-->  {target}" if number == 0 else f"{'':<19}+-->  {target}")
        lines.append("")
    return block("\n".join(lines[:-1]))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].removesuffix(" (final)") + ("; final." if text.endswith("(final)") else ".")


# -- consequences -----------------------------------------------------------------------------------------------------

_BLAMED = {
    Suspects.NOBODY: "",
    Suspects.HOSTS: "the nodes it names",
    Suspects.HEAD: "the first node",
    Suspects.ALL: "all nodes of the job",
    Suspects.ALL_UNCONFINED: "all nodes, if nothing cleans them",
}
_AGAIN = {
    ResubmitRule.NEVER: "",
    ResubmitRule.ALWAYS: "yes",
    ResubmitRule.ONCE: "once",
    ResubmitRule.IF_IDEMPOTENT: "if idempotent",
    ResubmitRule.IF_NOT_STARTED: "if not started, or idempotent",
}


def consequences() -> str:
    """Return the effects of each event on its job and on nodes."""
    head = ("event", "job becomes", "nodes suspected", "submitted again", "suspicion ends by")
    return table(head, [_consequence(event, consequence) for event, consequence in CONSEQUENCES.items()])


def _consequence(event: str, consequence: Consequence) -> tuple[str, ...]:
    state = consequence.state or "-"
    blamed, again = _BLAMED[consequence.suspects] or "-", _AGAIN[consequence.resubmit] or "-"
    return code(event), state, blamed, again, _end_of_suspicion(consequence)


def _end_of_suspicion(consequence: Consequence) -> str:
    """Return the condition that makes suspected nodes Alive again."""
    if consequence.suspects is Suspects.NOBODY:
        return "-"
    if consequence.check:
        return f"the check ``{consequence.check}``"
    return "an answer" if consequence.by_finaud else "an administrator"


def exec_codes() -> str:
    """Return the names of a job's ends on its node, and the events that follow."""
    said = meanings(ExecCode)
    rows = []
    for number in ExecCode:
        events = ", ".join(map(code, EXEC_EVENTS.get(number, ())))
        meaning = said.get(number.name, number.name.lower().replace("_", " "))
        rows.append((str(int(number)), meaning, events or "-"))
    return table(("code", "meaning", "events"), rows)


def _codes(head: str, enumeration: type[Enum]) -> str:
    """Return each member of an enumeration with its meaning."""
    said = meanings(enumeration)
    return table((head, "meaning"), [(code(each.value), _sentence(said[each.name])) for each in enumeration])


def reason_data() -> str:
    """The fields of the data of each reason."""
    return "".join(definition(code(reason), *textwrap.wrap(reason.data, 114)) for reason in ReasonCode)


def tags() -> str:
    """Return the module that each tag requests."""
    modules = {tag: module for tag, module in MODULE_OF_TAG.items() if module is not None}
    rows = [(code(tag), code(module), str(LANES[module])) for tag, module in modules.items()]
    return table(("tag", "module", "lane"), rows)


def module_codes() -> str:
    """Return the reaction to each exit code of a module."""
    rows = [
        (code(module), str(int(number)), ", ".join(map(code, following)) or "-")
        for (module, number), following in NEXT_MODULES.items()
    ]
    return table(("module", "exit code", "then"), rows)


def job_fields() -> str:
    """Return the fields of a job and their keys in each format."""
    rows = [
        (
            field.meaning,
            ", ".join(map(code, field.records)),
            code(field.text) if field.text else "",
            code(field.v1) if field.v1 else "",
            ", ".join(map(code, field.legacy)),
        )
        for field in FIELDS
        if field.meaning
    ]
    return table(("field", "``oarstat -J``", "``oarstat -f``", "``/v1``", "``/oarapi``"), rows)


# -- database ---------------------------------------------------------------------------------------------------------


def database_tables() -> str:
    """The tables of the database and their contents."""
    return "".join(definition(code(table.name), *wrap(table.comment or "", 110)) for table in TABLES)


# -- the files --------------------------------------------------------------------------------------------------------

PARTS: Mapping[str, Callable[[], str]] = {
    "keys": keys,
    "common-sections": common_sections,
    "user-commands": lambda: _commands(USER),
    "reservation-commands": lambda: _commands(RESERVATIONS),
    "administrator-commands": lambda: _commands(ADMIN),
    "oarprint": lambda: _tool("oarprint"),
    "oarrun": lambda: _tool("oarrun"),
    "oar-launch": lambda: _tool("oar-launch"),
    "oar-agent": lambda: _tool("oar_agent.py"),
    "job-states": job_states,
    "job-moves": job_moves,
    "resource-states": lambda: _codes("state", ResourceState),
    "consequences": consequences,
    "exec-codes": exec_codes,
    "end-codes": lambda: _codes("cause", EndCode),
    "reason-codes": lambda: _codes("code", ReasonCode),
    "reason-data": reason_data,
    "tags": tags,
    "module-codes": module_codes,
    "job-fields": job_fields,
    "database-tables": database_tables,
}


def renewed(text: str) -> str:
    """Return a file with its generated parts renewed."""
    return _PART.sub(lambda match: f"{match[1]}\n\n{PARTS[match[1]]()}", text)


def interface() -> str:
    """Return the OpenAPI document of the REST API."""
    import json

    from oar.api.application import all_routes
    from oar.api.openapi import document

    return json.dumps(document(all_routes().all), indent=1, sort_keys=True) + "\n"


def main() -> None:
    """Update all files."""
    (DOCS / "openapi.json").write_text(interface())
    for path in sorted(DOCS.rglob("*.rst")):
        text = path.read_text()
        if (new := renewed(text)) != text:
            path.write_text(new)


if __name__ == "__main__":
    main()
