"""Log of scheduling policies and their changes (``policy_log``): author, date, old value and new value.

The meta-scheduler logs the changes that it finds when it reads the policies. Commands that change policies log the
changes themselves, with the name of the user.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from oar.lib.db.lock_keys import POLICY_LOCK
from oar.lib.history.records import PolicyChange, PolicyItem, PolicyKind

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction
    from oar.lib.jobs.records import Queue
    from oar.lib.submission.sql_admission import AdmissionRule

#: Longer texts are cut.
LONGEST = 1 << 20


def note(tx: "Transaction", kinds: Collection[PolicyKind], values: Mapping[PolicyItem, str], author: str = "") -> int:
    """Log the differences from the last known values of these kinds; return the number of changes.

    ``values``: all current values of these kinds.
    """
    changes = differences(tx.history.last_policies(kinds), values, date=tx.now, author=author)
    if changes:
        tx.history.add_policy_changes(changes)
    return len(changes)


@contextmanager
def changing(tx: "Transaction", author: str) -> Iterator[None]:
    """Log the changes of queues and admission rules in this block with their author.

    Earlier changes that are not logged yet are logged without an author.
    """
    note_stored(tx)
    yield
    note_stored(tx, author=author)


def note_stored(tx: "Transaction", others: Mapping[PolicyItem, str] | None = None, *, author: str = "") -> int:
    """Log the current queues and admission rules; return the number of changes.

    ``others``: all current values of the other kinds; None: do not log them.
    """
    tx.system.take_lock(POLICY_LOCK)  # later statements of this transaction see the entries of others
    kinds = (PolicyKind.QUEUE, PolicyKind.RULE) if others is None else tuple(PolicyKind)
    values = {**(others or {}), **of_queues(tx.queues.all()), **of_rules(tx.admission_rules.all())}
    return note(tx, kinds, values, author)


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
