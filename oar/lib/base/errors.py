"""The hierarchy of errors, by the person who must act on them.

    OarError
    ├── UserError          the request cannot be met as it is: change it
    │   ├── BadRequest         it cannot be parsed, or requests something impossible
    │   ├── NotAllowed         the object belongs to another user, or only administrators may do this
    │   ├── NoSuchJob          (also for other named objects: NoSuchQueue, NoSuchResource)
    │   ├── WrongState         the state of the job does not permit the request
    │   ├── Refused            an admission rule rejected the submission
    │   └── WordedRefusal      the message is printed unchanged: it is part of a documented interface
    ├── ConfigError        an error in a file of the administrator: file, line, key
    ├── SchemaError        the database does not have the required schema: oar-database
    ├── BrokenRow          a text in the database cannot be parsed: another program has written it
    ├── Unavailable        database, bus or node: try again
    │   ├── DatabaseUnavailable
    │   │   ├── DatabaseFull       it has no free connection
    │   │   │   └── UserConnectionsUsed    for this user
    │   │   └── DatabaseRefused    it rejects the login: a retry does not help
    │   ├── ServerUnavailable
    │   ├── Busy               another process is working on the same object
    │   ├── AlreadyRunning     another server has the ports or the lock
    │   └── NodeUnavailable
    └── Bug                an internal error; the log contains the traceback

The message names the object and the remedy, in one line. ``exit_code`` is the exit code of a command, unless the
command has its own table of exit codes.
"""

from typing import Self


class OarError(Exception):
    """An error that OAR raises deliberately."""

    exit_code = 3


class UserError(OarError):
    """The request cannot be met as it is."""

    exit_code = 1


class BadRequest(UserError):
    """The request is invalid: it cannot be parsed, or requests something impossible."""

    field = ""  #: of a record or an address, by which a program finds what is wrong

    def of(self, field: str) -> Self:
        """Attribute this error to a field, whose name its message already contains."""
        self.field = field
        return self


class NotAllowed(UserError):
    """The caller has no right to do this."""


class NoSuchJob(UserError):
    """There is no job with this id."""

    def __init__(self, job_id: int) -> None:
        super().__init__(f"job {job_id} does not exist.")
        self.job_id = job_id


class NoSuchQueue(UserError):
    """There is no queue with this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"queue '{name}' does not exist")
        self.name = name


class NoSuchResource(UserError):
    """There is no resource with this id, or no node with this name."""


class WrongState(UserError):
    """The state of the job does not permit the request."""


class Refused(UserError):
    """An admission rule rejected the submission. The message is that of the rule."""

    exit_code = 254


class WordedRefusal(UserError):
    """The message is printed without any addition: it is part of a documented interface.

    ``way_out``: what the user can do instead. It is printed on a separate line with two leading spaces, since programs
    compare the message before it.
    """

    def __init__(self, message: str, way_out: str = "") -> None:
        super().__init__(f"{message}\n  {way_out}" if way_out else message)


class BadCondition(UserError):
    """The text of a user is not a valid condition."""


class ConfigError(OarError):
    """A file of the administrator has an error. The message names file, line and key."""

    exit_code = 1


class ProgramNotStarted(ConfigError):
    """A program could not be started for lack of memory, processes or files. A retry may succeed."""


class SchemaError(OarError):
    """The database does not have the required schema."""

    exit_code = 1


class BrokenRow(OarError):
    """A text in the database cannot be parsed: another program, or a later version, has written it."""

    exit_code = 1


class Unavailable(OarError):
    """An external component does not respond. A retry may succeed."""

    exit_code = 2


class DatabaseUnavailable(Unavailable):
    """PostgreSQL cannot be reached."""


class StatementTooLong(Unavailable):
    """PostgreSQL has cancelled a statement that exceeded the time limit of the process."""


class DatabaseFull(DatabaseUnavailable):
    """PostgreSQL has no free connection."""


class UserConnectionsUsed(DatabaseFull):
    """All connections to PostgreSQL for this user, or for all users of this machine, are in use."""

    def __init__(self, whose: str) -> None:
        """``whose``: the users of these connections."""
        super().__init__(f"all connections for {whose} are in use")
        self.whose = whose


class DatabaseRefused(DatabaseUnavailable):
    """PostgreSQL rejects the login, or does not have the database."""

    exit_code = 3


class DatabaseReadOnly(DatabaseUnavailable):
    """PostgreSQL does not accept changes: it is a standby, or was set to read-only."""


class DatabaseWithoutRoom(DatabaseUnavailable):
    """The disk of PostgreSQL is full."""


class ServerUnavailable(Unavailable):
    """The OAR server does not accept messages."""


class Busy(Unavailable):
    """Another process is working on the same object."""

    exit_code = 5


class AlreadyRunning(Unavailable):
    """Another server uses the ports or the lock."""

    exit_code = 4


class Fenced(OarError):
    """Another server has taken over: this process may change nothing."""

    exit_code = 6


class NodeUnavailable(Unavailable):
    """A node cannot be reached."""


class Bug(OarError):
    """An internal error: this cannot happen."""
