"""Properties of resources: the columns that administrators add, and their values (commands-admin.md 2, 3)."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.db.columns import Columns
from oar.lib.errors import UserError
from oar.lib.messages import Tag, Wake
from oar.lib.model import SYSTEM_PROPERTIES, PropertyValue

if TYPE_CHECKING:
    from oar.lib.db.engine import Transaction

#: Columns of OAR itself: they are neither added, nor renamed, nor removed; with the words of the request language.
OURS = SYSTEM_PROPERTIES | frozenset(
    [
        "type",
        "network_address",
        "cpuset",
        "besteffort",
        "deploy",
        "desktop_computing",
        "available_upto",
        "last_available_upto",
        "drain",
        "walltime",
        "nodes",
        "resource",
    ]
)
#: Columns that a list of properties does not show.
HIDDEN = OURS - {"cpuset"}
_FLAGS = frozenset({"besteffort", "deploy", "desktop_computing", "drain"})

_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}\Z", re.ASCII)
_CPUSET = re.compile(r"[0-9]+([-,][0-9]+)*\Z", re.ASCII)
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}\Z", re.ASCII)
_LARGEST = {"integer": 2**31 - 1, "bigint": 2**63 - 1}
LATEST_DATE = 2147483647
LONGEST_TEXT = 255

#: How the history writes that a property has no value.
UNSET = "<unset>"


class Wrong(Enum):
    """What is wrong with a property that is to be set."""

    SYNTAX = auto()
    SYSTEM = auto()
    VALUE = auto()  #: the column does not exist, or does not take the value


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a property is not set."""

    kind: Wrong
    name: str  #: of the property; the whole text when it does not parse
    reason: str = ""


class Setting(NamedTuple):
    """A property and the value that it gets, None = none."""

    name: str
    value: PropertyValue


def parse_setting(text: str, columns: Mapping[str, str]) -> Setting | Problem:
    """Read ``NAME=VALUE`` or ``NAME!`` for a table with these columns (name -> SQL type).

    >>> parse_setting("mem = 64", {"mem": "integer"})
    Setting(name='mem', value=64)
    """
    name, equals, value = text.partition("=")
    name = name.strip()
    if not equals and name.endswith("!"):
        return check(name[:-1].strip(), None, columns)
    if not equals or not name:
        return Problem(Wrong.SYNTAX, text)
    return check(name, value.strip(), columns)


def check(name: str, text: str | None, columns: Mapping[str, str]) -> Setting | Problem:
    """Return the setting as the column takes it; ``text`` None = no value."""
    name = name.lower()
    if name in SYSTEM_PROPERTIES:
        return Problem(Wrong.SYSTEM, name)
    if name not in columns:
        return Problem(Wrong.VALUE, name, "there is no such property (add it with oarproperty -a)")
    if text is None:
        return Problem(Wrong.VALUE, name, "it always has a value") if name in OURS else Setting(name, None)
    try:
        return Setting(name, _value(name, text, columns[name]))
    except ValueError as error:
        return Problem(Wrong.VALUE, name, str(error))


def _value(name: str, text: str, type_: str) -> PropertyValue:
    if type_ in _LARGEST:
        return _number(name, text, _LARGEST[type_])
    if name in _FLAGS:
        if text.upper() not in ("YES", "NO"):
            raise ValueError("write YES or NO")
        return text.upper()
    if name == "cpuset" and not _CPUSET.match(text):
        raise ValueError(f"'{text}' is no list of processors, such as 0, 0,16 or 0-3")
    if len(text) > LONGEST_TEXT or "\0" in text:
        raise ValueError(f"a text has at most {LONGEST_TEXT} characters")
    return text


def _number(name: str, text: str, largest: int) -> int:
    if not _INTEGER.match(text) or abs(int(text)) > largest:
        raise ValueError(f"'{text}' is not an integer")
    number = int(text)
    if name == "available_upto" and not 0 <= number <= LATEST_DATE:
        raise ValueError(f"{number} is not between 0 and {LATEST_DATE}")
    return number


def set_properties(tx: "Transaction", resources: Sequence[int], settings: Iterable[Setting]) -> dict[str, int]:
    """Give resources the values, with their history; return for each property how many resources had another."""
    counts = {}
    for setting in settings:
        changed = tx.resources.set_property(resources, setting.name, setting.value)
        counts[setting.name] = len(changed)
        if changed:
            tx.resources.log(changed, setting.name, logged(setting.value))
    if counts:
        tx.outbox.append(Wake(Tag.TERM))
    return counts


def logged(value: PropertyValue) -> str:
    """Return a value as the history has it."""
    return UNSET if value is None else str(value)


# -- columns ----------------------------------------------------------------------------------------------------------


class BadName(UserError):
    """A property cannot be called so, or must not be changed."""


class ExistsOtherwise(UserError):
    """There is a property of that name and another type."""

    exit_code = 2


class InUse(UserError):
    """Live jobs or rules name the property."""

    exit_code = 3


def shown(columns: Mapping[str, str]) -> list[str]:
    """Return the names of the properties that administrators see, sorted."""
    return sorted(set(columns) - HIDDEN)


def add_column(tx: "Transaction", name: str, *, is_text: bool) -> bool:
    """Add a property; False if it is there.  Raises BadName, ExistsOtherwise, Busy."""
    columns, table = Columns(tx), tx.resources.columns()
    name = name.lower()
    _check_name(columns, name)
    columns.lock()
    if name in table:
        if (table[name] == "character varying") is not is_text:
            raise ExistsOtherwise(f"Property '{name}' already exists with type {spoken(table[name])}.")
        return False
    columns.add(name, is_text=is_text)
    return True


def _check_name(columns: Columns, name: str) -> None:
    """Refuse what no property can be called.  Raises BadName."""
    if name in OURS:
        raise BadName(f"'{name}' is a OAR system property and may not be altered")
    if not _NAME.match(name):
        raise BadName(f"'{name}' is not a valid property name")
    if columns.is_reserved_word(name):
        raise BadName(f"'{name}' is a reserved SQL word")


def spoken(type_: str) -> str:
    """Return a type of a column as administrators write it."""
    return {"character varying": "varchar"}.get(type_, type_)


def drop_column(tx: "Transaction", name: str, *, force: bool) -> None:
    """Remove a property.  Raises BadName, InUse, Busy."""
    name = _existing(tx, name)
    columns = Columns(tx)
    use = columns.use(name)
    if (use.jobs or use.rules) and not force:
        who = [f"job {job}" for job in use.jobs] + [f"rule {rule}" for rule in use.rules]
        raise InUse(f"property '{name}' is used by {len(who)} job(s)/rule(s): {', '.join(who)}")
    columns.lock()
    columns.drop(name)


def rename_column(tx: "Transaction", old: str, new: str) -> tuple[int, ...]:
    """Give a property another name; return the live jobs that still name the old one in a filter.

    Raises BadName, Busy.
    """
    old, new = _existing(tx, old), new.lower()
    columns = Columns(tx)
    _check_name(columns, new)
    if new in tx.resources.columns():
        raise BadName(f"property '{new}' already exists")
    columns.lock()
    columns.rename(old, new)
    return columns.use(old).jobs


def _existing(tx: "Transaction", name: str) -> str:
    """Return the name of a property that may be changed.  Raises BadName."""
    name = name.lower()
    if name in OURS:
        raise BadName(f"'{name}' is a OAR system property and may not be altered")
    if name not in tx.resources.columns():
        raise BadName(f"unknown property '{name}'")
    return name
