"""Metrics of jobs, resources and the scheduler for monitoring systems."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from oar.lib.history.event_types import EventType
from oar.lib.history.records import JobStateChange
from oar.lib.jobs.ends import LAUNCH_FAILURES
from oar.lib.jobs.states import FINAL, JobState
from oar.lib.monitoring.prometheus_text import (
    ERROR_BOUNDS,
    LAUNCH_BOUNDS,
    RUN_BOUNDS,
    WAIT_BOUNDS,
    Histogram,
    HistogramFamily,
    MetricFamily,
    counter,
    gauge,
)

if TYPE_CHECKING:
    from oar.lib.config.files import Config
    from oar.lib.db.transaction import Transaction
    from oar.lib.history.sql_feed import News
    from oar.lib.history.sql_usage import OwnedJobs
    from oar.lib.jobs.records import Job


#: For whom the users or projects are counted that are not named.
OTHER = "other"
#: Names of the numbers that tell of them.
_SHARES = {
    "user": ("oar_user_jobs", "oar_user_resources"),
    "project": ("oar_project_jobs", "oar_project_resources"),
}


class Labels(NamedTuple):
    """The metric labels whose values users choose, and the maximum number of values of each."""

    names: Sequence[str] = ()  #: ``user``, ``project``
    most: int = 0

    @classmethod
    def of(cls, config: "Config") -> "Labels":
        return cls(config.api_metrics_labels, config.api_metrics_values)


NO_LABELS = Labels()


def families(tx: "Transaction", labels: Labels = NO_LABELS) -> Iterator[MetricFamily]:
    """Yield the gauges of the current state."""
    for name in labels.names:
        yield from share_families(name, tx.usage.shares(name), labels.most)
    take_overs = tx.servers.take_overs()
    yield counter("oar_take_overs_total", "Take-overs; each start of a server is one.", {(): take_overs.number})
    yield gauge("oar_last_take_over_seconds", "When a server became active last, epoch seconds.", take_overs.since)
    live = {(str(state), queue): number for (queue, state), number in tx.listings.live_by_queue().items()}
    yield gauge("oar_jobs", "Live jobs.", live, "state", "queue")
    waiting = {(queue, str(code)): number for (queue, code), number in tx.usage.reasons().items()}
    yield gauge("oar_jobs_waiting", "Waiting jobs by the code of their reason.", waiting, "queue", "reason")
    oldest = {wait.queue: tx.now - wait.oldest for wait in tx.usage.waits()}
    yield gauge("oar_oldest_wait_seconds", "How long the oldest waiting job has waited.", oldest, "queue")
    resources: Counter[tuple[str, str]] = Counter()
    for kind, state, is_used, drains, sleeps, number, _ in tx.usage.conditions():
        if state == "Alive":
            condition = "busy" if is_used else "drain" if drains else "free"
        else:
            condition = "standby" if state == "Absent" and sleeps else state.lower()
        resources[kind, condition] += number
    yield gauge("oar_resources", "Resources by type and condition.", resources, "type", "state")
    yield from health_families(tx)
    yield gauge("oar_nodes", "Nodes that have a resource in a state.", dict(tx.usage.nodes()), "state")
    actions = dict(tx.usage.actions())
    yield gauge("oar_actions_pending", "Jobs on their way to nodes or from them, by phase.", actions, "phase")
    unseen = tx.usage.events_to_check()
    yield gauge("oar_events_to_check", "Events that the server has not dealt with yet.", unseen)
    reservations = tx.reservations.counts()
    by_state = {state: number for state, number, _ in reservations}
    yield gauge("oar_reservations", "Live advance reservations.", by_state, "state")
    missing = sum(missing for _, _, missing in reservations)
    yield gauge("oar_reservation_missing_slots", "Resources that live advance reservations miss.", missing)
    yield gauge("oar_database_sessions", "Sessions of OAR; some wait for a lock.", tx.usage.sessions(), "state")
    date = tx.usage.last_round()
    age = tx.now - date if date else float("inf")
    yield gauge("oar_round_age_seconds", "Seconds since the last round of the scheduler.", age)


def health_families(tx: "Transaction") -> Iterator[MetricFamily]:
    """Yield the metrics that ``oar-server status --check`` also checks."""
    queues = tx.figures.queues()
    active = {queue.name: queue.is_active for queue in queues}
    yield gauge("oar_queue_active", "Whether jobs of a queue may start.", active, "queue")
    stopped = sum(not (queue.is_active or queue.author) for queue in queues)
    yield gauge("oar_queues_stopped_by_oar", "Queues that OAR itself stopped.", stopped)
    confirmed = [hold for hold in tx.launch_holds.all() if hold.is_confirmed]
    holds = {
        "all": sum(not hold.user for hold in confirmed),
        "user": len({hold.user for hold in confirmed if hold.user}),
    }
    help_ = "Faults because of which all launches are held, and users whose launches are held."
    yield gauge("oar_launch_holds", help_, holds, "scope")
    suspected = {kind: number for kind, (_, number) in tx.figures.suspected().items()}
    yield gauge("oar_resources_suspected", "Suspected resources by type.", suspected, "type")
    ages = {task: tx.now - date for task, date in tx.figures.successes()}
    help_ = "Seconds since the last success of a task that a timer runs."
    yield gauge("oar_task_success_age_seconds", help_, ages, "task")


def share_families(name: str, shares: "Sequence[OwnedJobs]", most: int) -> Iterator[MetricFamily]:
    """Yield the jobs and resources of the users or projects with the most resources (then jobs); sum up the others.

    The number of lines is therefore limited, whatever names users choose.
    """
    sizes: dict[str, tuple[int, int]] = {}
    for share in shares:
        resources, jobs = sizes.get(share.owner, (0, 0))
        sizes[share.owner] = resources + share.resources, jobs + share.jobs
    named = set(sorted(sizes, key=lambda owner: (*(-number for number in sizes[owner]), owner))[:most])
    by_state: Counter[tuple[str, str]] = Counter()
    held: Counter[str] = Counter()
    for share in shares:
        owner = share.owner if share.owner in named else OTHER
        by_state[owner, share.state] += share.jobs
        held[owner] += share.resources
    jobs_name, resources_name = _SHARES[name]
    yield gauge(jobs_name, f"Live jobs by {name}.", dict(sorted(by_state.items())), name, "state")
    yield gauge(resources_name, f"Resources that live jobs have, by {name}.", dict(sorted(held.items())), name)


def rounds_of(status: Mapping[str, Any]) -> list[HistogramFamily]:
    """Return the histogram of scheduling pass durations in a status record of the server, [] if it has none."""
    if "rounds" not in status:
        return []
    rounds = Histogram.of(status["rounds"])
    return [HistogramFamily.of("oar_round_seconds", "How long rounds of the scheduler took.", rounds)]


def server_families(status: Mapping[str, Any], now: float) -> Iterator[MetricFamily]:
    """Yield the metrics of a status record of the server; yield nothing if it is empty."""
    modules: Mapping[str, Mapping[str, Any]] = status.get("modules") or {}
    if not modules:
        return
    passes = {name: module["passes"] for name, module in modules.items()}
    yield counter("oar_module_passes_total", "Passes of the modules.", passes, "module")
    failures = {name: module["failures"] for name, module in modules.items()}
    yield counter("oar_module_failures_total", "Passes that failed.", failures, "module")
    are_up = {name: module.get("pid") is not None for name, module in modules.items()}
    yield gauge("oar_modules_up", "Whether the process of a module lives.", are_up, "module")
    durations = {name: module["last_duration"] for name, module in modules.items()}
    yield gauge("oar_module_last_duration_seconds", "How long the last pass of a module took.", durations, "module")
    yield from _module_ages(modules, status.get("start") or 0, now)
    yield from _last_round(status.get("last_round") or {})
    runner = status.get("runner") or {}
    actions = {name: runner[name] for name in ("waiting", "running") if name in runner}
    yield gauge("oar_runner_actions", "Actions on jobs in the Runner's hands.", actions, "state")
    is_ready = {(): runner["ready"]} if "ready" in runner else {}
    yield gauge("oar_runner_ready", "Whether the Runner starts and ends jobs.", is_ready)
    start = status.get("start") or 0
    yield gauge("oar_server_start_seconds", "When the server was started, epoch seconds.", start)
    yield gauge("oar_server_role", "Role of this server.", {status.get("role") or "active": 1}, "role")


def _module_ages(modules: Mapping[str, Mapping[str, Any]], start: float, now: float) -> Iterator[MetricFamily]:
    """Yield the time since the last success of each module (or the server start), and its longest period."""
    by_lane = {(module.get("lane", ""), name): module for name, module in modules.items()}
    ages = {key: now - max(module.get("last_success") or 0, start) for key, module in by_lane.items()}
    help_ = "Seconds since the last pass of a module that succeeded."
    yield gauge("oar_module_success_age_seconds", help_, ages, "lane", "module")
    periods = {key: module["period"] for key, module in by_lane.items() if module.get("period")}
    help_ = "Longest time between the starts of two passes of a module."
    yield gauge("oar_module_period_seconds", help_, periods, "lane", "module")


def _last_round(record: Mapping[str, Any]) -> Iterator[MetricFamily]:
    if not record:
        return
    help_ = "How long the parts of the last round of the scheduler took."
    yield gauge("oar_round_phase_seconds", help_, record["phases"], "phase")
    yield gauge("oar_round_jobs", "Jobs that waited for the last round.", record["jobs"])
    unread = len(record.get("file_errors") or ())
    yield gauge("oar_policy_file_errors", "Files of policies that the scheduler could not read.", unread)


class Happenings:
    """Count the changes and events of the feed."""

    def __init__(self) -> None:
        self._steps: Counter[str] = Counter(submitted=0, started=0, ended=0, refused=0, invalid=0)
        self._submitted: Counter[str] = Counter()
        self._ended: Counter[tuple[str, str]] = Counter()
        self._failed_launches: Counter[str] = Counter({str(code): 0 for code in sorted(LAUNCH_FAILURES)})
        self._launched: dict[int, int] = {}  # jobs being launched, and the dates of their launches
        self._waits = HistogramFamily(
            "oar_job_wait_seconds", "How long jobs waited that were started.", WAIT_BOUNDS, "queue"
        )
        self._launches = HistogramFamily(
            "oar_job_launch_seconds", "How long it took from the decision to start a job to its start.", LAUNCH_BOUNDS
        )
        self._runs = HistogramFamily("oar_job_run_seconds", "How long jobs ran that have ended.", RUN_BOUNDS, "queue")
        self._errors = HistogramFamily(
            "oar_job_start_error_seconds",
            "Difference between the first predicted start of jobs and their start.",
            ERROR_BOUNDS,
            "queue",
        )

    def count(self, tx: "Transaction", news: "News") -> None:
        """Count the changes and events of the news."""
        ended = {change.job_id for change in news.changes if change.state in FINAL}
        started = {change.job_id for change in news.changes if _is_start(change)}
        submitted = {change.job_id for change in news.changes if change.former is None}
        causes = tx.job_runs.end_causes(ended) if ended else {}
        concerned = ended | started | submitted
        jobs = {job.id: job for job in tx.jobs.select(concerned)} if concerned else {}
        self._steps["submitted"] += len(submitted)
        self._steps["started"] += len(started)
        self._steps["ended"] += len(ended)
        types = Counter(event.type for event in news.events)
        self._steps["refused"] += types[EventType.SUBMISSION_REFUSED]
        self._steps["invalid"] += types[EventType.SUBMISSION_INVALID]
        self._submitted.update(jobs[job_id].queue for job_id in submitted if job_id in jobs)
        self._ended.update((jobs[job_id].queue, str(cause.code)) for job_id, cause in causes.items() if job_id in jobs)
        self._failed_launches.update(str(cause.code) for cause in causes.values() if cause.code in LAUNCH_FAILURES)
        self._count_launches(news.changes)
        self._count_times(jobs, started, ended)
        for job_id, first in (tx.job_waits.first_predicted_starts(started) if started else {}).items():
            self._errors.add(abs(jobs[job_id].start_time - first), jobs[job_id].queue)

    def families(self) -> Iterator[MetricFamily]:
        """Yield the counters."""
        yield counter("oar_job_steps_total", "Steps of jobs and submissions, by kind.", self._steps, "step")
        yield counter("oar_jobs_submitted_total", "Submitted jobs.", self._submitted, "queue")
        yield counter("oar_jobs_ended_total", "Ended jobs by cause.", self._ended, "queue", "cause")
        yield counter("oar_launches_failed_total", "Jobs that could not be launched.", self._failed_launches, "cause")

    def histograms(self) -> tuple[HistogramFamily, ...]:
        """Return the histograms of durations and prediction errors."""
        return self._waits, self._launches, self._runs, self._errors

    def _count_launches(self, changes: Sequence[JobStateChange]) -> None:
        for change in changes:
            if change.state is JobState.TO_LAUNCH:
                self._launched[change.job_id] = change.date
            elif change.state is not JobState.LAUNCHING:
                begin = self._launched.pop(change.job_id, None)
                if begin is not None and _is_start(change):
                    self._launches.add(max(0, change.date - begin))

    def _count_times(self, jobs: Mapping[int, "Job"], started: Collection[int], ended: Collection[int]) -> None:
        for job_id, job in jobs.items():
            if job_id in started:
                self._waits.add(max(0, job.start_time - job.submission_time), job.queue)
            if job_id in ended and job.started:
                self._runs.add(max(0, job.stop_time - job.started), job.queue)


def _is_start(change: JobStateChange) -> bool:
    return change.state is JobState.RUNNING and change.former is JobState.LAUNCHING
