"""The runtime of every process: configuration, database, and the delivery of effects.

Only this module reads oar.conf and its environment variables. It loads quickly for the sake of commands: the doorbell
and the log are imported at first use.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

from oar.lib.base.errors import ConfigError, Fenced, ServerUnavailable
from oar.lib.config import files as configuration
from oar.lib.config.files import Config
from oar.lib.db.connections import DatabaseSettings
from oar.lib.db.database import Database

if TYPE_CHECKING:
    from oar.lib.bus.messages import Effect

Deliver = Callable[[Sequence["Effect"]], None]
#: The version of a file: times of the last change of content, and of owner or mode; inode and size. None if it does not
#: exist.
FileVersion = tuple[int, int, int, int] | None

DEFAULT_OARDIR = "/usr/lib/oar"
#: Variable with which Almighty tells its children the generation of the server.
GENERATION = "OAR_GENERATION"

#: What becomes of a request of which the server cannot be told: it reads the database periodically.
LATER = "the request is recorded and will be treated later"
#: Seconds for which a transaction of a user's command may do nothing, and for which it waits for the rows of others.
USER_IDLE_LIMIT, USER_LOCK_PATIENCE = 20, 60
DEFAULT_FILES = ("/etc/oar/oar.conf", "/etc/oar.conf")


class Runtime:
    """The configuration and the database of a process."""

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
        self.oardir = oardir  #: the directory of OAR's programs
        self.version = version  #: of oar.conf when it was read last
        self._unreadable = ""  #: why oar.conf could not be read at the last attempt; '' if it could

    def changed_config(self) -> Config | None:
        """Return the configuration if oar.conf has changed since the last call, else None.

        A file with errors is ignored; its error is logged once per change. A file that cannot be read is tried again
        at each call: a directory above it may be the cause.
        """
        version = file_version(self.conf_file)
        if version == self.version and not self._unreadable:
            return None
        self.version, former = version, self._unreadable
        try:
            parsed = read_config(self.conf_file)
        except ConfigError as error:
            self._unreadable = str(error)
            if self._unreadable != former:
                _keep_old_values(self._unreadable)
            return None
        self._unreadable = ""
        if parsed.errors:
            _keep_old_values(str(parsed.errors[0]))
            return None
        return parsed.config

    def close(self) -> None:
        self.database.close()


def _keep_old_values(error: str) -> None:
    import logging

    logging.getLogger(__name__).error("%s: the old values stay", error)


def conf_file(environment: Mapping[str, str] = os.environ) -> str:
    """Return the path of oar.conf: ``OARCONFFILE``, else the first existing default path."""
    if environment.get("OARCONFFILE"):
        return environment["OARCONFFILE"]
    return next((path for path in DEFAULT_FILES if os.path.exists(path)), DEFAULT_FILES[0])


def is_frontend(oardir: str) -> bool:
    """Return whether OAR is installed here without its server."""
    return os.path.isdir(oardir) and not os.path.exists(f"{oardir}/oar-almighty")


def file_version(path: str) -> FileVersion:
    """Return the version of a file, None if it does not exist."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_size


def read_config(path: str) -> configuration.Parsed:
    """Read and parse oar.conf.  Raises ConfigError if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return configuration.parse(file.read(), path)
    except OSError as error:
        raise ConfigError(f"cannot read the configuration file {path}: {error.strerror}") from None


def database_settings(config: Config, *, patience: int | None = None) -> DatabaseSettings:
    """Return the database settings from oar.conf."""
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
        primary_file=f"{config.oar_run_dir}/database_primary",
    )


def settings_of_user(config: Config) -> DatabaseSettings:
    """Return the settings for a process that its user can suspend, with limits on idle time and on waits for locks.

    The limits protect the server from rows that stay locked. Admission rules run within a transaction, and have their
    own limit.
    """
    return database_settings(config)._replace(
        idle_limit=USER_IDLE_LIMIT + config.admission_rules_timeout, lock_patience=USER_LOCK_PATIENCE
    )


def archive_settings(config: Config) -> DatabaseSettings | None:
    """Return the archive settings from oar.conf, None if there is no archive. Database settings are the defaults."""
    if config.db_archive_base_name is None:
        return None
    return database_settings(config, patience=0)._replace(
        host=config.db_archive_hostname or config.db_hostname,
        primary_file="",
        name=config.db_archive_base_name,
        user=config.db_archive_base_login or config.db_base_login,
        password=config.db_archive_base_passwd or config.db_base_passwd,
        notify=False,
    )


def open_runtime(
    application: str,
    path: str | None = None,
    deliver: Deliver | None = None,
    *,
    is_of_user: bool = False,
    is_of_server: bool = False,
    patience: int | None = None,
) -> Runtime:
    """Read oar.conf and prepare the database. ``deliver``: delivers effects, by default with the doorbell.

    ``is_of_user``: the process is a command of a user, who may suspend it at any time. ``is_of_server``: it belongs to
    the active server, and ends when another server has taken over. ``patience``: see ``DatabaseSettings``.

    Raises ConfigError if the file cannot be read. An invalid value is replaced by its default with a warning, so that
    commands can use the valid part of the file. The server checks the file itself.
    """
    path = path or conf_file()
    version = file_version(path)  # before the file is read, so that a concurrent change is detected later
    parsed = read_config(path)
    for problem in parsed.errors:
        sys.stderr.write(f"# Warning: {problem}\n")
    config = parsed.config
    settings = settings_of_user(config) if is_of_user else database_settings(config, patience=patience)
    number = os.environ.get(GENERATION, "") if is_of_server else ""
    database = Database(
        settings,
        application=f"oar:{application}",
        deliver=deliver or command_delivery(config),
        generation=int(number) if number.isdecimal() else None,
    )
    database.on_fenced = _end_fenced
    return Runtime(config, database, path, os.environ.get("OARDIR", DEFAULT_OARDIR), version)


def _end_fenced(error: Fenced) -> NoReturn:
    """End this process of a former server at once: nothing that it still does could be stored."""
    import logging

    logging.getLogger(__name__).error("%s", error)
    os._exit(error.exit_code)


def command_delivery(
    config: Config, warning: str = "# Warning: cannot contact", fate: Callable[[], str] = lambda: LATER
) -> Deliver:
    """Return the function by which commands deliver effects. It prints a warning if the server is not reachable.

    ``fate``: returns a text about the consequence for the request, '' for no warning.
    """

    def warn(where: str) -> None:
        if sentence := fate():
            sys.stderr.write(f"{warning} the OAR server {where}, {sentence}.\n")

    return _delivery(config, warn)


def delivery(config: Config, warn: Callable[[str], object]) -> Deliver:
    """Return a function that delivers effects to the server. It calls ``warn`` if the server is not reachable.

    An effect that cannot be delivered is not lost: the server reads the database periodically.
    """
    return _delivery(config, lambda where: warn(f"cannot contact the OAR server {where}, {LATER}."))


def _delivery(config: Config, warn: Callable[[str], object]) -> Deliver:
    """Return a function that delivers effects to the server. It calls ``warn`` with the address if this fails."""

    def deliver(effects: "Sequence[Effect]") -> None:
        from oar.lib.bus import doorbell
        from oar.lib.bus.messages import Ask, Wake

        try:
            doorbell.send_effects(config, [effect for effect in effects if isinstance(effect, Wake | Ask)])
        except ServerUnavailable:
            warn(config.server_places)

    return deliver
