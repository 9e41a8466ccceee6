"""End reports: what oarexec tells the server when a job has ended; checked, stored, and answered.

See docs/design/bus.rst, "End reports".
"""

import hmac
import time
from collections.abc import Sequence

from oar.lib.db.job_runs import AwaitedReport
from oar.lib.db.transaction import Transaction
from oar.lib.facts.frames import EndReport
from oar.lib.facts.messages import Ask, JobAction
from oar.lib.facts.node_protocol import ReportAnswer
from oar.lib.facts.states import EventType, JobState
from oar.modules.runner.actions.finish import note_finishing

#: A wrong challenge is written down at most once per job in this time.
CHALLENGE_SECONDS = 60.0
#: States in which an end report is awaited.
AWAITED = (JobState.LAUNCHING, JobState.RUNNING, JobState.SUSPENDED, JobState.RESUMING)


class EndReports:
    """Stores end reports.  Remembers when a job last had a report with a wrong challenge."""

    def __init__(self) -> None:
        self._wrong_challenges: dict[int, float] = {}

    def store(self, tx: Transaction, reports: Sequence[EndReport]) -> list[ReportAnswer]:
        """Store the reports; return the answer to each, which may be sent after the commit."""
        awaited = tx.job_runs.awaited_reports({report.job_id for report in reports})
        answers = []
        for report in reports:
            answer = answer_to(awaited.get(report.job_id), report)
            if answer is ReportAnswer.OK:
                _store(tx, report)
            elif answer is ReportAnswer.KO:
                self._note_wrong_challenge(tx, report.job_id)
            answers.append(answer)
        return answers

    def _note_wrong_challenge(self, tx: Transaction, job_id: int) -> None:
        now = time.monotonic()
        if now - self._wrong_challenges.get(job_id, -CHALLENGE_SECONDS) >= CHALLENGE_SECONDS:
            self._wrong_challenges[job_id] = now
            text = f"[Runner] an end report of the job {job_id} came with a wrong challenge"
            tx.events.add(EventType.BIPBIP_CHALLENGE, job_id, text)


def answer_to(awaited: AwaitedReport | None, report: EndReport) -> ReportAnswer:
    """Return the answer to an end report: GONE if none is awaited, KO if the challenge is wrong."""
    if awaited is None or awaited.state not in AWAITED:
        return ReportAnswer.GONE
    if awaited.challenge and hmac.compare_digest(awaited.challenge, report.challenge):
        return ReportAnswer.OK
    return ReportAnswer.KO


def _store(tx: Transaction, report: EndReport) -> None:
    status = None if report.status == "N" else int(report.status)
    if tx.job_runs.report(report.job_id, report.code, status):
        note_finishing(tx, report.job_id, report.code, status)
        tx.outbox.append(Ask(JobAction.END, report.job_id))
