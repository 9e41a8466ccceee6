"""The files of the pages: every word in every language, colours that everybody can tell apart, budgets."""

import gzip
import itertools
import json
import math
import re
from collections.abc import Iterable, Iterator

import pytest

from oar.api.resource_states import LETTERS
from oar.lib.jobs.reasons import ReasonCode, WaitStage
from oar.lib.jobs.states import STATE_LETTERS, JobState
from oar.web.assets import DIRECTORY, Assets
from oar.web.documents import LANGUAGES, MENU, POLICY, Words, preferred

SCRIPTS = sorted(DIRECTORY.rglob("*.js"))
TEMPLATES = sorted((DIRECTORY.parent / "templates").glob("*.html"))
STYLE = (DIRECTORY / "style.css").read_text()
#: Scripts that documents and other scripts name by their addresses.
SERVED = (
    *(f"pages/{path.name}" for path in sorted((DIRECTORY / "js" / "pages").glob("*.js"))),
    *("theme.js", "stream-worker.js", "gantt/first.js", "gantt/worker.js"),
)
#: Bytes of scripts that a page may load, packed; of everything.
MOST_SCRIPT, MOST_IN_ALL = 60_000, 120_000


def texts(language: str) -> dict[str, str]:
    found: dict[str, str] = json.loads((DIRECTORY / "i18n" / f"{language}.json").read_text())
    return found


def used_keys() -> set[str]:
    """Every key that a script or a template names."""
    keys = {key for path in (*SCRIPTS, *TEMPLATES) for key in re.findall(r'\bt\("([^"~]+)"[,)]', path.read_text())}
    for path in TEMPLATES:
        for loop, body in re.findall(r"for name in (\(.*?\)|menu) %\}(.*?)\{% endfor", path.read_text(), re.DOTALL):
            names = re.findall(r'"(\w+)"', loop) or MENU
            keys |= {f"{family}.{name}" for family in re.findall(r't\("(\w+)\." ~ name', body) for name in names}
    return keys


def test_every_word_that_is_used_is_there_and_no_other() -> None:
    assert set(texts("en")) == used_keys()


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_has_every_word_with_the_same_values(language: str) -> None:
    english, translated = texts("en"), texts(language)
    assert set(translated) == set(english)
    values = {key: set(re.findall(r"\{(\w+)\}", text)) for key, text in english.items()}
    assert {key: set(re.findall(r"\{(\w+)\}", text)) for key, text in translated.items()} == values
    assert [key for key, text in translated.items() if "|" in text and "n" not in values[key]] == []


def test_a_number_chooses_its_half_of_a_text() -> None:
    english, french = Words("en"), Words("fr")
    assert [english("jobs.count", n=n) for n in (0, 1, 2)] == ["0 jobs", "1 job", "2 jobs"]
    assert [french("jobs.count", n=n) for n in (0, 1, 2)] == ["1 job", "1 job", "2 jobs"]


@pytest.mark.parametrize(
    ("asked", "accepted", "language"),
    [
        (None, "", "en"),
        (None, "fr-CA,fr;q=0.8", "fr"),
        (None, "de, en;q=0.3, fr;q=0.7", "fr"),
        (None, "fr;q=0, en", "en"),
        ("en", "fr", "en"),
        ("xx", "fr;q=abc", "en"),
        (None, ";;q=,,", "en"),
    ],
)
def test_the_language_is_what_is_asked_or_preferred(asked: str | None, accepted: str, language: str) -> None:
    assert preferred(asked, accepted) == language


def test_letters_of_states_are_those_of_oarstat() -> None:
    text = (DIRECTORY / "js" / "common" / "parts.js").read_text()
    (table,) = re.findall(r"LETTERS = \{(.*?)\};", text, re.DOTALL)
    assert dict(re.findall(r'(\w+): "(\w)"', table)) == {str(state): letter for state, letter in STATE_LETTERS.items()}


def test_letters_of_conditions_are_explained() -> None:
    """The help shows those that the grid has."""
    (table,) = re.findall(r"MARKS = \{(.*?)\};", (DIRECTORY / "js" / "common" / "parts.js").read_text())
    marks = dict(re.findall(r'(\w+): "(.*?)"', table))
    shown = (DIRECTORY.parent / "templates" / "help.html").read_text()
    assert dict(re.findall(r'"(\w+)": "(.)"', shown)) == {n: m for n, m in marks.items() if m}


def test_each_state_has_its_word() -> None:
    text = (DIRECTORY / "js" / "common" / "parts.js").read_text()
    (table,) = re.findall(r"STATE_WORDS = \{(.*?)\};", text, re.DOTALL)
    assert set(re.findall(r'(\w+): t\("state\.\1"\)', table)) == set(JobState)
    assert {texts("en")[f"state.{state}"] for state in JobState} == set(JobState)


def test_each_reason_for_which_jobs_wait_has_its_word() -> None:
    text = (DIRECTORY / "js" / "common" / "waited.js").read_text()
    (table,) = re.findall(r"WAITED = \{(.*?)\};", text, re.DOTALL)
    assert set(re.findall(r'(\w+): t\("waited\.\1"\)', table)) == {str(code) for code in (*ReasonCode, *WaitStage)}


# -- what a page may do ---------------------------------------------------------------------------------------------


def test_scripts_make_nothing_of_texts() -> None:
    """Values become text nodes: no script writes markup, runs a text, or calls another host."""
    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|DOMParser|https?://(?!www\.w3\.org/2000/svg)"
    assert [(path.name, found) for path in SCRIPTS for found in re.findall(forbidden, path.read_text())] == []


def test_documents_hold_no_script_and_no_style() -> None:
    for path in TEMPLATES:
        text = path.read_text()
        assert not re.search(r"<script(?![^>]* src=)|<style|\son\w+=|\sstyle=|\| *safe|autoescape", text), path.name
    assert "unsafe" not in POLICY


def test_scripts_import_what_is_there_by_relative_path() -> None:
    for path in SCRIPTS:
        for name in re.findall(r'(?:from|import) "([^"]+)"', path.read_text()):
            assert name.startswith("."), (path.name, name)
            assert (path.parent / name).resolve() in SCRIPTS, (path.name, name)


@pytest.fixture(scope="module")
def assets() -> Assets:
    """All files, packed."""
    return Assets()


def packed_size(assets: Assets, names: Iterable[str]) -> int:
    return sum(len(file.packed) for name in names if (file := assets.find(name)))


@pytest.mark.parametrize("page", sorted(path.name for path in (DIRECTORY / "js" / "pages").glob("*.js")))
def test_a_page_is_small(assets: Assets, page: str) -> None:
    scripts = {f"js/pages/{page}", "js/theme.js", "js/stream-worker.js"}
    if page == "gantt.js":
        scripts |= {"js/gantt/first.js", "js/gantt/worker.js"}
    assert packed_size(assets, scripts) <= MOST_SCRIPT
    assert packed_size(assets, {*scripts, "style.css", "icon.svg", "i18n/fr.json"}) <= MOST_IN_ALL


def test_only_scripts_that_are_named_are_served_each_with_all_that_it_imports(assets: Assets) -> None:
    texts = {f"js/{name}": found.content.decode() for name in SERVED if (found := assets.find(f"js/{name}"))}
    assert set(texts) == {f"js/{name}" for name in SERVED}
    assert assets.find("js/common/dom.js") is None
    assert [name for name, text in texts.items() if re.search(r"^import\b", text, re.MULTILINE)] == []


def test_files_are_packed_and_their_address_changes_with_them(assets: Assets) -> None:
    style = assets.find("style.css")
    assert style is not None
    assert gzip.decompress(style.packed) == style.content
    assert (style.media_type, assets.find("../words.py")) == ("text/css; charset=utf-8", None)
    assert assets.version == Assets().version


# -- colours --------------------------------------------------------------------------------------------------------

#: What people with each kind of colour blindness see of light (Machado, Oliveira, Fernandes 2009, severity 1).
SEEN = {
    "all colours": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "no red": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "no green": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "no blue": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
#: Two colours that differ by less look alike at a glance.
LEAST_DISTANCE = 0.12


def light(colour: str) -> tuple[float, ...]:
    """Return the linear light of a colour, red, green, blue."""
    values = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    return tuple(value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in values)


def times(matrix: Iterable[Iterable[float]], vector: Iterable[float]) -> tuple[float, ...]:
    return tuple(sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix)


def oklab(red_green_blue: tuple[float, ...]) -> tuple[float, ...]:
    """Return light in a space where distances are those that people see."""
    cones = times(
        (
            (0.4122214708, 0.5363325363, 0.0514459929),
            (0.2119034982, 0.6806995451, 0.1073969566),
            (0.0883024619, 0.2817188376, 0.6299787005),
        ),
        red_green_blue,
    )
    return times(
        (
            (0.2104542553, 0.7936177850, -0.0040720468),
            (1.9779984951, -2.4285922050, 0.4505937099),
            (0.0259040371, 0.7827717662, -0.8086757660),
        ),
        tuple(math.copysign(abs(value) ** (1 / 3), value) for value in cones),
    )


def palettes() -> Iterator[dict[str, str]]:
    """The colours of conditions in each block of the style sheet that has them."""
    for block in re.findall(r"\{[^{}]*--state-free:[^{}]*\}", STYLE):
        yield dict(re.findall(r"--state-(\w+): (#[0-9a-f]{6})", block))


@pytest.mark.parametrize("eyes", SEEN)
def test_conditions_are_told_apart_by_all_eyes(eyes: str) -> None:
    found = list(palettes())
    assert len(found) == 3
    for palette in found:
        assert set(palette) == {str(condition) for condition in LETTERS}
        seen = {
            name: oklab(tuple(min(1.0, max(0.0, each)) for each in times(SEEN[eyes], light(colour))))
            for name, colour in palette.items()
        }
        close = [(a, b) for a, b in itertools.combinations(seen, 2) if math.dist(seen[a], seen[b]) < LEAST_DISTANCE]
        assert close == []


def test_free_is_green_and_violet_is_reserved() -> None:
    """Also in the dark: nobody takes an empty box for a free core, or a job for a reservation."""
    for palette in palettes():
        red, green, blue = light(palette["free"])
        assert green > 1.4 * max(red, blue) or min(green - red, green - blue) > 0.15, palette
        red, green, blue = light(palette["reserved"])
        assert green < red < blue, palette
    scripts = "".join(path.read_text() for path in SCRIPTS)
    conditions = re.findall(r'(\w+): \{ colour: "reserved"|(\w+): "reserved"', scripts)
    assert conditions == []


def test_dark_is_the_same_by_choice_and_by_the_system() -> None:
    _, by_system, by_choice = re.findall(r"\{([^{}]*--state-free:[^{}]*)\}", STYLE)
    assert by_system.split() == by_choice.split()
