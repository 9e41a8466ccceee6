"""What users may see of jobs: fields of the jobs of others, and who may read a job's output."""

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.access.records import User
from oar.lib.base.errors import NotAllowed
from oar.lib.history.event_types import EventType
from oar.lib.history.records import Event
from oar.lib.jobs.records import Job

if TYPE_CHECKING:
    from oar.lib.config.files import Config


class Privacy(NamedTuple):
    """What a user may see of the jobs of others."""

    user: User | None  #: None: the user is unknown
    shows_requests: bool = False
    hides_commands: bool = False
    only: frozenset[int] | None = None  #: jobs and arrays that his token names: of all others he is nobody

    def command(self, job: Job) -> str:
        """Return the command of a job, '' if the user may not see it."""
        return job.command or "" if self._sees_command(job) else ""

    def initial_request(self, job: Job) -> str:
        """Return the command line of a submission, '' if the user may not see it."""
        return job.initial_request or "" if self._sees_request(job) else ""

    def notify(self, job: Job) -> str:
        """Return whom a job tells of its states, '' if the user may not see it."""
        return job.notify or "" if self._owns(job) else ""

    def texts(self, jobs: Sequence[Job]) -> tuple[Sequence[str], Sequence[str], Sequence[str]]:
        """Return ``command``, ``initial_request`` and ``notify`` of each job."""
        if self.only is not None:
            return list(map(self.command, jobs)), list(map(self.initial_request, jobs)), list(map(self.notify, jobs))
        owners = [job.user for job in jobs]
        one_of_each = dict(zip(owners, jobs, strict=True)).items()  # nothing else of a job matters
        by_command = {owner for owner, job in one_of_each if self._sees_command(job)}
        by_request = {owner for owner, job in one_of_each if self._sees_request(job)}
        owned = {owner for owner, job in one_of_each if self._owns(job)}
        commands = [job.command or "" if job.user in by_command else "" for job in jobs]
        requests = [job.initial_request or "" if job.user in by_request else "" for job in jobs]
        return commands, requests, [job.notify or "" if job.user in owned else "" for job in jobs]

    def events(self, events: Iterable[Event]) -> tuple[Event, ...]:
        """Return events of jobs and nodes, without the free texts of those of which the user is nobody."""
        if self.user is not None and self.user.is_admin and self.only is None:
            return tuple(events)
        return tuple(event if self._sees_text(event) else event._replace(description="") for event in events)

    def _sees_text(self, event: Event) -> bool:
        if event.type == EventType.ADMISSION_RULE_FAILED:  # it quotes the rule
            return False
        return (self.user is not None and self.only is None) or self._is_of_named(event)

    def hidden_columns(self) -> frozenset[str]:
        """Return the columns of ``jobs`` whose values in the rows of others are hidden, from conditions too."""
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

    def _is_of_named(self, event: Event) -> bool:
        return self.user is not None and self.only is not None and event.job_id in self.only

    def _is_known(self, job: Job) -> bool:
        return self.user is not None and (self.only is None or not self.only.isdisjoint((job.id, job.array_id)))

    def _owns(self, job: Job) -> bool:
        return self.user is not None and self._is_known(job) and (self.user.is_admin or self.user.name == job.user)


def check_reads_output(user: User, job: Job) -> None:
    """Raise NotAllowed unless a user may read the output files of a job: its owner, without the rights of a service."""
    if user.name != job.user:
        raise NotAllowed(f"the output of job {job.id} is for its owner")
    if user.uid == 0 or user.uid == os.geteuid():
        raise NotAllowed("files of root and of the service itself are not served")


def privacy_for(config: "Config", user: User | None) -> Privacy:
    """Return what oar.conf lets a user see."""
    return Privacy(
        user,
        shows_requests=config.oarstat_show_other_users_initial_request,
        hides_commands=config.oarstat_private,
    )
