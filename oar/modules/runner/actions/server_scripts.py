"""Programs of the site that run on the server.

For a job: prologue, epilogue, scripts before and after a suspension. They get the job id as their argument and data of
the job in environment variables. AR_EVENT: the script for events of advance reservations
(docs/design/reservations.rst, "The site's script"). HEAL: the script for suspected nodes. All run as oar, each in its
own process group, which is killed after the time limit.
"""

import json
import os
import shlex
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from oar.lib.base import processes
from oar.lib.config.files import Config
from oar.lib.history.event_types import EventType
from oar.lib.logs import of_job
from oar.lib.reservations.permissions import ReservationReader, Visitor
from oar.lib.reservations.views import reservation_record, shown
from oar.modules.runner.actions.context import ActionContext, log
from oar.modules.runner.actions.job_data import JobData


class FailureEvents(NamedTuple):
    """The events of the failures of a script."""

    missing: EventType  #: it cannot be executed
    failed: EventType  #: it ended with another exit status than 0, or by a signal
    timeout: EventType  #: it did not end in time


class SiteScript(Enum):
    """A program of the site that the server runs for a job. Its value: the events of its failures."""

    #: before the job is started (``SERVER_PROLOGUE_EXEC_FILE``)
    PROLOGUE = FailureEvents(
        EventType.SERVER_PROLOGUE_ERROR, EventType.SERVER_PROLOGUE_EXIT_CODE_ERROR, EventType.SERVER_PROLOGUE_TIMEOUT
    )
    #: after it has ended (``SERVER_EPILOGUE_EXEC_FILE``)
    EPILOGUE = FailureEvents(
        EventType.SERVER_EPILOGUE_ERROR, EventType.SERVER_EPILOGUE_EXIT_CODE_ERROR, EventType.SERVER_EPILOGUE_TIMEOUT
    )
    #: after it was frozen (``JUST_AFTER_SUSPEND_EXEC_FILE``)
    AFTER_SUSPEND = FailureEvents(*3 * (EventType.SUSPEND_SCRIPT_ERROR,))
    #: before it is thawed (``JUST_BEFORE_RESUME_EXEC_FILE``)
    BEFORE_RESUME = FailureEvents(*3 * (EventType.RESUME_SCRIPT_ERROR,))


class ScriptFailure(Exception):
    """The script could not be run, failed, or exceeded its time limit."""

    def __init__(self, event: EventType, text: str) -> None:
        super().__init__(text)
        self.event = event


def run_script(config: Config, script: SiteScript, data: JobData, attempt: int = 1) -> None:
    """Run a script, if the site has it, with the job id as its last argument. Raises ScriptFailure."""
    seconds = config.server_prologue_epilogue_timeout
    match script:
        case SiteScript.PROLOGUE:
            command = config.server_prologue_exec_file
        case SiteScript.EPILOGUE:
            command = config.server_epilogue_exec_file
        case SiteScript.AFTER_SUSPEND:
            command, seconds = config.just_after_suspend_exec_file, config.suspend_resume_script_timeout
        case SiteScript.BEFORE_RESUME:
            command, seconds = config.just_before_resume_exec_file, config.suspend_resume_script_timeout
    if not command:
        return
    argv = [*shlex.split(command), str(data.job.id)]
    outcome = processes.run(argv, timeout=seconds, environment=_environment(data, attempt))
    of_job(log, data.job.id).debug("%s: %s", argv[0], outcome.output)
    if outcome.timed_out:
        raise ScriptFailure(script.value.timeout, f"{argv[0]} did not end within {seconds} s")
    if outcome.code is None:
        raise ScriptFailure(script.value.missing, outcome.output)
    if not outcome.succeeded:
        text = f"{argv[0]} ended with {processes.describe_exit(outcome.code)}"
        raise ScriptFailure(script.value.failed, text)


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


#: The site sees all of a reservation.
_SITE = ReservationReader(Visitor("oar"), is_operator=True)


def tell_site(context: ActionContext, line: Sequence[str]) -> None:
    """Run the script with three arguments (number, event and state) and the current record on standard input.

    ``line``: number of the line in the log, id of the reservation, and the three arguments. A failure or a timeout of
    the script is logged.
    """
    command = context.config.reservation_event_exec_file
    if not command or len(line) != 5:
        return
    _, reservation_id, *arguments = line
    with context.database.snapshot() as tx:
        items = shown(tx, tx.reservations.select([int(reservation_id)]), _SITE)
    record = reservation_record(items[0]) if items else {}  # empty if the reservation no longer exists
    outcome = processes.run(
        [*shlex.split(command), *arguments],
        timeout=context.config.server_prologue_epilogue_timeout,
        stdin=json.dumps(record).encode(),
    )
    if not outcome.succeeded:
        reason = "it did not end in time" if outcome.timed_out else outcome.output or f"exit code {outcome.code}"
        log.warning("%s %s failed: %s", command, " ".join(arguments), reason)


def heal(context: ActionContext, lines: Sequence[str]) -> None:
    """Run the site's script, with the resources that became Suspected on its standard input.

    ``lines``: ``<resource id> <node>`` for each resource.
    """
    command = context.config.suspected_healing_exec_file
    if not command:
        return
    stdin = "".join(f"{line}\n" for line in lines).encode()
    outcome = processes.run(shlex.split(command), timeout=context.config.suspected_healing_timeout, stdin=stdin)
    if not outcome.succeeded:
        log.warning("%s failed: %s", command, outcome.output)
