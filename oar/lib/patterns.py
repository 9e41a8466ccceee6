"""The patterns in names of output files: ``%jobid%`` and its relatives (commands-user.md 3.8)."""

import re

from oar.lib.model import Job

_MARK = re.compile(r"%(?:jobid|jobname|arrayid|arrayindex|user|host)%")


def expand(name: str, job: Job, host: str | None) -> str:
    """Return a file name with its patterns replaced, each once; ``%host%`` stays while its host is not known."""
    if "%" not in name:
        return name
    values = {
        "%jobid%": str(job.id),
        "%jobname%": (job.name or "").replace("/", "_"),
        "%arrayid%": str(job.array_id),
        "%arrayindex%": str(job.array_index),
        "%user%": job.user,
        "%host%": host,
    }
    return _MARK.sub(lambda found: values[found[0]] or ("%host%" if found[0] == "%host%" else ""), name)
