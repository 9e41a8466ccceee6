"""The audit log: who changed what, through what, and from which value to which.

Each change has one place that writes the log, in its transaction: the function that commands and the API share. A
change of many objects is one row.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.access.records import User, Via

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction
    from oar.lib.history.sql_audit import AuditEntry, AuditFilter
    from oar.lib.jobs.records import Job

#: Longer values, and those of several lines, are replaced by their digest.
LONGEST_VALUE = 65536
_LONGEST_PERSON = 255
#: Characters that the number of left out texts takes.
_OTHERS = 40
#: A larger number is no number of an object.
_DIGITS = 18


class AuditAction(StrEnum):
    """What was done."""

    ADD = "add"
    CHANGE = "change"
    DELETE = "delete"
    REMOVE = "remove"  #: entries of a set, members of a project
    RENAME = "rename"
    HOLD = "hold"
    RESUME = "resume"
    SIGNAL = "signal"
    CHECKPOINT = "checkpoint"
    RESUBMIT = "resubmit"
    PURGE = "purge"
    ADOPT = "adopt"
    IMPORT = "import"
    REVOKE = "revoke"
    HAND_OVER = "hand-over"


class Values(NamedTuple):
    """The former and the new value of an object; '': none."""

    former: str = ""
    new: str = ""


NO_VALUES = Values()


def record(
    tx: "Transaction", user: User, action: AuditAction, name: str, values: Values = NO_VALUES, *, reason: str = ""
) -> None:
    """Store a change by a user. ``name``: the kind and the name of the object, such as ``queue default``."""
    person = f"{user.author}, {user.token}" if user.token else user.author
    _add(tx, person, user.via, action, name, values, reason)


def record_found(tx: "Transaction", via: Via, action: AuditAction, name: str, values: Values) -> None:
    """Store a change that a program found: of a file, or of a table that was changed without OAR."""
    _add(tx, via, via, action, name, values)


def _add(  # noqa: PLR0917 - the columns of a row
    tx: "Transaction", person: str, via: Via, action: AuditAction, name: str, values: Values, reason: str = ""
) -> None:
    from oar.lib.history.sql_audit import AuditEntry

    person, former, new = _clean(person)[:_LONGEST_PERSON], shorten(values.former), shorten(values.new)
    tx.audit.add(AuditEntry(tx.now, person, via, action, _clean(name), former, new, _clean(reason)))


def record_jobs(
    tx: "Transaction", user: User, action: AuditAction, jobs: "Iterable[Job]", values: Values = NO_VALUES
) -> None:
    """Store one row for a change of jobs of other users; the user's own jobs are left out."""
    others = [job for job in jobs if job.user != user.name]
    if others:
        from oar.lib.base.texts import enumerated

        owners = enumerated(sorted({job.user for job in others}))
        record(tx, user, action, f"{numbered('job', [job.id for job in others])} ({owners})", values)


def name_resources(ids: Iterable[int], hosts: Iterable[str]) -> str:
    """Return the name of resources on some hosts.

    >>> name_resources([1, 2, 3], ["node-1"])
    'resource 1-3 (node-1)'
    """
    from oar.lib.base.host_names import shorten_host_list

    hosts_text = shorten_host_list(host for host in hosts if host)
    text = numbered("resource", ids)
    return f"{text} ({hosts_text})" if hosts_text else text


def numbered(kind: str, numbers: Iterable[int]) -> str:
    """Return the name of a set of objects.

    >>> numbered("job", [3, 1, 2, 9])
    'job 1-3,9'
    """
    from oar.lib.base.resource_set import format_ranges, from_positions

    return f"{kind} {format_ranges(from_positions(numbers))}"


def shorten(value: str) -> str:
    """Return a value as stored: a long text, or one of several lines, as its digest.

    >>> shorten("mem=64"), shorten("")
    ('mem=64', '')
    """
    if len(value) <= LONGEST_VALUE and "\n" not in value:
        return _clean(value)
    import hashlib

    digest = hashlib.sha256(value.encode("utf-8", "surrogateescape")).hexdigest()
    return f"sha256:{digest} ({len(value)} characters)"


def bounded(texts: Iterable[str], separator: str) -> str:
    """Return texts in one line of at most LONGEST_VALUE characters, and how many others there are.

    >>> bounded(["a: 1", "b: 2"], "; "), bounded([], "; ")
    ('a: 1; b: 2', '')
    """
    kept: list[str] = []
    others, left = 0, LONGEST_VALUE - _OTHERS
    for text in texts:
        left -= len(text) + len(separator)
        if left >= 0:
            kept.append(text)
        else:
            others += 1
    return separator.join([*kept, *([f"and {others} others"] if others else [])])


def _clean(text: str) -> str:
    """Return a text that the database can store."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def find(tx: "Transaction", selected: "AuditFilter", limit: int) -> list["AuditEntry"]:
    """Return the newest selected rows, newest first.

    ``selected.object``: "job 57", "57", "queue", "queue default", "default", or a node, whose resources
    are found too, also those that were deleted.
    """
    return tx.audit.find(_with_numbers(tx, selected), limit)


def _with_numbers(tx: "Transaction", selected: "AuditFilter") -> "AuditFilter":
    if selected.object is None:
        return selected
    kind, _, name = selected.object.rpartition(" ")
    if name.isascii() and name.isdigit() and len(name) <= _DIGITS:
        return selected._replace(kind=kind or None, numbers=[int(name)])
    if kind in ("", "node"):
        ids = [*tx.resources.ids_of_nodes([name]).get(name, []), *tx.audit.deleted_resources(name)]
        return selected._replace(kind="resource", numbers=ids)
    return selected
