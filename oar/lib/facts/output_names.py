"""The patterns in names of output files: ``%jobid%`` and its relatives."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from oar.lib.facts.records import Job

_VALUES: Mapping[str, Callable[[Job, str | None], str]] = {
    "%jobid%": lambda job, host: str(job.id),
    "%jobname%": lambda job, host: (job.name or "").replace("/", "_"),
    "%arrayid%": lambda job, host: str(job.array_id),
    "%arrayindex%": lambda job, host: str(job.array_index),
    "%user%": lambda job, host: job.user,
    "%host%": lambda job, host: host or "%host%",
}


def expand(name: str, job: Job, host: str | None) -> str:
    """Return a file name with its patterns replaced, each once; ``%host%`` stays while its host is not known."""
    if "%" not in name:
        return name
    template, values = _template(name)
    return template % tuple([value(job, host) for value in values])


def expand_all(names: Sequence[str], jobs: Sequence[Job], hosts: Sequence[str | None]) -> list[str]:
    """Return what ``expand`` does of many jobs, of which most have the same name."""
    if len(set(names)) != 1 or "%" not in names[0]:
        return list(map(expand, names, jobs, hosts))
    template, values = _template(names[0])
    columns = [map(value, jobs, hosts) for value in values]
    return list(map(template.__mod__, zip(*columns, strict=True))) if columns else [template % ()] * len(jobs)


@lru_cache(maxsize=1024)
def _template(name: str) -> tuple[str, Sequence[Callable[[Job, str | None], str]]]:
    """Return a name with ``%s`` for each pattern, and what gives their values: most jobs have the same."""
    parts = re.split(f"({'|'.join(_VALUES)})", name)
    template = "".join("%s" if part in _VALUES else part.replace("%", "%%") for part in parts)
    return template, [_VALUES[part] for part in parts if part in _VALUES]
