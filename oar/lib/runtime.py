"""What every process starts with, in one value: configuration, database, and the way to deliver effects.

Reading files and the environment happens here and nowhere else.  Loading this module costs a command next to nothing:
what talks to the server and the log are imported when they are first used.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from oar.lib import config as configuration
from oar.lib.config import Config
from oar.lib.db.engine import Database, DatabaseSettings
from oar.lib.errors import ConfigError, ServerUnavailable

if TYPE_CHECKING:
    from oar.lib.messages import Effect

Deliver = Callable[[Sequence["Effect"]], None]
#: What tells whether a file is still the same; None if there is none.
FileVersion = tuple[int, int, int] | None

DEFAULT_OARDIR = "/usr/lib/oar"
#: Where programs are looked for that the server starts.
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
DEFAULT_FILES = ("/etc/oar/oar.conf", "/etc/oar.conf")


class Runtime:
    """Configuration, database, and the function that delivers what a transaction leaves to be sent."""

    def __init__(
        self,
        config: Config,
        database: Database,
        conf_file: str = "",
        oardir: str = DEFAULT_OARDIR,
        version: FileVersion = None,
    ) -> None:
        self.config = config
        self.database = database
        self.conf_file = conf_file
        self.oardir = oardir  #: where the programs of the system are
        self.version = version  #: of oar.conf when it was looked at last

    def changed_config(self) -> Config | None:
        """Return what oar.conf says if it has changed since the last look.

        A file that is not right changes nothing; the log tells it, once for each change.
        """
        import logging

        version = file_version(self.conf_file)
        if version == self.version:
            return None
        self.version = version
        try:
            parsed = read_config(self.conf_file)
        except ConfigError as error:
            trouble = str(error)
        else:
            trouble = str(parsed.errors[0]) if parsed.errors else ""
        if trouble:
            logging.getLogger(__name__).error("%s: the old values stay", trouble)
            return None
        return parsed.config

    def close(self) -> None:
        """Give back what is open."""
        self.database.close()


def conf_file(environment: Mapping[str, str] = os.environ) -> str:
    """Return the path of oar.conf: ``OARCONFFILE``, else the first of the usual places that exists."""
    if environment.get("OARCONFFILE"):
        return environment["OARCONFFILE"]
    return next((path for path in DEFAULT_FILES if os.path.exists(path)), DEFAULT_FILES[0])


def file_version(path: str) -> FileVersion:
    """Return what differs when a file has been written anew."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size


def read_config(path: str) -> configuration.Parsed:
    """Read and parse oar.conf.  Raises ConfigError if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return configuration.parse(file.read(), path)
    except OSError as error:
        raise ConfigError(f"cannot read the configuration file {path}: {error.strerror}") from None


def database_settings(config: Config, *, patience: int | None = None) -> DatabaseSettings:
    """Return where the database is, according to oar.conf."""
    return DatabaseSettings(
        host=config.db_hostname,
        port=config.db_port,
        name=config.db_base_name,
        user=config.db_base_login,
        password=config.db_base_passwd,
        ro_user=config.db_base_login_ro,
        ro_password=config.db_base_passwd_ro,
        user_sql_timeout=config.user_sql_timeout,
        patience=config.max_db_connection_timeout if patience is None else patience,
        notify=config.db_notify,
    )


def open_runtime(application: str, path: str | None = None, deliver: Deliver | None = None) -> Runtime:
    """Read oar.conf and prepare the database.  ``deliver``: default, the bus as commands reach it.

    Raises ConfigError when the file cannot be read.  A bad value is replaced by its default with a warning: a command
    must work with what is right in the file; the server checks the file itself.
    """
    path = path or conf_file()
    version = file_version(path)  # before it is read: a change in between is seen at the next look
    parsed = read_config(path)
    for problem in parsed.errors:
        sys.stderr.write(f"# Warning: {problem}\n")
    config = parsed.config
    database = Database(
        database_settings(config), application=f"oar:{application}", deliver=deliver or command_delivery(config)
    )
    return Runtime(config, database, path, os.environ.get("OARDIR", DEFAULT_OARDIR), version)


def command_delivery(config: Config, warning: str = "# Warning: cannot contact") -> Deliver:
    """Return how commands deliver effects: tags to the automaton over the bus.

    What cannot be delivered is in the database; the server finds it by its periodic look.
    """

    def deliver(effects: "Sequence[Effect]") -> None:
        from oar.lib import doorbell
        from oar.lib.messages import Ask, Wake

        try:
            doorbell.send_effects(config, [effect for effect in effects if isinstance(effect, Wake | Ask)])
        except ServerUnavailable:
            where = f"{config.server_hostname}:{config.server_port}"
            sys.stderr.write(f"{warning} the OAR server {where}, the request is recorded and will be treated later.\n")

    return deliver
