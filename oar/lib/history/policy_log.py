"""Log of scheduling policies and their changes (``policy_log``): author, date, old value and new value.

The meta-scheduler logs the changes that it finds when it reads the policies. Commands that change policies log the
changes themselves, with the name of the user.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from oar.lib.access.records import Via
from oar.lib.db.lock_keys import POLICY_LOCK
from oar.lib.history import audit
from oar.lib.history.audit import AuditAction, Values
from oar.lib.history.records import PolicyChange, PolicyItem, PolicyKind

if TYPE_CHECKING:
    from oar.lib.access.records import User
    from oar.lib.db.transaction import Transaction
    from oar.lib.jobs.records import Queue
    from oar.lib.submission.sql_admission import AdmissionRule

#: Longer texts are cut.
LONGEST = 1 << 20


def note(
    tx: "Transaction", kinds: Collection[PolicyKind], values: Mapping[PolicyItem, str], user: "User | None" = None
) -> int:
    """Log the differences from the last known values of these kinds; return the number of changes.

    ``values``: all current values of these kinds. ``user``: who made the changes, None if nobody knows.
    """
    former = tx.history.last_policies(kinds)
    changes = differences(former, values, date=tx.now, author=user.author if user else "")
    if changes:
        tx.history.add_policy_changes(changes)
        known_kinds = {item.kind for item in former}
        _audit(tx, user, [change for change in changes if user or change.item.kind in known_kinds])
    return len(changes)


def _audit(tx: "Transaction", user: "User | None", changes: Collection[PolicyChange]) -> None:
    """Record changes in the audit log: those of a user, and those of files and tables that a program found."""
    for change in changes:
        action = AuditAction.CHANGE
        if change.former is None or change.value is None:
            action = AuditAction.ADD if change.former is None else AuditAction.DELETE
        name, values = f"{change.item.kind} {change.item.name}", Values(change.former or "", change.value or "")
        if user:
            audit.record(tx, user, action, name, values)
        else:
            is_file = change.item.kind in (PolicyKind.KEY, PolicyKind.FILE)
            audit.record_found(tx, Via.FILE if is_file else Via.SQL, action, name, values)


@contextmanager
def changing(tx: "Transaction", user: "User") -> Iterator[None]:
    """Log the changes of queues and admission rules that a user makes in this block.

    Earlier changes that are not logged yet are logged without an author.
    """
    note_stored(tx)
    yield
    note_stored(tx, user=user)


def note_stored(
    tx: "Transaction", others: Mapping[PolicyItem, str] | None = None, *, user: "User | None" = None
) -> int:
    """Log the current queues and admission rules; return the number of changes.

    ``others``: all current values of the other kinds; None: do not log them.
    """
    tx.system.take_lock(POLICY_LOCK)  # later statements of this transaction see the entries of others
    kinds = (PolicyKind.QUEUE, PolicyKind.RULE) if others is None else tuple(PolicyKind)
    values = {**(others or {}), **of_queues(tx.queues.all()), **of_rules(tx.admission_rules.all())}
    return note(tx, kinds, values, user)


def differences(
    former: Mapping[PolicyItem, str], present: Mapping[PolicyItem, str], *, date: int, author: str
) -> list[PolicyChange]:
    """Return the changes to log, by kind and name."""
    return [
        PolicyChange(date, author, item, former.get(item), present.get(item))
        for item in sorted({*former, *present})
        if former.get(item) != present.get(item)
    ]


def of_queues(queues: Collection["Queue"]) -> dict[PolicyItem, str]:
    """Return the policies of queues as text."""
    return {
        PolicyItem(PolicyKind.QUEUE, queue.name): f"priority {queue.priority}, policy {queue.policy}, {queue.state}"
        for queue in queues
    }


def of_rules(rules: Collection["AdmissionRule"]) -> dict[PolicyItem, str]:
    """Return the policies of admission rules as text: a line with priority and state, then the rule."""
    return {
        PolicyItem(PolicyKind.RULE, str(rule.id)): kept(
            f"# priority {rule.priority}, {'enabled' if rule.enabled else 'disabled'}\n{rule.text}"
        )
        for rule in rules
    }


def kept(text: str) -> str:
    """Return the text to store: unsupported characters are replaced, and a too long text is cut."""
    clean = text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
    return clean if len(clean) <= LONGEST else f"{clean[:LONGEST]}\n[cut: {len(clean)} characters]"
