"""Search nodes for jobs that are not running according to the database, before the sweeps after a restore.

A sweep ends unknown jobs, and a job may have processes on several nodes. So no node is swept, or used again, before all
returning nodes have been surveyed.

See docs/design/launch.rst, "A restored database".
"""

import json
from typing import TYPE_CHECKING, Any

from oar.lib.history.event_types import EventType
from oar.lib.jobs import recovery
from oar.lib.jobs.recovery import FoundJob
from oar.lib.logs import of_nodes
from oar.lib.remote.protocol import LONGEST_AGO, NodeAction
from oar.lib.remote.requests import CommandRan, NodeRequest
from oar.modules.runner.actions import job_data, nodes
from oar.modules.runner.actions.context import ActionContext, RetryAfter, log

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction

SECONDS = 20
#: Pause before a node that did not answer is asked again, and before it is looked whether all others have.
AGAIN_SECONDS, OTHERS_SECONDS = 10, 1
#: So long the nodes that have answered wait for the others.
PATIENCE = 90
#: Numbers of resources and alternatives are no larger.
_LARGEST = 2**31 - 1


def precede_sweep(context: ActionContext, host: str) -> RetryAfter | None:
    """Survey a host for unknown jobs, if it has an open survey request. Return a pause if it may not be swept yet."""
    with context.database.begin() as tx:
        mine, is_waiting = _to_survey(tx, host)
    if mine:
        found = ask(context, host)
        if found is None:
            return RetryAfter(AGAIN_SECONDS)
        with context.database.begin() as tx:
            known = recovery.recognise(tx, host, found)
            tx.events.done(mine)
            _, is_waiting = _to_survey(tx, host)
        of_nodes(log, host).info("survey of %s: %d jobs are there, recognised: %s", host, len(found), known or "none")
    return RetryAfter(OTHERS_SECONDS) if is_waiting else None


def _to_survey(tx: "Transaction", host: str) -> tuple[list[int], bool]:
    """Return the open survey requests of a host, and whether it must wait for the survey of other hosts."""
    open_events = tx.events.open([EventType.NODE_SURVEY])
    if not open_events:
        return [], False
    coming = set(tx.resources.to_sweep()) - {host}
    mine = [event.id for event in open_events if host in event.hosts]
    others = {name for event in open_events if event.date > tx.now - PATIENCE for name in event.hosts}
    return mine, bool(coming & others)


def ask(context: ActionContext, host: str) -> list[FoundJob] | None:
    """Return the jobs whose head is this host, None if the host does not answer."""
    request = NodeRequest("node_probe", NodeAction.SURVEY, job_data.survey_data(context.config))
    outcome = context.remote.run({host: request}, SECONDS)[host]
    if not isinstance(outcome, CommandRan) or outcome.exit:
        of_nodes(log, host).info("survey of %s: %s", host, nodes.answer_of(outcome).error)
        return None
    return [job for line in outcome.lines if (job := read_job(line))]


def read_job(line: str) -> FoundJob | None:
    """Parse the report of a node about a job. Return None if it does not have the format of our program."""
    try:
        report: dict[str, Any] = json.loads(line)
        record = report["record"]
        numbers = [_number(report["job_id"], 2**63 - 1), _number(report["attempt"]), _number(record["alternative"])]
        texts = [str(report[name])[:64] for name in ("user", "challenge", "boot_id")]
        resources = tuple(_number(each) for each in list.copy(record["resources"]))
        ago = _number(report["ago"], LONGEST_AGO)
    except (ValueError, KeyError, TypeError, AttributeError):
        log.warning("the survey answered %.200r", line)
        return None
    return FoundJob(numbers[0], texts[0], texts[1], numbers[1], texts[2], ago, numbers[2], resources)


def _number(value: object, largest: int = _LARGEST) -> int:
    """Return the value if it is an integer from 0 to ``largest``. Raises ValueError."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= largest:
        raise ValueError(value)
    return value
