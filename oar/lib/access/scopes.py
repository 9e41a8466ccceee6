"""Scopes: what a token lets a program do of what its user may.  See docs/api.rst, "Tokens"."""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from oar.lib.base.errors import BadRequest


class JobAct(StrEnum):
    """What can be done with a job that exists."""

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
    "rw": "everything that its user may",
    "ro": "read as its user",
    "submit": "submit, and read and delete what was submitted with it",
    "job:ID": "read one job, its array and its output; delete, signal, checkpoint and prolong it",
    "admin": "everything, as an administrator",
    "agent:NAME": "be the agent of a desktop computer, or of any for *; made by administrators",
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
    """What a token allows: its words, and the jobs and the desktop computers that it names."""

    words: frozenset[str]
    jobs: frozenset[int] = frozenset()
    agents: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, text: str) -> "Scopes":
        """Return the scopes of a list with commas.  Raises BadRequest."""
        words, jobs, agents = set(), set(), set()
        for word in text.split(","):
            if found := _ONE_JOB.fullmatch(word):
                jobs.add(int(found[1]))
            elif found := _AGENT.fullmatch(word):
                agents.add(found[1])
            elif word in _WORDS:
                words.add(word)
            else:
                raise BadRequest(f"{word!r} is no scope: {', '.join(SCOPES)}")
        return cls(frozenset(words), frozenset(jobs), frozenset(agents))

    def __str__(self) -> str:
        named = [*(f"job:{job}" for job in sorted(self.jobs)), *(f"agent:{name}" for name in sorted(self.agents))]
        return ",".join([*sorted(self.words), *named])

    def is_agent_of(self, host: str) -> bool:
        """Whether this is the token of the agent of a computer."""
        return host in self.agents or self.is_any_agent

    @property
    def is_any_agent(self) -> bool:
        """Whether this is the token of agents of all computers, also of new ones."""
        return ANY_AGENT in self.agents

    @property
    def reads_all(self) -> bool:
        """Whether everything may be read that the user may read."""
        return bool(self.words & {"rw", "ro", "admin"})

    @property
    def changes_all(self) -> bool:
        """Whether everything may be changed that the user may change."""
        return bool(self.words & {"rw", "admin"})

    @property
    def submits(self) -> bool:
        """Whether jobs may be submitted."""
        return self.changes_all or "submit" in self.words

    @property
    def administers(self) -> bool:
        """Whether an administrator is one by this token."""
        return "admin" in self.words

    def allows(self, act: JobAct, job_id: int, *, was_submitted: bool) -> bool:
        """Whether something may be done with a job; ``was_submitted``: by this very token."""
        if self.changes_all or (job_id in self.jobs and act in OF_ONE_JOB):
            return True
        if act == JobAct.READ_OUTPUT and self.reads_all:
            return True
        return was_submitted and "submit" in self.words and act in OF_SUBMITTED


#: Of who is identified without a token.
EVERYTHING = Scopes(frozenset({"rw"}))
