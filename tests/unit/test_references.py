"""What the sources refer to is in the repository: documents, their sections, files, modules."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.documents import SOURCE, titles
from tests.unit.sources import modules

#: Where an installation has the documents.
INSTALLED = "usr/local/share/doc/oar/"
TOPS = ("oar", "setup", "tests", "bench", "docs", "etc")

_DOCUMENT = r"(?<![\w/.{*])(?:[\w-]+/|\.\./)*[\w-]+\.(?:rst|md)\b(?!\.)"
#: A document with a section or two: the one form of a reference to a section.
_SECTION = re.compile(rf'({_DOCUMENT}),\s("[^"]+"(?: and "[^"]+")*)')
_LINE_BREAK = re.compile(r"\n[ \t]*(?:#:? ?)?")
#: A file of the sources, or a module, set as code.
_FILE = re.compile(r"``((?:oar|setup|tests|docs|etc|bench)/[\w./*-]*)``")
_MODULE = re.compile(r"``(oar(?:\.[a-z_0-9]+)+)")


@cache
def texts() -> dict[Path, str]:
    """Every text of the repository, its broken lines joined."""
    files = [path for top in TOPS for path in sorted((SOURCE / top).rglob("*")) if path.is_file()]
    files += [*sorted(SOURCE.glob("*.md")), SOURCE / "Makefile", SOURCE / "pyproject.toml"]
    ours = [path for path in files if path.suffix not in (".pyc", ".png") and path != Path(__file__)]
    return {path: _LINE_BREAK.sub(" ", path.read_text(encoding="utf-8")) for path in ours}


def document(path: Path, name: str) -> Path | None:
    """The document that a file names: by its way from the top or from the file, or by its name alone."""
    name = name.removeprefix(INSTALLED)
    places = [SOURCE / name, path.parent / name]
    if "/" not in name:
        places += [SOURCE / "docs" / name, SOURCE / "docs" / "design" / name]
    return next((place for place in places if place.is_file()), None)


def test_pictures_that_are_shown_are_there_and_each_is_shown() -> None:
    shown = {
        path.parent / name
        for path, text in texts().items()
        if path.suffix == ".rst"
        for name in re.findall(r"\.\. (?:image|figure):: (\S+\.png)", text)
    }
    assert {path.relative_to(SOURCE) for path in shown} == {
        path.relative_to(SOURCE) for path in (SOURCE / "docs").rglob("*.png")
    }


def references() -> Iterator[tuple[Path, str, str]]:
    """Every reference to a section: where it stands, the document, the title."""
    for path, text in texts().items():
        for name, sections in _SECTION.findall(text):
            yield from ((path, name, title) for title in re.findall(r'"([^"]+)"', sections))


def test_documents_that_are_named_are_in_the_repository() -> None:
    assert not [
        f"{path.relative_to(SOURCE)}: {name}"
        for path, text in texts().items()
        for name in re.findall(_DOCUMENT, text)
        if document(path, name) is None
    ]


def test_sections_that_are_named_are_in_their_document() -> None:
    broken = []
    for path, name, title in references():
        target = document(path, name)
        if target is None or title not in titles(target):
            broken.append(f"{path.relative_to(SOURCE)}: {name}, {title}")
    assert not broken


@pytest.mark.parametrize("top", TOPS)
def test_files_that_are_named_in_the_code_exist(top: str) -> None:
    named = {name for path, text in texts().items() if SOURCE / top in path.parents for name in _FILE.findall(text)}
    assert not {name for name in named if not list(SOURCE.glob(name.rstrip("/")))}


def test_modules_that_are_named_in_the_code_exist() -> None:
    entry_points = {"oar.jobs_sorting_func", "oar.find_func", "oar.assign_func", "oar.extra_metasched_func"}
    named = {name for text in texts().values() for name in _MODULE.findall(text)} - entry_points
    assert not {name for name in named if name not in modules() and name.rpartition(".")[0] not in modules()}
