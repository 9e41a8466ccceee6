"""The documentation as tests read it: what stands in it as code, and the examples that can be run."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1]
DOCUMENTS = (
    *sorted((SOURCE / "docs").rglob("*.rst")),
    *(SOURCE / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG")),
)

_PROMPT = re.compile(r"(?:([\w@-]+)([$#])|\$) (.+)")
#: Placeholders that stand for something of a form.
_FORMS = {
    "date": r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d",
    "us_date": r"\d\d/\d\d/\d{4} \d\d:\d\d:\d\d",
    "duration": r"\d+:\d+:\d+",
}
_PLACEHOLDER = re.compile(r"<([a-z_]+)>")
_NEW_JOB = re.compile(r"OAR_JOB_ID=<([a-z_]+)>")
_TESTED = re.compile(r"\.\. tested: (.+)")
_UNDERLINE = re.compile(r"([-~=])\1+")


@dataclass(frozen=True)
class Command:
    """A command of an example, and what the document shows that it prints."""

    line: str
    output: tuple[str, ...]
    user: str = "alice"  #: who types it: the name of the prompt; root, if the prompt ends with #


@dataclass(frozen=True)
class Section:
    """The running examples below one heading: they follow each other."""

    document: str
    title: str
    commands: tuple[Command, ...]

    def __str__(self) -> str:
        """Its name among tests."""
        return f"{self.document}: {self.title}"


# -- what stands in a document ----------------------------------------------------------------------------------------


def literals(path: Path) -> Iterator[str]:
    """Every piece of text that is set as code within a sentence."""
    text = path.read_text()
    if path.suffix == ".md":
        prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
        return (match.replace("\n", " ") for match in re.findall(r"`([^`]+)`", prose))
    return (" ".join(match.split()) for match in re.findall(r"``(.+?)``", text, re.DOTALL))


def typed(path: Path) -> Iterator[str]:
    """Every command that the blocks of a document show at a prompt, joined with its further lines."""
    for _, lines in blocks(path):
        for command in _commands(lines):
            yield command.line


def links(path: Path) -> Iterator[str]:
    """Every file that a document refers the reader to."""
    pattern = r"\]\(([^)#]+)[^)]*\)" if path.suffix == ".md" else r"<([\w./-]+\.(?:rst|md))>`_"
    return (target for target in re.findall(pattern, path.read_text()) if "://" not in target)


def titles(path: Path) -> set[str]:
    """Every heading of a document."""
    lines = path.read_text().split("\n")
    if path.suffix == ".md":
        return {line.lstrip("#").strip() for line in lines if line.startswith("#")}
    return {title for title, line in pairwise(lines) if _is_underline(title, line)}


def _is_underline(title: str, line: str) -> bool:
    return bool(title) and bool(_UNDERLINE.fullmatch(line)) and len(line) == len(title)


def blocks(path: Path) -> Iterator[tuple[bool, list[str]]]:
    """Every block of text that is shown letter for letter, and whether it is marked as one that runs."""
    return ((runs, lines) for _, runs, lines in _blocks(path))


def named_blocks(path: Path) -> dict[str, str]:
    """Every block of a document that a test of its own looks at, by the name that is given to it before the block."""
    found: dict[str, str] = {}
    lines = path.read_text().split("\n")
    for number, line in enumerate(lines):
        if match := _TESTED.fullmatch(line.strip()):
            block, inside = _indented(lines[number + 1 :]), line[: -len(line.lstrip())]  # of an item of a list
            found[match[1]] = "\n".join(text.removeprefix(inside) for text in next(block)[2]).strip("\n") + "\n"
    return found


def _blocks(path: Path) -> Iterator[tuple[str, bool, list[str]]]:
    """The same with the heading above."""
    lines = path.read_text().split("\n")
    return _fenced(lines) if path.suffix == ".md" else _indented(lines)


def _fenced(lines: list[str]) -> Iterator[tuple[str, bool, list[str]]]:
    heading, start = "", None
    for number, line in enumerate(lines):
        if start is None and line.startswith("#"):
            heading = line.strip("# ")
        if not line.startswith("```"):
            continue
        if start is None:
            start = number
        else:
            yield heading, "<!-- runs -->" in lines[max(0, start - 2) : start], lines[start + 1 : number]
            start = None


def _indented(lines: list[str]) -> Iterator[tuple[str, bool, list[str]]]:
    heading = ""
    for number, line in enumerate(lines):
        if number and _is_underline(lines[number - 1], line):
            heading = lines[number - 1]
        if line.rstrip().endswith("::") and not line.startswith(".."):
            end = number + 1
            while end < len(lines) and (not lines[end] or lines[end].startswith("    ")):
                end += 1
            yield (
                heading,
                ".. runs" in lines[max(0, number - 2) : number],
                [each[4:] for each in lines[number + 1 : end]],
            )


# -- examples ---------------------------------------------------------------------------------------------------------


def sections(path: Path) -> list[Section]:
    """The examples of a document that are marked as running, by section."""
    found: dict[str, list[Command]] = {}
    for heading, runs, lines in _blocks(path):
        if runs:
            found.setdefault(heading, []).extend(_commands(lines))
    return [Section(path.stem, heading, tuple(commands)) for heading, commands in found.items()]


def _commands(lines: list[str]) -> list[Command]:
    found: list[Command] = []
    for line in "\n".join(lines).strip("\n").split("\n"):
        if match := _PROMPT.match(line):
            found.append(Command(match[3], (), "root" if match[2] == "#" else match[1] or "alice"))
        elif found and line.startswith("> ") and not found[-1].output:
            found[-1] = replace(found[-1], line=f"{found[-1].line}\n{line[2:]}")
        elif found:
            found[-1] = replace(found[-1], output=(*found[-1].output, line))
    return found


def filled(text: str, known: dict[str, str]) -> str:
    """Put what is known in the place of ``<name>``."""
    return _PLACEHOLDER.sub(lambda match: known.get(match[1], match[0]), text)


def matches(shown: tuple[str, ...], printed: str, known: dict[str, str]) -> dict[str, str] | None:
    """Return what the placeholders stand for if this was printed, None if it was not.

    Blanks may differ in number; a line ``...`` stands for any lines; the number of a new job is bound anew.
    """
    known = {name: text for name, text in known.items() if name not in _NEW_JOB.findall("\n".join(shown))}
    pattern, names = "", set[str]()
    for line in shown:
        if line.strip() == "...":
            pattern += r"(?:.*\n)*"
            continue
        pattern += _line_pattern(line.rstrip(), known, names) + r"[ ]*\n"
    match = re.fullmatch(pattern, printed if printed.endswith("\n") or not printed else printed + "\n")
    return known | match.groupdict() if match else None


def _line_pattern(line: str, known: dict[str, str], names: set[str]) -> str:
    parts = []
    for piece in re.split(r"(<[a-z_]+>|\s+)", line):
        name = piece[1:-1] if _PLACEHOLDER.fullmatch(piece) else ""
        if name in _FORMS:
            parts.append(_FORMS[name])
        elif name in known:
            parts.append(re.escape(known[name]))
        elif name in names:
            parts.append(f"(?P={name})")
        elif name:
            names.add(name)
            parts.append(rf"(?P<{name}>[\w.-]+)")
        else:
            parts.append(r"[ ]+" if piece.isspace() else re.escape(piece))
    return "".join(parts)


# -- commands ---------------------------------------------------------------------------------------------------------


def programs_of(line: str) -> Iterator[list[str]]:
    """The words of each program that a shell would start for a line, as far as they can be told without running it."""
    lexer = shlex.shlex(line.partition("\n")[0], posix=True, punctuation_chars="|;&<>")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in lexer:
        if word and set(word) <= set("|;&<>"):
            yield words
            words = []
        else:
            words.append(word)
    yield words
