"""Files of the administrator that rounds use: quotas, weights of the order.

A file is read again when it has changed.  A file that cannot be parsed never stops the scheduler: its earlier content
stays in force, and the administrator is notified once.
"""

import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Generic, TypeVar

from oar.kao.facts.snapshot import ResourceColumns, Settings, Snapshot, Weights
from oar.kao.planner.limits.quotas import COUNTED_TYPE
from oar.lib.accounts import quota_files
from oar.lib.accounts.quota_files import NOTHING, QuotaFile, states_of_all
from oar.lib.accounts.quota_records import Quotas
from oar.lib.base.formats import read_yaml
from oar.lib.bus.messages import Mail
from oar.lib.config.files import Config
from oar.lib.jobs.queue_policies import policy_of

log = logging.getLogger(__name__)

T = TypeVar("T")

#: The file of the old quota scheduler.
OLD_QUOTAS = "/etc/oar/scheduler_quotas.conf"

#: What an administrator reads who wants quotas and has no queue that obeys any.
NO_QUOTAS = (
    "QUOTAS=yes has no effect: no queue has a policy that obeys quotas. Give each queue that should have them"
    " the policy kamelot: oarqueue --change QUEUE,PRIORITY,kamelot"
)

#: Walltimes above are taken for that long when the calendar of quotas is laid out.
LONGEST = 366 * 86400


def have_quotas(policies: Iterable[str], settings: Settings) -> bool:
    return any(policy.has_quotas(is_configured=settings.has_quotas) for policy in map(policy_of, policies) if policy)


class PolicyFile(Generic[T]):
    """A policy file and its cached content."""

    def __init__(self, what: str, parse: Callable[[str], T], nothing: T) -> None:
        """``what``: the description of its content in messages."""
        self._what = what
        self._parse = parse
        self._content = nothing
        self._is_known = False  #: whether it could be read once
        self._stamp: object = None
        self.error = ""  #: of the last attempt to read it, '' if it succeeded

    def read(self, path: str, mails: list[Mail]) -> T:
        """Return the content of the file; append new errors to ``mails``."""
        try:
            status = os.stat(path)
            stamp: object = path, status.st_mtime_ns, status.st_size, status.st_ino
            if stamp == self._stamp:
                return self._content
            self._stamp = stamp
            with open(path, encoding="utf-8") as file:
                self._content = self._parse(file.read())
            self._is_known, self.error = True, ""
        except OSError as error:
            if self._stamp != (path, error.errno):
                self._stamp = path, error.errno
                self._complain(path, error.strerror or str(error), "Check the file and its permissions.", mails)
        except ValueError as error:
            self._complain(path, str(error), "Correct the file.", mails)
        return self._content

    def _complain(self, path: str, trouble: str, way_out: str, mails: list[Mail]) -> None:
        effect = "uses the former content" if self._is_known else "treats the file as empty"
        text = self.error = f"cannot read the {self._what}: {path}: {trouble}. The scheduler {effect}. {way_out}"
        log.error("%s", text)
        mails.append(Mail(f"Error in {path}", text))


class PolicyFiles:
    """The policy files of a configuration."""

    def __init__(self, config: Config, *, old_quotas: str = OLD_QUOTAS) -> None:
        self._config = config
        self._old_quotas = old_quotas
        self._quotas = PolicyFile("quotas", parse_quotas, NOTHING)
        self._weights = PolicyFile("priorities", parse_weights, Weights())
        self._warned: set[str] = set()

    @property
    def errors(self) -> list[str]:
        return [file.error for file in (self._quotas, self._weights) if file.error]

    def quotas(self, snapshot: Snapshot, mails: list[Mail]) -> Quotas | None:
        """Return the quotas from now on; return None if no queue has quotas."""
        settings = snapshot.settings
        file = self.quota_file([queue.policy for queue in snapshot.queues], settings, mails)
        if file is None:
            if settings.has_quotas:
                self._warn(NO_QUOTAS)
            return None
        walltimes = (each.walltime for job in snapshot.waiting for each in job.alternatives)
        longest = min(max(walltimes, default=0), LONGEST)
        return file.quotas(
            self._everything(snapshot.resources), snapshot.now, self._config.quotas_window_time_limit, longest
        )

    def quota_file(self, policies: Iterable[str], settings: Settings, mails: list[Mail]) -> QuotaFile | None:
        """Return the content of the quota file; return None if no queue has a policy with quotas."""
        if not have_quotas(policies, settings):
            return None
        path = self._config.quotas_conf_file
        if not (settings.has_quotas or os.path.exists(path)):
            path = self._old_quotas
        return self._quotas.read(path, mails)

    def advise(self, snapshot: Snapshot) -> None:
        """Log one warning for each queue that is missing in the weights."""
        weights = snapshot.settings.weights
        if weights.queue_weight:
            for queue in snapshot.queues:
                if queue.name not in weights.queue_coefs:
                    self._warn(
                        f"the queue {queue.name} is not in queue_coefs of {self._config.priority_conf_file}:"
                        " queue_weight has no effect on its jobs"
                    )

    def _warn(self, text: str) -> None:
        """Log a warning only once."""
        if text not in self._warned:
            self._warned.add(text)
            log.warning("%s", text)

    def weights(self, mails: list[Mail]) -> Weights:
        return self._weights.read(self._config.priority_conf_file, mails)

    def _everything(self, resources: ResourceColumns) -> int:
        counted = resources.where(resources.types, COUNTED_TYPE)
        return (counted & resources.where(resources.states, *states_of_all(self._config))).bit_count()


def parse_quotas(text: str) -> QuotaFile:
    """Parse a quota file in either format.  Raises ValueError."""
    file = quota_files.parse(text)
    for warning in file.warnings:
        log.warning("quotas: %s", warning)
    return file


def parse_weights(text: str) -> Weights:
    """Parse PRIORITY_CONF_FILE.  Raises ValueError."""
    content = read_yaml(text) or {}
    if not isinstance(content, dict):
        raise ValueError("line 1: the content must be a mapping of keys to values")
    names = {each.name for each in fields(Weights)}
    for key, value in content.items():
        if key not in names:
            raise ValueError(f'unknown key "{key}": use one of ({", ".join(sorted(names))})')
        numbers = value.values() if key == "queue_coefs" and isinstance(value, dict) else [value]
        if not all(isinstance(number, int | float) and not isinstance(number, bool) for number in numbers):
            raise ValueError(f"{key}: must be a number, not {value!r}")
    if not isinstance(content.get("queue_coefs", {}), dict):
        raise ValueError("queue_coefs: must be a mapping of queue names to numbers")
    return Weights(**content)
