"""Mails to the managers of projects whose budgets are nearly or completely used up."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from oar.lib.accounts.budgets import BudgetNotice, BudgetUse
from oar.lib.accounts.states import MemberRole, OnExhaustion
from oar.lib.base.times import format_date
from oar.lib.bus.messages import Mail, UserMail
from oar.lib.reservations import permissions
from oar.lib.reservations.errors import BadReservation
from oar.lib.reservations.records import AccessEntry

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction

#: Users of an entry of a project who get a mail, at most.
_MOST_USERS = 100


def notify(tx: "Transaction", notices: Sequence[BudgetNotice]) -> None:
    """Add the mails about thresholds to the outbox, each once for each period.

    They are for the managers of the project, else for those of the nearest project above it that has managers, else for
    the administrator.
    """
    for use, percent in notices:
        if not tx.budgets.mark_notified(use.budget, percent):
            continue
        subject = f"{percent} % of the budget of project {use.budget.project} is used"
        text = f'Project "{use.budget.project}": {use}.\n\n{_outlook(use, tx.now)}\n'
        managers = _managers(tx, use.budget.project)
        tx.outbox.append(UserMail(managers, subject, text) if managers else Mail(subject, text))


def _outlook(use: BudgetUse, now: int) -> str:
    if use.left > 0:
        date = use.exhaustion_date(now)
        return f"At the present rate it is used up on {format_date(date)}." if date else "It lasts to its end."
    return {
        OnExhaustion.REFUSE: "New jobs are refused, and waiting jobs do not start until its period ends.",
        OnExhaustion.WAIT: "Jobs wait until its period ends.",
        OnExhaustion.BESTEFFORT: "New jobs become besteffort jobs; waiting jobs do not start until its period ends.",
    }[use.budget.on_exhaustion]


def _managers(tx: "Transaction", project: str) -> tuple[str, ...]:
    """Return the users who manage a project, else those of the nearest project above it."""
    chain = [each.name for each in tx.projects.lineage(project)]
    managers = [member for member in tx.projects.members(chain) if member.role is MemberRole.MANAGER]
    for name in chain:
        if users := _users(tx, (each.entry for each in managers if each.project == name)):
            return users
    return ()


def _users(tx: "Transaction", entries: Iterable[str]) -> tuple[str, ...]:
    """Return the users of entries; those of usersets and groups that exist are among them."""
    users: dict[str, None] = {}
    for entry in entries:
        try:
            listed = permissions.expand(tx, [AccessEntry(entry, denied=False)], limit=_MOST_USERS, known=(entry,))
        except BadReservation:  # there is no such userset or group
            continue
        users |= dict.fromkeys(listed)
    return tuple(users)
