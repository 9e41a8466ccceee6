"""Each page as a document, in the language of its reader."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from oar.web.assets import DIRECTORY, Assets

#: Every language, the first for who prefers none of them.
LANGUAGES = ("en", "fr")


class Words:
    """The texts of a language."""

    def __init__(self, language: str) -> None:
        self.language = language
        path = DIRECTORY / "i18n" / f"{language}.json"
        self._texts: Mapping[str, str] = json.loads(path.read_text(encoding="utf-8"))

    def __call__(self, key: str, **values: object) -> str:
        """Return a text with its values; of ``one job|{n} jobs`` the half that fits ``n``."""
        one, _, many = self._texts[key].partition("|")
        return (many if many and not self._is_one(values["n"]) else one).format(**values)

    def _is_one(self, number: object) -> bool:
        return number == 1 or (self.language == "fr" and number == 0)


def preferred(asked: str | None, accepted: str) -> str:
    """Return the language for somebody: what he asks for, else the first of ``Accept-Language`` that there is.

    >>> preferred(None, "de-CH, fr;q=0.9, en;q=0.8")
    'fr'
    """
    weighted = []
    for part in accepted.split(","):
        name, _, parameters = part.strip().partition(";")
        weight = parameters.partition("q=")[2] or "1"
        weighted.append((-float(weight) if weight.replace(".", "", 1).isdecimal() else 0.0, name[:2].lower()))
    wishes = [asked or "", *(name for weight, name in sorted(weighted, key=lambda each: each[0]) if weight < 0)]
    return next((wish for wish in wishes if wish in LANGUAGES), LANGUAGES[0])


#: What a page may load and do: files of ours, requests to us; no script in a document, and none made from a text.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types oar"
)
#: The pages of the menu, in their order.
MENU = ("dashboard", "nodes", "jobs", "gantt", "submit", "apps", "usage", "reservations", "queues", "events", "help")
#: What it has for administrators, too: before the help.
ADMINISTRATION = "admin"
#: Behind it stands what browsers with scripts do not look at.
_FOR_PLAIN_READERS = "<noscript>"
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


class Visit(NamedTuple):
    """What stands round every page."""

    site: str  #: name of the cluster
    root: str  #: the way from the page's address to that of the service, "../"
    language: str
    zone: str  #: time zone of the site
    user: str  #: '' for nobody
    way: str  #: how he was identified: a session can be ended
    administers: bool
    creates_tokens: bool
    now: int
    announcements: Sequence[str] = ()  #: texts of administrators


class Documents:
    """Makes documents of records."""

    def __init__(self) -> None:
        self.assets = Assets()
        self._words = {language: Words(language) for language in LANGUAGES}

    def page(self, name: str, visit: Visit, record: Mapping[str, Any]) -> str:
        """Return a page."""
        return "".join(self._parts(name, visit, record))

    def in_two(self, name: str, visit: Visit, record: Mapping[str, Any]) -> Iterator[str]:
        """Return a page up to what is for readers without scripts, and the rest.

        What the record has as functions is read for the second part; the browser fetches meanwhile what it can.
        """
        parts = self._parts(name, visit, record)
        first = []
        for part in parts:
            first.append(part)
            if _FOR_PLAIN_READERS in part:
                yield "".join(first)
                yield "".join(parts)

    def _parts(self, name: str, visit: Visit, record: Mapping[str, Any]) -> Iterator[str]:
        words = self._words[visit.language]
        template = self._templates.get_template(f"{name}.html")
        static = f"{visit.root}ui/static/{self.assets.version}"
        menu = (*MENU[:-1], ADMINISTRATION, MENU[-1]) if visit.administers else MENU
        return template.generate(record, t=words, visit=visit, page=name, menu=menu, static=static)

    @cached_property
    def _templates(self) -> Environment:
        templates = Environment(
            loader=FileSystemLoader(Path(__file__).parent / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        templates.filters |= {"date": _date, "iso": _iso, "duration": _duration, "bytes": _bytes}
        return templates


def _date(seconds: int | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds)) if seconds else "–"


def _iso(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(seconds))


def _bytes(amount: int) -> str:
    """Return an amount of bytes as ``3.9 GiB``.

    >>> _bytes(4_187_593_113)
    '3.9 GiB'
    """
    power = min(len(_UNITS) - 1, max(0, amount.bit_length() - 1) // 10)
    return f"{amount / 1024**power:.{1 if power else 0}f} {_UNITS[power]}"


def _duration(seconds: int | None) -> str:
    """Return a length of time as ``1d 02:03``, hours and minutes; what is shorter than a minute as ``12 s``.

    >>> _duration(93_784), _duration(12)
    ('1d 02:03', '12 s')
    """
    if seconds is None:
        return "–"
    if seconds < 60:
        return f"{seconds} s"
    days, rest = divmod(seconds, 86400)
    clock = f"{rest // 3600:02d}:{rest % 3600 // 60:02d}"
    return f"{days}d {clock}" if days else clock
