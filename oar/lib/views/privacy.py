"""What users may see of the jobs of others."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.facts.records import Event, Job, User

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
        is_hidden = not self._is_known(job) or (self.hides_commands and not self._owns(job))
        return "" if is_hidden else job.command or ""

    def initial_request(self, job: Job) -> str:
        """Return the command line of a submission, '' if the user may not see it."""
        is_open = self._is_known(job) and self.shows_requests and not self.hides_commands
        return job.initial_request or "" if is_open or self._owns(job) else ""

    def events(self, events: Iterable[Event]) -> tuple[Event, ...]:
        """Return events of jobs and nodes, without the free texts of those of which the user is nobody."""
        if self.user is not None and self.only is None:
            return tuple(events)
        return tuple(event if self._is_of_named(event) else event._replace(description="") for event in events)

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

    def _is_of_named(self, event: Event) -> bool:
        return self.user is not None and self.only is not None and event.job_id in self.only

    def _is_known(self, job: Job) -> bool:
        return self.user is not None and (self.only is None or not self.only.isdisjoint((job.id, job.array_id)))

    def _owns(self, job: Job) -> bool:
        return self.user is not None and self._is_known(job) and (self.user.is_admin or self.user.name == job.user)


def privacy_for(config: "Config", user: User | None) -> Privacy:
    """Return what oar.conf lets a user see."""
    return Privacy(
        user,
        shows_requests=config.oarstat_show_other_users_initial_request,
        hides_commands=config.oarstat_private,
    )
