"""Probes of ``oar-server status --check``: what the server needs, and what the database says about jobs.

Each answers within a few seconds, whatever does not answer.
"""

import os
import pwd
import shlex
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from oar.cli.common.database_texts import for_administrators
from oar.lib.base.errors import ConfigError, DatabaseReadOnly, DatabaseUnavailable, OarError, StatementTooLong
from oar.lib.base.processes import run
from oar.lib.db.connections import explain_failure
from oar.lib.db.database import Database
from oar.lib.db.statements import psycopg2
from oar.lib.jobs.launch_holds import TEXTS, describe_hold
from oar.lib.monitoring.health import FAILURES_PERIOD, Surroundings
from oar.lib.monitoring.records import HealthFacts, UserHold
from oar.lib.runtime import database_settings
from oar.lib.submission import admission_rules

if TYPE_CHECKING:
    from oar.lib.config.files import Config
    from oar.lib.db.transaction import Transaction

#: Time limit of each statement, in seconds.
DATABASE_SECONDS = 3
#: Timers of the server; each starts a service of its name.
TIMERS = ("oar-accounting", "oar-purge", "oar-phoenix")
#: The timer that each server needs; administrators mask it if cron does its work.
NEEDED_TIMER = "oar-accounting"
_UNIT_PROPERTIES = "Id,LoadState,UnitFileState,ActiveState"


def probe_surroundings(
    config: "Config", path: str, errors: Sequence[str], pid: int, home: str | None = None
) -> Surroundings:
    """Return the problems of what the server needs.

    ``path``, ``errors``: of oar.conf; ``pid``: of the server; ``home``: of its account, default: of the owner of the
    process.
    """
    return Surroundings(
        database=find_database_problem(config),
        key=find_key_problem(config, pid, home),
        places=find_unwritable_places(config, pid),
        configuration=[*find_unreadable_configuration(path, pid), *errors],
        timers=list(find_timer_problems(query_units())),
    )


# -- the database -----------------------------------------------------------------------------------------------------


def find_database_problem(config: "Config") -> str:
    """Return why the database cannot be used, '' if it can."""
    database = Database(database_settings(config, patience=0), application="oar:status")
    try:
        with database.begin() as tx:
            if tx.figures.is_read_only():
                return for_administrators(DatabaseReadOnly(), database.settings)
            return ""
    except DatabaseUnavailable as error:
        return for_administrators(error, database.settings)
    finally:
        database.close()


def probe_cluster(config: "Config") -> HealthFacts | str:
    """Return what the database says about jobs, or why it cannot be read."""
    settings = database_settings(config, patience=0)._replace(
        statement_timeout=DATABASE_SECONDS, lock_patience=DATABASE_SECONDS
    )
    with closing(Database(settings, application="oar:status")) as database:
        try:
            with database.snapshot() as tx:
                return read_cluster(tx, config)
        except DatabaseUnavailable as error:
            return f"the database: {explain_failure(str(error), quotes=True)}"
        except (StatementTooLong, psycopg2.errors.LockNotAvailable):
            return f"the database did not answer within {DATABASE_SECONDS} s"
        except OarError as error:
            return str(error)
        except psycopg2.Error as error:
            return f"PostgreSQL rejects a statement (SQLSTATE {error.pgcode})"


def read_cluster(tx: "Transaction", config: "Config") -> HealthFacts:
    """Return the facts about queues, resources, submissions, launches and accounting."""
    figures, since = tx.figures, tx.now - FAILURES_PERIOD
    resources, suspected = figures.suspected().get("default", (0, 0))
    holds = [hold for hold in tx.launch_holds.all() if hold.is_confirmed]
    return HealthFacts(
        queues=figures.queues(),
        resources=resources,
        suspected=suspected,
        lost_nodes=0 if config.energy_saving or tx.resources.is_any_node_alive() else len(tx.resources.away_nodes()),
        refusals=figures.refusals(since),
        failed_launches=figures.failed_launches(since),
        launch_holds=[describe_hold(hold) for hold in holds if not hold.user],
        user_holds=[UserHold(hold.user, describe_hold(hold), TEXTS[hold.fault].repair) for hold in holds if hold.user],
        rule_errors=list(find_rule_errors(tx, config)),
        oldest_not_accounted=figures.oldest_not_accounted(),
        successes=tx.figures.successes(),
    )


def find_rule_errors(tx: "Transaction", config: "Config") -> Iterator[str]:
    """Return the enabled admission rules that are not Python, or why the rules cannot be read."""
    try:
        if config.admission_rules_in_files:
            rules = [rule for rule in admission_rules.read_rules(config.admission_rules_path) if rule.enabled]
        else:
            rules = tx.admission_rules.all(enabled=True)
    except ConfigError as error:
        yield str(error)
        return
    for rule in rules:
        if error_text := admission_rules.explain_bad_text(rule.id, rule.text):
            yield f"admission rule {rule.id} is not Python: {error_text}. Disable it: oaradmissionrules -m {rule.id} -N"


# -- files ------------------------------------------------------------------------------------------------------------


def find_unreadable_configuration(path: str, pid: int) -> Iterator[str]:
    """Give the error of an oar.conf that the account of the server cannot read."""
    try:
        account = pwd.getpwuid(os.stat(f"/proc/{pid}").st_uid)
    except (OSError, KeyError):  # the server has just ended, or its account has no entry
        return
    if os.path.exists(path) and not may_read(path, account):
        yield explain_unreadable(account.pw_name, path)


def explain_unreadable(account: str, path: str) -> str:
    """Return the error of an oar.conf that an account cannot read, with the way out."""
    return f"the account {account} cannot read {path} (run: chown root:{account} {path}; chmod 640 {path})"


def may_read(path: str, account: pwd.struct_passwd) -> bool:
    """Return whether an account may read a file; root starts a process as this account, others ask for themselves."""
    if os.geteuid() != 0:
        return os.access(path, os.R_OK)
    import subprocess

    groups = os.getgrouplist(account.pw_name, account.pw_gid)
    words, uid, gid = ["/usr/bin/test", "-r", path], account.pw_uid, account.pw_gid
    return subprocess.run(words, user=uid, group=gid, extra_groups=groups, cwd="/", check=False).returncode == 0


def find_key_problem(config: "Config", pid: int, home: str | None = None) -> str:
    """Return why the server cannot use its SSH key, '' if it can, or if ssh finds its keys elsewhere."""
    from oar.lib.remote import transports

    try:
        account = pwd.getpwuid(os.stat(f"/proc/{pid}").st_uid)
    except (OSError, KeyError):  # the server has just ended, or its account has no entry
        return ""
    directory = Path(home or account.pw_dir) / ".ssh"
    options = transports.read_options(shlex.split(config.openssh_cmd))
    if options is None or options.identities or (directory / "config").exists():
        return ""
    keys = [directory / name for name in transports.KEY_FILES]
    present = [key for key in keys if key.is_file()]
    if any(_may(key.stat(), account.pw_uid, stat.S_IRUSR) for key in present):
        return ""
    if present:
        return f"{present[0]}: {account.pw_name} cannot read it. Run: chown {account.pw_name} {present[0]}"
    way = "Restore it from a backup; or make a new one (oar-server prepare) and bring it to the nodes (oar-keys)"
    return f"{keys[0]}: the key of the server does not exist. {way}"


def find_unwritable_places(config: "Config", pid: int) -> Mapping[str, str]:
    """Return the places that a server cannot write, by their keys in oar.conf, and why."""
    places = {
        "LOG_FILE": config.log_file,
        "COMPLETION_LOG": config.completion_log or "",
        "METRICS_FILE": os.path.dirname(config.metrics_file or ""),
        "OAR_RUN_DIR": config.oar_run_dir,
    }
    problems = {key: find_writing_problem(path, pid) for key, path in places.items()}
    return {key: problem for key, problem in problems.items() if problem}


def find_writing_problem(path: str, pid: int) -> str:
    """Return why a server cannot write a file or in a directory; '' if it can, or if it is neither."""
    if not path.startswith("/"):
        return ""
    try:
        status = os.stat(path)
        room = os.statvfs(path)
        uid = os.stat(f"/proc/{pid}").st_uid
    except OSError as error:
        return f"{path}: {error.strerror}"
    if not _may(status, uid, stat.S_IWUSR):
        return f"{path}: the account of the server has no write permission"
    if room.f_flag & os.ST_RDONLY:
        return f"{path}: its file system is read-only"
    if not room.f_bavail:
        return f"{path}: no space is left on its file system"
    # Some file systems do not count what they can hold.
    return f"{path}: no inode is left on its file system (df -i)" if room.f_files and not room.f_favail else ""


def _may(status: os.stat_result, uid: int, bit: int) -> bool:
    """Return whether an account has the permission ``bit`` (of the owner) of a file; its groups are not looked up."""
    others = bit >> 3 | bit >> 6
    return uid == 0 or bool(status.st_mode & (bit if status.st_uid == uid else others))


# -- timers -----------------------------------------------------------------------------------------------------------


def query_units() -> dict[str, dict[str, str]]:
    """Return the properties of the timers and their services by unit; nothing without systemd."""
    if not Path("/run/systemd/system").is_dir():
        return {}
    units = [f"{name}.{kind}" for name in TIMERS for kind in ("timer", "service")]
    outcome = run(["systemctl", "show", "--property", _UNIT_PROPERTIES, *units], timeout=10)
    return parse_units(outcome.output) if outcome.succeeded else {}


def parse_units(text: str) -> dict[str, dict[str, str]]:
    """Return what ``systemctl show`` prints, by unit."""
    blocks = [dict(line.split("=", 1) for line in block.splitlines() if "=" in line) for block in text.split("\n\n")]
    return {block["Id"]: block for block in blocks if "Id" in block}


def find_timer_problems(units: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Return the timers that should run and do not, and the services that failed."""
    for name in TIMERS:
        timer, service = units.get(f"{name}.timer", {}), units.get(f"{name}.service", {})
        is_wanted = timer.get("LoadState") == "loaded" and (
            name == NEEDED_TIMER or timer.get("UnitFileState") == "enabled"
        )
        if is_wanted and timer.get("ActiveState") != "active":
            yield f"{name}.timer is stopped. Run: systemctl enable --now {name}.timer"
        if service.get("ActiveState") == "failed":
            yield f"{name}.service failed. See: journalctl -u {name}.service"
