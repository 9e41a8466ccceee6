"""What a site adds to the planner: its order, its schedulers, its plug-ins (scheduling.md 3.2, 11.4, 14)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from oar.kao.model import Snapshot, WaitingJob
from oar.kao.outside import Outside
from oar.kao.spaces import Spaces
from oar.lib.model import Queue

#: Puts jobs into an order of the site: their ids, first ones first.
Sort = Callable[[Snapshot, Sequence[WaitingJob]], Sequence[int]]

#: Groups of entry points: who chooses resources for type ``find``, and start and resources for type ``assign``.
FIND = "oar.find_func"
ASSIGN = "oar.assign_func"

#: Returns a plug-in by its group and its name.  Raises NoPlugin.
Load = Callable[[str, str], Callable[..., Any]]


class NoPlugin(LookupError):
    """A plug-in that is asked for is not installed, or cannot be loaded; the text names it."""


@dataclass(frozen=True, slots=True)
class Site:
    """What is used besides the planner itself; nothing of it for a round that is planned again elsewhere."""

    sort: Sort | None = None  #: the order, for JOB_PRIORITY=CUSTOM
    load: Load | None = None  #: plug-ins of types; None = such types mean nothing
    outside: Outside | None = None  #: schedulers of the site
    before_group: Callable[[Snapshot, Sequence[Queue], Spaces], None] | None = None  #: EXTRA_METASCHED
