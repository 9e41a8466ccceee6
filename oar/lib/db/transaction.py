"""A transaction and its tables.  This file is the only one that knows all of them."""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Generic, TypeVar

from oar.lib.db.statements import Statements

if TYPE_CHECKING:
    from oar.lib.db.accounting import Accounting
    from oar.lib.db.admission_rules import AdmissionRules
    from oar.lib.db.advance_reservations import AdvanceReservations
    from oar.lib.db.advisory_locks import AdvisoryLocks
    from oar.lib.db.api_tokens import ApiTokens
    from oar.lib.db.arrays import Arrays
    from oar.lib.db.challenges import Challenges
    from oar.lib.db.database_figures import DatabaseFigures
    from oar.lib.db.deadlines import Deadlines
    from oar.lib.db.density import Density
    from oar.lib.db.desktop_computers import DesktopComputers
    from oar.lib.db.ended_jobs import EndedJobs
    from oar.lib.db.events import Events
    from oar.lib.db.former_plans import FormerPlans
    from oar.lib.db.gantt import Gantt
    from oar.lib.db.gantt_days import GanttDays
    from oar.lib.db.history import History
    from oar.lib.db.history_positions import HistoryPositions
    from oar.lib.db.id_sequences import IdSequences
    from oar.lib.db.invariants import Invariants
    from oar.lib.db.job_dependencies import JobDependencies
    from oar.lib.db.job_details import JobDetails
    from oar.lib.db.job_ends import JobEnds
    from oar.lib.db.job_pages import JobPages
    from oar.lib.db.job_predictions import JobPredictions
    from oar.lib.db.job_runs import JobRuns
    from oar.lib.db.job_waits import JobWaits
    from oar.lib.db.jobs import Jobs
    from oar.lib.db.kill_requests import KillRequests
    from oar.lib.db.listings import Listings
    from oar.lib.db.new_jobs import NewJobs
    from oar.lib.db.node_energy import NodeEnergy
    from oar.lib.db.policy_log import PolicyLog
    from oar.lib.db.property_columns import PropertyColumns
    from oar.lib.db.purge import Purge
    from oar.lib.db.queues import Queues
    from oar.lib.db.repairs import Repairs
    from oar.lib.db.request_sizes import RequestSizes
    from oar.lib.db.reservation_faults import ReservationFaults
    from oar.lib.db.reservation_reports import ReservationReports
    from oar.lib.db.reservation_series import ReservationSeries
    from oar.lib.db.resources import Resources
    from oar.lib.db.resubmissions import Resubmissions
    from oar.lib.db.retention import Retention
    from oar.lib.db.rounds import Rounds
    from oar.lib.db.schema_version import SchemaVersion
    from oar.lib.db.staged_files import StagedFiles
    from oar.lib.db.stored_conditions import StoredConditions
    from oar.lib.db.submission_checks import SubmissionChecks
    from oar.lib.db.submission_keys import SubmissionKeys
    from oar.lib.db.usage import Usage
    from oar.lib.db.usersets import Usersets
    from oar.lib.db.waiting_times import WaitingTimes
    from oar.lib.db.walltime_changes import WalltimeChanges

T = TypeVar("T")


class Lazy(Generic[T]):
    """A table whose file is loaded when the attribute is first used.

    The names follow from that of the attribute: ``job_runs`` is the class ``JobRuns`` in the file ``job_runs.py``.
    """

    _made_by: Callable[["Transaction"], T] | None = None

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, tx: "Transaction", owner: type | None = None) -> T:
        """Return the table of a transaction, which finds it among its own attributes the next time."""
        table = (self._made_by or self._loaded())(tx)
        tx.__dict__[self._name] = table
        return table

    def _loaded(self) -> Callable[["Transaction"], T]:
        made_by: Callable[[Transaction], T]
        made_by = getattr(import_module(f"oar.lib.db.{self._name}"), self._name.title().replace("_", ""))
        self._made_by = made_by
        return made_by


class Transaction(Statements):
    """A unit of work.  Its tables are its attributes: ``tx.jobs``, ``tx.resources``, ..."""

    accounting: "Lazy[Accounting]" = Lazy()
    admission_rules: "Lazy[AdmissionRules]" = Lazy()
    advance_reservations: "Lazy[AdvanceReservations]" = Lazy()
    advisory_locks: "Lazy[AdvisoryLocks]" = Lazy()
    api_tokens: "Lazy[ApiTokens]" = Lazy()
    arrays: "Lazy[Arrays]" = Lazy()
    database_figures: "Lazy[DatabaseFigures]" = Lazy()
    deadlines: "Lazy[Deadlines]" = Lazy()
    density: "Lazy[Density]" = Lazy()
    desktop_computers: "Lazy[DesktopComputers]" = Lazy()
    ended_jobs: "Lazy[EndedJobs]" = Lazy()
    events: "Lazy[Events]" = Lazy()
    former_plans: "Lazy[FormerPlans]" = Lazy()
    gantt: "Lazy[Gantt]" = Lazy()
    gantt_days: "Lazy[GanttDays]" = Lazy()
    history: "Lazy[History]" = Lazy()
    history_positions: "Lazy[HistoryPositions]" = Lazy()
    id_sequences: "Lazy[IdSequences]" = Lazy()
    invariants: "Lazy[Invariants]" = Lazy()
    job_details: "Lazy[JobDetails]" = Lazy()
    job_ends: "Lazy[JobEnds]" = Lazy()
    job_pages: "Lazy[JobPages]" = Lazy()
    job_dependencies: "Lazy[JobDependencies]" = Lazy()
    job_predictions: "Lazy[JobPredictions]" = Lazy()
    job_runs: "Lazy[JobRuns]" = Lazy()
    job_waits: "Lazy[JobWaits]" = Lazy()
    jobs: "Lazy[Jobs]" = Lazy()
    kill_requests: "Lazy[KillRequests]" = Lazy()
    listings: "Lazy[Listings]" = Lazy()
    new_jobs: "Lazy[NewJobs]" = Lazy()
    node_energy: "Lazy[NodeEnergy]" = Lazy()
    policy_log: "Lazy[PolicyLog]" = Lazy()
    property_columns: "Lazy[PropertyColumns]" = Lazy()
    purge: "Lazy[Purge]" = Lazy()
    queues: "Lazy[Queues]" = Lazy()
    repairs: "Lazy[Repairs]" = Lazy()
    request_sizes: "Lazy[RequestSizes]" = Lazy()
    reservation_faults: "Lazy[ReservationFaults]" = Lazy()
    reservation_reports: "Lazy[ReservationReports]" = Lazy()
    reservation_series: "Lazy[ReservationSeries]" = Lazy()
    resources: "Lazy[Resources]" = Lazy()
    resubmissions: "Lazy[Resubmissions]" = Lazy()
    retention: "Lazy[Retention]" = Lazy()
    rounds: "Lazy[Rounds]" = Lazy()
    schema_version: "Lazy[SchemaVersion]" = Lazy()
    challenges: "Lazy[Challenges]" = Lazy()
    staged_files: "Lazy[StagedFiles]" = Lazy()
    stored_conditions: "Lazy[StoredConditions]" = Lazy()
    submission_checks: "Lazy[SubmissionChecks]" = Lazy()
    submission_keys: "Lazy[SubmissionKeys]" = Lazy()
    usage: "Lazy[Usage]" = Lazy()
    usersets: "Lazy[Usersets]" = Lazy()
    waiting_times: "Lazy[WaitingTimes]" = Lazy()
    walltime_changes: "Lazy[WalltimeChanges]" = Lazy()
