"""A transaction and its tables.  This file is the only one that knows all of them."""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Generic, TypeVar

from oar.lib.db.statements import Statements

if TYPE_CHECKING:
    from oar.lib.access.sql_challenges import Challenges
    from oar.lib.access.sql_tokens import ApiTokens
    from oar.lib.access.sql_usersets import Usersets
    from oar.lib.db.advisory_locks import AdvisoryLocks
    from oar.lib.db.id_sequences import IdSequences
    from oar.lib.db.invariants import Invariants
    from oar.lib.db.repairs import Repairs
    from oar.lib.db.schema_version import SchemaVersion
    from oar.lib.desktop.sql_desktop import DesktopComputers
    from oar.lib.history.sql_density import Density
    from oar.lib.history.sql_events import Events
    from oar.lib.history.sql_gantt_days import GanttDays
    from oar.lib.history.sql_history import History
    from oar.lib.history.sql_policy_log import PolicyLog
    from oar.lib.history.sql_positions import HistoryPositions
    from oar.lib.history.sql_usage import Usage
    from oar.lib.jobs.sql_accounting import Accounting
    from oar.lib.jobs.sql_arrays import Arrays
    from oar.lib.jobs.sql_deadlines import Deadlines
    from oar.lib.jobs.sql_dependencies import JobDependencies
    from oar.lib.jobs.sql_details import JobDetails
    from oar.lib.jobs.sql_ended_jobs import EndedJobs
    from oar.lib.jobs.sql_ends import JobEnds
    from oar.lib.jobs.sql_jobs import Jobs
    from oar.lib.jobs.sql_kill_requests import KillRequests
    from oar.lib.jobs.sql_launch_holds import LaunchHolds
    from oar.lib.jobs.sql_listings import Listings
    from oar.lib.jobs.sql_moldables import Moldables
    from oar.lib.jobs.sql_pages import JobPages
    from oar.lib.jobs.sql_predictions import JobPredictions
    from oar.lib.jobs.sql_purge import Purge
    from oar.lib.jobs.sql_queues import Queues
    from oar.lib.jobs.sql_retention import Retention
    from oar.lib.jobs.sql_runs import JobRuns
    from oar.lib.jobs.sql_waiting_times import WaitingTimes
    from oar.lib.jobs.sql_waits import JobWaits
    from oar.lib.jobs.sql_walltime import WalltimeChanges
    from oar.lib.monitoring.sql_database import DatabaseFigures
    from oar.lib.monitoring.sql_health import HealthFigures
    from oar.lib.monitoring.sql_task_runs import TaskRuns
    from oar.lib.nodes.sql_energy import NodeEnergy
    from oar.lib.nodes.sql_properties import PropertyColumns
    from oar.lib.nodes.sql_resources import Resources
    from oar.lib.nodes.sql_state_reasons import StateReasons
    from oar.lib.planning.sql_former_plans import FormerPlans
    from oar.lib.planning.sql_plan import Gantt
    from oar.lib.planning.sql_rounds import Rounds
    from oar.lib.reservations.sql_bills import ReservationBills
    from oar.lib.reservations.sql_changes import ReservationChangeRequests
    from oar.lib.reservations.sql_faults import ReservationFaults
    from oar.lib.reservations.sql_intervals import ReservationIntervals
    from oar.lib.reservations.sql_jobs import ReservationJobs
    from oar.lib.reservations.sql_logs import ReservationLogs
    from oar.lib.reservations.sql_reports import ReservationReports
    from oar.lib.reservations.sql_reservations import AdvanceReservations
    from oar.lib.reservations.sql_series import ReservationSeries
    from oar.lib.submission.sql_checks import SubmissionChecks
    from oar.lib.submission.sql_conditions import StoredConditions
    from oar.lib.submission.sql_keys import SubmissionKeys
    from oar.lib.submission.sql_new_jobs import NewJobs
    from oar.lib.submission.sql_request_sizes import RequestSizes
    from oar.lib.submission.sql_resubmissions import Resubmissions
    from oar.lib.submission.sql_rules import AdmissionRules
    from oar.lib.submission.sql_staged_files import StagedFiles

T = TypeVar("T")


class Lazy(Generic[T]):
    """A class of statements whose module is loaded when the attribute is first used."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.class_name = module, name

    _made_by: Callable[["Transaction"], T] | None = None

    def __set_name__(self, owner: type, name: str) -> None:
        self._attribute = name

    def __get__(self, tx: "Transaction", owner: type | None = None) -> T:
        """Return the table of a transaction, which finds it among its own attributes the next time."""
        table = (self._made_by or self._loaded())(tx)
        tx.__dict__[self._attribute] = table
        return table

    def _loaded(self) -> Callable[["Transaction"], T]:
        made_by: Callable[[Transaction], T]
        made_by = getattr(import_module(self.module), self.class_name)
        self._made_by = made_by
        return made_by


class Transaction(Statements):
    """A unit of work.  Its tables are its attributes: ``tx.jobs``, ``tx.resources``, ..."""

    accounting: "Lazy[Accounting]" = Lazy("oar.lib.jobs.sql_accounting", "Accounting")
    admission_rules: "Lazy[AdmissionRules]" = Lazy("oar.lib.submission.sql_rules", "AdmissionRules")
    advance_reservations: "Lazy[AdvanceReservations]" = Lazy(
        "oar.lib.reservations.sql_reservations", "AdvanceReservations"
    )
    advisory_locks: "Lazy[AdvisoryLocks]" = Lazy("oar.lib.db.advisory_locks", "AdvisoryLocks")
    api_tokens: "Lazy[ApiTokens]" = Lazy("oar.lib.access.sql_tokens", "ApiTokens")
    arrays: "Lazy[Arrays]" = Lazy("oar.lib.jobs.sql_arrays", "Arrays")
    database_figures: "Lazy[DatabaseFigures]" = Lazy("oar.lib.monitoring.sql_database", "DatabaseFigures")
    deadlines: "Lazy[Deadlines]" = Lazy("oar.lib.jobs.sql_deadlines", "Deadlines")
    density: "Lazy[Density]" = Lazy("oar.lib.history.sql_density", "Density")
    desktop_computers: "Lazy[DesktopComputers]" = Lazy("oar.lib.desktop.sql_desktop", "DesktopComputers")
    ended_jobs: "Lazy[EndedJobs]" = Lazy("oar.lib.jobs.sql_ended_jobs", "EndedJobs")
    events: "Lazy[Events]" = Lazy("oar.lib.history.sql_events", "Events")
    former_plans: "Lazy[FormerPlans]" = Lazy("oar.lib.planning.sql_former_plans", "FormerPlans")
    gantt: "Lazy[Gantt]" = Lazy("oar.lib.planning.sql_plan", "Gantt")
    gantt_days: "Lazy[GanttDays]" = Lazy("oar.lib.history.sql_gantt_days", "GanttDays")
    health_figures: "Lazy[HealthFigures]" = Lazy("oar.lib.monitoring.sql_health", "HealthFigures")
    history: "Lazy[History]" = Lazy("oar.lib.history.sql_history", "History")
    history_positions: "Lazy[HistoryPositions]" = Lazy("oar.lib.history.sql_positions", "HistoryPositions")
    id_sequences: "Lazy[IdSequences]" = Lazy("oar.lib.db.id_sequences", "IdSequences")
    invariants: "Lazy[Invariants]" = Lazy("oar.lib.db.invariants", "Invariants")
    job_details: "Lazy[JobDetails]" = Lazy("oar.lib.jobs.sql_details", "JobDetails")
    job_ends: "Lazy[JobEnds]" = Lazy("oar.lib.jobs.sql_ends", "JobEnds")
    job_pages: "Lazy[JobPages]" = Lazy("oar.lib.jobs.sql_pages", "JobPages")
    job_dependencies: "Lazy[JobDependencies]" = Lazy("oar.lib.jobs.sql_dependencies", "JobDependencies")
    job_predictions: "Lazy[JobPredictions]" = Lazy("oar.lib.jobs.sql_predictions", "JobPredictions")
    job_runs: "Lazy[JobRuns]" = Lazy("oar.lib.jobs.sql_runs", "JobRuns")
    job_waits: "Lazy[JobWaits]" = Lazy("oar.lib.jobs.sql_waits", "JobWaits")
    jobs: "Lazy[Jobs]" = Lazy("oar.lib.jobs.sql_jobs", "Jobs")
    kill_requests: "Lazy[KillRequests]" = Lazy("oar.lib.jobs.sql_kill_requests", "KillRequests")
    launch_holds: "Lazy[LaunchHolds]" = Lazy("oar.lib.jobs.sql_launch_holds", "LaunchHolds")
    listings: "Lazy[Listings]" = Lazy("oar.lib.jobs.sql_listings", "Listings")
    moldables: "Lazy[Moldables]" = Lazy("oar.lib.jobs.sql_moldables", "Moldables")
    new_jobs: "Lazy[NewJobs]" = Lazy("oar.lib.submission.sql_new_jobs", "NewJobs")
    node_energy: "Lazy[NodeEnergy]" = Lazy("oar.lib.nodes.sql_energy", "NodeEnergy")
    policy_log: "Lazy[PolicyLog]" = Lazy("oar.lib.history.sql_policy_log", "PolicyLog")
    property_columns: "Lazy[PropertyColumns]" = Lazy("oar.lib.nodes.sql_properties", "PropertyColumns")
    purge: "Lazy[Purge]" = Lazy("oar.lib.jobs.sql_purge", "Purge")
    queues: "Lazy[Queues]" = Lazy("oar.lib.jobs.sql_queues", "Queues")
    repairs: "Lazy[Repairs]" = Lazy("oar.lib.db.repairs", "Repairs")
    request_sizes: "Lazy[RequestSizes]" = Lazy("oar.lib.submission.sql_request_sizes", "RequestSizes")
    reservation_bills: "Lazy[ReservationBills]" = Lazy("oar.lib.reservations.sql_bills", "ReservationBills")
    reservation_change_requests: "Lazy[ReservationChangeRequests]" = Lazy(
        "oar.lib.reservations.sql_changes", "ReservationChangeRequests"
    )
    reservation_faults: "Lazy[ReservationFaults]" = Lazy("oar.lib.reservations.sql_faults", "ReservationFaults")
    reservation_intervals: "Lazy[ReservationIntervals]" = Lazy(
        "oar.lib.reservations.sql_intervals", "ReservationIntervals"
    )
    reservation_jobs: "Lazy[ReservationJobs]" = Lazy("oar.lib.reservations.sql_jobs", "ReservationJobs")
    reservation_logs: "Lazy[ReservationLogs]" = Lazy("oar.lib.reservations.sql_logs", "ReservationLogs")
    reservation_reports: "Lazy[ReservationReports]" = Lazy("oar.lib.reservations.sql_reports", "ReservationReports")
    reservation_series: "Lazy[ReservationSeries]" = Lazy("oar.lib.reservations.sql_series", "ReservationSeries")
    resources: "Lazy[Resources]" = Lazy("oar.lib.nodes.sql_resources", "Resources")
    resubmissions: "Lazy[Resubmissions]" = Lazy("oar.lib.submission.sql_resubmissions", "Resubmissions")
    retention: "Lazy[Retention]" = Lazy("oar.lib.jobs.sql_retention", "Retention")
    rounds: "Lazy[Rounds]" = Lazy("oar.lib.planning.sql_rounds", "Rounds")
    schema_version: "Lazy[SchemaVersion]" = Lazy("oar.lib.db.schema_version", "SchemaVersion")
    challenges: "Lazy[Challenges]" = Lazy("oar.lib.access.sql_challenges", "Challenges")
    staged_files: "Lazy[StagedFiles]" = Lazy("oar.lib.submission.sql_staged_files", "StagedFiles")
    state_reasons: "Lazy[StateReasons]" = Lazy("oar.lib.nodes.sql_state_reasons", "StateReasons")
    stored_conditions: "Lazy[StoredConditions]" = Lazy("oar.lib.submission.sql_conditions", "StoredConditions")
    submission_checks: "Lazy[SubmissionChecks]" = Lazy("oar.lib.submission.sql_checks", "SubmissionChecks")
    submission_keys: "Lazy[SubmissionKeys]" = Lazy("oar.lib.submission.sql_keys", "SubmissionKeys")
    task_runs: "Lazy[TaskRuns]" = Lazy("oar.lib.monitoring.sql_task_runs", "TaskRuns")
    usage: "Lazy[Usage]" = Lazy("oar.lib.history.sql_usage", "Usage")
    usersets: "Lazy[Usersets]" = Lazy("oar.lib.access.sql_usersets", "Usersets")
    waiting_times: "Lazy[WaitingTimes]" = Lazy("oar.lib.jobs.sql_waiting_times", "WaitingTimes")
    walltime_changes: "Lazy[WalltimeChanges]" = Lazy("oar.lib.jobs.sql_walltime", "WalltimeChanges")
