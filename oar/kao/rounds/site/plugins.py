"""Plug-ins of the site: Python entry points, loaded by name. See docs/scheduler.rst, "Plug-ins"."""

from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib.metadata import EntryPoints, entry_points
from pathlib import Path
from typing import Any

from oar.kao.facts.snapshot import Snapshot, WaitingJob
from oar.kao.planner.placement.site_extensions import (
    ExternalPlanner,
    JobSorting,
    MissingPlugin,
    PluginLoader,
    SiteExtensions,
)
from oar.kao.planner.resources.spaces import Spaces
from oar.lib.config.files import Config
from oar.lib.jobs.records import Queue
from oar.lib.jobs.states import JobPriority

#: Group of the plug-ins that put jobs into their order.
SORTING_PLUGINS = "oar.jobs_sorting_func"

#: Group of those that are called before each group of queues.
EXTRA_PLUGINS = "oar.extra_metasched_func"

#: Value of EXTRA_METASCHED that names none.
NO_EXTRA = "default"


def site_of(config: Config, outside: ExternalPlanner | None = None) -> SiteExtensions:
    """Return the extensions of the planner.  Each plug-in is loaded when it is first used."""
    return SiteExtensions(
        sort=sorting(config),
        load=_loader(),
        external=outside,
        before_group=partial(_call_extra, config) if has_extra(config) else None,
    )


def sorting(config: Config) -> JobSorting | None:
    """Return the order for JOB_PRIORITY=CUSTOM; return None for other orders."""
    return partial(_sorted, config) if config.job_priority == JobPriority.CUSTOM else None


def has_extra(config: Config) -> bool:
    return config.extra_metasched not in ("", NO_EXTRA)


def _sorted(config: Config, snapshot: Snapshot, jobs: Sequence[WaitingJob]) -> Sequence[int]:
    text = config.custom_job_sorting_config
    if config.custom_job_sorting_config_file:
        text = Path(config.custom_job_sorting_config_file).read_text(encoding="utf-8")
    ids: Sequence[int] = _load(SORTING_PLUGINS, config.custom_job_sorting)(snapshot, jobs, text)
    return ids


def _call_extra(config: Config, snapshot: Snapshot, queues: Sequence[Queue], spaces: Spaces) -> None:
    _load(EXTRA_PLUGINS, config.extra_metasched)(snapshot, queues, spaces, config.extra_metasched_config)


def _loader() -> PluginLoader:
    """Return a function that loads plug-ins and caches the installed ones: jobs may name missing plug-ins."""
    installed = cache(lambda group: entry_points(group=group))
    return cache(lambda group, name: _load(group, name, installed(group)))


def _load(group: str, name: str, installed: EntryPoints | None = None) -> Callable[..., Any]:
    """Return a plug-in.  Raises MissingPlugin."""
    for found in (entry_points(group=group) if installed is None else installed).select(name=name):
        try:
            function: Callable[..., Any] = found.load()
        except Exception as error:
            raise MissingPlugin(f'the plug-in "{name}" of the group {group} cannot be loaded: {error}') from error
        return function
    raise MissingPlugin(f'no plug-in "{name}" of the group {group} is installed')
