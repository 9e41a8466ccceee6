"""Programs of the site that run on the server: server prologue and epilogue, scripts before and after a suspension.

They get the job id as their argument and data of the job in environment variables. They run as oar, each in its own
process group, which is killed after the time limit.
"""

import os
import shlex
from collections.abc import Mapping
from enum import Enum, auto

from oar.lib.base import processes
from oar.lib.config.files import Config
from oar.lib.history.event_types import EventType
from oar.lib.logs import of_job
from oar.modules.runner.actions.context import log
from oar.modules.runner.actions.job_data import JobData


class SiteScript(Enum):
    """A program of the site that the server runs for a job."""

    PROLOGUE = auto()  #: before the job is started (``SERVER_PROLOGUE_EXEC_FILE``)
    EPILOGUE = auto()  #: after it has ended (``SERVER_EPILOGUE_EXEC_FILE``)
    AFTER_SUSPEND = auto()  #: after it was frozen (``JUST_AFTER_SUSPEND_EXEC_FILE``)
    BEFORE_RESUME = auto()  #: before it is thawed (``JUST_BEFORE_RESUME_EXEC_FILE``)


class ScriptFailureKind(Enum):
    """Kind of failure of a script."""

    MISSING = auto()  #: it cannot be executed
    EXIT_STATUS = auto()  #: it ended with another exit status than 0, or by a signal
    TIMEOUT = auto()  #: it did not end in time


#: The event that a failure of a script writes.
FAILURE_EVENTS: Mapping[SiteScript, Mapping[ScriptFailureKind, EventType]] = {
    SiteScript.PROLOGUE: {
        ScriptFailureKind.MISSING: EventType.SERVER_PROLOGUE_ERROR,
        ScriptFailureKind.EXIT_STATUS: EventType.SERVER_PROLOGUE_EXIT_CODE_ERROR,
        ScriptFailureKind.TIMEOUT: EventType.SERVER_PROLOGUE_TIMEOUT,
    },
    SiteScript.EPILOGUE: {
        ScriptFailureKind.MISSING: EventType.SERVER_EPILOGUE_ERROR,
        ScriptFailureKind.EXIT_STATUS: EventType.SERVER_EPILOGUE_EXIT_CODE_ERROR,
        ScriptFailureKind.TIMEOUT: EventType.SERVER_EPILOGUE_TIMEOUT,
    },
    SiteScript.AFTER_SUSPEND: dict.fromkeys(ScriptFailureKind, EventType.SUSPEND_SCRIPT_ERROR),
    SiteScript.BEFORE_RESUME: dict.fromkeys(ScriptFailureKind, EventType.RESUME_SCRIPT_ERROR),
}


class ScriptFailure(Exception):
    """The script could not be run, failed, or exceeded its time limit."""

    def __init__(self, script: SiteScript, kind: ScriptFailureKind, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.event = FAILURE_EVENTS[script][kind]


def run_script(config: Config, script: SiteScript, data: JobData, attempt: int = 1) -> None:
    """Run a script, if the site has it, with the job id as its last argument. Raises ScriptFailure."""
    command, seconds = _configured(config, script)
    if not command:
        return
    argv = [*shlex.split(command), str(data.job.id)]
    outcome = processes.run(argv, timeout=seconds, environment=_environment(data, attempt))
    of_job(log, data.job.id).debug("%s: %s", argv[0], outcome.output)
    if outcome.timed_out:
        raise ScriptFailure(script, ScriptFailureKind.TIMEOUT, f"{argv[0]} did not end within {seconds} s")
    if outcome.code is None:
        raise ScriptFailure(script, ScriptFailureKind.MISSING, outcome.output)
    if not outcome.succeeded:
        text = f"{argv[0]} ended with {processes.describe_exit(outcome.code)}"
        raise ScriptFailure(script, ScriptFailureKind.EXIT_STATUS, text)


def _configured(config: Config, script: SiteScript) -> tuple[str | None, int]:
    """Return the command of a script, None if the site has none, and its time limit in seconds."""
    match script:
        case SiteScript.PROLOGUE:
            return config.server_prologue_exec_file, config.server_prologue_epilogue_timeout
        case SiteScript.EPILOGUE:
            return config.server_epilogue_exec_file, config.server_prologue_epilogue_timeout
        case SiteScript.AFTER_SUSPEND:
            return config.just_after_suspend_exec_file, config.suspend_resume_script_timeout
        case SiteScript.BEFORE_RESUME:
            return config.just_before_resume_exec_file, config.suspend_resume_script_timeout


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
        "OAR_JOB_TYPES": ";".join(
            f"{type_.name}={'1' if type_.value is None else type_.value}" for type_ in data.types
        ),
        "OAR_ATTEMPT": str(attempt),
    }
