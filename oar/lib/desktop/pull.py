"""PULL: in one transaction, an agent reports the state of its jobs and receives its next actions.

Data from an agent is untrusted: it affects only the jobs that this agent has fetched.

See docs/design/desktop.rst, "PULL".
"""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from oar.lib.base.errors import UserError
from oar.lib.base.times import format_duration
from oar.lib.bus.messages import Ask, Due, JobAction, Tag, Wake
from oar.lib.desktop.records import AgentCall, AgentJob, AgentJobState, AgentReason, PullAnswer
from oar.lib.history.event_consequences import NOT_STARTED
from oar.lib.history.event_types import EventType
from oar.lib.jobs import lifecycle, output_names
from oar.lib.jobs.ends import Cause, EndCode, ExecCode
from oar.lib.jobs.sql_runs import ReportedEnd
from oar.lib.jobs.states import JobState, Phase
from oar.lib.nodes import state_changes
from oar.lib.nodes.properties import Setting, check_host
from oar.lib.nodes.states import UNCHANGED, ResourceState
from oar.lib.submission import job_environment
from oar.lib.submission.resource_request import GROWING, JobTypes

if TYPE_CHECKING:
    from oar.lib.config.files import Config
    from oar.lib.db.transaction import Transaction
    from oar.lib.desktop.sql_desktop import DesktopResource, FetchedJob
    from oar.lib.jobs.records import Job
    from oar.lib.jobs.sql_jobs import JobDetail

#: Longest time between two calls, in seconds; also a third of the time after which a silent computer is suspected.
LONGEST_PAUSE = 30
#: A job that is missing in this number of consecutive calls is lost.
LOST_AFTER = 2
#: Limit of the jobs to start in one answer.
MOST_STARTS = 50
#: Limit of the size of an unpacked archive, as a multiple of the limit of uploads.
UNPACKED_TIMES = 16

_FETCHED = (Phase.GO, Phase.STARTED)
_AWAY = (ResourceState.ABSENT, ResourceState.SUSPECTED)
_BY_AGENT = (AgentReason.KILLED, AgentReason.WALLTIME, AgentReason.QUIT)


class UnknownComputer(UserError):
    """The computer is not declared."""

    def __init__(self, host: str) -> None:
        super().__init__(f"{host} is not a known Desktop Computing node, declare it in OAR database first.")


class NoDesktopComputer(UserError):
    """The node is a normal node without an agent."""

    def __init__(self, host: str) -> None:
        super().__init__(f"{host} is not declared as a Desktop Computing node in OAR database.")


def pull(tx: "Transaction", call: AgentCall, config: "Config", *, may_create: bool) -> PullAnswer:
    """Store the report of an agent and return its next actions.  Raises UnknownComputer, NoDesktopComputer."""
    expiry = config.desktop_computing_expiry
    jobs = {  # its own, and those of a silent agent with the same name
        job.id: job for job in tx.desktop_computers.jobs(call.host) if _is_own(job, call) or job.named < tx.now - expiry
    }
    _note_call(tx, call, expiry, may_create=may_create)
    killed = tx.job_requests.jobs_to_kill(jobs) if jobs else set()
    ended = _note_ends(tx, call, jobs, killed)
    missing = [job.id for job in jobs.values() if job.phase in _FETCHED and job.id not in call.jobs]
    tx.desktop_computers.note_presence(call.jobs.keys() & jobs.keys(), missing, max(1, expiry // 3))
    live = {job_id: job for job_id, job in jobs.items() if job_id not in ended and not job.report_date}
    if arrived := [job.id for job in live.values() if job.phase is Phase.GO and job.id in call.jobs]:
        tx.job_runs.note_started(dict.fromkeys(arrived, call.agent))
    starts = [] if call.quits else _start(tx, call, live, killed)
    unwanted = [
        job_id
        for job_id, told in call.jobs.items()
        if told.state is not AgentJobState.ENDED and (job_id in killed or job_id not in live)
    ]
    pause = max(1, min(LONGEST_PAUSE, expiry // 3))
    details = tx.jobs.read_details(starts) if starts else {}
    started = tx.jobs.select(starts) if starts else ()
    launches = {job.id: _launch_record(tx, job, details[job.id], call.host, config) for job in started}
    return PullAnswer(launches, tuple(sorted(unwanted)), pause)


def _is_own(job: "FetchedJob", call: AgentCall) -> bool:
    """Return whether no other agent of the same name has fetched the job."""
    return job.agent in ("", call.agent)


# -- the computer -----------------------------------------------------------------------------------------------------


def _note_call(tx: "Transaction", call: AgentCall, expiry: int, *, may_create: bool) -> None:
    """Store the call of an agent: its computer is present, or leaves.  Raises UnknownComputer, NoDesktopComputer."""
    resources = tx.desktop_computers.resources(call.host)
    if not resources and not (may_create and not call.quits):
        raise UnknownComputer(call.host)
    if not resources:
        _create(tx, call.host)
        resources = tx.desktop_computers.resources(call.host)
    if not all(resource.is_desktop for resource in resources):
        raise NoDesktopComputer(call.host)
    ids = [resource.id for resource in resources]
    tx.desktop_computers.note_call(ids, tx.now if call.quits else tx.now + expiry)
    if call.quits:
        _note_leave(tx, call.host, resources)
    else:
        _note_return(tx, call.host, resources)


def _create(tx: "Transaction", host: str) -> None:
    """Add an undeclared computer.  Raises UnknownComputer if the host name is invalid."""
    try:
        check_host(host)
    except ValueError:
        raise UnknownComputer(host) from None
    state_changes.add(tx, [host], [Setting("desktop_computing", "YES")])


def _note_leave(tx: "Transaction", host: str, resources: "Collection[DesktopResource]") -> None:
    """Set a computer Absent by the system, so that its agent can bring it back; its jobs end as the agent reports."""
    ids = [row.id for row in resources if row.state is ResourceState.ALIVE or _is_away_by_system(row)]
    if ids:
        text = f"the agent of {host} was ended: {len(ids)} resources"
        tx.events.add(EventType.NODE_LEAVES, 0, text, to_check=True, hosts=[host])
        tx.resources.ask_state(ids, ResourceState.ABSENT, finaud=True)
        tx.nodes.set_reason(ids, "", "its agent said that it goes")
        tx.outbox.append(Wake(Tag.CHSTATE))


def _note_return(tx: "Transaction", host: str, resources: "Collection[DesktopResource]") -> None:
    """Set a computer Alive if the system made it unavailable or is about to do so."""
    ids = [row.id for row in resources if _is_away_by_system(row)]
    if ids:
        tx.events.add(EventType.NODE_IS_BACK, 0, f"the agent of {host} calls: {len(ids)} resources", hosts=[host])
        tx.resources.ask_state(ids, ResourceState.ALIVE)
        tx.outbox.append(Wake(Tag.CHSTATE))


def _is_away_by_system(resource: "DesktopResource") -> bool:
    if resource.next_state == UNCHANGED:
        return resource.by_system and resource.state in _AWAY
    return resource.next_by_system and resource.next_state in _AWAY


# -- ends -------------------------------------------------------------------------------------------------------------


class _JobEnd(NamedTuple):
    """The end of a job in the form that is stored."""

    code: ExecCode
    status: int | None = None
    detail: str = ""


def _note_ends(
    tx: "Transaction", call: AgentCall, jobs: "Mapping[int, FetchedJob]", killed: Collection[int]
) -> set[int]:
    """Store the ends of jobs, reported or detected; return the ids of these jobs."""
    missing = [job for job in jobs.values() if job.id not in call.jobs and not job.report_date]
    ends = {
        job_id: _reported_end(tx, jobs[job_id], told, is_killed=job_id in killed)
        for job_id, told in call.jobs.items()
        if job_id in jobs and jobs[job_id].phase in _FETCHED and told.state is AgentJobState.ENDED
    }
    for job in missing:
        found = _detected_end(job, call, is_killed=job.id in killed)
        if found:
            ends[job.id] = found
    for job_id, told in call.jobs.items():
        if job_id in ends and told.is_because(AgentReason.NO_RESULTS):
            tx.events.add(EventType.STAGEOUT_ERROR, job_id, f"[{call.host}] {told.reason}")
    new = tx.job_runs.report_all({job_id: ReportedEnd(end.code, end.status, tx.now) for job_id, end in ends.items()})
    for job_id in sorted(new):
        if ends[job_id].detail:
            tx.job_runs.update(job_id, detail=ends[job_id].detail)
        tx.outbox.append(Ask(JobAction.END, job_id))
    return set(ends)


def _reported_end(tx: "Transaction", job: "FetchedJob", told: AgentJob, *, is_killed: bool) -> _JobEnd:
    """Return the end that an agent reports."""
    if is_killed and (told.status is None or any(told.is_because(reason) for reason in _BY_AGENT)):
        return _JobEnd(ExecCode.KILLED)
    if told.is_because(AgentReason.WALLTIME) and tx.now >= job.start + job.walltime:
        tx.job_requests.request_kill({job.id: Cause(EndCode.WALLTIME)})
        tx.outbox.append(Wake(Tag.QDEL))
        return _JobEnd(ExecCode.KILLED)
    if told.is_because(AgentReason.QUIT):
        return _JobEnd(ExecCode.SHUTDOWN)
    if told.status is not None:
        return _JobEnd(ExecCode.OK, told.status)
    if told.is_because(AgentReason.NOT_STARTED):
        return _JobEnd(ExecCode.STAGING, None, told.reason.partition(":")[2].strip())
    return _JobEnd(ExecCode.DIED, None, told.reason or AgentReason.LOST)


def _detected_end(job: "FetchedJob", call: AgentCall, *, is_killed: bool) -> _JobEnd | None:
    """Return the end of a job that its agent does not report; None if the job continues."""
    is_fetched = job.phase in _FETCHED
    if is_fetched and is_killed:
        is_lost = job.phase is Phase.GO or job.absences + 1 >= LOST_AFTER or call.quits
        return _JobEnd(ExecCode.KILLED) if is_lost else None
    if call.quits and is_fetched:
        return _JobEnd(ExecCode.SHUTDOWN)
    if call.quits and job.phase is Phase.EXEC_SENT:
        return _JobEnd(
            ExecCode.SHUTDOWN, None, f"{NOT_STARTED}: the agent of {call.host} was ended before it had the job"
        )
    if (job.phase is Phase.STARTED or not _is_own(job, call)) and job.absences + 1 >= LOST_AFTER:
        return _JobEnd(ExecCode.DIED, None, f"{AgentReason.LOST}: the agent of {call.host} has it no more")
    return None


# -- starts -----------------------------------------------------------------------------------------------------------


def _start(tx: "Transaction", call: AgentCall, jobs: "Mapping[int, FetchedJob]", killed: Collection[int]) -> list[int]:
    """Set the jobs that wait for the agent to Running.

    Return the jobs to send, including jobs whose earlier response was lost.
    """
    waiting = [job for job in jobs.values() if job.id not in killed and job.id not in call.jobs]
    again = [job.id for job in waiting if job.phase is Phase.GO and _is_own(job, call)]
    new = [job.id for job in waiting if job.phase is Phase.EXEC_SENT and job.state is JobState.LAUNCHING]
    started = lifecycle.move_all(tx, new[: max(0, MOST_STARTS - len(again))], JobState.RUNNING) if new else []
    tx.job_runs.note_go(dict.fromkeys(started, call.agent))
    tx.desktop_computers.note_presence(started, [], 0)
    _notify_of_starts(tx, started)
    return (again + started)[:MOST_STARTS]


def _notify_of_starts(tx: "Transaction", started: Collection[int]) -> None:
    """Notify Sarko of the end dates of the jobs, and the scheduler if a job may grow."""
    details = tx.jobs.read_details(started) if started else {}
    starts = {job.id: job.start_time for job in tx.jobs.select(details)} if details else {}
    tx.outbox += [Due(starts[job_id] + detail.walltime + 1) for job_id, detail in sorted(details.items())]
    if any(GROWING in detail.types for detail in details.values()):
        tx.outbox.append(Wake(Tag.WALLTIME))


# -- the data that an agent needs to start a job -----------------------------------------------------------------------


def _launch_record(tx: "Transaction", job: "Job", detail: "JobDetail", host: str, config: "Config") -> dict[str, Any]:
    stdout, stderr = (output_names.expand(name or "", job, host) for name in (job.stdout_file, job.stderr_file))
    staged = tx.desktop_computers.input_of(job.id)
    resources = tx.resources.select(sorted(detail.resources))
    return {
        "command": job_environment.command_in_job(job.command or "", job.env),
        "script": job_environment.script_of(job.env),
        "stdout_file": stdout,
        "stderr_file": stderr,
        "walltime": detail.walltime,
        "environment": {**_variables(job, detail), **job_environment.variables_of(job.env)},
        "nodes": [node for resource in resources if resource.type == "default" and (node := resource.network_address)],
        "stagein": {"md5sum": staged.md5sum, "kind": staged.compression, "size": staged.size} if staged else None,
        "unpacked_size": config.api_max_upload * UNPACKED_TIMES,
    }


def _variables(job: "Job", detail: "JobDetail") -> dict[str, str]:
    """Return the environment variables of a job that do not depend on its node."""
    types = {type_.name: "1" if type_.value is None else type_.value for type_ in JobTypes(detail.types)}
    texts = (name if value == "1" else f"{name}={value}" for name, value in types.items())
    variables = {
        "OAR_USER": job.user,
        "OAR_JOB_NAME": job.name or "",
        "OAR_PROJECT_NAME": job.project,
        "OAR_JOB_TYPES": ";".join(texts),
        "OAR_JOB_WALLTIME": format_duration(detail.walltime),
        "OAR_JOB_WALLTIME_SECONDS": str(detail.walltime),
        "OAR_CPUSET": "",
    }
    for names, value in (
        ("OAR_JOB_ID OAR_JOBID", job.id),
        ("OAR_ARRAY_ID OAR_ARRAYID", job.array_id),
        ("OAR_ARRAY_INDEX OAR_ARRAYINDEX OAR_JOB_INDEX OAR_JOBINDEX", job.array_index),
    ):
        variables.update(dict.fromkeys(names.split(), str(value)))
    return variables
