"""The checks of oar-conf --check that need the machine or the database.

Of the machine: programs, files, directories, the host name, policy files.  Of the database: queues, properties, quotas,
conditions and nodes.
"""

import errno
import os
import shlex
import socket
import stat
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from oar.kao.rounds.reading.planner_settings import settings_of
from oar.kao.rounds.reading.policy_files import NO_QUOTAS, have_quotas, parse_quotas, parse_weights
from oar.lib.accounts.budgets import retention_warning
from oar.lib.accounts.project_changes import check_budget
from oar.lib.accounts.records import Budget
from oar.lib.apps.definitions import read_apps
from oar.lib.base import programs
from oar.lib.base.errors import BadCondition, BadRequest, ConfigError, DatabaseRefused, DatabaseUnavailable
from oar.lib.config.files import Config
from oar.lib.config.kinds import Key, Target
from oar.lib.db.connections import explain_failure
from oar.lib.db.database import Database
from oar.lib.db.transaction import Transaction
from oar.lib.db.user_sql import SITE, Subject, session
from oar.lib.jobs import server_keys
from oar.lib.jobs.records import Queue
from oar.lib.jobs.states import JobPriority
from oar.lib.nodes import ping_checker
from oar.lib.nodes.states import ALWAYS_AVAILABLE, NEVER_HALTED_NOR_WOKEN, STANDBY_FOR_EVER
from oar.lib.remote.key_installation import ACCOUNT
from oar.lib.remote.requests import most_watched, needed_connections
from oar.lib.runtime import database_settings
from oar.lib.submission.checks import is_memory_readable, unreadable_memory
from oar.lib.submission.resource_request import parse_request


def machine_findings(config: Config, path: str, oardir: str) -> Iterator[str]:
    """Iterate over the problems.  ``path``: of oar.conf; ``oardir``: the directory of OAR's programs."""
    yield from _secrets(config, path)
    yield from _server_name(config)
    yield from read_apps(config.apps_directory).problems
    if _is_server(oardir):
        yield from _policies(config)
        yield from _idle_rules(config)


def missing_programs(config: Config, oardir: str) -> Iterator[str]:
    """Give the programs, files and directories that the configuration names and this machine does not have."""
    if _is_server(oardir):
        yield from _missing(config, oardir)
    elif config.oarsh_oarstat_cmd and os.path.exists(f"{oardir}/oarsh"):
        yield from _fault(Config.oarsh_oarstat_cmd.key, Target.SERVER_PROGRAM, config.oarsh_oarstat_cmd, oardir)


def _is_server(oardir: str) -> bool:
    return os.path.exists(f"{oardir}/oar-almighty")


def _secrets(config: Config, path: str) -> Iterator[str]:
    if config.db_base_passwd and os.stat(path).st_mode & stat.S_IROTH:
        yield f"DB_BASE_PASSWD: {path}: every user can read it. Run: chown root:{ACCOUNT} {path}; chmod 640 {path}"


def _server_name(config: Config) -> Iterator[str]:
    for name in config.server_hostnames:
        try:
            socket.getaddrinfo(name, None)
        except OSError as error:
            yield (
                f"SERVER_HOSTNAME: {name}: this machine cannot resolve the name ({error.strerror})."
                " Write the name by which frontends and nodes reach the server, and add it to /etc/hosts or the DNS."
            )


def _idle_rules(config: Config) -> Iterator[str]:
    """Give why rules about idle jobs have no effect, or not the expected one."""
    for key, rules in ((Config.idle_gpu_rules, config.idle_gpu_rules), (Config.idle_cpu_rules, config.idle_cpu_rules)):
        if not rules:
            continue
        if not config.job_curves:
            yield (
                f"{key.key}: JOB_CURVES is no: the usage of jobs over time is not recorded, and no job is found idle."
                f' Set JOB_CURVES="yes", or remove {key.key}.'
            )
        if not (config.mail_smtp_server and config.mail_sender):
            ends = " before their jobs are ended" if any(rule.grace is not None for rule in rules) else ""
            yield (
                f"{key.key}: no mail server is configured: users get no mail{ends}."
                f" Set MAIL_SMTP_SERVER and MAIL_SENDER, or remove {key.key}."
            )


def _missing(config: Config, oardir: str) -> Iterator[str]:
    """Give the programs, files and directories of the server that keys name, and that do not exist."""
    needs_taktuk = bool(config.pingchecker_taktuk_arg_command) and not ping_checker.replaces_taktuk(config)
    for key in Config.options():
        value = getattr(config, key.name)
        if key.fixed or not value or (key is Config.taktuk_cmd and not needs_taktuk):
            continue
        if isinstance(value, Mapping):
            for name, command in value.items():
                yield from _fault(f"{key.key}: {name}", key.kind.target, command, oardir)
        elif key.kind.target is Target.SERVER_PROGRAM or key.name in config.changed:
            yield from _fault(key.key, key.kind.target, value, oardir)
    rules = Config.admission_rules_path
    if config.admission_rules_in_files and rules.name not in config.changed:
        yield from _fault(rules.key, rules.kind.target, config.admission_rules_path, oardir)


def _fault(key: str, target: Target, value: str, oardir: str) -> Iterator[str]:
    find = _FAULTS.get(target)
    if fault := find(value, key.partition(":")[0], oardir) if find else "":
        yield f"{key}: {fault}"


def _find_site_program_fault(path: str, key: str, oardir: str) -> str:
    program = os.path.join(oardir, shlex.split(path)[0])
    if path == "kao" or programs.site_program(path) is None or os.path.exists(program):
        return ""
    return programs.describe_missing(program, key)


def _find_file_fault(path: str, key: str, _: str) -> str:
    way_out = f"Create it, or remove {key} from oar.conf."
    return "" if os.path.exists(path) else f"{path}: no such file on this machine. {way_out}"


def _find_directory_fault(path: str, key: str, _: str) -> str:
    way_out = f"Create it, or remove {key} from oar.conf."
    return "" if os.path.isdir(path) else f"{path}: no such directory on this machine. {way_out}"


def _find_output_fault(path: str, _: str, __: str) -> str:
    directory = os.path.dirname(path)
    if not path.startswith("/"):
        return ""  # a standard stream, or the journal
    if not os.path.isdir(directory):
        return f"{directory}: no such directory on this machine. Create it for the account {ACCOUNT}."
    return f"{path}: must be a file, not a directory. Use the path of a file." if os.path.isdir(path) else ""


#: What finds out why a target cannot be used: from the value of the key, the key and OARDIR.
_FAULTS: Mapping[Target, Callable[[str, str, str], str]] = {
    Target.SERVER_PROGRAM: lambda command, key, _: programs.find_fault(command, key),
    Target.SITE_PROGRAM: _find_site_program_fault,
    Target.SERVER_FILE: _find_file_fault,
    Target.SERVER_OUTPUT: _find_output_fault,
    Target.SERVER_DIRECTORY: _find_directory_fault,
}


def _policies(config: Config) -> Iterator[str]:
    if config.quotas or os.path.exists(config.quotas_conf_file):
        yield from _content(config, Config.quotas_conf_file, "quotas", parse_quotas)
    if settings_of(config).job_priority is JobPriority.MULTIFACTOR:
        yield from _content(config, Config.priority_conf_file, "priorities", parse_weights)


def _content(config: Config, key: Key[str], what: str, parse: Callable[[str], object]) -> Iterator[str]:
    """Give why the content of a file cannot be used; ``missing`` gives the files that are set and do not exist."""
    path: str = getattr(config, key.name)
    try:
        with open(path, encoding="utf-8") as file:
            parse(file.read())
    except OSError as error:
        is_told = error.errno == errno.EACCES or (error.errno == errno.ENOENT and key.name in config.changed)
        if not is_told:
            yield f"{key.key}: {path}: {error.strerror}. The scheduler treats the file as empty. Correct the file."
    except ValueError as error:
        after = f"The scheduler uses the former content, and no {what} after a restart. Correct the file."
        yield f"{key.key}: {path}: {error}. {after}"


_LOOPBACK = ("localhost", "127.", "::1")
#: Keys that name a property of resources.
_PROPERTIES = (
    Config.oarsub_nodes_resources,
    Config.node_file_db_field,
    Config.node_file_db_field_distinct_values,
    Config.job_resource_manager_property_db_field,
    Config.memory_property,
)
_ORDERS = (Config.scheduler_resource_order, Config.scheduler_resource_order_adv_reservations)
#: Keys whose values may be different for each queue.
_BY_QUEUE = (
    Config.scheduler_backfill_depth,
    Config.walltime_max_increase,
    Config.walltime_min_for_change,
    Config.walltime_change_apply_time,
    Config.walltime_increment,
    Config.walltime_reduction_disallowed,
    Config.walltime_allowed_users_to_force,
    Config.walltime_allowed_users_to_delay_jobs,
    Config.walltime_change_timeout,
)


class _Site(NamedTuple):
    """What the database has."""

    queues: list[Queue]
    columns: Mapping[str, str]
    nodes: list[str]
    bad_orders: list[str]
    may_sleep: bool  #: a node may be halted
    most_connections: int  #: that PostgreSQL accepts
    budgets: list[Budget]  #: of present and later periods


def database_findings(config: Config, *, is_copy: bool = False) -> Iterator[str]:
    """Iterate over the problems; a database that cannot be reached is one of them.

    ``is_copy``: the file belongs to a frontend and is compared with the values of the server.
    """
    database = Database(database_settings(config, patience=0), application="oar:oar-conf")
    try:
        with database.snapshot() as tx:
            site = _site(tx, config) if tx.system.schema_version() else None
        if site is None:
            yield f"DB_BASE_NAME: {config.db_base_name}: the database has no schema. Create it: oar-database --setup"
            return
        if is_copy:
            with database.snapshot() as tx:
                texts = server_keys.stored_texts(tx)
            yield from server_keys.differences(config, texts)
            config = server_keys.with_server_values(config, texts)
        yield from site.bad_orders
        for look in (_queues, _properties, _quotas, _server, _sleepers, _connections, _watched_nodes, _budgets):
            yield from look(config, site)
        yield from _conditions(config, database)
    except DatabaseRefused:
        name, login = config.db_base_name, config.db_base_login
        yield (
            f"DB_BASE_NAME: {name}: PostgreSQL on {config.db_hostname} refuses the login {login}."
            " Create both: oar-database --create. If they exist, correct DB_BASE_NAME, DB_BASE_LOGIN, DB_BASE_PASSWD."
        )
    except DatabaseUnavailable as error:
        reason = f"{config.db_hostname}: {explain_failure(str(error), quotes=True)}"
        unchecked = "Queues, properties and nodes are not checked"
        yield f"DB_HOSTNAME: {reason}. {unchecked}. Start PostgreSQL, or correct the key."
    finally:
        database.close()


def _site(tx: Transaction, config: Config) -> _Site:
    bad_orders = []
    for key in _ORDERS:
        order = getattr(config, key.name)
        try:
            tx.rounds.resources((), order, order)  # the statement of scheduling passes
        except ConfigError as error:
            trouble = str(error).partition(": ")[2]
            bad_orders.append(
                f"{key.key}: {trouble}: the scheduler sorts resources by node name until the value is correct"
            )
    may_sleep = any(
        node.earliest_upto > NEVER_HALTED_NOR_WOKEN and node.latest_upto < ALWAYS_AVAILABLE
        for node in tx.nodes.energy_nodes().values()
    )
    most = tx.figures.database_figures().most_connections
    budgets = [row.budget for row in tx.budgets.present()]
    return _Site(tx.queues.all(), tx.resources.columns(), tx.resources.nodes(), bad_orders, may_sleep, most, budgets)


def _queues(config: Config, site: _Site) -> Iterator[str]:
    names = [queue.name for queue in site.queues]
    there_are = f"there are {', '.join(sorted(names))}"
    if config.queue not in names:
        yield f"QUEUE: there is no queue {config.queue}; {there_are}"
    for key in _BY_QUEUE:
        for name in sorted(set(getattr(config, key.name)) - {"_", *names}):
            yield f"{key.key}: there is no queue {name}; {there_are}"


def _properties(config: Config, site: _Site) -> Iterator[str]:
    named: list[tuple[Key[Any], str]] = [(key, getattr(config, key.name)) for key in _PROPERTIES]
    hierarchy = Config.scheduler_priority_hierarchy_order
    named += [(hierarchy, name) for name in config.scheduler_priority_hierarchy_order.split("/")]
    for group in parse_request(config.oarsub_default_resources).groups:
        named += [(Config.oarsub_default_resources, level.property) for level in group.levels]
    for key, name in named:
        is_alias = key is Config.oarsub_default_resources and name in ("nodes", "node")
        if name and not is_alias and name not in site.columns:
            yield f"{key.key}: resources have no property {name}: oarproperty --list shows them, --add NAME adds one"
    if config.memory_property in site.columns and not is_memory_readable(site.columns, config):
        yield unreadable_memory(site.columns, config)


def _quotas(config: Config, site: _Site) -> Iterator[str]:
    if config.quotas and not have_quotas([queue.policy for queue in site.queues], settings_of(config)):
        yield NO_QUOTAS


def _server(config: Config, site: _Site) -> Iterator[str]:
    others = [node for node in site.nodes if not node.startswith(_LOOPBACK)]
    for name in config.server_hostnames:
        if name.startswith(_LOOPBACK) and others:
            yield (
                f"SERVER_HOSTNAME: {name} is a loopback name: frontends cannot wake the server."
                f" Write the name under which {others[0]} and frontends reach it"
            )


def _sleepers(config: Config, site: _Site) -> Iterator[str]:
    if config.may_halt and site.nodes and not site.may_sleep:
        yield (
            "SCHEDULER_NODE_MANAGER_IDLE_TIME: no node may be halted:"
            f" oarnodesetting -h {site.nodes[0]} -p available_upto={STANDBY_FOR_EVER} lets one sleep and be woken"
        )


def _connections(config: Config, site: _Site) -> Iterator[str]:
    """Warn if the API may use most connections: one for each thread, one listener, two for each worker."""
    held = config.api_threads + 1 + 2 * config.api_submission_workers
    if 2 * held > site.most_connections:
        yield (
            f"API_THREADS: the API may hold {held} of the {site.most_connections} connections of PostgreSQL, which the"
            f" server and commands need, too: max_connections = {3 * held} in postgresql.conf, or fewer threads"
        )


def _watched_nodes(config: Config, site: _Site) -> Iterator[str]:
    """Warn if the bipbips cannot record what jobs use on all nodes."""
    nodes = -(-len(site.nodes) // config.bipbip_workers)
    most = most_watched(config.oar_ssh_pool_max)
    if config.job_curves and nodes > most:
        yield (
            f"OAR_SSH_POOL_MAX: each bipbip has about {nodes} nodes, and records the curves of jobs on {most} at most."
            f' Set it to {needed_connections(nodes)} or more, increase BIPBIP_WORKERS, or set JOB_CURVES="no".'
        )


def _budgets(config: Config, site: _Site) -> Iterator[str]:
    if warning := retention_warning(config, site.budgets):
        yield f"RETENTION_ACCOUNTING: {warning}"
    for budget in site.budgets:
        try:
            check_budget(budget, config.accounting_window)
        except BadRequest as error:
            yield f"ACCOUNTING_WINDOW: project {budget.project}: {error}"


def _conditions(config: Config, database: Database) -> Iterator[str]:
    """Evaluate the conditions of the file under the read-only account."""
    texts: list[tuple[Key[Any], str]] = [(Config.phoenix_broken_nodes, config.phoenix_broken_nodes)]
    texts += [(Config.energy_saving_nodes_keepalive, text) for text, _ in config.energy_saving_nodes_keepalive]
    try:
        with session(database, Subject.RESOURCES, SITE) as conditions:
            for key, text in texts:
                try:
                    conditions.ids(text)
                except BadCondition as error:
                    yield f"{key.key}: {text}: {error}"
    except DatabaseUnavailable as error:
        reason = f"{config.db_base_login_ro}: {explain_failure(str(error), quotes=True)}"
        yield f"DB_BASE_LOGIN_RO: {reason}. Conditions of users are not evaluated: correct the login and its password."
