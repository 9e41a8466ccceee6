"""A transaction, its table classes, and its retry. Only this module imports all table classes."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib import import_module
from typing import TYPE_CHECKING, Generic, TypeVar

from oar.lib.base.errors import DatabaseUnavailable
from oar.lib.db.connections import random_pause
from oar.lib.db.statements import Statements, psycopg2

if TYPE_CHECKING:
    from oar.lib.access.sql_access import Access
    from oar.lib.accounts.sql_accounts import Accounts
    from oar.lib.accounts.sql_budgets import Budgets
    from oar.lib.accounts.sql_projects import Projects
    from oar.lib.db.invariants import Invariants
    from oar.lib.db.outbox import UnsentMessages
    from oar.lib.db.servers import Servers
    from oar.lib.db.system import System
    from oar.lib.desktop.sql_desktop import DesktopComputers
    from oar.lib.history.sql_announcements import Announcements
    from oar.lib.history.sql_audit import AuditLog
    from oar.lib.history.sql_events import Events
    from oar.lib.history.sql_gantt_days import GanttDays
    from oar.lib.history.sql_history import History
    from oar.lib.history.sql_usage import Usage
    from oar.lib.jobs.sql_accounting import Accounting
    from oar.lib.jobs.sql_curves import JobCurves
    from oar.lib.jobs.sql_jobs import Jobs
    from oar.lib.jobs.sql_launch_holds import LaunchHolds
    from oar.lib.jobs.sql_listings import Listings
    from oar.lib.jobs.sql_queues import Queues
    from oar.lib.jobs.sql_requests import Deadlines, JobRequests
    from oar.lib.jobs.sql_retention import Retention
    from oar.lib.jobs.sql_runs import JobRuns
    from oar.lib.jobs.sql_waits import JobWaits
    from oar.lib.monitoring.sql_figures import Figures
    from oar.lib.nodes.sql_nodes import Nodes
    from oar.lib.nodes.sql_resources import Resources
    from oar.lib.planning.sql_plan import StoredPlan
    from oar.lib.planning.sql_rounds import Rounds
    from oar.lib.reservations.sql_faults import ReservationFaults
    from oar.lib.reservations.sql_logs import ReservationLogs
    from oar.lib.reservations.sql_reservations import Reservations
    from oar.lib.submission.sql_admission import AdmissionRules, SubmissionChecks
    from oar.lib.submission.sql_new_jobs import NewJobs

T = TypeVar("T")


class Lazy(Generic[T]):
    """A table class whose module is loaded when the attribute is first used."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.class_name = module, name

    _table: Callable[["Transaction"], T] | None = None

    def __set_name__(self, owner: type, name: str) -> None:
        self._attribute = name

    def __get__(self, tx: "Transaction", owner: type | None = None) -> T:
        """Return the table of a transaction, and store it among the attributes of the transaction."""
        if self._table is None:
            self._table = getattr(import_module(self.module), self.class_name)
        table = self._table(tx)
        tx.__dict__[self._attribute] = table
        return table


class Transaction(Statements):
    """A unit of work. Its tables are its attributes: ``tx.jobs``, ``tx.resources``, ..."""

    access: "Lazy[Access]" = Lazy("oar.lib.access.sql_access", "Access")
    accounting: "Lazy[Accounting]" = Lazy("oar.lib.jobs.sql_accounting", "Accounting")
    accounts: "Lazy[Accounts]" = Lazy("oar.lib.accounts.sql_accounts", "Accounts")
    admission_rules: "Lazy[AdmissionRules]" = Lazy("oar.lib.submission.sql_admission", "AdmissionRules")
    announcements: "Lazy[Announcements]" = Lazy("oar.lib.history.sql_announcements", "Announcements")
    audit: "Lazy[AuditLog]" = Lazy("oar.lib.history.sql_audit", "AuditLog")
    budgets: "Lazy[Budgets]" = Lazy("oar.lib.accounts.sql_budgets", "Budgets")
    deadlines: "Lazy[Deadlines]" = Lazy("oar.lib.jobs.sql_requests", "Deadlines")
    desktop_computers: "Lazy[DesktopComputers]" = Lazy("oar.lib.desktop.sql_desktop", "DesktopComputers")
    events: "Lazy[Events]" = Lazy("oar.lib.history.sql_events", "Events")
    figures: "Lazy[Figures]" = Lazy("oar.lib.monitoring.sql_figures", "Figures")
    gantt_days: "Lazy[GanttDays]" = Lazy("oar.lib.history.sql_gantt_days", "GanttDays")
    history: "Lazy[History]" = Lazy("oar.lib.history.sql_history", "History")
    invariants: "Lazy[Invariants]" = Lazy("oar.lib.db.invariants", "Invariants")
    job_curves: "Lazy[JobCurves]" = Lazy("oar.lib.jobs.sql_curves", "JobCurves")
    job_requests: "Lazy[JobRequests]" = Lazy("oar.lib.jobs.sql_requests", "JobRequests")
    job_runs: "Lazy[JobRuns]" = Lazy("oar.lib.jobs.sql_runs", "JobRuns")
    job_waits: "Lazy[JobWaits]" = Lazy("oar.lib.jobs.sql_waits", "JobWaits")
    jobs: "Lazy[Jobs]" = Lazy("oar.lib.jobs.sql_jobs", "Jobs")
    launch_holds: "Lazy[LaunchHolds]" = Lazy("oar.lib.jobs.sql_launch_holds", "LaunchHolds")
    listings: "Lazy[Listings]" = Lazy("oar.lib.jobs.sql_listings", "Listings")
    new_jobs: "Lazy[NewJobs]" = Lazy("oar.lib.submission.sql_new_jobs", "NewJobs")
    nodes: "Lazy[Nodes]" = Lazy("oar.lib.nodes.sql_nodes", "Nodes")
    plan: "Lazy[StoredPlan]" = Lazy("oar.lib.planning.sql_plan", "StoredPlan")
    projects: "Lazy[Projects]" = Lazy("oar.lib.accounts.sql_projects", "Projects")
    queues: "Lazy[Queues]" = Lazy("oar.lib.jobs.sql_queues", "Queues")
    reservation_faults: "Lazy[ReservationFaults]" = Lazy("oar.lib.reservations.sql_faults", "ReservationFaults")
    reservation_logs: "Lazy[ReservationLogs]" = Lazy("oar.lib.reservations.sql_logs", "ReservationLogs")
    reservations: "Lazy[Reservations]" = Lazy("oar.lib.reservations.sql_reservations", "Reservations")
    resources: "Lazy[Resources]" = Lazy("oar.lib.nodes.sql_resources", "Resources")
    retention: "Lazy[Retention]" = Lazy("oar.lib.jobs.sql_retention", "Retention")
    rounds: "Lazy[Rounds]" = Lazy("oar.lib.planning.sql_rounds", "Rounds")
    servers: "Lazy[Servers]" = Lazy("oar.lib.db.servers", "Servers")
    submission_checks: "Lazy[SubmissionChecks]" = Lazy("oar.lib.submission.sql_admission", "SubmissionChecks")
    system: "Lazy[System]" = Lazy("oar.lib.db.system", "System")
    unsent: "Lazy[UnsentMessages]" = Lazy("oar.lib.db.outbox", "UnsentMessages")
    usage: "Lazy[Usage]" = Lazy("oar.lib.history.sql_usage", "Usage")


#: SQLSTATE of errors after which a unit of work may run again: serialization failure, deadlock.
RETRIED = frozenset({"40001", "40P01"})
RETRIES = 5


def retry(begin: "Callable[[], AbstractContextManager[Transaction]]", work: "Callable[[Transaction], T]") -> T:
    """Run `work` in a transaction. Repeat it after a deadlock, a serialization failure or a lost connection.

    The pause between attempts is random and doubles. Raises the exception of the last attempt.
    """
    for attempt in range(RETRIES):
        try:
            with begin() as tx:
                return work(tx)
        except psycopg2.Error as error:
            if error.pgcode not in RETRIED:
                raise
        except DatabaseUnavailable:
            if attempt == RETRIES - 1:
                raise
        time.sleep(random_pause(0, 0.02 * 2**attempt))
    with begin() as tx:
        return work(tx)
