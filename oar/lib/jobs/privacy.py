"""Read permissions on jobs: hidden fields of other users' jobs, and access to the output files of jobs."""

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.access.records import User
from oar.lib.base.errors import NotAllowed
from oar.lib.history.event_types import REFUSALS, EventType, refusal_prefix
from oar.lib.history.records import Event
from oar.lib.jobs.records import Job

if TYPE_CHECKING:
    from oar.lib.config.files import Config


class Privacy(NamedTuple):
    """Fields of other users' jobs that a user may see."""

    user: User | None  #: None: the user is unknown
    shows_requests: bool = False
    hides_commands: bool = False
    managed: frozenset[str] = frozenset()  #: projects whose jobs the user controls as a manager
    only: frozenset[int] | None = None  #: jobs and arrays that his token names: of all others he is nobody

    def command(self, job: Job) -> str:
        """Return the command of a job; return '' if the user may not see it."""
        return job.command or "" if self._sees_command(job) else ""

    def initial_request(self, job: Job) -> str:
        """Return the command line of a submission; return '' if the user may not see it."""
        return job.initial_request or "" if self._sees_request(job) else ""

    def notify(self, job: Job) -> str:
        """Return the notification setting of a job; return '' if the user may not see it."""
        return job.notify or "" if self._owns(job) else ""

    def texts(self, jobs: Sequence[Job]) -> tuple[Sequence[str], Sequence[str], Sequence[str]]:
        """Return the commands, the initial requests and the notification settings of all jobs."""
        if self.only is not None or self.managed:
            return list(map(self.command, jobs)), list(map(self.initial_request, jobs)), list(map(self.notify, jobs))
        owners = [job.user for job in jobs]
        one_of_each = dict(zip(owners, jobs, strict=True)).items()  # permissions depend only on the owner of a job
        by_command = {owner for owner, job in one_of_each if self._sees_command(job)}
        by_request = {owner for owner, job in one_of_each if self._sees_request(job)}
        owned = {owner for owner, job in one_of_each if self._owns(job)}
        commands = [job.command or "" if job.user in by_command else "" for job in jobs]
        requests = [job.initial_request or "" if job.user in by_request else "" for job in jobs]
        return commands, requests, [job.notify or "" if job.user in owned else "" for job in jobs]

    def events(self, events: Iterable[Event]) -> tuple[Event, ...]:
        """Return the events, with empty descriptions where the user may not see them."""
        user, only = self.user, self.only
        if user is not None and user.is_admin and only is None:
            return tuple(events)
        return tuple(
            event
            if user is not None
            and (only is None or event.job_id in only)
            and event.type != EventType.ADMISSION_RULE_FAILED  # its description quotes the rule
            and (event.type not in REFUSALS or event.description.startswith(refusal_prefix(user.name)))
            else event._replace(description="")
            for event in events
        )

    @property
    def events_reader(self) -> str | None:
        """The user who sees only the own refused submissions, '' for an unknown one; None: sees all events."""
        if self.user is not None and self.user.is_admin and self.only is None:
            return None
        return self.user.name if self.user is not None else ""

    def hidden_columns(self) -> frozenset[str]:
        """Return the columns of ``jobs`` that are hidden in other users' rows, also from conditions."""
        if self.user is not None and self.user.is_admin and self.only is None:
            return frozenset()
        hidden = {"job_env", "notify"}
        if not self.shows_requests or self.hides_commands or self.user is None or self.only is not None:
            hidden.add("initial_request")
        if self.hides_commands or self.user is None or self.only is not None:
            hidden.add("command")
        return frozenset(hidden)

    def _sees_command(self, job: Job) -> bool:
        return self._is_known(job) and (not self.hides_commands or self._owns(job))

    def _sees_request(self, job: Job) -> bool:
        is_open = self._is_known(job) and self.shows_requests and not self.hides_commands
        return is_open or self._owns(job)

    def _is_known(self, job: Job) -> bool:
        return self.user is not None and (self.only is None or not self.only.isdisjoint((job.id, job.array_id)))

    def _owns(self, job: Job) -> bool:
        if self.user is None or not self._is_known(job):
            return False
        return self.user.is_admin or self.user.name == job.user or job.project in self.managed


def check_reads_output(user: User, job: Job) -> None:
    """Raise NotAllowed if a user may not read the output files of a job.

    Only the owner may read them, unless the owner is root or the service account.
    """
    if user.name != job.user:
        raise NotAllowed(f"the output of job {job.id} is for its owner")
    if user.uid == 0 or user.uid == os.geteuid():
        raise NotAllowed("files of root and of the service itself are not served")


def privacy_for(config: "Config", user: User | None, managed: frozenset[str] = frozenset()) -> Privacy:
    """Return the permissions that oar.conf grants to a user; ``managed``: projects whose jobs the user controls."""
    return Privacy(
        user,
        managed=managed,
        shows_requests=config.oarstat_show_other_users_initial_request,
        hides_commands=config.oarstat_private,
    )
