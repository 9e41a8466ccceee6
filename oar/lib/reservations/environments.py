"""Names that the site defines for reservation requests: RESERVATION_ENVIRONMENTS_FILE and built-in names.

See docs/design/reservations.rst, "What is asked for".
"""

from collections.abc import Mapping
from typing import NamedTuple

from oar.lib.base.errors import BadRequest, ConfigError
from oar.lib.reservations.parallel_environments import BUILT_IN, check_rule

#: The words of the file.
_SECTIONS = ("parallel_environments", "checkpointing_environments", "hostgroups", "interactive", "queue_aliases")
_NAMED_SECTIONS = [name for name in _SECTIONS if name != "interactive"]


class ParallelEnvironment(NamedTuple):
    """How slots are distributed over nodes, and which resources may be used."""

    rule: str
    condition: str = ""  #: '' = all


_BUILT_IN = {name: ParallelEnvironment(rule) for name, rule in BUILT_IN.items()}


class SiteEnvironments(NamedTuple):
    """The defined names; a condition is a text in the condition language, '' means none."""

    parallel: Mapping[str, ParallelEnvironment] = _BUILT_IN
    checkpointing: Mapping[str, str] = {}
    hostgroups: Mapping[str, str] = {}
    interactive: str = ""
    queue_aliases: Mapping[str, str] = {"all.q": "default"}


def read(path: str) -> SiteEnvironments:
    """Return the names that a file defines, and the built-in names.  Raises ConfigError.

    Return only the built-in names if the file does not exist.
    """
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except FileNotFoundError:
        return SiteEnvironments()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    try:
        return parse(text)
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None


def parse(text: str) -> SiteEnvironments:
    """Return the names that the text of the file defines, and the built-in names.  Raises ValueError."""
    from oar.lib.base.formats import read_yaml

    content = read_yaml(text) or {}
    if not isinstance(content, dict):
        raise ValueError(f"a mapping with the keys {', '.join(_SECTIONS)} is expected")
    for name in content:
        if name not in _SECTIONS:
            raise ValueError(f'unknown key "{name}"; known are {", ".join(_SECTIONS)}')
    sections = {name: _mapping(name, content.get(name)) for name in _NAMED_SECTIONS}
    built_in = SiteEnvironments()
    parallel = {name: _parallel(name, each) for name, each in sections["parallel_environments"].items()}
    return SiteEnvironments(
        {**built_in.parallel, **parallel},
        _conditions("checkpointing_environments", sections),
        _conditions("hostgroups", sections),
        _condition("interactive", content.get("interactive")),
        {**built_in.queue_aliases, **_conditions("queue_aliases", sections)},
    )


def _mapping(name: str, value: object) -> dict[str, object]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise ValueError(f"{name}: names with their values are expected")
    return value


def _conditions(name: str, sections: Mapping[str, Mapping[str, object]]) -> dict[str, str]:
    return {key: _condition(f"{name}: {key}", value) for key, value in sections[name].items()}


def _condition(name: str, value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(f"{name}: a text is expected")
    return value


def _parallel(name: str, value: object) -> ParallelEnvironment:
    place = f"parallel_environments: {name}"
    if not isinstance(value, dict) or not set(value) <= {"rule", "condition"} or "rule" not in value:
        raise ValueError(f"{place}: the keys rule and condition are expected")
    rule = str(value["rule"])
    try:
        check_rule(rule)
    except BadRequest as error:
        raise ValueError(f"{place}: {error}") from None
    return ParallelEnvironment(rule, _condition(place, value.get("condition")))
