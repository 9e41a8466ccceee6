"""Actions on many nodes at once: run the job resource manager, and check whether nodes respond."""

import signal
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oar.lib.base.errors import ConfigError
from oar.lib.base.programs import site_program
from oar.lib.config.files import Config
from oar.lib.history.event_types import EventType
from oar.lib.nodes import ping_checker
from oar.lib.remote.protocol import EPILOGUE_FAILED, PROLOGUE_FAILED, WRONG_DESCRIPTION, NodeAction
from oar.lib.remote.requests import CommandRan, NodeRequest, Outcome, TimedOut, Unreachable
from oar.modules.runner.actions.context import ActionContext, log

#: The built-in manager (``oar/tools/job_resource_manager_cgroups.py``).
MANAGER = "job_resource_manager_cgroups"


#: Events of exit codes of the built-in manager; any other is CPUSET_ERROR.
_EVENTS_OF_INIT: Mapping[int, EventType] = {
    WRONG_DESCRIPTION: EventType.CPUSET_PROPERTY_ERROR,
    PROLOGUE_FAILED: EventType.PROLOGUE_ERROR,
}


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """The result of an action on one node."""

    succeeded: bool
    error: str = ""
    lines: tuple[str, ...] = ()
    reached: bool = True
    code: int = 0  #: exit code of the program, if it was reached


def site_manager(config: Config) -> str | None:
    """Return the path of the site's own job resource manager, None if the built-in one is used."""
    return site_program(config.job_resource_manager_file)


def manage(
    context: ActionContext, action: NodeAction, hosts: Collection[str], data: Mapping[str, Any], seconds: float
) -> dict[str, NodeAnswer]:
    """Run ``action`` of the job resource manager on each host. Raises ConfigError.

    All actions are repeatable: they run a second time on a host if the connection to it broke.
    """
    path = site_manager(context.config)
    request = NodeRequest(MANAGER, action, data) if path is None else site_request(context, path, action, data)
    limit = time.monotonic() + seconds
    outcomes = context.remote.run(dict.fromkeys(hosts, request), seconds)
    broken = [host for host, outcome in outcomes.items() if isinstance(outcome, Unreachable) and outcome.began]
    remaining_seconds = limit - time.monotonic()
    if broken and remaining_seconds > 0:
        outcomes |= context.remote.run(dict.fromkeys(broken, request), remaining_seconds)
    if context.config.debug_remote_commands:
        for host, outcome in outcomes.items():
            log.info("%s on %s: %s", action, host, outcome)
    return {host: answer_of(outcome) for host, outcome in outcomes.items()}


def answer_of(outcome: Outcome) -> NodeAnswer:
    """Convert an outcome to the answer of a node. Exit code 0 means success.

    A program that SIGTERM ended counts as no answer: the node is shutting down.
    """
    if isinstance(outcome, CommandRan) and outcome.exit == 128 + signal.SIGTERM:
        return NodeAnswer(False, "it was ended by SIGTERM: the node goes down", reached=False)
    if isinstance(outcome, CommandRan):
        text = outcome.stderr.strip().replace("\n", " ")
        return NodeAnswer(outcome.exit == 0, text or f"exit code {outcome.exit}", outcome.lines, code=outcome.exit)
    if isinstance(outcome, TimedOut):
        return NodeAnswer(False, f"no answer within {outcome.seconds:.0f} s", reached=False)
    return NodeAnswer(False, outcome.error, reached=False)


def failure_event(config: Config, answer: NodeAnswer) -> EventType:
    """Return the event type for a node that could not be prepared for a job."""
    if not answer.reached:
        return EventType.PING_CHECKER_NODE_SUSPECTED
    is_built_in = site_manager(config) is None
    return manager_event(answer.code) if is_built_in else EventType.CPUSET_ERROR


def manager_event(code: int) -> EventType:
    """Return the event type for an exit code of the built-in manager."""
    return _EVENTS_OF_INIT.get(code, EventType.CPUSET_ERROR)


def cleaning_event(config: Config, answer: NodeAnswer) -> EventType:
    """Return the event type for a node that responds but could not be cleaned after a job."""
    has_bad_epilogue = answer.code == EPILOGUE_FAILED and site_manager(config) is None
    return EventType.EPILOGUE_ERROR if has_bad_epilogue else EventType.CPUSET_CLEAN_ERROR


def manager_seconds(config: Config) -> int:
    """Return the time limit of the job resource manager for one job, including the site's scripts, in seconds."""
    has_script = config.node_prologue_file or config.node_epilogue_file
    return config.oar_ssh_connection_timeout + (config.prologue_epilogue_timeout if has_script else 0)


def unreachable(context: ActionContext, hosts: Collection[str]) -> dict[str, str]:
    """Return the hosts that do not answer the ping checker, each with an error text."""
    return dict.fromkeys(ping_checker.silent_hosts(context.config, hosts), "does not answer the ping checker")


def site_request(context: ActionContext, path: str, action: NodeAction, data: Mapping[str, Any]) -> NodeRequest:
    """Return the request that runs a program of the site on a node (``oar/tools/site_script.py``).

    Raises ConfigError.
    """
    program = Path(context.oardir) / path
    try:
        source = program.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise ConfigError(f"cannot read {program}: {error.strerror}") from None
    return NodeRequest("site_script", action, {"file": program.name, "source": source, "data": data})
