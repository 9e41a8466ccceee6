"""End reports: oarexec reports the end of a job to the server. Reports are checked, stored, and answered.

See docs/design/bus.rst, "End reports".
"""

import hmac
import time
from collections.abc import Mapping, Sequence

from oar.lib.bus.frames import EndReport
from oar.lib.bus.messages import Ask, JobAction
from oar.lib.db.transaction import Transaction
from oar.lib.history.event_types import EventType
from oar.lib.jobs.sql_runs import AwaitedReport, ReportedEnd
from oar.lib.jobs.states import JobState
from oar.lib.remote.protocol import ReportAnswer
from oar.modules.runner.actions.finish import note_all_finishing

#: A wrong challenge is written down at most once per job in this time.
CHALLENGE_SECONDS = 60.0
#: States in which an end report is awaited.
AWAITED = (JobState.LAUNCHING, JobState.RUNNING, JobState.SUSPENDED, JobState.RESUMING)
#: States of a job that was never started, as far as the database knows.
NOT_STARTED = (JobState.WAITING, JobState.HOLD)


class EndReports:
    """Store end reports. Remember when a job last had a report with a wrong challenge."""

    def __init__(self) -> None:
        self._wrong_challenges: dict[int, float] = {}

    def store(self, tx: Transaction, reports: Sequence[EndReport]) -> list[ReportAnswer]:
        """Store end reports and return the acknowledgements, to be sent after commit."""
        awaited = tx.job_runs.awaited_reports({report.job_id for report in reports})
        answers = [answer_to(awaited.get(report.job_id), report) for report in reports]
        good: dict[int, EndReport] = {}
        for report, answer in zip(reports, answers, strict=True):
            if answer is ReportAnswer.OK:
                good.setdefault(report.job_id, report)
            elif answer is ReportAnswer.KO:
                self._note_wrong_challenge(tx, report.job_id)
        _store(tx, good)
        return answers

    def _note_wrong_challenge(self, tx: Transaction, job_id: int) -> None:
        now = time.monotonic()
        if now - self._wrong_challenges.get(job_id, -CHALLENGE_SECONDS) >= CHALLENGE_SECONDS:
            self._wrong_challenges[job_id] = now
            text = f"[Runner] an end report of the job {job_id} came with a wrong challenge"
            tx.events.add(EventType.BIPBIP_CHALLENGE, job_id, text)


def answer_to(awaited: AwaitedReport | None, report: EndReport) -> ReportAnswer:
    """Return the answer to an end report: GONE if none is awaited, KO if the challenge is wrong.

    After a restore of the database, it may contain a started job as not started. Then the answer is LATER: oarexec
    repeats the report when the start of the job may be known.
    """
    is_true = awaited is not None and awaited.challenge and hmac.compare_digest(awaited.challenge, report.challenge)
    if awaited is not None and is_true and awaited.state in NOT_STARTED:
        return ReportAnswer.LATER
    if awaited is None or awaited.state not in AWAITED:
        return ReportAnswer.GONE
    return ReportAnswer.OK if is_true else ReportAnswer.KO


def _store(tx: Transaction, reports: Mapping[int, EndReport]) -> None:
    """Store the first report of each job."""
    ends = {
        job_id: ReportedEnd(report.code, None if report.status == "N" else int(report.status), tx.now - report.ago)
        for job_id, report in sorted(reports.items())
    }
    new = tx.job_runs.report_all(ends) if ends else ()
    if new:
        note_all_finishing(tx, {job_id: end for job_id, end in ends.items() if job_id in new})
        tx.outbox += [Ask(JobAction.END, job_id, (new[job_id],) if new[job_id] else ()) for job_id in sorted(new)]
