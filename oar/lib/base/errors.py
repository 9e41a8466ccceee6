"""The tree of errors, by who must act on them.

    OarError
    ├── UserError          the request cannot be met as it is: change it
    │   ├── BadRequest         it does not parse, or asks what cannot be
    │   ├── NotAllowed         it is somebody else's, or an administrator's
    │   ├── NoSuchJob          (also other named things: NoSuchQueue, NoSuchResource)
    │   ├── WrongState         the job is not in a state that allows it
    │   ├── Refused            an admission rule said no
    │   └── WordedRefusal      the message is all that is printed: the words of a documented interface
    ├── ConfigError        a file of the administrator: file, line, key
    ├── SchemaError        the database is not as this version needs it: oar-database
    ├── BrokenRow          a text in the database that cannot be read: another program has written it
    ├── Unavailable        database, bus or node: try again
    │   ├── DatabaseUnavailable
    │   │   ├── DatabaseFull       it has no connection left
    │   │   │   └── UserConnectionsUsed    for this user
    │   │   └── DatabaseRefused    it does not let us in: trying again does not help
    │   ├── ServerUnavailable
    │   ├── Busy               somebody else is working on the same
    │   ├── AlreadyRunning     another server has the ports or the lock
    │   └── NodeUnavailable
    └── Bug                it cannot be; the log has the trace

The message names the thing and the way out, in one line.  ``exit_code`` is what a command ends with when its own
table of exit codes does not say otherwise.
"""

from typing import Self


class OarError(Exception):
    """Anything that OAR raises on purpose."""

    exit_code = 3


class UserError(OarError):
    """The request cannot be met as it is."""

    exit_code = 1


class BadRequest(UserError):
    """The request does not parse, or asks what cannot be."""

    field = ""  #: of a record or an address, by which a program finds what is wrong

    def of(self, field: str) -> Self:
        """Return this error as that of a field, whose name its message begins with already."""
        self.field = field
        return self


class NotAllowed(UserError):
    """The caller has no right to do this."""


class NoSuchJob(UserError):
    """There is no job of that id."""

    def __init__(self, job_id: int) -> None:
        super().__init__(f"job {job_id} does not exist.")
        self.job_id = job_id


class NoSuchQueue(UserError):
    """There is no queue of that name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"queue '{name}' does not exist")
        self.name = name


class NoSuchResource(UserError):
    """There is no resource of that id or node of that name."""


class WrongState(UserError):
    """The job is not in a state that allows it."""


class Refused(UserError):
    """An admission rule refused the submission; the message is the rule's."""

    exit_code = 254


class WordedRefusal(UserError):
    """The message is all that is printed, in its own lines: its words are those of a documented interface.

    ``way_out``: what could be written or done instead; it stands in a line of its own behind two blanks, since the
    words before it are compared by programs.
    """

    def __init__(self, message: str, way_out: str = "") -> None:
        super().__init__(f"{message}\n  {way_out}" if way_out else message)


class BadCondition(UserError):
    """The text of a user is not a condition that may be evaluated."""


class ConfigError(OarError):
    """A file of the administrator is wrong; the message names file, line and key."""

    exit_code = 1


class ProgramNotStarted(ConfigError):
    """A program could not be started because the machine lacks memory, processes or files for now: a retry may."""


class SchemaError(OarError):
    """The schema of the database is not what is needed for what was asked."""

    exit_code = 1


class BrokenRow(OarError):
    """A text in the database cannot be read: another program, or a later version, has written it."""

    exit_code = 1


class Unavailable(OarError):
    """Something outside does not answer; trying again may help."""

    exit_code = 2


class DatabaseUnavailable(Unavailable):
    """PostgreSQL cannot be reached."""


class StatementTooLong(Unavailable):
    """PostgreSQL has ended a statement that took longer than the process gives it."""


class DatabaseFull(DatabaseUnavailable):
    """PostgreSQL is there, and has no connection left."""


class UserConnectionsUsed(DatabaseFull):
    """Other commands have all connections to PostgreSQL that are for a user, or for all users of this machine."""

    def __init__(self, whose: str) -> None:
        """``whose`` commands these are."""
        super().__init__(f"all connections for {whose} are in use")
        self.whose = whose


class DatabaseRefused(DatabaseUnavailable):
    """PostgreSQL is there, and does not accept the login, or does not have the database."""

    exit_code = 3


class DatabaseReadOnly(DatabaseUnavailable):
    """PostgreSQL is there, and takes no changes: it is a standby, or somebody has set it so."""


class DatabaseWithoutRoom(DatabaseUnavailable):
    """PostgreSQL is there, and its disk is full."""


class ServerUnavailable(Unavailable):
    """The OAR server does not take messages."""


class Busy(Unavailable):
    """Somebody else is working on the same."""

    exit_code = 5


class AlreadyRunning(Unavailable):
    """Another server has the ports or the lock."""

    exit_code = 4


class NodeUnavailable(Unavailable):
    """A node cannot be reached."""


class Bug(OarError):
    """Something that cannot be."""
