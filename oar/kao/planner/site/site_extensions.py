"""Extensions of the planner by the site: job order, external schedulers, plug-ins."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from oar.kao.facts.snapshot import Snapshot, WaitingJob
from oar.kao.planner.resources.spaces import Spaces
from oar.kao.planner.site.external_proposals import ExternalPlanner
from oar.lib.jobs.records import Queue

#: Sorts jobs: returns their ids in the order of planning.
JobSorting = Callable[[Snapshot, Sequence[WaitingJob]], Sequence[int]]

#: Groups of entry points: plug-ins of type ``find`` choose resources, those of type ``assign`` start and resources.
FIND_PLUGINS = "oar.find_func"
ASSIGN_PLUGINS = "oar.assign_func"

#: Returns a plug-in by group and name.  Raises MissingPlugin.
PluginLoader = Callable[[str, str], Callable[..., Any]]


class MissingPlugin(LookupError):
    """A plug-in is not installed, or cannot be loaded; the text contains its name."""


@dataclass(frozen=True, slots=True)
class SiteExtensions:
    """The extensions of a site."""

    sort: JobSorting | None = None  #: the order of JOB_PRIORITY=CUSTOM
    load: PluginLoader | None = None  #: None = the types ``find`` and ``assign`` have no effect
    external: ExternalPlanner | None = None  #: plans the queues that have an external scheduler
    before_group: Callable[[Snapshot, Sequence[Queue], Spaces], None] | None = None  #: EXTRA_METASCHED


#: A site without any, and a saved round that is planned on another machine.
NO_EXTENSIONS = SiteExtensions()
