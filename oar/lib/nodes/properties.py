"""Properties of resources: the columns that administrators add, and their values."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.access.records import User
from oar.lib.base.errors import UserError
from oar.lib.base.host_names import is_host_name
from oar.lib.bus.messages import Tag, Wake
from oar.lib.history import audit
from oar.lib.history.audit import AuditAction, Values
from oar.lib.jobs.records import Job, Moldable
from oar.lib.nodes import reserved
from oar.lib.nodes.records import OUR_PROPERTIES, SYSTEM_PROPERTIES, PropertyValue

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction
    from oar.lib.nodes.sql_nodes import Nodes

#: Columns that a list of properties does not show.
HIDDEN = OUR_PROPERTIES - {"cpuset"}
_FLAGS = frozenset({"besteffort", "deploy", "desktop_computing", "drain"})

_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}\Z", re.ASCII)
_CPUSET = re.compile(r"[0-9]+([-,][0-9]+)*\Z", re.ASCII)
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}\Z", re.ASCII)
_LARGEST = {"integer": 2**31 - 1, "bigint": 2**63 - 1}
LATEST_DATE = 2147483647
LONGEST_TEXT = 255

#: The value in the history of a property that has none.
UNSET = "<unset>"


class SettingError(Enum):
    """Why a property cannot be set."""

    SYNTAX = auto()
    SYSTEM = auto()
    VALUE = auto()  #: the column does not exist, or does not take the value


@dataclass(frozen=True, slots=True)
class PropertyProblem:
    """Why a property is not set."""

    kind: SettingError
    name: str  #: of the property; the whole text if it cannot be parsed
    text: str = ""


class Setting(NamedTuple):
    """A property and its new value; None: no value."""

    name: str
    value: PropertyValue


def parse_setting(text: str, columns: Mapping[str, str]) -> Setting | PropertyProblem:
    """Parse ``NAME=VALUE`` or ``NAME!`` for a table with these columns (name -> SQL type).

    >>> parse_setting("mem = 64", {"mem": "integer"})
    Setting(name='mem', value=64)
    """
    name, equals, value = text.partition("=")
    name = name.strip()
    if not equals and name.endswith("!"):
        return check(name[:-1].strip(), None, columns)
    if not equals or not name:
        return PropertyProblem(SettingError.SYNTAX, text)
    return check(name, value.strip(), columns)


def check(name: str, text: str | None, columns: Mapping[str, str]) -> Setting | PropertyProblem:
    """Return the setting with the value converted for its column; ``text`` None: no value."""
    name = name.lower()
    if name in SYSTEM_PROPERTIES:
        return PropertyProblem(SettingError.SYSTEM, name)
    if name not in columns:
        return PropertyProblem(SettingError.VALUE, name, "there is no such property (add it with oarproperty -a)")
    if text is None:
        return (
            PropertyProblem(SettingError.VALUE, name, "it always has a value")
            if name in OUR_PROPERTIES
            else Setting(name, None)
        )
    try:
        return Setting(name, _value(name, text, columns[name]))
    except ValueError as error:
        return PropertyProblem(SettingError.VALUE, name, str(error))


def _value(name: str, text: str, type_: str) -> PropertyValue:
    if type_ in _LARGEST:
        return _number(name, text, _LARGEST[type_])
    if name in _FLAGS:
        if text.upper() not in ("YES", "NO"):
            raise ValueError("write YES or NO")
        return text.upper()
    if name == "cpuset" and not _CPUSET.match(text):
        raise ValueError(f"{text!r} must be a list of processors, such as 0, 0,16 or 0-3")
    if name == "network_address" and text:
        check_host(text)
    if len(text) > LONGEST_TEXT or "\0" in text:
        raise ValueError(f"a text must have at most {LONGEST_TEXT} characters")
    return text


def check_host(name: str) -> None:
    """Raise ValueError if a name is not a valid host name."""
    if not is_host_name(name):
        raise ValueError(f"{name!r} is not the name of a host: write letters, digits and . _ - or an IP address")


def _number(name: str, text: str, largest: int) -> int:
    if not _INTEGER.match(text):
        raise ValueError(f"{text!r} is not an integer")
    if abs(int(text)) > largest:
        raise ValueError(f"{text} is not between -{largest} and {largest}")
    number = int(text)
    if name == "available_upto" and not 0 <= number <= LATEST_DATE:
        raise ValueError(f"{number} is not between 0 and {LATEST_DATE}")
    return number


def set_properties(tx: "Transaction", resources: Sequence[int], settings: Iterable[Setting]) -> dict[str, int]:
    """Set properties of resources, and log them; return for each property the number of changed resources."""
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
    """Return a value as stored in the history."""
    return UNSET if value is None else str(value)


# -- columns ----------------------------------------------------------------------------------------------------------


class BadName(UserError):
    """The name of a property is invalid, or the property must not be changed."""


class NoProperty(BadName):
    """There is no property with this name."""


class ExistsWithOtherType(UserError):
    """A property with this name exists with another type."""

    exit_code = 2


class InUse(UserError):
    """Live jobs or admission rules use the property."""

    exit_code = 3


def shown(columns: Mapping[str, str]) -> list[str]:
    """Return the names of the properties that administrators see, sorted."""
    return sorted(set(columns) - HIDDEN)


def add_column(tx: "Transaction", user: User, name: str, *, is_text: bool) -> bool:
    """Add a property; return False if it already exists.

    Raises NotAllowed, BadName, ExistsWithOtherType, Busy.
    """
    user.check_administers()
    columns, table = tx.nodes, tx.resources.columns()
    name = name.lower()
    _check_name(columns, name)
    columns.lock_properties()
    if name in table:
        if (table[name] == "character varying") is not is_text:
            raise ExistsWithOtherType(f"Property '{name}' already exists with type {type_name(table[name])}.")
        return False
    columns.add_property(name, is_text=is_text)
    audit.record(tx, user, AuditAction.ADD, f"property {name}", Values(new="varchar" if is_text else "integer"))
    return True


def _check_name(columns: "Nodes", name: str) -> None:
    """Reject an invalid or reserved property name. Raises BadName."""
    if name in OUR_PROPERTIES:
        raise BadName(f"'{name}' is a OAR system property and may not be altered")
    if not _NAME.match(name):
        raise BadName(f"'{name}' is not a valid property name")
    if columns.is_reserved_word(name):
        raise BadName(f"'{name}' is a reserved SQL word")


def type_name(type_: str) -> str:
    """Return the short name of a column type, such as ``varchar``."""
    return {"character varying": "varchar"}.get(type_, type_)


def drop_column(tx: "Transaction", user: User, name: str, *, force: bool) -> None:
    """Delete a property. Raises NotAllowed, BadName, WouldBreak, InUse, Busy."""
    user.check_administers()
    name = _existing(tx, name)
    if not force:
        reserved.check_column(tx, name)
        _check_unused(tx, name)
    tx.nodes.lock_properties()
    type_ = type_name(tx.resources.columns()[name])
    tx.nodes.drop_property(name)
    audit.record(tx, user, AuditAction.DELETE, f"property {name}", Values(former=type_))


def rename_column(tx: "Transaction", user: User, old: str, new: str, *, force: bool = False) -> tuple[int, ...]:
    """Rename a property; return the live jobs that still use the old name in a filter.

    Raises NotAllowed, BadName, WouldBreak, InUse, Busy.
    """
    user.check_administers()
    old, new = _existing(tx, old), new.lower()
    columns = tx.nodes
    _check_name(columns, new)
    if new in tx.resources.columns():
        raise BadName(f"property '{new}' already exists")
    if not force:
        reserved.check_column(tx, old)
        _check_unused(tx, old)
    columns.lock_properties()
    columns.rename_property(old, new)
    audit.record(tx, user, AuditAction.RENAME, f"property {old}", Values(old, new))
    return _jobs_with(tx, old)


def _check_unused(tx: "Transaction", name: str) -> None:
    """Raise InUse if live jobs or enabled admission rules use a property."""
    jobs = [f"job {job_id}" for job_id in _jobs_with(tx, name)]
    pattern = _word(name)
    rules = sorted(rule.id for rule in tx.admission_rules.all(enabled=True) if pattern.search(rule.text))
    users = jobs + [f"rule {number}" for number in rules]
    if users:
        raise InUse(f"property '{name}' is used by {len(users)} job(s)/rule(s): {', '.join(users)}")


def _jobs_with(tx: "Transaction", name: str) -> tuple[int, ...]:
    """Return the live jobs whose request contains the name as a word, sorted."""
    live = tx.jobs.live()
    moldables = tx.new_jobs.moldables_of_jobs([job.id for job in live])
    pattern = _word(name)
    return tuple(job.id for job in live if pattern.search(_request(job, moldables.get(job.id, ()))))


def _word(name: str) -> re.Pattern[str]:
    return re.compile(rf"\b{re.escape(name)}\b", re.IGNORECASE)


def _request(job: Job, moldables: Sequence[Moldable]) -> str:
    """Return the filters and the level names of a job as one text."""
    groups = [group for moldable in moldables for group in moldable.groups]
    levels = [level.property for group in groups for level in group.levels]
    return " ".join([job.properties or "", *(group.filter for group in groups), *levels])


def _existing(tx: "Transaction", name: str) -> str:
    """Return the name of an existing property that may be changed. Raises BadName."""
    name = name.lower()
    if name in OUR_PROPERTIES:
        raise BadName(f"'{name}' is a OAR system property and may not be altered")
    if name not in tx.resources.columns():
        raise NoProperty(f"unknown property '{name}'")
    return name
