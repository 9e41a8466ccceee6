"""Reboot nodes with commands of the site, and store the last reboot step of each node in a file.

The file is written before a command runs, so that an interrupted program does not reboot a node twice.
"""

import fcntl
import os
import re
import tempfile
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from oar.lib.base import processes
from oar.lib.base.errors import BadRequest, ConfigError
from oar.lib.base.formats import Format, dump, read_yaml
from oar.lib.base.shell_words import shell_words
from oar.lib.nodes.broken_node_reboots import Step, Tried

NODE = "{NODENAME}"
LOG_NAME = "oar_phoenix.log"
#: What a node may be called to stand in a command.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*\Z")


class RebootCommand:
    """A command of ``oar.conf`` in which ``{NODENAME}`` is replaced by the node name."""

    def __init__(self, key: str, text: str) -> None:
        """Raises ConfigError if the command cannot be parsed or does not contain ``{NODENAME}``."""
        try:
            self._words = shell_words(text)
        except BadRequest as error:
            raise ConfigError(f"{key} cannot be read: {error}.") from None
        if not any(NODE in word for word in self._words):
            raise ConfigError(f"{key} does not say which node: write {NODE} where its name belongs.")

    def words(self, node: str) -> list[str]:
        """Return the words of the command for a node."""
        return [word.replace(NODE, node) for word in self._words]


def can_be_named(node: str) -> bool:
    """Return whether a node name is safe in a command."""
    return bool(_NAME.match(node))


@contextmanager
def only_one(status: Path) -> Iterator[bool]:
    """Hold the lock of the status file; yield False if another process holds it."""
    status.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    with open(f"{status}.lock", "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def read_tried(status: Path) -> dict[str, Tried]:
    """Return the last step of each node. Raises ConfigError if the file cannot be parsed."""
    try:
        found = read_yaml(status.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"{status} cannot be read: {error}; remove it to begin anew.") from None
    try:
        steps: Mapping[str, Mapping[str, int]] = found or {}  # type: ignore[assignment]
        return {str(node): _last(each) for node, each in steps.items()}
    except (AttributeError, TypeError, ValueError):
        raise ConfigError(f"{status} is not what oar_phoenix writes; remove it to begin anew.") from None


def _last(steps: Mapping[str, int]) -> Tried:
    step, date = max(((Step(name), int(date)) for name, date in steps.items()), key=lambda each: [*Step].index(each[0]))
    return Tried(step, date)


def write_tried(status: Path, tried: Mapping[str, Tried]) -> None:
    """Store the last step of each node atomically."""
    content = dump({node: {str(each.step): each.date} for node, each in sorted(tried.items())}, Format.YAML)
    with tempfile.NamedTemporaryFile("w", dir=status.parent, prefix=f"{status.name}.", delete=False) as new:
        new.write(content)
        new.flush()
        os.fsync(new.fileno())
    os.rename(new.name, status)


def reboot(command: RebootCommand, nodes: Collection[str], timeout: float) -> dict[str, processes.CommandOutcome]:
    """Run the command for all nodes in parallel; return the outcome for each node."""
    if not nodes:
        return {}
    with ThreadPoolExecutor(len(nodes)) as pool:
        outcomes = pool.map(lambda node: processes.run(command.words(node), timeout=timeout), nodes)
        return dict(zip(nodes, outcomes, strict=True))
