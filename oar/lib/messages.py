"""What travels on the bus, and the effects that a transaction leaves behind, as types.

A message is a doorbell: it may be lost, doubled or late without harm (server.md 1).  Effects are values in
``tx.outbox``; ``oar.lib.runtime`` delivers them after the commit, never before.
"""

import json
from enum import StrEnum
from typing import NamedTuple


class Tag(StrEnum):
    """What may be said to the automaton (server.md 3.2)."""

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
    TIME = "Time"  #: nothing else to do
    CHSTATE = "ChState"  #: events or node states are pending


class JobAction(StrEnum):
    """What the Runner may be asked to look at for a job (server.md 4.1, E4)."""

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
    ENERGY = "ENERGY"  #: not of a job: nodes are to be halted or woken; which ones is in the event log
    HEAL = "HEAL"  #: not of a job: ``lines`` are "<resource id> <node>" for SUSPECTED_HEALING_EXEC_FILE


class Wake(NamedTuple):
    """Ring the automaton."""

    tag: Tag


class Ask(NamedTuple):
    """Ring the Runner for a job.  ``lines`` go to the waiting oarsub with TELL."""

    action: JobAction
    job_id: int
    lines: tuple[str, ...] = ()


class Notice(NamedTuple):
    """Tell the owner of a job what became of it (server.md 8.2).  ``notify`` is the text of ``jobs.notify``."""

    job_id: int
    job_name: str
    user: str
    notify: str
    host: str  #: where the job was submitted, for ``exec:``
    tag: str  #: RUNNING, END, ERROR, INFO, SUSPENDED, RESUMING
    text: str
    array_id: int = 0
    why: str = ""  #: for mails: why the job ended, what to do, what it used


class Mail(NamedTuple):
    """A mail to the administrator."""

    subject: str
    text: str


class Energy(NamedTuple):
    """Ask Greta or the site's commands to halt or wake nodes."""

    command: str  #: HALT, WAKEUP or CHECK
    nodes: tuple[str, ...] = ()


class Due(NamedTuple):
    """Sarko has something to do at this date (epoch), of which his last look could not know."""

    date: int


Effect = Wake | Ask | Notice | Mail | Energy | Due


def encode_request(effect: Wake | Ask) -> bytes:
    """Return what a command writes to the tag endpoint."""
    if isinstance(effect, Wake):
        return json.dumps({"cmd": effect.tag}).encode()
    command = "OARRUN" if effect.action is JobAction.RUN else effect.action.value
    return json.dumps({"cmd": command, "job_id": effect.job_id}).encode()
