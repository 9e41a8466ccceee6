"""A transaction and its tables.  This file is the only one that knows all of them."""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Generic, TypeVar

from oar.lib.db.sql.statements import Statements

if TYPE_CHECKING:
    from oar.lib.db.access.api_tokens import ApiTokens
    from oar.lib.db.access.challenges import Challenges
    from oar.lib.db.access.usersets import Usersets
    from oar.lib.db.history.accounting import Accounting
    from oar.lib.db.history.density import Density
    from oar.lib.db.history.events import Events
    from oar.lib.db.history.gantt_days import GanttDays
    from oar.lib.db.history.history import History
    from oar.lib.db.history.history_positions import HistoryPositions
    from oar.lib.db.history.policy_log import PolicyLog
    from oar.lib.db.history.usage import Usage
    from oar.lib.db.jobs.arrays import Arrays
    from oar.lib.db.jobs.ended_jobs import EndedJobs
    from oar.lib.db.jobs.job_dependencies import JobDependencies
    from oar.lib.db.jobs.job_details import JobDetails
    from oar.lib.db.jobs.job_ends import JobEnds
    from oar.lib.db.jobs.job_pages import JobPages
    from oar.lib.db.jobs.job_predictions import JobPredictions
    from oar.lib.db.jobs.job_runs import JobRuns
    from oar.lib.db.jobs.job_waits import JobWaits
    from oar.lib.db.jobs.jobs import Jobs
    from oar.lib.db.jobs.kill_requests import KillRequests
    from oar.lib.db.jobs.launch_holds import LaunchHolds
    from oar.lib.db.jobs.listings import Listings
    from oar.lib.db.jobs.moldables import Moldables
    from oar.lib.db.jobs.resubmissions import Resubmissions
    from oar.lib.db.jobs.walltime_changes import WalltimeChanges
    from oar.lib.db.planning.deadlines import Deadlines
    from oar.lib.db.planning.former_plans import FormerPlans
    from oar.lib.db.planning.gantt import Gantt
    from oar.lib.db.planning.rounds import Rounds
    from oar.lib.db.planning.waiting_times import WaitingTimes
    from oar.lib.db.reservations.advance_reservations import AdvanceReservations
    from oar.lib.db.reservations.reservation_bills import ReservationBills
    from oar.lib.db.reservations.reservation_change_requests import ReservationChangeRequests
    from oar.lib.db.reservations.reservation_faults import ReservationFaults
    from oar.lib.db.reservations.reservation_intervals import ReservationIntervals
    from oar.lib.db.reservations.reservation_jobs import ReservationJobs
    from oar.lib.db.reservations.reservation_logs import ReservationLogs
    from oar.lib.db.reservations.reservation_reports import ReservationReports
    from oar.lib.db.reservations.reservation_series import ReservationSeries
    from oar.lib.db.resources.desktop_computers import DesktopComputers
    from oar.lib.db.resources.node_energy import NodeEnergy
    from oar.lib.db.resources.property_columns import PropertyColumns
    from oar.lib.db.resources.queues import Queues
    from oar.lib.db.resources.resources import Resources
    from oar.lib.db.resources.state_reasons import StateReasons
    from oar.lib.db.schema.id_sequences import IdSequences
    from oar.lib.db.schema.schema_version import SchemaVersion
    from oar.lib.db.submission.admission_rules import AdmissionRules
    from oar.lib.db.submission.new_jobs import NewJobs
    from oar.lib.db.submission.request_sizes import RequestSizes
    from oar.lib.db.submission.staged_files import StagedFiles
    from oar.lib.db.submission.stored_conditions import StoredConditions
    from oar.lib.db.submission.submission_checks import SubmissionChecks
    from oar.lib.db.submission.submission_keys import SubmissionKeys
    from oar.lib.db.upkeep.advisory_locks import AdvisoryLocks
    from oar.lib.db.upkeep.database_figures import DatabaseFigures
    from oar.lib.db.upkeep.health_figures import HealthFigures
    from oar.lib.db.upkeep.invariants import Invariants
    from oar.lib.db.upkeep.purge import Purge
    from oar.lib.db.upkeep.repairs import Repairs
    from oar.lib.db.upkeep.retention import Retention
    from oar.lib.db.upkeep.task_runs import TaskRuns

T = TypeVar("T")


class Lazy(Generic[T]):
    """A table whose file is loaded when the attribute is first used.

    The names follow from that of the attribute: ``job_runs`` is the class ``JobRuns`` in the file ``job_runs.py``;
    ``folder`` is the package below ``oar/lib/db`` in which the file lies.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder

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
        module = import_module(f"oar.lib.db.{self._folder}.{self._name}")
        made_by = getattr(module, self._name.title().replace("_", ""))
        self._made_by = made_by
        return made_by


class Transaction(Statements):
    """A unit of work.  Its tables are its attributes: ``tx.jobs``, ``tx.resources``, ..."""

    accounting: "Lazy[Accounting]" = Lazy("history")
    admission_rules: "Lazy[AdmissionRules]" = Lazy("submission")
    advance_reservations: "Lazy[AdvanceReservations]" = Lazy("reservations")
    advisory_locks: "Lazy[AdvisoryLocks]" = Lazy("upkeep")
    api_tokens: "Lazy[ApiTokens]" = Lazy("access")
    arrays: "Lazy[Arrays]" = Lazy("jobs")
    database_figures: "Lazy[DatabaseFigures]" = Lazy("upkeep")
    deadlines: "Lazy[Deadlines]" = Lazy("planning")
    density: "Lazy[Density]" = Lazy("history")
    desktop_computers: "Lazy[DesktopComputers]" = Lazy("resources")
    ended_jobs: "Lazy[EndedJobs]" = Lazy("jobs")
    events: "Lazy[Events]" = Lazy("history")
    former_plans: "Lazy[FormerPlans]" = Lazy("planning")
    gantt: "Lazy[Gantt]" = Lazy("planning")
    gantt_days: "Lazy[GanttDays]" = Lazy("history")
    health_figures: "Lazy[HealthFigures]" = Lazy("upkeep")
    history: "Lazy[History]" = Lazy("history")
    history_positions: "Lazy[HistoryPositions]" = Lazy("history")
    id_sequences: "Lazy[IdSequences]" = Lazy("schema")
    invariants: "Lazy[Invariants]" = Lazy("upkeep")
    job_details: "Lazy[JobDetails]" = Lazy("jobs")
    job_ends: "Lazy[JobEnds]" = Lazy("jobs")
    job_pages: "Lazy[JobPages]" = Lazy("jobs")
    job_dependencies: "Lazy[JobDependencies]" = Lazy("jobs")
    job_predictions: "Lazy[JobPredictions]" = Lazy("jobs")
    job_runs: "Lazy[JobRuns]" = Lazy("jobs")
    job_waits: "Lazy[JobWaits]" = Lazy("jobs")
    jobs: "Lazy[Jobs]" = Lazy("jobs")
    kill_requests: "Lazy[KillRequests]" = Lazy("jobs")
    launch_holds: "Lazy[LaunchHolds]" = Lazy("jobs")
    listings: "Lazy[Listings]" = Lazy("jobs")
    moldables: "Lazy[Moldables]" = Lazy("jobs")
    new_jobs: "Lazy[NewJobs]" = Lazy("submission")
    node_energy: "Lazy[NodeEnergy]" = Lazy("resources")
    policy_log: "Lazy[PolicyLog]" = Lazy("history")
    property_columns: "Lazy[PropertyColumns]" = Lazy("resources")
    purge: "Lazy[Purge]" = Lazy("upkeep")
    queues: "Lazy[Queues]" = Lazy("resources")
    repairs: "Lazy[Repairs]" = Lazy("upkeep")
    request_sizes: "Lazy[RequestSizes]" = Lazy("submission")
    reservation_bills: "Lazy[ReservationBills]" = Lazy("reservations")
    reservation_change_requests: "Lazy[ReservationChangeRequests]" = Lazy("reservations")
    reservation_faults: "Lazy[ReservationFaults]" = Lazy("reservations")
    reservation_intervals: "Lazy[ReservationIntervals]" = Lazy("reservations")
    reservation_jobs: "Lazy[ReservationJobs]" = Lazy("reservations")
    reservation_logs: "Lazy[ReservationLogs]" = Lazy("reservations")
    reservation_reports: "Lazy[ReservationReports]" = Lazy("reservations")
    reservation_series: "Lazy[ReservationSeries]" = Lazy("reservations")
    resources: "Lazy[Resources]" = Lazy("resources")
    resubmissions: "Lazy[Resubmissions]" = Lazy("jobs")
    retention: "Lazy[Retention]" = Lazy("upkeep")
    rounds: "Lazy[Rounds]" = Lazy("planning")
    schema_version: "Lazy[SchemaVersion]" = Lazy("schema")
    challenges: "Lazy[Challenges]" = Lazy("access")
    staged_files: "Lazy[StagedFiles]" = Lazy("submission")
    state_reasons: "Lazy[StateReasons]" = Lazy("resources")
    stored_conditions: "Lazy[StoredConditions]" = Lazy("submission")
    submission_checks: "Lazy[SubmissionChecks]" = Lazy("submission")
    submission_keys: "Lazy[SubmissionKeys]" = Lazy("submission")
    task_runs: "Lazy[TaskRuns]" = Lazy("upkeep")
    usage: "Lazy[Usage]" = Lazy("history")
    usersets: "Lazy[Usersets]" = Lazy("access")
    waiting_times: "Lazy[WaitingTimes]" = Lazy("planning")
    walltime_changes: "Lazy[WalltimeChanges]" = Lazy("jobs")
