"""The site's scripts that return the number of free tokens, run once per round. See docs/scheduler.rst, "Tokens"."""

import logging
import re
import shlex
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from oar.lib.base.processes import run

log = logging.getLogger(__name__)

_NUMBER = re.compile(r"\s*([0-9]{1,18})(\.[0-9]*)?\s*\Z", re.ASCII)

#: So many scripts run at a time.
AT_ONCE = 16


def ask(commands: Mapping[str, str], timeout: float, names: Iterable[str]) -> dict[str, int | None]:
    """Return the numbers of free tokens for names that have a script; None = the script failed."""
    counted = [name for name in names if name in commands]
    if not counted:
        return {}
    with ThreadPoolExecutor(min(AT_ONCE, len(counted))) as pool:
        return dict(zip(counted, pool.map(partial(_ask, commands, timeout), counted), strict=True))


def _ask(commands: Mapping[str, str], timeout: float, name: str) -> int | None:
    command = commands[name]
    outcome = run(shlex.split(command), timeout=timeout)
    match = _NUMBER.match(outcome.output) if outcome.succeeded else None
    if match is None:
        trouble = (
            "no answer in time"
            if outcome.timed_out
            else f"the output must be a number, not {outcome.output.strip()[:200]}"
        )
        log.error("token script of %s (%s): %s", name, command, trouble)
        return None
    return int(match[1])
