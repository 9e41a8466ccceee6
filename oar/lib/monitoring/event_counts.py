"""Counters of events since the start of monitoring; each change is counted once."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from oar.lib.history.event_types import EventType
from oar.lib.history.records import JobStateChange
from oar.lib.jobs.ends import LAUNCH_FAILURES
from oar.lib.jobs.states import FINAL, JobState
from oar.lib.monitoring.prometheus_text import (
    ERROR_BOUNDS,
    LAUNCH_BOUNDS,
    RUN_BOUNDS,
    WAIT_BOUNDS,
    HistogramFamily,
    MetricFamily,
    counter,
)

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction
    from oar.lib.history.sql_feed import News
    from oar.lib.jobs.records import Job


class Happenings:
    """Count the changes and events of the feed."""

    def __init__(self) -> None:
        self._steps: Counter[str] = Counter(submitted=0, started=0, ended=0, refused=0)
        self._submitted: Counter[tuple[str, ...]] = Counter()
        self._ended: Counter[tuple[str, ...]] = Counter()
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
            "How far jobs started from the first start that they were told.",
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
        self._steps["refused"] += sum(1 for event in news.events if event.type == EventType.SUBMISSION_REFUSED)
        self._submitted.update((jobs[job_id].queue,) for job_id in submitted if job_id in jobs)
        self._ended.update((jobs[job_id].queue, str(cause.code)) for job_id, cause in causes.items() if job_id in jobs)
        self._failed_launches.update(str(cause.code) for cause in causes.values() if cause.code in LAUNCH_FAILURES)
        self._count_launches(news.changes)
        self._count_times(jobs, started, ended)
        for job_id, first in (tx.job_waits.first_predicted_starts(started) if started else {}).items():
            self._errors.add(abs(jobs[job_id].start_time - first), jobs[job_id].queue)

    def families(self) -> Iterator[MetricFamily]:
        """Yield the counters."""
        yield counter("oar_job_steps_total", "What happened to jobs and submissions.", "step", self._steps)
        yield _counted("oar_jobs_submitted_total", "Submitted jobs.", ("queue",), self._submitted)
        yield _counted("oar_jobs_ended_total", "Ended jobs by cause.", ("queue", "cause"), self._ended)
        yield counter("oar_launches_failed_total", "Jobs that could not be launched.", "cause", self._failed_launches)

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


def _counted(name: str, help_: str, labels: tuple[str, ...], counts: Mapping[tuple[str, ...], int]) -> MetricFamily:
    rows = [(values, float(number)) for values, number in sorted(counts.items())]
    return MetricFamily(name, help_, labels, rows, "counter")


def _is_start(change: JobStateChange) -> bool:
    return change.state is JobState.RUNNING and change.former is JobState.LAUNCHING
