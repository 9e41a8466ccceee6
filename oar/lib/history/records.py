"""The ordered history: state changes of jobs, and positions in the history. See docs/design/events.rst, "The feed"."""

import re
from enum import StrEnum
from typing import NamedTuple, Self

from oar.lib.base.errors import BadRequest
from oar.lib.jobs.states import (
    JobState,
)

_TEXT = re.compile(r"s([0-9]{1,18})\.e([0-9]{1,18})")


class Position(NamedTuple):
    """A position in the history: all rows up to it are known. Its text is valid in each process and never expires."""

    state_log: int  #: the last row of ``job_state_logs``
    event: int  #: the last row of ``event_logs``

    def __str__(self) -> str:
        """Return the text that clients store."""
        return f"s{self.state_log}.e{self.event}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the text of a position. Raises BadRequest."""
        match = _TEXT.fullmatch(text)
        if match is None:
            raise BadRequest(f'"{text[:80]}" is not a position in the history: use one from a former answer')
        return cls(int(match[1]), int(match[2]))


class JobStateChange(NamedTuple):
    id: int  #: of the row in ``job_state_logs``
    job_id: int
    state: JobState
    former: JobState | None  #: None: the job is new
    date: int
    owner: str
    name: str
    queue: str
    array_id: int


class Event(NamedTuple):
    """An event of a job or a node, a row of ``event_logs``."""

    id: int
    type: str
    job_id: int
    date: int
    description: str
    to_check: bool
    hosts: tuple[str, ...] = ()


class PolicyKind(StrEnum):
    """The kind of a scheduling policy."""

    KEY = "key"  #: of oar.conf
    FILE = "file"  #: named by a key of oar.conf
    QUEUE = "queue"
    RULE = "rule"  #: an admission rule


class PolicyItem(NamedTuple):
    """A scheduling policy: its kind, and its name within the kind."""

    kind: str
    name: str


class PolicyChange(NamedTuple):
    """A change of a policy; None: no value before or after the change."""

    date: int
    author: str  #: '' if nobody knows
    item: PolicyItem
    former: str | None
    value: str | None
