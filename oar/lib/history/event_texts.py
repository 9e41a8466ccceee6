"""Events as sentences for users: who did what to which job or node; equal events of many jobs or nodes in one line.

The type and the description stay in all formats for programs.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from oar.lib.base.host_names import shorten_host_list
from oar.lib.history.event_types import OLD_EVENT_NAMES, EventType
from oar.lib.history.records import Event
from oar.lib.jobs.ends import describe_exit

#: Descriptions begin with the program that wrote them: ``[bipbip 551] ``.
_WRITER = re.compile(r"\A(?:\[[^\]]{1,40}\] *)+")
_ACTOR = re.compile(r"\AUser (.{1,80}?) (?:requested|cancelled)\b")
#: The account of the system as an actor.
_SYSTEM = "oar"
_CONTAINER = re.compile(r"\AContainer job (\d{1,18}) ")
_PARENTHESIS = re.compile(r"\((.{1,200})\)\Z", re.DOTALL)
_COPY = re.compile(r"\(new id = (\d{1,18})\)")
_SIGNAL = re.compile(r"SIGNAL_(\d{1,2})")
#: Descriptions of suspicions: the nodes, and the type of the event that led to them.
_SUSPICION = re.compile(r"\A.{1,500}?: Suspected(?:: (?:[A-Z][A-Z_]+: )?|\Z)(?:\[[^\]]{1,40}\] *)*")
#: Events of equal sentences within so many seconds are one line.
GROUP_SECONDS = 300
#: So many job ids are named in a line.
_NAMED_JOBS = 5

#: Events whose sentences tell how the command of the job ended.
JOB_ENDS = frozenset({EventType.SWITCH_INTO_TERMINATE_STATE, EventType.SWITCH_INTO_ERROR_STATE})

#: Sentences by type.  ``job``: "Job 12"; ``nodes``; ``by``: who; ``detail``: ": " and the description without its
#: writer, or ''; ``text``: that description; ``change``: what it has in parentheses; ``exit``: how the command ended.
_TEXTS: Mapping[str, str] = {
    EventType.SWITCH_INTO_TERMINATE_STATE: "{job} ended{exit}",
    EventType.SWITCH_INTO_ERROR_STATE: "{job} ended with an error{exit}",
    EventType.FRAG_JOB_REQUEST: "{by} requested the end of {job}",
    EventType.SEND_KILL_JOB: "OAR told the processes of {job} to end",
    EventType.EXTERMINATE_JOB: "OAR gave up {job}, which did not react to the kill",
    EventType.FORCE_TERMINATE_FINISHING_JOB: "The end of {job} was forced, without the clean-up of the nodes",
    EventType.LEON_KILL_BIPBIP_TIMEOUT: "OAR ended {job}, since the launch took too long",
    EventType.WALLTIME: "OAR ended {job} at the end of the walltime",
    EventType.BESTEFFORT_KILL: "OAR ended {job}, whose resources another job needed",
    EventType.CHECKPOINT: "{by} requested a checkpoint of {job}",
    EventType.CHECKPOINT_SUCCESS: "{job} got the checkpoint signal",
    EventType.CHECKPOINT_ERROR: "{job} could not get the checkpoint signal{detail}",
    EventType.CHECKPOINT_TIMEOUT: "{job} did not get the checkpoint signal in time",
    EventType.SIG_SUCCESS: "{job} got the signal",
    EventType.SIG_ERROR: "{job} could not get the signal{detail}",
    EventType.HOLD_WAITING_JOB: "{by} put {job} on hold",
    EventType.HOLD_RUNNING_JOB: "{by} requested to suspend {job}",
    EventType.RESUME_JOB: "{by} released {job}",
    EventType.SUSPEND_ERROR: "{job} could not be suspended{detail}",
    EventType.RESUME_ERROR: "{job} could not be resumed{detail}",
    EventType.WALLTIME_REQUEST: "{by} requested another walltime for {job}{change}",
    EventType.WALLTIME_REQUEST_CANCELLATION: "{by} withdrew the request for another walltime for {job}",
    EventType.WALLTIME_CHANGED: "The walltime of {job} was changed{change}",
    EventType.ALTER: "Change of {job}{detail}",
    EventType.ADD_BESTEFFORT_JOB_TYPE: "The type besteffort was added to {job}",
    EventType.DELETE_BESTEFFORT_JOB_TYPE: "The type besteffort was removed from {job}",
    EventType.RESUBMIT_JOB_AUTOMATICALLY: "OAR submitted {job} again{copy}",
    EventType.RESUBMIT_JOB_AUTOMATICALLY_CANCELLED: "OAR did not submit {job} again{reason}",
    EventType.PROLOGUE_ERROR: "The prologue of {job} failed{on}{detail}",
    EventType.EPILOGUE_ERROR: "The epilogue of {job} failed{on}{detail}",
    EventType.SERVER_PROLOGUE_ERROR: "The prologue of the server failed for {job}{detail}",
    EventType.SERVER_PROLOGUE_EXIT_CODE_ERROR: "The prologue of the server failed for {job}{detail}",
    EventType.SERVER_PROLOGUE_TIMEOUT: "The prologue of the server took too long for {job}",
    EventType.SERVER_EPILOGUE_ERROR: "The epilogue of the server failed for {job}{detail}",
    EventType.SERVER_EPILOGUE_EXIT_CODE_ERROR: "The epilogue of the server failed for {job}{detail}",
    EventType.SERVER_EPILOGUE_TIMEOUT: "The epilogue of the server took too long for {job}",
    EventType.WORKING_DIRECTORY: "{job} could not enter the working directory{detail}",
    EventType.OUTPUT_FILES: "{job} could not write the output files{detail}",
    EventType.HOME_MISSING: "{job} did not find the home directory of the user{detail}",
    EventType.USER_SHELL: "The login shell of the user of {job} could not be started{detail}",
    EventType.LAUNCHING_OAREXEC_TIMEOUT: "{job} could not be started{on}{detail}",
    EventType.EXIT_VALUE_OAREXEC: "The program that ran {job} failed{detail}",
    EventType.OAREXEC_DIED: "The program that ran {job} was killed{detail}",
    EventType.CPUSET_ERROR: "{nodes} could not be prepared for {job}{detail}",
    EventType.CPUSET_PROPERTY_ERROR: "The description of {nodes} does not fit{detail}",
    EventType.CPUSET_CLEAN_ERROR: "{nodes} could not be cleaned after {job}{detail}",
    EventType.NODE_LOST: "No answer from {nodes}, which ran {job}",
    EventType.NODE_REBOOTED: "Reboot of {nodes} under {job}",
    EventType.NODE_SHUTDOWN: "Shutdown of {nodes} under {job}",
    EventType.PING_CHECKER_NODE_SUSPECTED: "No answer from {nodes}: no jobs start there",
    EventType.PING_CHECKER_NODE_SUSPECTED_END_JOB: "No answer from {nodes} at the end of {job}: no jobs start there",
    EventType.LOG_SUSPECTED: "No jobs start on {nodes}{detail}",
    EventType.FINAUD_ERROR: "The check of {nodes} failed",
    EventType.FINAUD_RECOVER: "The check of {nodes} succeeded",
    EventType.NODE_SWEPT: "The clean-up of {nodes} succeeded",
    EventType.NODE_LEAVES: "Announced shutdown of {nodes}",
    EventType.NODE_IS_BACK: "Jobs can start on {nodes} again",
    EventType.HALT_NODE: "OAR halts {nodes} to save energy",
    EventType.WAKEUP_NODE: "OAR wakes {nodes}",
    EventType.LOST_SESSION: "The session of {job} was lost{detail}",
    EventType.JOB_RECOVERED: "OAR found {job} running",
    EventType.RESERVATION_NO_NODE: "{job} had no node at its start{detail}",
    EventType.USER_MAIL_NOTIFICATION: "A mail about {job} was sent",
    EventType.MAIL_NOTIFICATION_ERROR: "A mail about {job} could not be sent{detail}",
    EventType.USER_EXEC_NOTIFICATION: "The notification command of {job} ran",
    EventType.USER_EXEC_NOTIFICATION_ERROR: "The notification command of {job} failed{detail}",
    EventType.SUBMISSION_REFUSED: "A rule of the site refused a submission{detail}",
    EventType.SUBMISSION_INVALID: "A submission was invalid{detail}",
}


def event_sentence(event: Event, exit_status: int | None = None) -> str:
    """Return an event as a sentence; ``exit_status``: wait status of the command of the job, if it is known."""
    return _sentence(event, [event.job_id] if event.job_id else [], event.hosts, exit_status)


class EventGroup(NamedTuple):
    """Events that one sentence tells."""

    events: Sequence[Event]
    sentence: str

    @property
    def first(self) -> Event:
        return self.events[0]


def group_events(events: Iterable[Event], exit_statuses: Mapping[int, int | None] = {}) -> list[EventGroup]:
    """Return events in their order, those that follow each other and differ in their job or nodes only in one group.

    ``exit_statuses``: wait statuses by job.
    """

    def sense(event: Event) -> tuple[str, str, int]:
        sentence = _sentence(event, [0], ["?"], exit_statuses.get(event.job_id))
        return event.type, sentence, event.date // GROUP_SECONDS

    return [_group(list(some), exit_statuses) for _, some in groupby(events, sense)]


def _group(events: Sequence[Event], exit_statuses: Mapping[int, int | None]) -> EventGroup:
    jobs = list(dict.fromkeys(event.job_id for event in events if event.job_id))
    hosts = list(dict.fromkeys(host for event in events for host in event.hosts))
    sentence = _sentence(events[0], jobs, hosts, exit_statuses.get(events[0].job_id))
    times = len(events) if len(jobs) < 2 and len(hosts) < 2 else 1
    return EventGroup(events, f"{sentence} ({times} times)" if times > 1 else sentence)


def _sentence(event: Event, jobs: Sequence[int], hosts: Sequence[str], exit_status: int | None) -> str:
    type_ = OLD_EVENT_NAMES.get(event.type, event.type)
    text = _SUSPICION.sub("", " ".join(_WRITER.sub("", event.description).split()))
    signal = _SIGNAL.fullmatch(type_)
    template = "{by} requested signal {number} for {job}" if signal else _TEXTS.get(type_)
    if template is None:
        return _capital(text) or f"{_capital(_jobs(jobs) or 'the system')}: {type_.lower().replace('_', ' ')}"
    values = _values(text, jobs, hosts, exit_status)
    return _capital(template.format_map({**values, "number": signal[1] if signal else ""}))


def _values(text: str, jobs: Sequence[int], hosts: Sequence[str], exit_status: int | None) -> dict[str, str]:
    change, copy, how = _PARENTHESIS.search(text), _COPY.search(text), describe_exit(exit_status)
    nodes = shorten_host_list(hosts) if hosts else ""
    return {
        "job": _jobs(jobs) or "a job",
        "nodes": f"node {nodes}" if len(hosts) == 1 else f"nodes {nodes}" if nodes else "a node",
        "on": f" on {nodes}" if nodes else "",
        "by": _actor(text),
        "detail": f": {text}" if text else "",
        "reason": f": {text.rpartition(': ')[2]}" if text else "",
        "change": f": {change[1]}" if change else "",
        "copy": f" as job {copy[1]}" if copy else "",
        "exit": f": {how}" if how else "",
    }


def _actor(text: str) -> str:
    if container := _CONTAINER.match(text):
        return f"the end of container job {container[1]}"
    actor = _ACTOR.match(text)
    if actor is None or actor[1] == _SYSTEM:
        return "OAR" if text else "somebody"  # a text that the reader may not see
    return actor[1]


def _jobs(ids: Sequence[int]) -> str:
    """Return some jobs in words; consecutive ids as ranges."""
    if len(ids) < 2:
        return f"job {ids[0]}" if ids else ""
    parts = list(_ranges(sorted(ids)))
    rest = len(parts) - _NAMED_JOBS
    return f"jobs {', '.join(parts[:_NAMED_JOBS])}{f' and {rest} more' if rest > 0 else ''}"


def _ranges(ids: Sequence[int]) -> Iterator[str]:
    for _, pairs in groupby(enumerate(ids), lambda pair: pair[1] - pair[0]):
        run = [number for _, number in pairs]
        yield str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}"


def _capital(text: str) -> str:
    """Return a text with a capital; names of users and nodes keep their letters."""
    is_word = text.startswith(("job ", "jobs ", "node ", "nodes ", "somebody ", "a ", "the "))
    return text[:1].upper() + text[1:] if is_word else text
