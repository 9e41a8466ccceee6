"""The records of a submitted job: as the user described it, and after parsing."""

from collections.abc import Mapping
from typing import NamedTuple

from oar.lib.base.errors import BadRequest
from oar.lib.jobs.records import JobSpec
from oar.lib.jobs.states import JobType
from oar.lib.submission.resource_request import ResourceRequest

NO_KEY_OPTION = "you must set the --use-job-key (or -k) option in order to use other job key related options."


class Submission(NamedTuple):
    """A job as the user describes it; ``preparation.prepare`` parses its texts."""

    spec: JobSpec
    is_interactive: bool = False
    requests: tuple[str, ...] = ()  #: each ``-l``
    nodes: tuple[str, ...] = ()  #: the only nodes that the job may have
    excluded: tuple[str, ...] = ()  #: nodes that the job may not have
    reservation: str | None = None  #: ``start[,end]``
    signal: str | None = None  #: number or name of the signal for a checkpoint
    verbosity: int = 0  #: 0 to 2
    advance_reservation: str | None = None  #: number or name of the advance reservation that the job is for
    verifies: bool = True  #: refuse a job that can never run in its advance reservation


class ImportedKey(NamedTuple):
    """A private key that the user provides for the job, and optionally its public key."""

    private: str
    public: str | None = None

    def __repr__(self) -> str:
        """Return a text without the key, which is secret."""
        return "ImportedKey()"


class KeyWish(NamedTuple):
    """The options for the SSH key of a job."""

    use: bool = False
    private: str | None = None  #: a key to import, as text
    public: str | None = None
    file: str | None = None  #: a file to import it from
    export: str | None = None  #: the file that gets the key; ``%jobid%`` stands for the job

    def is_granted(self, *, forced: bool) -> bool:
        """Return whether the job gets a key; ``forced``: every job gets one.  Raises BadRequest."""
        if self.public is not None and self.private is None:
            raise BadRequest("--ssh_public_key needs --ssh_private_key.")
        if self.use or forced:
            return True
        if self.private or self.file or self.export:
            raise BadRequest(NO_KEY_OPTION)
        return False


class Proposal(NamedTuple):
    """A parsed submission, which the admission rules may change."""

    spec: JobSpec
    job_type: JobType
    requests: tuple[ResourceRequest, ...]
    default_walltimes: tuple[int, ...] = ()  #: of each request that of the site, if none was asked for; 0 = one was
    is_interactive: bool = False  #: a session follows; not so for a reservation without command
    start: int = 0  #: date of a reservation, 0 = none
    use_job_key: bool = False
    imported_key: ImportedKey | None = None
    nodes: tuple[str, ...] = ()  #: nodes that the user has named
    later_properties: str = ""  #: a condition for the scheduler that does not count for whether the job can ever run
    verbosity: int = 0  #: 0 to 2
    warnings: tuple[str, ...] = ()
    is_advance_reservation: bool = False  #: no job, but a request for an advance reservation
    asked_reservation: Mapping[str, object] | None = None  #: what rules see of that request
    advance_reservation: str = ""  #: number or name of the one that the job is for; '' = none
    verifies: bool = True  #: refuse a job that can never run in its advance reservation

    @property
    def asked(self) -> "Proposal":
        """The proposal with only the walltimes that the user requested."""
        defaults = self.default_walltimes or (0,) * len(self.requests)
        pairs = zip(self.requests, defaults, strict=True)
        return self._replace(
            requests=tuple(request._replace(walltime=None) if default else request for request, default in pairs)
        )

    def conditions_of_user(self, amended: ResourceRequest, number: int) -> list[str]:
        """Return the condition of each group of a request as the user wrote it; for the proposal before the rules.

        ``amended``, ``number``: the request after the rules, and its index.  If the rules changed its groups, the
        common condition is returned for each group.
        """
        properties = self.spec.properties
        groups = self.requests[number].groups if number < len(self.requests) else ()
        if len(groups) != len(amended.groups):
            return [properties or "" for _ in amended.groups]
        return [" AND ".join(part for part in (properties, group.filter) if part) for group in groups]

    @property
    def stored_properties(self) -> str:
        """The condition on resources that the scheduler uses."""
        conditions = [condition for condition in (self.spec.properties, self.later_properties) if condition]
        return " AND ".join(f"({part})" for part in conditions) if len(conditions) > 1 else "".join(conditions)
