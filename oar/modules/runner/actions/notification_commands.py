"""NOTICE: run the command that a user has chosen for notifications. HEAL: run the site's script for suspected nodes.

See docs/design/events.rst, "Notices".
"""

import shlex
from collections.abc import Sequence

from oar.lib.base import processes
from oar.lib.history.event_types import EventType
from oar.lib.remote.protocol import NodeAction
from oar.lib.remote.requests import CommandRan, NodeRequest
from oar.modules.runner.actions import job_data, nodes
from oar.modules.runner.actions.context import ActionContext, log


def run_command(context: ActionContext, job_id: int, args: Sequence[str]) -> None:
    """Run the owner's command on the submission host. ``args``: user, host, tag, then the argument list."""
    user, host, tag, *argv = args
    seconds = context.config.oar_ssh_connection_timeout
    data = {"argv": argv, "account": user, "enclosure": job_data.enclosure_data(context.config)}
    request = NodeRequest("user_command", NodeAction.RUN, data)
    outcome = context.remote.run({host: request}, seconds)[host]
    succeeded = isinstance(outcome, CommandRan) and outcome.exit == 0
    event = EventType.USER_EXEC_NOTIFICATION if succeeded else EventType.USER_EXEC_NOTIFICATION_ERROR
    text = f"[{tag}] {argv[0]} on {host}" + ("" if succeeded else f": {nodes.answer_of(outcome).error}")
    with context.database.begin() as tx:
        tx.events.add(event, job_id, text)


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
