"""What decides about jobs is kept with its changes (``policy_log``): who changed what, when, from what to what.

The meta-scheduler notes what it finds changed when it reads it; commands that change something themselves note it with
the name of who called them, and leave it nothing to find.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from oar.lib.db.lock_keys import POLICY_LOCK
from oar.lib.history.records import PolicyChange, PolicyItem, PolicyKind

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction
    from oar.lib.jobs.records import Queue
    from oar.lib.submission.sql_rules import AdmissionRule

#: Longer texts are cut.
LONGEST = 1 << 20


def note(tx: "Transaction", kinds: Collection[PolicyKind], values: Mapping[PolicyItem, str], author: str = "") -> int:
    """Note what differs from the last that is known of some kinds; return the number of changes.

    ``values``: all that there is of these kinds.
    """
    changes = differences(tx.history.last_policies(kinds), values, date=tx.now, author=author)
    if changes:
        tx.history.add_policy_changes(changes)
    return len(changes)


@contextmanager
def changing(tx: "Transaction", author: str) -> Iterator[None]:
    """Note what somebody changes of queues and admission rules in this block; what was changed before is nobody's."""
    note_stored(tx)
    yield
    note_stored(tx, author=author)


def note_stored(tx: "Transaction", others: Mapping[PolicyItem, str] | None = None, *, author: str = "") -> int:
    """Note queues and admission rules as they are now; return the number of changes.

    ``others``: all that there is of the other kinds; None: nothing is said of them.
    """
    tx.system.take_lock(POLICY_LOCK)  # each statement behind it sees what others have noted
    kinds = (PolicyKind.QUEUE, PolicyKind.RULE) if others is None else tuple(PolicyKind)
    values = {**(others or {}), **of_queues(tx.queues.all()), **of_rules(tx.admission_rules.all())}
    return note(tx, kinds, values, author)


def differences(
    former: Mapping[PolicyItem, str], present: Mapping[PolicyItem, str], *, date: int, author: str
) -> list[PolicyChange]:
    """Return what has to be noted, by kind and name."""
    return [
        PolicyChange(date, author, item, former.get(item), present.get(item))
        for item in sorted({*former, *present})
        if former.get(item) != present.get(item)
    ]


def of_queues(queues: Collection["Queue"]) -> dict[PolicyItem, str]:
    """Return what queues decide, as text."""
    return {
        PolicyItem(PolicyKind.QUEUE, queue.name): f"priority {queue.priority}, policy {queue.policy}, {queue.state}"
        for queue in queues
    }


def of_rules(rules: Collection["AdmissionRule"]) -> dict[PolicyItem, str]:
    """Return what admission rules decide, as text: a line with their place and whether they are enabled, the rule."""
    return {
        PolicyItem(PolicyKind.RULE, str(rule.id)): kept(
            f"# priority {rule.priority}, {'enabled' if rule.enabled else 'disabled'}\n{rule.text}"
        )
        for rule in rules
    }


def kept(text: str) -> str:
    """Return the text that is kept: what the database cannot hold is replaced, what is too long is cut."""
    clean = text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
    return clean if len(clean) <= LONGEST else f"{clean[:LONGEST]}\n[cut: {len(clean)} characters]"
