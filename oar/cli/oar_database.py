"""oar-database: create, bring up to date, check, repair, empty and drop the database.

See docs/design/schema.rst, "Migrations".
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from oar.cli.common.command import Context, oar_command
from oar.cli.common.database_texts import for_administrators
from oar.cli.common.options import ADMIN, Stop, option
from oar.lib.base.errors import ConfigError, DatabaseUnavailable
from oar.lib.base.version import explain_schema_mismatch
from oar.lib.config.files import Config, parse
from oar.lib.db.connections import Address, DatabaseSettings, use_waits_of_libpq
from oar.lib.db.migrations import Migrator, connect_admin, readable_errors
from oar.lib.db.statements import Connection
from oar.lib.runtime import archive_settings, conf_file, database_settings, read_config

if TYPE_CHECKING:
    from oar.lib.db.archive import Archive
    from oar.lib.db.database import Database

EXIT_BAD_ROWS = 2

#: Where Debian's PostgreSQL has its socket.
SOCKET_DIRECTORY = "/var/run/postgresql"

#: Actions as words; the first ones are OAR 3's.
WORDS: Mapping[str, str] = {
    "create": "create",
    "upgrade": "setup",
    "reset": "reset",
    "drop": "drop",
    "check": "check",
    "purge": "purge",
    "archive": "archive",
}
#: What an action does that cannot be undone.
WARNINGS: Mapping[str, str] = {
    "reset": "All tables of OAR in the database {name} will be dropped and created anew: all data will be lost.",
    "drop": "The database {name} will be dropped: all data will be lost.",
}
#: The settings that must have a value: description, option, key.
REQUIRED: Mapping[str, tuple[str, str, str]] = {
    "host": ("host", "host", "DB_HOSTNAME"),
    "name": ("name", "name", "DB_BASE_NAME"),
    "user": ("user", "user", "DB_BASE_LOGIN"),
    "ro_user": ("read-only user", "ro-user", "DB_BASE_LOGIN_RO"),
}
#: Additional settings of a login over the network.
PASSWORDS: Mapping[str, tuple[str, str, str]] = {
    "password": ("password", "pass", "DB_BASE_PASSWD"),
    "ro_password": ("read-only password", "ro-pass", "DB_BASE_PASSWD_RO"),
}


@dataclass(frozen=True, slots=True)
class ActionOptions:
    """How the action is to be done."""

    db_is_local: bool
    db_admin_user: str | None
    db_admin_pass: str | None
    no_admission_rules: bool
    show_sql: bool
    dry_run: bool
    deep: bool
    origin: str | None
    running: bool
    trust_clock: bool


def action(
    name: str, *declarations: str, help: str
) -> Callable[[Callable[..., int | None]], Callable[..., int | None]]:
    """Declare an option that names what to do."""
    return option(*declarations, f"is_{name}", is_flag=True, help=help)


@oar_command(
    "oar-database",
    summary="Create, upgrade, check or drop the database of OAR.",
    examples={
        "oar-database --create --db-is-local": "Create the database in the PostgreSQL server of this machine.",
        "oar-database --check --deep": "Check the database and the consistency of its rows.",
        "oar-database --upgrade --dry-run": "Print the SQL statements of an upgrade.",
    },
    style=ADMIN,
    admins_only=True,
    kept_variables=("PGPASSWORD", "PGPASSFILE"),
)
@click.argument("actions", nargs=-1, metavar="[create|upgrade|reset|check|drop|purge|archive]")
@action("create", "-c", "--create", help="Create logins, database, schema and default data.")
@action("create_empty", "--create-empty", help="Create logins and a database without tables, to restore a dump.")
@action("init", "--init", help="Create schema and default data in an empty database whose logins exist.")
@action("setup", "-s", "--setup", "--upgrade", help="Upgrade the schema to the current version.")
@action("reset", "-r", "--reset", help="Drop all tables and create them anew; all data is lost.")
@action("drop", "--drop", help="Drop the database and its logins; all data is lost.")
@action("check", "--check", help="Check whether the database can be used.")
@action(
    "fix_ro_user", "--fix-ro-user-priv", help="Create the read-only login if it is missing; grant its privileges again."
)
@action("fix_index", "--fix-index", help="Close the rows of ended jobs; create missing indexes.")
@action("purge", "--purge", help="Delete data older than the RETENTION keys of oar.conf allow.")
@action("archive", "--archive", help="Copy ended jobs to the archive (DB_ARCHIVE_BASE_NAME); --purge includes this.")
@action("after_restore", "--after-restore", help="Prepare a database that was restored from a dump for use.")
@action("adopt", "--adopt", help="Migrate the database of an older OAR into this empty database (needs --from).")
@option("--from", "origin", metavar="URL", help="With --adopt: the old database, as postgresql://LOGIN@HOST/NAME.")
@option("--running", is_flag=True, help="With --adopt: wait for the end of jobs that run under the old server.")
@option("--trust-clock", is_flag=True, help="With --purge: trust the system date after a long time without events.")
@option("--deep", is_flag=True, help="With --check: find inconsistent rows; repair advance reservations.")
@option("--conf", metavar="FILE", help="Configuration file (default: $OARCONFFILE, /etc/oar/oar.conf).")
@option("--db-type", metavar="TYPE", help="Type of the database: only Pg.")
@option("--db-host", metavar="HOST", help="Host of the database, or the directory of its socket.")
@option("--db-port", metavar="PORT", help="Port of the database.")
@option("--db-user", metavar="NAME", help="Login that owns the database.")
@option("--db-pass", metavar="PASSWORD", help="Password of the owner.")
@option("--db-name", metavar="NAME", help="Name of the database.")
@option("--db-ro-user", metavar="NAME", help="Read-only login.")
@option("--db-ro-pass", metavar="PASSWORD", help="Password of the read-only login.")
@option("--db-is-local", is_flag=True, help="Connect to the PostgreSQL of this machine as system user postgres.")
@option("--db-admin-user", metavar="NAME", help="Administrator of PostgreSQL.")
@option("--db-admin-pass", metavar="PASSWORD", help="Password of the administrator.")
@option("--no-admission-rules", is_flag=True, help="Do not insert the default admission rules.")
@option("-y", "--force-yes", is_flag=True, help="Do not ask for confirmation.")
@option("-f", "--force-sql", is_flag=True, help="Ignored: an upgrade is atomic.")
@option("-d", "--debug", "show_sql", is_flag=True, help="Print the SQL statements.")
@option("--dry-run", is_flag=True, help="Print the SQL statements, or the data to migrate, and change nothing.")
def main(
    context: Context, actions: tuple[str, ...], force_yes: bool, force_sql: bool, conf: str | None, **values: object
) -> int:
    """Execute the action of the command line."""
    use_waits_of_libpq()
    flags = [name.removeprefix("is_") for name, is_on in values.items() if name[:3] == "is_" and is_on]
    action = _chosen(actions, flags)
    config = _read(context, conf)
    settings = _settings(config, values)
    options = ActionOptions(**{name: values[name] for name in ActionOptions.__slots__})  # type: ignore[arg-type]
    _require(settings, create=action in ("create", "create_empty"))
    if (options.origin is None) is (action == "adopt"):
        raise click.UsageError("--adopt and --from URL must be used together. URL is the address of the old database.")
    if force_sql:
        context.warn("--force-sql is ignored: an upgrade is done as a whole or not at all.")
    if action in WARNINGS and not (force_yes or options.dry_run):
        _confirm(WARNINGS[action].format(name=settings.name))
    if action == "check":
        return _check(settings, config, deep=options.deep)
    try:
        match action:
            case "purge":
                _purge(context, settings, config, options)
            case "archive":
                _copy_to_archive(settings, config, dry=options.dry_run)
            case "after_restore":
                _after_restore(settings, config)
            case "adopt":
                return _adopt(context, settings, options)
            case _:
                _migrate(action, settings, options)
    except DatabaseUnavailable as error:
        raise Stop(f"[ERROR] Cannot use the database: {for_administrators(error, settings)}") from error
    return 0


def setup_directory() -> Path:
    """Return the path of setup/database: of the installation or of the checkout."""
    directories = [Path(sys.argv[0]).resolve().parent, Path(__file__).resolve().parent.parent.parent]
    for directory in directories:
        if (directory / "setup/database/views.sql").is_file():
            return directory / "setup/database"
    where = f"neither in {directories[0]} nor in {directories[1]}"
    raise ConfigError(f"setup/database is {where}: the installation is incomplete.")


# -- requests ---------------------------------------------------------------------------------------------------------


def _chosen(actions: Sequence[str], flags: Sequence[str]) -> str:
    """Return the only action.  Raises UsageError."""
    unknown = [action for action in actions if action not in WORDS]
    if unknown:
        raise click.UsageError(f"Unknown action: {unknown[0]}")
    chosen = sorted({*flags, *(WORDS[action] for action in actions)})
    if len(chosen) != 1:
        raise click.UsageError(
            "Only one action can be done at a time." if chosen else "No action is given. See: oar-database --help"
        )
    return chosen[0]


def _read(context: Context, conf: str | None) -> Config:
    """Return the configuration; an absent file counts as empty unless it is named."""
    path = conf or conf_file(context.environment)
    if conf is None and not os.path.exists(path):
        return parse("").config
    parsed = read_config(path)
    for problem in parsed.errors:
        if problem.key == "DB_TYPE":
            raise Stop("[ERROR] MySQL is not supported.")
        if problem.key.startswith("DB_"):
            raise ConfigError(str(problem))
    return parsed.config


def _settings(config: Config, options: Mapping[str, object]) -> DatabaseSettings:
    """Return where the database is: options win over the configuration file."""
    kind = str(options["db_type"] or config.db_type).lower()
    if kind == "mysql":
        raise Stop("[ERROR] MySQL is not supported.")
    if kind not in ("pg", "psql", "pgsql"):
        raise Stop(f"[ERROR] The database type {kind} is not supported: use Pg.")
    names = {
        "host": "db_host",
        "user": "db_user",
        "password": "db_pass",
        "name": "db_name",
        "ro_user": "db_ro_user",
        "ro_password": "db_ro_pass",
    }
    changes = {name: options[option] for name, option in names.items() if options[option] is not None}
    port = options["db_port"]
    if port is not None:
        if not (str(port).isascii() and str(port).isdigit() and 0 < int(str(port)) < 65536):
            raise Stop(f"[ERROR] {port} is not a port (--db-port: 1 to 65535).")
        changes["port"] = int(str(port))
    settings = database_settings(config, patience=0)._replace(**changes)  # type: ignore[arg-type]
    try:
        settings.addresses  # noqa: B018
    except ValueError as error:
        raise Stop(f"[ERROR] --db-host: {error}.") from None
    return settings


def _require(settings: DatabaseSettings, *, create: bool) -> None:
    """Refuse to begin without what will be needed.  Raises Stop."""
    through_network = not settings.host.startswith("/")
    for name, (item, flag, key) in {**REQUIRED, **(PASSWORDS if create and through_network else {})}.items():
        if not getattr(settings, name):
            raise Stop(
                f"[ERROR] You must specify the database {item} (--db-{flag} or {key} in the configuration file)."
            )


def _confirm(warning: str) -> None:
    """Go on only if a person says so.  Raises Stop."""
    click.echo(warning)
    if not sys.stdin.isatty():
        raise Stop("Aborted.")
    click.echo("Continue? [y/N] ", nl=False)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Stop("Aborted.")


# -- changes ----------------------------------------------------------------------------------------------------------


def _migrate(chosen: str, settings: DatabaseSettings, options: ActionOptions) -> None:
    migrator = Migrator(
        settings,
        setup_directory(),
        connect_admin=_administrator(settings, options),
        with_rules=not options.no_admission_rules,
        say=click.echo,
        show=click.echo if options.show_sql or options.dry_run else None,
        dry=options.dry_run,
    )
    actions = {
        "create": migrator.create,
        "create_empty": migrator.create_empty,
        "init": migrator.init,
        "setup": migrator.setup,
        "reset": migrator.reset,
        "drop": migrator.drop,
        "fix_ro_user": migrator.fix_ro_user,
        "fix_index": migrator.fix_index,
    }
    with readable_errors():
        actions[chosen]()


def _administrator(settings: DatabaseSettings, options: ActionOptions) -> "Callable[[str], Connection] | None":
    """Return how to connect as an administrator of PostgreSQL; None if no option says it."""

    def connect_locally(name: str) -> Connection:
        sockets = [address for address in settings.addresses if address.host.startswith("/")]
        with _as_postgres():
            return connect_admin(sockets or [Address(SOCKET_DIRECTORY, settings.port)], name, "postgres", None)

    if options.db_is_local:
        return connect_locally
    if options.db_admin_user:
        user, password = options.db_admin_user, options.db_admin_pass
        return lambda name: connect_admin(settings.addresses, name, user, password)
    return None


@contextmanager
def _as_postgres() -> Iterator[None]:
    """Run as the system user postgres: PostgreSQL authenticates local connections by uid.  Raises Stop."""
    import pwd

    before = os.geteuid()
    try:
        os.seteuid(pwd.getpwnam("postgres").pw_uid)
    except KeyError:
        raise Stop("[ERROR] --db-is-local: there is no system user postgres on this machine.") from None
    except PermissionError:
        raise Stop("[ERROR] --db-is-local: run oar-database as root, to become the system user postgres.") from None
    try:
        yield
    finally:
        os.seteuid(before)


def _purge(context: Context, settings: DatabaseSettings, config: Config, options: ActionOptions) -> None:
    """Delete data older than the retention periods, or only print the counts."""
    from oar.lib.base import clock_watch
    from oar.lib.db.database import Database
    from oar.lib.jobs import retention

    database = Database(settings, application="oar:database")
    kept = clock_watch.synchronized_time()
    why = "" if options.trust_clock else retention.why_clock_is_doubted(database, kept)
    if why:
        raise Stop(f"[ERROR] {why}: nothing is removed. If the date is right: oar-database --purge --trust-clock")
    _purge_all(context, database, config, dry=options.dry_run)


def _purge_all(context: Context, database: "Database", config: Config, *, dry: bool) -> None:
    """Print what was deleted for each key; add an event that records the trusted date."""
    from oar.lib.history.event_types import EventType
    from oar.lib.jobs import retention
    from oar.lib.monitoring.records import ServerTask

    verb = "would be" if dry else "were"
    archive = None if dry else _archive(config, database)
    if archive:  # before the logs of jobs go, too
        click.echo(f"{sum(retention.archive_jobs(database, archive))} jobs were copied to the archive.")
    for kept in retention.kept(config, archive):
        if not kept.days:
            click.echo(f"{kept.key} is 0: {kept.what} are kept for ever.")
            continue
        if dry:
            removed = kept.foresee(database, kept.days)
        else:
            removed = sum(kept.purge(database, kept.days, retention.record_purge(context.user, kept.what, kept.days)))
        click.echo(f"{removed} {kept.what} {verb} removed that ended more than {kept.days} days ago.")
    if not dry:
        with database.begin() as tx:
            tx.events.add(EventType.DATABASE_PURGED, 0, "[oar-database] old data was deleted")
            tx.figures.record_success(ServerTask.PURGE)


def _archive(config: Config, live: "Database") -> "Archive | None":
    """Return the archive, ready for jobs; None if oar.conf names none.  Raises DatabaseUnavailable, SchemaError."""
    from oar.lib.db.archive import Archive

    settings = archive_settings(config)
    if settings is None:
        return None
    archive = Archive(settings)
    try:
        with readable_errors():
            archive.prepare(live)
    except DatabaseUnavailable as error:
        reason = for_administrators(error, settings, "DB_ARCHIVE_")
        with live.snapshot():  # raises DatabaseUnavailable if it is not the archive that cannot be used
            raise Stop(f"[ERROR] Cannot use the archive (DB_ARCHIVE_*): {reason}") from error
    return archive


def _copy_to_archive(settings: DatabaseSettings, config: Config, *, dry: bool) -> None:
    """Copy new ended jobs to the archive, or only print their number."""
    from oar.lib.db.database import Database
    from oar.lib.jobs import retention

    database = Database(settings, application="oar:database")
    archive = _archive(config, database)
    if archive is None:
        raise Stop("[ERROR] There is no archive: set DB_ARCHIVE_BASE_NAME in oar.conf.")
    if dry:
        count, verb = retention.count_missing(database, archive), "would be"
    else:
        count, verb = sum(retention.archive_jobs(database, archive)), "were"
    click.echo(f"{count} jobs {verb} copied to the archive.")


def _after_restore(settings: DatabaseSettings, config: Config) -> None:
    """Prepare a restored database for use and print the changes."""
    from oar.lib.db.database import Database
    from oar.lib.jobs import recovery
    from oar.lib.nodes import restoration

    with Database(settings, application="oar:database").begin() as tx:
        done = restoration.after_restore(tx, recovery.read_newest_job(config.oar_run_dir))
    click.echo(done.report)


def _adopt(context: Context, settings: DatabaseSettings, options: ActionOptions) -> int:
    """Migrate the database of an older OAR, or only print the plan; return the exit code."""
    from oar.cli.common.adoption import adopt

    migrator = Migrator(settings, setup_directory(), with_rules=not options.no_admission_rules)
    with readable_errors():
        return adopt(migrator, context.user, options.origin or "", dry=options.dry_run, waits=options.running)


def _check(settings: DatabaseSettings, config: Config, *, deep: bool) -> int:
    """Print the verdict about the database, and the conditions of jobs that keep them waiting; return the exit code."""
    from oar.lib.db.database import Database
    from oar.lib.db.user_sql import not_understood

    database = Database(settings, application="oar:database")
    try:
        with database.snapshot() as tx:
            mismatch = explain_schema_mismatch(tx.system.schema_version())
        if mismatch:
            return _failed(mismatch)
        if deep:
            found = _found(database, settings.ro_user, config.reservation_answer_timeout)
            for line in found:
                click.echo(line)
            if found:
                return EXIT_BAD_ROWS
        with database.snapshot() as tx:
            for condition, error in not_understood(tx, config.user_sql_full_users):
                click.echo(f"job {condition.job_id} of {condition.user} waits: {error}: {condition.text!r}")
    except DatabaseUnavailable as error:
        click.echo(f"[ERROR] Cannot use the database: {for_administrators(error, settings)}", err=True)
        return _failed("Cannot connect to OAR database.")
    click.echo("[Success] The OAR database is accessible and ready.")
    return 0


def _found(database: "Database", ro_user: str, patience: float) -> list[str]:
    """Return inconsistencies, one per line; errors of advance reservations are repaired."""
    from oar.lib.reservations import repairs

    with database.begin() as tx:
        violations = tx.invariants.violations(ro_user)
        is_usable = not tx.invariants.of_schema(ro_user)
        mended = repairs.repair(tx, patience=patience) if is_usable else {}
    return [f"{violation} (mended)" if violation.problem in mended else str(violation) for violation in violations]


def _failed(text: str) -> int:
    click.echo(f"[Failed] {text}")
    return 1
