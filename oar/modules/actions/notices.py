"""NOTICE and HEAL: commands of users and of the site that are told what happened (server.md 5.3, 8.2)."""

import shlex
from collections.abc import Sequence

from oar.lib import process
from oar.lib.remote.requests import Ran
from oar.lib.states import EventType
from oar.modules.actions import nodes
from oar.modules.actions.context import Context, log


def run_command(context: Context, job_id: int, args: Sequence[str]) -> None:
    """Run the owner's command on the host where he submitted: ``args`` = user, host, tag, then the argument list."""
    user, host, tag, *argv = args
    seconds = context.config.oar_ssh_connection_timeout
    outcome = context.remote.command(host, tuple(argv), "", seconds, account=user)
    done = isinstance(outcome, Ran) and outcome.exit == 0
    event = EventType.USER_EXEC_NOTIFICATION if done else EventType.USER_EXEC_NOTIFICATION_ERROR
    text = f"[{tag}] {argv[0]} on {host}" + ("" if done else f": {nodes.answer_of(outcome).reason}")
    with context.database.begin() as tx:
        tx.events.add(event, job_id, text)


def heal(context: Context, lines: Sequence[str]) -> None:
    """Tell the site's script which resources became Suspected: ``<resource id> <node>`` each."""
    command = context.config.suspected_healing_exec_file
    if not command:
        return
    stdin = "".join(f"{line}\n" for line in lines).encode()
    outcome = process.run(shlex.split(command), timeout=context.config.suspected_healing_timeout, stdin=stdin)
    if not outcome.is_good:
        log.warning("%s failed: %s", command, outcome.output)
