"""Scopes: the subset of its user's permissions that a token grants.  See docs/api.rst, "Tokens"."""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from oar.lib.base.errors import BadRequest


class JobAct(StrEnum):
    """Actions on an existing job."""

    DELETE = "delete"
    SIGNAL = "signal"
    CHECKPOINT = "checkpoint"
    WALLTIME = "walltime"
    HOLD = "hold"
    RESUME = "resume"
    RESUBMIT = "resubmit"
    ALTER = "alter"
    READ_OUTPUT = "read the output of"


#: The words of scopes, as people give them.
SCOPES: Mapping[str, str] = {
    "rw": "all rights of its user",
    "ro": "read as its user",
    "submit": "submit jobs; read and delete the jobs submitted with the token",
    "job:ID": "read one job, its array and its output; delete, signal, checkpoint and prolong it",
    "admin": "all rights of an administrator",
    "agent:NAME": "act as the agent of a desktop computer (*: of any); only administrators create it",
}
#: What the scope of one job allows.
OF_ONE_JOB = frozenset({JobAct.DELETE, JobAct.SIGNAL, JobAct.CHECKPOINT, JobAct.WALLTIME, JobAct.READ_OUTPUT})
#: What the scope of submissions allows with the jobs that were submitted by it.
OF_SUBMITTED = frozenset({JobAct.DELETE, JobAct.READ_OUTPUT})

_AGENT = re.compile(r"agent:(\*|[A-Za-z0-9][A-Za-z0-9._:-]{0,254})")
#: The name in the scope of agents of computers that nobody has declared.
ANY_AGENT = "*"
_ONE_JOB = re.compile(r"job:([1-9][0-9]{0,17})")
#: Beside what it allows, of the secret in a cookie: only there it counts.
SESSION = "session"
_WORDS = frozenset({"rw", "ro", "submit", "admin", SESSION})


class Scopes(NamedTuple):
    """The permissions of a token: its scope words, and the jobs and desktop computers that it names."""

    words: frozenset[str]
    jobs: frozenset[int] = frozenset()
    agents: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, text: str) -> "Scopes":
        """Return the scopes in a comma-separated list.  Raises BadRequest."""
        words, jobs, agents = set(), set(), set()
        for scope in text.split(","):
            if match := _ONE_JOB.fullmatch(scope):
                jobs.add(int(match[1]))
            elif match := _AGENT.fullmatch(scope):
                agents.add(match[1])
            elif scope in _WORDS:
                words.add(scope)
            else:
                raise BadRequest(f"{scope!r} is not a scope: use {', '.join(SCOPES)}")
        return cls(frozenset(words), frozenset(jobs), frozenset(agents))

    def __str__(self) -> str:
        named = [*(f"job:{job}" for job in sorted(self.jobs)), *(f"agent:{name}" for name in sorted(self.agents))]
        return ",".join([*sorted(self.words), *named])

    def is_agent_of(self, host: str) -> bool:
        """Return whether the token belongs to the agent of a computer."""
        return host in self.agents or self.is_any_agent

    @property
    def is_any_agent(self) -> bool:
        """Whether the token belongs to the agents of all computers, including new ones."""
        return ANY_AGENT in self.agents

    @property
    def reads_all(self) -> bool:
        """Whether the token may read everything that the user may read."""
        return bool(self.words & {"rw", "ro", "admin"})

    @property
    def changes_all(self) -> bool:
        """Whether the token may change everything that the user may change."""
        return bool(self.words & {"rw", "admin"})

    @property
    def submits(self) -> bool:
        """Whether the token may submit jobs."""
        return self.changes_all or "submit" in self.words

    @property
    def administers(self) -> bool:
        """Whether the token grants an administrator administrative permissions."""
        return "admin" in self.words

    def allows(self, act: JobAct, job_id: int, *, was_submitted: bool) -> bool:
        """Return whether the token allows an action on a job; ``was_submitted``: it submitted the job."""
        if self.changes_all or (job_id in self.jobs and act in OF_ONE_JOB):
            return True
        if act == JobAct.READ_OUTPUT and self.reads_all:
            return True
        return was_submitted and "submit" in self.words and act in OF_SUBMITTED


#: Of who is identified without a token.
EVERYTHING = Scopes(frozenset({"rw"}))
