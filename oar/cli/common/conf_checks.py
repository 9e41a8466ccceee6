"""x"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from oar.kao.rounds.reading.planner_settings import settings_of
from oar.kao.rounds.reading.policy_files import NO_QUOTAS, have_quotas
from oar.lib.base.errors import BadCondition, ConfigError, DatabaseRefused, DatabaseUnavailable
from oar.lib.config.files import Config
from oar.lib.config.kinds import Key
from oar.lib.db.connections import explain_failure
from oar.lib.db.database import Database
from oar.lib.db.transaction import Transaction
from oar.lib.db.user_sql import SITE, Subject, session
from oar.lib.jobs import server_keys
from oar.lib.jobs.records import Queue
from oar.lib.nodes.states import ALWAYS_AVAILABLE, NEVER_HALTED_NOR_WOKEN, STANDBY_FOR_EVER
from oar.lib.runtime import database_settings
from oar.lib.submission.resource_request import parse_request

_LOOPBACK = ("localhost", "127.", "::1")
#: Keys that name a property of resources.
_PROPERTIES = (
    Config.oarsub_nodes_resources,
    Config.node_file_db_field,
    Config.node_file_db_field_distinct_values,
    Config.job_resource_manager_property_db_field,
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


def findings(config: Config, *, is_copy: bool = False) -> Iterator[str]:
    """Give what is wrong; a database that cannot be asked is one line.

    ``is_copy``: the file is that of a frontend, and is compared with the values of the server.
    """
    database = Database(database_settings(config, patience=0), application="oar:oar-conf")
    try:
        with database.snapshot() as tx:
            site = _site(tx, config) if tx.schema_version.find() else None
        if site is None:
            yield f"DB_BASE_NAME: {config.db_base_name}: the database has no schema. Create it: oar-database --setup"
            return
        if is_copy:
            with database.snapshot() as tx:
                texts = server_keys.stored_texts(tx)
            yield from server_keys.differences(config, texts)
            config = server_keys.with_server_values(config, texts)
        yield from site.bad_orders
        for look in (_queues, _properties, _quotas, _server, _sleepers, _connections):
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
    orders = list(_orders(tx, config))
    may_sleep = any(
        node.earliest_upto > NEVER_HALTED_NOR_WOKEN and node.latest_upto < ALWAYS_AVAILABLE
        for node in tx.node_energy.nodes().values()
    )
    most = tx.database_figures.find().most_connections
    return _Site(tx.queues.all(), tx.resources.columns(), tx.resources.nodes(), orders, may_sleep, most)


def _orders(tx: Transaction, config: Config) -> Iterator[str]:
    """Have the statement of the rounds judge each order of resources."""
    for key in _ORDERS:
        order = getattr(config, key.name)
        try:
            tx.rounds.resources((), order, order)
        except ConfigError as error:
            trouble = str(error).partition(": ")[2]
            yield f"{key.key}: {trouble}: rounds take resources by the names of their nodes until it is right"


def _queues(config: Config, site: _Site) -> Iterator[str]:
    names = [queue.name for queue in site.queues]
    there_are = f"there are {', '.join(sorted(names))}"
    if config.queue not in names:
        yield f"QUEUE: there is no queue {config.queue}; {there_are}"
    for key in _BY_QUEUE:
        for name in sorted(set(getattr(config, key.name)) - {"_", *names}):
            yield f"{key.key}: there is no queue {name}; {there_are}"


def _properties(config: Config, site: _Site) -> Iterator[str]:
    for key, name in _named_properties(config):
        if name not in site.columns:
            yield f"{key.key}: resources have no property {name}: oarproperty --list shows them, --add NAME adds one"


def _named_properties(config: Config) -> "Iterator[tuple[Key[Any], str]]":
    for key in _PROPERTIES:
        if name := getattr(config, key.name):
            yield key, name
    levels = Config.scheduler_priority_hierarchy_order
    yield from ((levels, name) for name in config.scheduler_priority_hierarchy_order.split("/") if name)
    for group in parse_request(config.oarsub_default_resources).groups:
        for level in group.levels:
            if level.property not in ("nodes", "node"):
                yield Config.oarsub_default_resources, level.property


def _quotas(config: Config, site: _Site) -> Iterator[str]:
    if config.quotas and not have_quotas([queue.policy for queue in site.queues], settings_of(config)):
        yield NO_QUOTAS


def _server(config: Config, site: _Site) -> Iterator[str]:
    others = [node for node in site.nodes if not node.startswith(_LOOPBACK)]
    if config.server_hostname.startswith(_LOOPBACK) and others:
        yield (
            f"SERVER_HOSTNAME: {config.server_hostname} means each machine itself: frontends cannot wake the server."
            f" Write the name under which {others[0]} and frontends reach it"
        )


def _sleepers(config: Config, site: _Site) -> Iterator[str]:
    if config.may_halt and site.nodes and not site.may_sleep:
        yield (
            "SCHEDULER_NODE_MANAGER_IDLE_TIME: no node may be halted:"
            f" oarnodesetting -h {site.nodes[0]} -p available_upto={STANDBY_FOR_EVER} lets one sleep and be woken"
        )


def _connections(config: Config, site: _Site) -> Iterator[str]:
    """Tell of an API that may take most connections: one for each thread, one that listens, two for each worker."""
    held = config.api_threads + 1 + 2 * config.api_submission_workers
    if 2 * held > site.most_connections:
        yield (
            f"API_THREADS: the API may hold {held} of the {site.most_connections} connections of PostgreSQL, which the"
            f" server and commands need, too: max_connections = {3 * held} in postgresql.conf, or fewer threads"
        )


def _conditions(config: Config, database: Database) -> Iterator[str]:
    """Have the account that only reads judge the conditions of the file."""
    texts: list[tuple[Key[Any], str]] = [(Config.phoenix_broken_nodes, config.phoenix_broken_nodes)]
    texts += [(Config.energy_saving_nodes_keepalive, text) for text, _ in config.energy_saving_nodes_keepalive]
    try:
        with session(database, Subject.RESOURCES, SITE) as conditions:
            for key, text in texts:
                yield from _condition(key, text, conditions.ids)
    except DatabaseUnavailable as error:
        reason = f"{config.db_base_login_ro}: {explain_failure(str(error), quotes=True)}"
        yield f"DB_BASE_LOGIN_RO: {reason}. Conditions of users are not evaluated: correct the login and its password."


def _condition(key: "Key[Any]", text: str, ask: Callable[[str], object]) -> Iterator[str]:
    try:
        ask(text)
    except BadCondition as error:
        yield f"{key.key}: {text}: {error}"
