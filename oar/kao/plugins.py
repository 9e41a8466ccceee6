"""Plug-ins of the site: Python entry points, looked up by name (scheduling.md 14)."""

from collections.abc import Sequence
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from oar.kao.model import Snapshot, WaitingJob
from oar.kao.schedule import Sort
from oar.lib.config import Config

#: Group of the plug-ins that put jobs into their order.
SORTING = "oar.jobs_sorting_func"


def sorting(config: Config) -> Sort | None:
    """Return the order that JOB_PRIORITY=CUSTOM asks for; None if it does not."""
    return partial(_sorted, config) if config.job_priority == "CUSTOM" else None


def _sorted(config: Config, snapshot: Snapshot, jobs: Sequence[WaitingJob]) -> Sequence[int]:
    text = config.custom_job_sorting_config
    if config.custom_job_sorting_config_file:
        text = Path(config.custom_job_sorting_config_file).read_text(encoding="utf-8")
    ids: Sequence[int] = _load(SORTING, config.custom_job_sorting)(snapshot, jobs, text)
    return ids


def _load(group: str, name: str) -> Any:
    found = entry_points(group=group, name=name)
    if not found:
        raise LookupError(f'no plug-in "{name}" of the group {group} is installed')
    return next(iter(found)).load()
