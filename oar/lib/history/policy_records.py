"""What decides about jobs, and its changes: rows of ``policy_log``."""

from enum import StrEnum
from typing import NamedTuple


class PolicyKind(StrEnum):
    """What kind of thing decides."""

    KEY = "key"  #: of oar.conf
    FILE = "file"  #: named by a key of oar.conf
    QUEUE = "queue"
    RULE = "rule"  #: an admission rule


class PolicyItem(NamedTuple):
    """One thing that decides about jobs: its kind, and its name among those of the kind."""

    kind: str
    name: str


class PolicyChange(NamedTuple):
    """A change of it; None: there was none before, or there is none any more."""

    date: int
    author: str  #: '' if nobody knows
    item: PolicyItem
    former: str | None
    value: str | None
