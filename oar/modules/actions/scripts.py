"""Programs of the site that run on the server: prologue, epilogue, and those around a suspension.

They get the job id as their argument and what they may want to know in the environment; they are run as oar, in a
process group of their own that is killed when their time is over.
"""

import os
import shlex
from typing import Literal

from oar.lib import process
from oar.lib.config import Config
from oar.lib.logs import of_job
from oar.modules.actions.context import log
from oar.modules.actions.job_data import JobData

Kind = Literal["missing", "code", "timeout"]


class ScriptFailure(Exception):
    """The program could not be run, failed, or took too long."""

    def __init__(self, kind: Kind, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def run_server_script(config: Config, command: str, data: JobData, attempt: int = 1) -> None:
    """Run the server prologue or epilogue.  Raises ScriptFailure."""
    run_script(command, data, config.server_prologue_epilogue_timeout, attempt)


def run_script(command: str, data: JobData, seconds: int, attempt: int = 1) -> None:
    """Run ``command JOB_ID``.  Raises ScriptFailure."""
    argv = [*shlex.split(command), str(data.job.id)]
    outcome = process.run(argv, timeout=seconds, environment=_environment(data, attempt))
    of_job(log, data.job.id).debug("%s: %s", argv[0], outcome.output)
    if outcome.timed_out:
        raise ScriptFailure("timeout", f"{argv[0]} did not end within {seconds} s")
    if outcome.code is None:
        raise ScriptFailure("missing", outcome.output)
    if not outcome.is_good:
        raise ScriptFailure("code", f"{argv[0]} ended with {process.said(outcome.code)}")


def _environment(data: JobData, attempt: int) -> dict[str, str]:
    job = data.job
    return {
        "PATH": os.environ.get("PATH", "/usr/local/bin:/usr/bin:/bin"),
        "LANG": "C.UTF-8",
        "OAR_JOB_ID": str(job.id),
        "OAR_JOB_ARRAY_ID": str(job.array_id),
        "OAR_ARRAY_INDEX": str(job.array_index),
        "OAR_USER": job.user,
        "OAR_JOB_NAME": job.name or "",
        "OAR_JOB_WALLTIME_SECONDS": str(data.walltime),
        "OAR_JOB_COMMAND": job.command or "",
        "OAR_JOB_TYPES": ";".join(f"{one.name}={'1' if one.value is None else one.value}" for one in data.types),
        "OAR_ATTEMPT": str(attempt),
    }
