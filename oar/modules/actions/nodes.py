"""Many nodes at once: the job resource manager, and whether nodes answer."""

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oar.lib.config import Config
from oar.lib.remote.requests import Outcome, Ran, Request, TimedOut, Unreachable
from oar.modules import ping_checker
from oar.modules.actions.context import Context, log
from oar.modules.actions.job_data import BUILT_IN_MANAGERS

#: The built-in manager (``oar/tools/job_resource_manager_cgroups.py``).
MANAGER = "job_resource_manager_cgroups"


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of an action on one node."""

    good: bool
    reason: str = ""
    lines: tuple[str, ...] = ()
    reached: bool = True


class ManagerMissing(Exception):
    """The site's job resource manager cannot be read."""


def site_manager(config: Config) -> str | None:
    """Return the path of the site's own job resource manager, None if it is the built-in one."""
    path = config.job_resource_manager_file
    return None if not path or Path(path).name in BUILT_IN_MANAGERS else path


def manage(
    context: Context, action: str, hosts: Collection[str], data: Mapping[str, Any], seconds: float
) -> dict[str, Answer]:
    """Let the job resource manager of each host do ``action``.  Raises ManagerMissing.

    What it does may be done twice: a host whose connection broke meanwhile is asked once more.
    """
    request = _manager_request(context, action, data)
    limit = time.monotonic() + seconds
    outcomes = context.remote.run(dict.fromkeys(hosts, request), seconds)
    broken = [host for host, outcome in outcomes.items() if isinstance(outcome, Unreachable) and outcome.began]
    left = limit - time.monotonic()
    if broken and left > 0:
        outcomes |= context.remote.run(dict.fromkeys(broken, request), left)
    if context.config.debug_remote_commands:
        for host, outcome in outcomes.items():
            log.info("%s on %s: %s", action, host, outcome)
    return {host: answer_of(outcome) for host, outcome in outcomes.items()}


def answer_of(outcome: Outcome) -> Answer:
    """Return what an outcome means: good is exit code 0."""
    if isinstance(outcome, Ran):
        text = outcome.stderr.strip().replace("\n", " ")
        return Answer(outcome.exit == 0, text or f"exit code {outcome.exit}", outcome.lines)
    if isinstance(outcome, TimedOut):
        return Answer(False, f"no answer within {outcome.seconds:.0f} s", reached=False)
    return Answer(False, outcome.reason, reached=False)


def has_checker(config: Config) -> bool:
    """Whether the site has configured how to tell living nodes from others."""
    return ping_checker.is_configured(config)


def unreachable(context: Context, hosts: Collection[str]) -> dict[str, str]:
    """Return the hosts that do not answer the ping checker, with the reason."""
    return dict.fromkeys(ping_checker.bad_hosts(context.config, hosts), "does not answer the ping checker")


def _manager_request(context: Context, action: str, data: Mapping[str, Any]) -> Request:
    path = site_manager(context.config)
    return Request(MANAGER, action, data) if path is None else site_program(context, path, action, data)


def site_program(context: Context, path: str, action: str, data: Mapping[str, Any]) -> Request:
    """Return what runs a program of the site on a node (``oar/tools/site_script.py``).  Raises ManagerMissing."""
    program = Path(context.oardir) / path
    try:
        source = program.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise ManagerMissing(f"cannot read {program}: {error.strerror}") from None
    return Request("site_script", action, {"file": program.name, "source": source, "data": data})
