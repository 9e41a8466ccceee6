"""Manual pages from the reference documents: one for each command of docs/commands.rst, oar(7) and oar.conf(5).

The documents contain the text; this module formats their few kinds of blocks. An unknown kind is an error, so that no
text gets lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile

#: Section of the manual for the commands of each chapter of docs/commands.rst.
CHAPTERS = {"For users": 1, "Advance reservations": 1, "Within jobs": 1, "For administrators": 8, "On nodes": 8}

#: What oar(7) says before it lists the commands.
_OVERVIEW = (
    "OAR is a batch scheduler for HPC clusters. Users submit jobs; OAR chooses nodes and start times, runs the jobs"
    " there, and records their end and their use of resources.",
    "``oarsub ./job.sh`` submits a job. ``oarstat`` lists the jobs, and ``oarstat --explain`` says why a job waits or"
    " how it ended. ``oardel`` deletes a job. ``oarnodes`` lists the nodes. Each command has ``--help``.",
)
#: The paragraphs of docs/commands.rst below the options of a command, each before the entries of its section.
_EXAMPLES, _STATUSES = "Examples:", "Exit status:"
_SECTIONS = (_EXAMPLES, _STATUSES, "Environment:", "Files:")
#: The chapter of docs/commands.rst with the sections that all commands have.
_COMMON = "All commands"

#: Entries by the paragraph before them.
_Sections = Mapping[str, Sequence[str]]

#: The names of a command, the section of its page, and the blocks about it.
_Entry = tuple[list[str], int, list[str]]

_HEADING = re.compile(r"^(.+)\n([=-])\2+$", re.MULTILINE)
_LITERAL = re.compile(r"``(.+?)``")
_LINK = re.compile(r"`([^`<]+?) <[^`>]+>`_")
_LIST = re.compile(r"(?<=[,:])(?=\w)")
#: The title of a group of options.
_TOPIC = re.compile(r"\*\*(.+)\*\*")
_NEW_SENTENCE = re.compile(r"(?<=[.:]) +(?=[A-Z])")
#: Characters that roff would interpret, or print as others.
_SPECIAL = {"\\": r"\e", "'": r"\(aq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti", '"': r"\(dq", "-": r"\-"}


@dataclass(frozen=True)
class Page:
    """A page of the manual."""

    name: str
    section: int
    text: str

    @property
    def path(self) -> str:
        """Path of the page below MANDIR."""
        return f"man{self.section}/{self.name}.{self.section}"


def pages(commands: str, configuration: str) -> Iterator[Page]:
    """Return all pages, from the texts of docs/commands.rst and docs/configuration.rst."""
    yield Page("oar.conf", 5, _configuration_page(configuration))
    entries = list(_entries(commands))
    common = next((_sections(blocks) for title, _, blocks in _parts(commands) if title == _COMMON), {})
    yield Page("oar", 7, _overview_page(entries))
    for names, section, body in entries:
        related = [each[0][0] for each in entries if each[1] == section and each[0] != names]
        yield Page(names[0], section, _command_page(names, section, body, related, common))
        yield from (alias(name, names[0], section) for name in names[1:])


def alias(name: str, of: str, section: int) -> Page:
    """Return the page of an alternative name of a command."""
    return Page(name, section, f".so man{section}/{of}.{section}\n")


# -- documents --------------------------------------------------------------------------------------------------------


def _parts(text: str) -> Iterator[tuple[str, str, list[str]]]:
    """Iterate over the headings of a document, with the underline character and the following blocks."""
    found = list(_HEADING.finditer(text))
    for heading, following in zip(found, [*found[1:], None], strict=True):
        yield heading[1], heading[2], list(_blocks(text[heading.end() : following.start() if following else None]))


def _blocks(text: str) -> Iterator[str]:
    """Return the blocks between blank lines, without directives and comments."""
    return (block for each in re.split(r"\n\n+", text) if (block := each.strip("\n")) and not block.startswith(".. "))


def _entries(commands: str) -> Iterator[_Entry]:
    section = 0
    for title, underline, blocks in _parts(commands):
        if underline == "-":
            yield title.split(", "), section, blocks
        elif title in CHAPTERS:
            section = CHAPTERS[title]


# -- pages ------------------------------------------------------------------------------------------------------------


def _configuration_page(text: str) -> str:
    (_, _, introduction), *groups = _parts(text)
    parts = [
        _begin("oar.conf", 5, ["oar.conf"], "the configuration of OAR"),
        *_chapter("description", introduction),
        *(line for title, _, blocks in groups for line in _chapter(title, blocks)),
    ]
    return "".join(parts)


def _overview_page(entries: Sequence[_Entry]) -> str:
    parts = [
        _begin("oar", 7, ["oar"], "a batch scheduler for HPC clusters"),
        *_chapter("description", _OVERVIEW),
        *_chapter("commands for users", [_overview_entry(entry) for entry in entries if entry[1] == 1]),
        *_chapter("commands for administrators", [_overview_entry(entry) for entry in entries if entry[1] == 8]),
        _title("files"),
        ".TP\n.I /etc/oar/oar.conf\nThe configuration:\n.BR oar.conf (5).\n",
        ".TP\n.I ~/.oarsubrc\nOptions of your submissions, one on each line.\n",
        _title("see also"),
        ".BR oarsub (1),\n.BR oarstat (1),\n.BR oardel (1),\n.BR oarnodes (1),\n.BR oar.conf (5)\n",
    ]
    return "".join(parts)


def _overview_entry(entry: _Entry) -> str:
    names, _, blocks = entry
    return f"``{names[0]}``\n    {_summary(blocks)}."


def _summary(blocks: Sequence[str]) -> str:
    """Return the first sentence about a command, without its full stop."""
    usage_and_text = [block for block in blocks if not _is_entry(block)]
    text = usage_and_text[1] if re.fullmatch(_LITERAL, usage_and_text[0]) else usage_and_text[0]
    return _NEW_SENTENCE.split(" ".join(text.split()))[0].rstrip(".")


def _sections(blocks: Sequence[str]) -> _Sections:
    starts = [*(number for number, block in enumerate(blocks) if block in _SECTIONS), len(blocks)]
    return {blocks[start]: blocks[start + 1 : end] for start, end in pairwise(starts)}


def _merged(own: _Sections, common: _Sections) -> _Sections:
    """Return the sections of a command with the common entries that it does not replace; statuses are sorted."""
    merged: dict[str, Sequence[str]] = {}
    for title in _SECTIONS:
        entries = {entry.partition("\n")[0]: entry for entry in (*common.get(title, ()), *own.get(title, ()))}
        names = sorted(entries, key=lambda name: int(name.strip("`"))) if title == _STATUSES else entries
        merged[title] = [entries[name] for name in names]
    return merged


def _command_page(
    names: Sequence[str], section: int, blocks: Sequence[str], related: Sequence[str], common: _Sections
) -> str:
    own = _sections(blocks)
    sections = _merged(own, common) if _EXAMPLES in own else own
    blocks = list(takewhile(lambda block: block not in _SECTIONS, blocks))
    usage = [block for block in blocks[:1] if re.fullmatch(_LITERAL, block)]
    said = [block for block in blocks[len(usage) :] if not (_is_entry(block) or _TOPIC.fullmatch(block))]
    options = [block for block in blocks if _is_entry(block) or _TOPIC.fullmatch(block)]
    summary = _summary(blocks)
    others = [f".BR {_plain(name)} ({section})" for name in sorted(related)]
    others.append(".BR oar.conf (5)")
    parts = [
        _begin(names[0], section, names, summary[:1].lower() + summary[1:]),
        *_chapter("synopsis", usage),
        *_chapter("description", said),
        *_chapter("options", options),
        *(line for title, entries in sections.items() for line in _chapter(title.rstrip(":"), entries)),
        _title("see also"),
        " ,\n".join(others) + "\n",
    ]
    return "".join(parts)


def _begin(page: str, section: int, names: Sequence[str], summary: str) -> str:
    title = f'.TH "{_plain(page.upper())}" {section} "" "OAR" "OAR"\n.nh\n.ad l\n'
    return f"{title}{_title('name')}{_plain(', '.join(names))} \\- {_line(summary)}\n"


def _chapter(title: str, blocks: Sequence[str]) -> Iterator[str]:
    if blocks:
        yield _title(title)
        yield from (_block(block, is_first=number == 0) for number, block in enumerate(blocks))


def _title(text: str) -> str:
    return f'.SH "{_plain(text.upper())}"\n'


def _is_entry(block: str) -> bool:
    return "\n    " in block and not block.startswith(" ")


def _block(block: str, *, is_first: bool) -> str:
    """Return a paragraph, or an entry of a list of definitions."""
    lines = block.split("\n")
    if topic := _TOPIC.fullmatch(block):
        return f'.SS "{_plain(topic[1])}"\n'
    if _is_entry(block) and all(line.startswith("    ") for line in lines[1:]):
        return f".TP\n{_guarded(_LITERAL.sub(_option, lines[0]))}\n{_paragraph(lines[1:])}"
    if any(line.startswith(" ") for line in lines):
        raise ValueError(f"no manual page has a form for:\n{block}")
    return ("" if is_first else ".PP\n") + _paragraph(lines)


def _option(match: re.Match[str]) -> str:
    """Return an option with its argument, a key, or the command line of an example."""
    if not match[1].startswith("-"):
        return _code(match[1])
    name, blank, value = match[1].partition(" ")
    return rf"\fB{_plain(name)}\fR{blank}" + (rf"\fI{_plain(value)}\fR" if value else "")


def _paragraph(lines: Sequence[str]) -> str:
    text = " ".join(line.strip() for line in lines)
    return "".join(f"{_guarded(_line(each))}\n" for each in _NEW_SENTENCE.split(text))


def _line(text: str) -> str:
    """Return prose: links as their text, code in bold."""
    pieces = _LITERAL.split(_LINK.sub(r"\1", text))
    return "".join(_code(each) if number % 2 else _prose(each) for number, each in enumerate(pieces))


def _code(text: str) -> str:
    """Return code; long code may break within a list."""
    broken = _LIST.sub(r"\\:", _plain(text))
    return rf"\fB{broken}\fR"


def _plain(text: str) -> str:
    """Return a text without formatting."""
    return "".join(_SPECIAL.get(each, each) for each in text)


def _prose(text: str) -> str:
    return "".join(each if each == "-" else _SPECIAL.get(each, each) for each in text)


def _guarded(line: str) -> str:
    """Return a line that roff does not interpret as a request."""
    return rf"\&{line}" if line.startswith(".") else line
