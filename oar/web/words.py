"""The words of the pages in each language; pages and scripts read the same files, ``static/i18n/LANGUAGE.json``."""

import json
from collections.abc import Mapping

from oar.web.assets import DIRECTORY

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
