"""The messages between the agent of a desktop computer and the server.  See docs/design/desktop.rst."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple


class AgentJobState(StrEnum):
    """The progress of a job on the computer of an agent; ``oar/tools/agent_jobs.py`` has separate names for it."""

    STAGING = "staging"  #: its files are fetched and unpacked
    RUNNING = "running"  #: its command runs
    ENDED = "ended"  #: it is over


class AgentRequest(StrEnum):
    """The requests of an agent."""

    PULL = "PULL"  #: tell what became of its jobs; learn what is to be done
    STAGEIN = "STAGEIN"  #: the file that the user gave to a job
    STAGEOUT = "STAGEOUT"  #: keep the results of a job


class AgentReason(StrEnum):
    """Why a job ended without or against its command; an agent may add details after a colon."""

    NOT_STARTED = "not started"  #: its files could not be fetched or unpacked, or its command not be executed
    LOST = "lost"  #: the agent, or the computer, ended while it ran
    KILLED = "killed"  #: the server asked for that
    WALLTIME = "walltime"  #: its walltime was over, and nothing was heard of the server
    QUIT = "quit"  #: the agent was told to end
    NO_RESULTS = "no results"  #: it ended as its status says, but its results could not be sent


class AgentJob(NamedTuple):
    """A job as reported by its agent."""

    state: AgentJobState
    status: int | None = None  #: raw wait status of its command
    reason: str = ""  #: begins with an ``AgentReason``, or is empty

    def is_because(self, reason: AgentReason) -> bool:
        """Return whether the job ended for this reason."""
        return self.reason == reason or self.reason.startswith(f"{reason}:")


class AgentCall(NamedTuple):
    """A PULL request of an agent."""

    host: str
    jobs: Mapping[int, AgentJob] = {}
    quits: bool = False  #: it is the last one
    agent: str = ""  #: which of the agents that have this name: the name of the directory in which it works


class PullAnswer(NamedTuple):
    """The next actions of an agent."""

    launch: Mapping[int, Mapping[str, Any]]  #: jobs to start, each with all that is needed
    kill: tuple[int, ...]  #: jobs that must not be there
    next: int  #: seconds after which it asks again

    @property
    def record(self) -> dict[str, Any]:
        """The response as sent."""
        return {"launch": dict(self.launch), "kill": list(self.kill), "next": self.next}
