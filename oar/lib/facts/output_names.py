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
    return "".join([_VALUES[part](job, host) if part in _VALUES else part for part in _parts(name)])


@lru_cache(maxsize=1024)
def _parts(name: str) -> Sequence[str]:
    """Return the patterns in a name and what stands between them: most jobs have the same."""
    return re.split(f"({'|'.join(_VALUES)})", name)
