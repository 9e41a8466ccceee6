"""``oarstat --explain``: why a job waits and when it starts, where its waiting time went, how it ended."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from oar.cli.common.render import cell, visible
from oar.lib.base.formats import Format, dump
from oar.lib.base.times import format_date, format_duration
from oar.lib.jobs import explanations as wait_explanations
from oar.lib.jobs.ends import format_exit_code
from oar.lib.jobs.explanations import Explanation, Firmness, PredictedStart
from oar.lib.jobs.reasons import WAITING_FOR, ReasonCode, RoundLimit
from oar.lib.jobs.views import JobEnd, job_ends

if TYPE_CHECKING:
    from oar.cli.common.command import Context
    from oar.lib.db.transaction import Transaction
    from oar.lib.jobs.reasons import WaitReason
    from oar.lib.jobs.records import Job

_NO_TIME = "unknown: the search ran out of time"
_NO_CHANGE = "no change of one number in its request is enough"


def explained(
    context: "Context", tx: "Transaction", jobs: "Sequence[Job]", machine: Format | None, *, with_change: bool
) -> str:
    """Return the explanations of jobs as text.  ``with_change``: also the change that lets a waiting one start now."""
    explanations = wait_explanations.explain(tx, jobs, context.runtime.config)
    waiting = [explanation.job.id for explanation in explanations if explanation.reason]
    changes: Mapping[int, str | None] = {}  #: by job: '' if no change is enough, None if it is not known
    if with_change and waiting:
        from oar.kao.rounds.hypothetical import estimates

        changes = estimates.smallest_changes(context.database, context.runtime.config, waiting)
    ends = job_ends(tx, jobs)
    if machine:
        records = {item.job.id: _record(item, changes, ends.get(item.job.id)) for item in explanations}
        return dump(records, machine)
    texts = [_lines(item, changes, ends.get(item.job.id)) for item in explanations]
    return "\n".join("".join(f"{line}\n" for line in lines) for lines in texts)


# -- starts -----------------------------------------------------------------------------------------------------------

_HEAD = (("Job id", "User", "Queue", "Predicted start", "Why"), ("-" * 10, "-" * 14, "-" * 10, "-" * 19, "-" * 12))


def starts(tx: "Transaction", jobs: "Sequence[Job]", machine: Format | None, *, header: bool = True) -> str:
    """Return a line for each job that has not started: predicted start and reason of waiting."""
    outlooks = wait_explanations.outlooks(tx, jobs)
    if machine:
        return dump({outlook.job.id: outlook.record for outlook in outlooks}, machine)
    rows = [
        (
            str(outlook.job.id),
            visible(outlook.job.user),
            visible(outlook.job.queue),
            format_date(outlook.start) if outlook.start else "-",
            visible(outlook.why),
        )
        for outlook in outlooks
    ]
    if rows and header:
        rows[:0] = _HEAD
    lines = [
        f"{number:<10} {cell(user, 14)} {cell(queue, 10)} {start:<19} {why}".rstrip()
        for number, user, queue, start, why in rows
    ]
    oldest = min((outlook.foreseen_at for outlook in outlooks if outlook.foreseen_at), default=0)
    if oldest and header:
        lines.append(f"# Foreseen at {format_date(oldest)} or later; the plan is being renewed")
    return "".join(line + "\n" for line in lines)


# -- texts ------------------------------------------------------------------------------------------------------------


def _record(explanation: Explanation, changes: Mapping[int, str | None], end: JobEnd | None) -> dict[str, object]:
    job, record = explanation.job, explanation.record
    if job.id in changes:
        record["smallest_change"] = changes[job.id] or None
        record["smallest_change_known"] = changes[job.id] is not None
    if job.is_final:
        record |= {"exit_code": job.exit_code, "stop_time": job.stop_time, "end": end.record if end else None}
    return record


def _lines(explanation: Explanation, changes: Mapping[int, str | None], end: JobEnd | None) -> list[str]:
    job = explanation.job
    since = format_date(job.submission_time)
    lines = [f"Job {job.id} of {visible(job.user)}, {job.state}, in the queue {visible(job.queue)} since {since}"]
    if explanation.sentence:
        lines.append(f"    Why: {visible(explanation.sentence)}")
    if explanation.advice.trouble:
        lines.append(f"    Trouble: {visible(explanation.advice.trouble)}")
    if explanation.advice.solution:
        lines.append(f"    What to do: {explanation.advice.solution}")
    if explanation.start:
        lines += _start_lines(explanation.start)
    elif explanation.reason:
        lines.append(f"    Start: {_without_start(explanation.reason)}")
    for other in explanation.in_front:
        until = f", ends by {format_date(other.end)}" if other.end else ""
        lines.append(f"    In front: job {other.id} of {visible(other.user)}, {other.state}{until}")
    if explanation.start:
        lines += _experience(explanation.start)
    if explanation.reason:
        lines += _position_lines(job, explanation.reason)
    if job.id in changes:
        change = changes[job.id]
        change_text = f"with {change}" if change else _NO_CHANGE
        lines.append(f"    Would start now: {change_text if change is not None else _NO_TIME}")
    if job.started:
        lines.append(f"    Started: {format_date(job.started)}")
    if explanation.waited:
        lines.append(f"    Waited: {format_duration(sum(explanation.waited.values()))}")
    lines += [
        f"        {format_duration(seconds):>8} {WAITING_FOR.get(code, code)}"
        for code, seconds in explanation.waited.items()
    ]
    return lines + _end_lines(job, end) if job.is_final else lines


def _end_lines(job: "Job", end: JobEnd | None) -> list[str]:
    status = format_exit_code(job.exit_code)
    lines = [f"    Ended: {format_date(job.stop_time)}, {job.state}{f', exit code {status}' if status else ''}"]
    if end:
        lines.append(f"    Why it ended: {visible(end.text.sentence)}")
        lines += [f"    What to do: {visible(end.text.advice)}"] if end.text.advice else []
    return lines


def _without_start(reason: "WaitReason") -> str:
    """Return why no start is predicted."""
    if reason.data.get("limit") == RoundLimit.DEPTH:
        return "none is planned, because of SCHEDULER_BACKFILL_DEPTH; the job starts when that delays no planned job"
    is_later = reason.code == ReasonCode.LIMIT
    return f"not foreseen{' yet: the jobs before it are planned first' if is_later else ''}"


def _start_lines(start: PredictedStart) -> list[str]:
    hosts = f" on {', '.join(map(visible, start.hosts))}" if start.hosts else ""
    how = {
        Firmness.FIXED: "as agreed",
        Firmness.LATEST: f"at the latest, for {start.because}",
        Firmness.TENTATIVE: f"as things are; {start.because}",
    }[start.firmness]
    lines = [f"    Start: {format_date(start.date)}{hosts}, {how}"]
    if start.foreseen_at:
        lines.append(f"    Foreseen: at {format_date(start.foreseen_at)} or later; the plan is being renewed")
    if start.before:
        lines.append(f"    Before it: {start.before} waiting job{'s' * (start.before > 1)}")
    return lines


def _experience(start: PredictedStart) -> list[str]:
    """Return the accuracy of earlier predictions of the queue, unless the start is fixed."""
    if not start.measured or start.firmness is Firmness.FIXED:
        return []
    half, most = format_duration(start.measured.half), format_duration(start.measured.most)
    history = f"half of the jobs in this queue started within {half} of their first predicted start"
    return [f"    So far: {history}, 9 in 10 within {most}"]


def _position_lines(job: "Job", reason: "WaitReason") -> list[str]:
    """Return what decided the position of a job in the planning order."""
    share, jobs = reason.data.get("fairshare"), reason.data.get("jobs_per_user")
    lines = [f"    Fair share: {_share(job, share)}"] if share else []
    if jobs:
        lines.append(
            f"    Order: its user has more than {jobs} waiting jobs; a scheduling pass plans {jobs} of each user first,"
            " then the others (SCHEDULER_MAX_JOBS_PER_USER)"
        )
    return lines


def _share(job: "Job", share: Mapping[str, float]) -> str:
    """Return the values that determine the position of a job; the smallest karma is first."""
    karma = f"karma {job.last_karma:.3f}; " if job.last_karma is not None else ""
    user = f"its user used {share['user_used']:.1%} and requested {share['user_asked']:.1%} of the total"
    return (
        f"{karma}{user}, his share is {share['user_target']:.1%};"
        f" its project used {share['project_used']:.1%}, its share is {share['project_target']:.1%}"
    )
