"""The types of the messages on the bus and of the effects of a transaction.

A message is a doorbell: it may be lost, duplicated or late without harm. Effects are values in ``tx.outbox``;
``oar.lib.runtime`` delivers them after the commit, never before. Mails and notices are also stored by the transaction.

See docs/design/bus.rst, "Principles" and "Effects".
"""

import json
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple


class Tag(StrEnum):
    """A notification to the automaton (docs/design/bus.rst, "Tags")."""

    QSUB = "Qsub"  #: a job was submitted
    QSUB_INTERACTIVE = "Qsub -I"
    TERM = "Term"  #: something changed: schedule
    BIPBIP = "BipBip"  #: a job has ended
    SCHEDULING = "Scheduling"  #: the periodic round
    QRESUME = "Qresume"  #: a job may resume
    WALLTIME = "Walltime"  #: a change of walltime was asked
    QDEL = "Qdel"  #: a job must be killed
    VILLAINS = "Villains"  #: look for passed deadlines
    FINAUD = "Finaud"  #: ask the nodes whether they live
    REACHABILITY = "Reachability"  #: compare the nodes that the servers reach
    TIME = "Time"  #: nothing else to do
    CHSTATE = "ChState"  #: events or node states are pending


class JobAction(StrEnum):
    """An action on a job or a node that the Runner may be requested to check."""

    RUN = "RUN"
    END = "END"
    EXTERMINATE = "EXTERMINATE"
    KILL = "KILL"
    SIGNAL = "SIGNAL"
    SUSPEND = "SUSPEND"
    RESUME = "RESUME"
    TELL = "TELL"
    SWEEP = "SWEEP"  #: not of a job: ``lines`` are nodes that must be cleaned before they may be Alive
    PROBE = "PROBE"  #: not of a job: ``lines`` are nodes whose jobs should be asked for
    CHECK = "CHECK"  #: not of a job: ``lines`` are nodes that should check what failed there
    ENERGY = "ENERGY"  #: not of a job: nodes are to be halted or woken; which ones is in the event log
    HEAL = "HEAL"  #: not of a job: ``lines`` are "<resource id> <node>" for SUSPECTED_HEALING_EXEC_FILE
    SEND = "SEND"  #: not of a job: the outbox has new messages


class OarsubLine(StrEnum):
    """A line to a waiting ``oarsub``. Start predictions and reasons of a refusal are separate texts."""

    STARTING = "Starting..."  #: the nodes of the job are prepared
    HELD = "Start prediction: undefined (Hold)"  #: the job is on hold
    GOOD_JOB = "GOOD JOB"  #: the job runs
    BAD_JOB = "BAD JOB"  #: the job will not run
    JOB_KILLED = "JOB KILLED"  #: somebody asked for the end of the job
    GOOD_RESERVATION = "GOOD RESERVATION"  #: the reservation is accepted
    BAD_NODES = "ERROR: some resources did not respond"
    BAD_HEAD = "ERROR: an error occured on the first job node"
    BAD_PROLOGUE = "ERROR: SERVER PROLOGUE returned a bad value"
    LONG_PROLOGUE = "ERROR: SERVER PROLOGUE timed out"


class NoticeTag(StrEnum):
    """The subject of a notice to the owner of a job (``oarsub --notify``)."""

    RUNNING = "RUNNING"  #: it runs
    END = "END"  #: it ended
    ERROR = "ERROR"  #: it was killed, or could not run
    INFO = "INFO"  #: its deletion was asked
    SUSPENDED = "SUSPENDED"  #: it is suspended
    RESUMING = "RESUMING"  #: it goes on as soon as its resources are free


class EnergyCommand(StrEnum):
    """A command to Greta, or to the energy commands of a site."""

    HALT = "HALT"  #: halt nodes
    WAKEUP = "WAKEUP"  #: wake nodes
    CHECK = "CHECK"  #: look whether there is something to do


class Wake(NamedTuple):
    """Wake the automaton."""

    tag: Tag


class Ask(NamedTuple):
    """Notify the Runner of an action on a job. ``lines`` are sent to the waiting oarsub with TELL.

    Without lines, TELL sends the line for the state of the job. With END, ``lines`` may name the head of a job whose
    end report has just been stored.
    """

    action: JobAction
    job_id: int
    lines: tuple[str, ...] = ()


class Notice(NamedTuple):
    """Notify the owner of a job of a change. ``notify`` is the value of ``jobs.notify``."""

    job_id: int
    job_name: str
    user: str
    notify: str
    host: str  #: where the job was submitted, for ``exec:``
    tag: NoticeTag
    text: str
    array_id: int = 0
    why: str = ""  #: for mails: why the job ended, what to do, what it used


class ReservationMail(NamedTuple):
    """A mail about an advance reservation."""

    frame_id: int  #: the job in whose events the mail is noted
    user: str  #: the owner, whose mails are limited
    recipients: tuple[str, ...]
    topic: str  #: what happened and to which reservation, for the subject
    text: str


class ReservationNews(NamedTuple):
    """Notify the site of a line in the log of an advance reservation."""

    line: int


class UserMail(NamedTuple):
    """A mail to users that is about no job."""

    recipients: tuple[str, ...]
    topic: str  #: for the subject
    text: str


class Mail(NamedTuple):
    """A mail to the administrator."""

    subject: str
    text: str


class Energy(NamedTuple):
    """Request Greta, or the site's commands, to halt or wake nodes."""

    command: EnergyCommand
    nodes: tuple[str, ...] = ()


class Due(NamedTuple):
    """Sarko has work at this time (Unix time), which its last pass could not know in advance."""

    date: int


#: Effects that the transaction stores in the table ``outbox``, so that no crash loses them.
Stored = Notice | ReservationMail | ReservationNews | UserMail | Mail
Effect = Wake | Ask | Energy | Due | Stored


def without_repetitions(effects: Sequence[Effect]) -> list[Effect]:
    """Return effects in order, each tag and each date once: the jobs of a burst wake the automaton together.

    >>> without_repetitions([Wake(Tag.TERM), Due(5), Wake(Tag.TERM), Due(5), Due(6)])
    [Wake(tag=<Tag.TERM: 'Term'>), Due(date=5), Due(date=6)]
    """
    kept: list[Effect] = []
    seen: set[Wake | Due] = set()
    for effect in effects:
        if not isinstance(effect, Wake | Due):
            kept.append(effect)
        elif effect not in seen:
            seen.add(effect)
            kept.append(effect)
    return kept


def announcements(effects: Sequence[Effect]) -> "list[Wake | Ask | Energy | Due]":
    """Return the messages about effects: one message announces all stored effects.

    >>> announcements([Mail("a", "b"), Wake(Tag.TERM), Mail("c", "d")])
    [Wake(tag=<Tag.TERM: 'Term'>), Ask(action=<JobAction.SEND: 'SEND'>, job_id=0, lines=())]
    """
    others = [effect for effect in effects if not isinstance(effect, Stored)]
    return others if len(others) == len(effects) else [*others, Ask(JobAction.SEND, 0)]


def encode_request(effect: Wake | Ask) -> bytes:
    """Return the request of a command to the tag endpoint."""
    if isinstance(effect, Wake):
        return json.dumps({"cmd": effect.tag}).encode()
    command = "OARRUN" if effect.action is JobAction.RUN else effect.action.value
    return json.dumps({"cmd": command, "job_id": effect.job_id}).encode()


# -- notifications to listeners of the database (docs/design/locks.rst, "Notifications") ------------------------------


class Channel(StrEnum):
    """A channel of NOTIFY."""

    EVENT = "oar_event"  #: the payload is a topic
    JOB_END = "oar_job_end"  #: the payload is the ids of jobs that have ended, with blanks between them


class Topic(StrEnum):
    """The subject of a change, in notifications to listeners."""

    JOBS = "jobs"  #: jobs: their states, descriptions, resources, reasons, ends
    RESOURCES = "resources"  #: resources: their states and properties, and the history of both
    GANTT = "gantt"  #: the plan: predicted starts and resources
    QUEUES = "queues"  #: queues
    ACCOUNTING = "accounting"  #: consumption
    EVENTS = "events"  #: the log of events
    RESERVATIONS = "reservations"  #: advance reservations: rows, changes, what belongs to them
    TOKENS = "tokens"  #: tokens of the API: new ones, revoked ones
