"""Patterns in the names of output files, such as ``%jobid%``."""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

from oar.lib.jobs.records import Job

#: What gives the values of a pattern for jobs and the hosts that they run on.
_Values = Callable[[Sequence[Job], Sequence[str | None]], Iterable[object]]
_VALUES: Mapping[str, _Values] = {
    "%jobid%": lambda jobs, hosts: [job.id for job in jobs],
    "%jobname%": lambda jobs, hosts: [(job.name or "").replace("/", "_") for job in jobs],
    "%arrayid%": lambda jobs, hosts: [job.array_id for job in jobs],
    "%arrayindex%": lambda jobs, hosts: [job.array_index for job in jobs],
    "%user%": lambda jobs, hosts: [job.user for job in jobs],
    "%host%": lambda jobs, hosts: [host or "%host%" for host in hosts],
}


def expand(name: str, job: Job, host: str | None) -> str:
    """Return a file name with its patterns replaced once; ``%host%`` stays while the host is unknown."""
    if "%" not in name:
        return name
    template, values = _template(name)
    return template % tuple([value for values_of in values for value in values_of([job], [host])])


def expand_all(names: Sequence[str], jobs: Sequence[Job], hosts: Sequence[str | None]) -> list[str]:
    """Return the result of ``expand`` for many jobs. Optimized for the common case that all names are equal."""
    if len(set(names)) != 1 or "%" not in names[0]:
        return list(map(expand, names, jobs, hosts))
    template, values = _template(names[0])
    columns = [values_of(jobs, hosts) for values_of in values]
    return list(map(template.__mod__, zip(*columns, strict=True))) if columns else [template % ()] * len(jobs)


@lru_cache(maxsize=1024)
def _template(name: str) -> tuple[str, Sequence[_Values]]:
    """Return a name with ``%s`` for each pattern, and the functions that return the values."""
    parts = re.split(f"({'|'.join(_VALUES)})", name)
    template = "".join("%s" if part in _VALUES else part.replace("%", "%%") for part in parts)
    return template, [_VALUES[part] for part in parts if part in _VALUES]


def default_file_name(name: str | None, stream: str, *, by_index: bool = False) -> str:
    """Return the default pattern of an output file; ``by_index``: that of a job of an array has its index.

    >>> default_file_name("a/b", "stdout"), default_file_name(None, "stderr", by_index=True)
    ('OAR.a_b.%jobid%.stdout', 'OAR.%arrayid%_%arrayindex%.stderr')
    """
    middle = f"{name.replace('/', '_')}." if name else ""
    return f"OAR.{middle}{'%arrayid%_%arrayindex%' if by_index else '%jobid%'}.{stream}"


def output_path(job: Job, stream: str) -> str:
    """Return the path of an output file of a job, ``stdout`` or ``stderr``; ``%host%`` stays in it."""
    name = (job.stdout_file if stream == "stdout" else job.stderr_file) or default_file_name(job.name, stream)
    return os.path.join(job.launching_directory, expand(name, job, None))
