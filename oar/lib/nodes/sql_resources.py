"""Resources (``tx.resources``): their rows, log and columns.

Administrators add columns to ``resources`` while the system runs: columns are read by name and never hard-coded.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from oar.lib.bus.messages import Topic
from oar.lib.db.predicates import LIVE
from oar.lib.db.statements import Prepared, Row, Table, quoted
from oar.lib.nodes.records import PropertyValue, Resource
from oar.lib.nodes.states import STATE_NUMBERS, UNCHANGED, ResourceState

#: Names and types of the columns of resources, in their order.
_COLUMNS = """
    SELECT column_name::text, data_type::text FROM information_schema.columns
    WHERE table_schema = 'public' AND table_name = 'resources' ORDER BY ordinal_position"""
#: The resources whose change of state is asked, locked in a fixed order.
_PENDING = Prepared("""
    SELECT resource_id, network_address, type = 'default' AND desktop_computing = 'NO', state, finaud_decision,
        next_state, next_finaud_decision
    FROM resources WHERE next_state <> 'UnChanged' ORDER BY resource_id FOR NO KEY UPDATE""")
_IS_CHANGE_ASKED = Prepared("SELECT EXISTS (SELECT FROM resources WHERE next_state <> 'UnChanged')")
#: The nodes that have to be cleaned before they come back.
_TO_SWEEP = Prepared("""
    SELECT DISTINCT network_address FROM resources
    WHERE next_state = 'Alive' AND state IN ('Suspected', 'Absent') AND network_address <> '' AND type = 'default'
      AND desktop_computing = 'NO'
    ORDER BY network_address""")
#: Ask for a state of resources; with conditions on what they are now.
_ASK = """
    UPDATE resources SET next_state = %(to)s, next_finaud_decision = %(finaud)s
    WHERE resource_id IN (SELECT resource_id FROM resources WHERE {where} ORDER BY resource_id FOR NO KEY UPDATE)
    RETURNING resource_id"""
_HOLD = "SELECT resource_id FROM resources WHERE resource_id = ANY(%s) ORDER BY resource_id FOR NO KEY UPDATE"
#: Give resources their state.
_MOVE = """
    UPDATE resources SET state = %(to)s, state_num = %(number)s, finaud_decision = %(finaud)s,
        next_state = 'UnChanged', next_finaud_decision = 'NO'
    WHERE resource_id = ANY(%(ids)s)"""
_LOG_VALUES = """
    UPDATE resource_logs SET date_stop = %(now)s
    WHERE resource_id = ANY(%(ids)s) AND attribute = %(attribute)s AND date_stop = 0;
    INSERT INTO resource_logs (resource_id, attribute, value, date_start, finaud_decision)
    SELECT id, %(attribute)s, %(value)s, %(now)s, %(finaud)s FROM unnest(%(ids)s::integer[]) id"""
#: Resources of a node that an error makes Suspected.
_SUSPECTABLE = """
    SELECT resource_id, network_address FROM resources
    WHERE network_address = ANY(%(nodes)s) AND network_address <> ''
      AND (state = 'Alive' OR (state = 'Suspected' AND %(finaud)s = 'NO' AND finaud_decision = 'YES'))
    ORDER BY resource_id FOR NO KEY UPDATE"""
#: Nodes that Finaud tests.
_CHECKABLE = """
    SELECT network_address, bool_or(state = 'Alive') FROM resources
    WHERE type = 'default' AND desktop_computing = 'NO' AND next_state = 'UnChanged' AND network_address <> ''
      AND (state = 'Alive' OR (state = 'Suspected' AND finaud_decision = 'YES'))
    GROUP BY network_address ORDER BY network_address"""
_ALIVE_NODES = """
    SELECT DISTINCT network_address FROM resources
    WHERE type = 'default' AND desktop_computing = 'NO' AND state = 'Alive' AND network_address <> ''
    ORDER BY network_address"""
_ANY_ALIVE = """
    SELECT EXISTS (SELECT FROM resources WHERE type = 'default' AND state = 'Alive' AND network_address <> '')"""
_COUNT_NODES = """
    SELECT count(DISTINCT network_address) FROM resources
    WHERE type = 'default' AND desktop_computing = 'NO' AND state <> 'Dead' AND network_address <> ''"""
_SOME_ALIVE = """
    SELECT network_address FROM resources
    WHERE type = 'default' AND desktop_computing = 'NO' AND state = 'Alive' AND network_address NOT IN ('', %s)
    GROUP BY network_address ORDER BY random() LIMIT %s"""
#: Nodes that are out of service, and may come back.
_AWAY = """
    SELECT network_address FROM resources
    WHERE type = 'default' AND desktop_computing = 'NO' AND network_address <> ''
    GROUP BY network_address HAVING bool_and(state IN ('Suspected', 'Absent')) ORDER BY network_address"""
#: Nodes on which a job is.  The frame of an advance reservation is none: a node that fails while it is only reserved
#: is found.
_BUSY_NODES = f"""
    SELECT DISTINCT r.network_address FROM assigned_resources a JOIN resources r USING (resource_id)
    JOIN jobs j ON j.assigned_moldable_job = a.moldable_job_id
    WHERE a.assigned_resource_index = 'CURRENT' AND {LIVE}
      AND NOT EXISTS (SELECT FROM reservations v WHERE v.frame_id = j.job_id AND v.frame_id <> 0)"""
#: Nodes that were woken so many times since they are Absent.
_WOKEN_IN_VAIN = """
    SELECT h.hostname FROM event_log_hostnames h JOIN event_logs e USING (event_id)
    WHERE h.hostname = ANY(%s) AND e.type = 'WAKEUP_NODE' AND e.date >= (
        SELECT max(l.date_start) FROM resource_logs l JOIN resources r USING (resource_id)
        WHERE r.network_address = h.hostname AND r.state = 'Absent' AND l.attribute = 'state' AND l.date_stop = 0)
    GROUP BY h.hostname HAVING count(*) >= %s"""
#: Whether a Suspended job is on each resource, recomputed where it is wrong.
_RECOUNT_SUSPENDED = """
    WITH holding AS (
        SELECT DISTINCT a.resource_id FROM assigned_resources a
        JOIN jobs j ON j.assigned_moldable_job = a.moldable_job_id
        WHERE j.state = 'Suspended' AND a.assigned_resource_index = 'CURRENT')
    UPDATE resources r SET suspended_jobs = CASE WHEN h.resource_id IS NULL THEN 'NO' ELSE 'YES' END
    FROM resources o LEFT JOIN holding h USING (resource_id)
    WHERE r.resource_id = o.resource_id
      AND (r.suspended_jobs = 'YES') <> (h.resource_id IS NOT NULL)"""
_IDS_OF_NODES = """
    SELECT resource_id, network_address FROM resources WHERE network_address = ANY(%s) ORDER BY resource_id"""
_NODES_OF = """
    SELECT DISTINCT network_address FROM resources WHERE resource_id = ANY(%s) AND network_address <> ''"""
#: Tables of planned resources.
_PLANS = ("gantt_jobs_resources", "gantt_jobs_resources_visu", "gantt_jobs_resources_log")

_SHARED_TYPE = """t.types_index = 'CURRENT'
        AND (t.type = 'besteffort' OR t.type = 'timesharing' OR t.type LIKE 'timesharing=%')"""
#: Whether there are jobs with such types at all, also waiting ones. Each scheduling pass asks it: one small table.
_HAS_SHARED_TYPES = Prepared(f"SELECT EXISTS (SELECT FROM job_types t WHERE {_SHARED_TYPE})")
#: Jobs that weigh on the resources near them, with how much.
_SHARED_JOBS = f"""
    SELECT j.job_id, j.assigned_moldable_job,
        CASE WHEN bool_or(t.type = 'besteffort') THEN 1 ELSE 10 END AS factor
    FROM job_types t JOIN jobs j USING (job_id)
    WHERE {_SHARED_TYPE}
      AND j.state IN ('toLaunch', 'Launching', 'Running', 'Suspended', 'Resuming', 'Finishing')
    GROUP BY j.job_id, j.assigned_moldable_job"""
_WEIGH = """
    WITH shared AS ({shared}),
    held AS (
        SELECT s.job_id, s.factor, r.* FROM shared s
        JOIN assigned_resources a ON a.moldable_job_id = s.assigned_moldable_job
            AND a.assigned_resource_index = 'CURRENT'
        JOIN resources r USING (resource_id)),
    weights AS (SELECT resource_id, sum(weight) AS weight FROM ({weights}) each GROUP BY resource_id)
    UPDATE resources r SET scheduler_priority = COALESCE(w.weight, 0)
    FROM resources o LEFT JOIN weights w USING (resource_id)
    WHERE r.resource_id = o.resource_id AND r.scheduler_priority <> COALESCE(w.weight, 0)
    RETURNING r.resource_id, r.scheduler_priority"""

_IN_STATE_SINCE = """
    SELECT resource_id, date_start FROM resource_logs
    WHERE resource_id = ANY(%s) AND attribute = 'state' AND date_stop = 0"""
_BY_TYPE = "SELECT type, count(*) FROM resources GROUP BY type"


class PendingChange(NamedTuple):
    """A resource with a requested state change."""

    id: int
    network_address: str
    runs_jobs: bool  #: the server starts jobs on its node
    state: ResourceState
    finaud_decision: bool
    next_state: ResourceState
    next_finaud_decision: bool

    @property
    def changes(self) -> bool:
        """Whether the request changes the state or the decision of Finaud."""
        return (self.state, self.finaud_decision) != (self.next_state, self.next_finaud_decision)

    @property
    def comes_back(self) -> bool:
        """Whether the node must be cleaned first: jobs may have ended there while the node was unreachable."""
        return (
            self.next_state is ResourceState.ALIVE
            and self.state in (ResourceState.SUSPECTED, ResourceState.ABSENT)
            and self.runs_jobs
            and self.network_address != ""
        )


class Resources(Table):
    """Rows of ``resources`` and ``resource_logs``."""

    def columns(self) -> dict[str, str]:
        """Return the columns of the table (name to SQL type), in their order."""
        return dict(self._tx.rows(_COLUMNS))

    def all(self) -> list[Resource]:
        """Return all resources, by id."""
        return self._select("true", ())

    def values(self, name: str) -> frozenset[str]:
        """Return the values of a property as texts, without empty ones."""
        column = quoted(name)
        return frozenset(self._tx.column(f"SELECT DISTINCT {column}::text FROM resources WHERE {column}::text <> ''"))

    def groups_of(self, ids: Collection[int], name: str) -> list[tuple[str | None, list[int]]]:
        """Return the values of a column as texts, each with its resources among ``ids``; None: no value."""
        column = quoted(name, has_parameters=True)
        return self._tx.rows(
            f"SELECT {column}::text, array_agg(resource_id ORDER BY resource_id) FROM resources"
            " WHERE resource_id = ANY(%s) GROUP BY 1 ORDER BY min(resource_id)",
            (list(ids),),
        )

    def count_by_type(self) -> dict[str, int]:
        return dict(self._tx.rows(_BY_TYPE))

    def select(self, ids: Collection[int]) -> list[Resource]:
        """Return the existing resources of ``ids``, by id."""
        return self._select("resource_id = ANY(%s)", (list(ids),))

    def of_nodes(self, nodes: Collection[str]) -> list[Resource]:
        """Return the resources of nodes, by id."""
        return self._select("network_address = ANY(%s)", (list(nodes),))

    def nodes_with(self, nodes: Collection[str], name: str) -> list[str]:
        """Return the given nodes with a resource that has a value for an existing property, sorted."""
        return self._tx.column(
            "SELECT DISTINCT network_address FROM resources WHERE network_address = ANY(%s)"
            f" AND {quoted(name, has_parameters=True)}::text <> '' ORDER BY 1",
            (list(nodes),),
        )

    def is_change_asked(self) -> bool:
        """Return whether any resource has a requested state change."""
        return bool(self._tx.value(_IS_CHANGE_ASKED))

    def pending(self) -> list[PendingChange]:
        """Return the resources with a requested state change, by id; they are locked."""
        return [_pending(row) for row in self._tx.rows(_PENDING)]

    def ask_state(self, ids: Collection[int], to: ResourceState, *, finaud: bool = False) -> int:
        """Request a state of resources from NodeChangeState; return the number of existing resources.

        ``finaud``: the system made this decision and may revert it.
        """
        return len(self._ask("resource_id = ANY(%(ids)s)", {"to": to, "finaud": _flag(finaud), "ids": list(ids)}))

    def ask_state_of_node(
        self, node: str, to: ResourceState, *, seen: ResourceState, decided_by_finaud: bool | None = None
    ) -> list[int]:
        """Request a state for the resources of a node in state ``seen`` without a pending request; return their ids.

        With ``decided_by_finaud``, only resources whose current state was (or was not) set by Finaud. The request is a
        decision of the system, which may revert it.
        """
        where = "network_address = %(node)s AND state = %(seen)s AND next_state = 'UnChanged'"
        if decided_by_finaud is not None:
            where += " AND finaud_decision = %(decided)s"
        parameters = {"to": to, "finaud": "YES", "node": node, "seen": seen, "decided": _flag(decided_by_finaud)}
        return self._ask(where, parameters)

    def _ask(self, where: str, parameters: Mapping[str, object]) -> list[int]:
        ids: list[int] = self._tx.column(_ASK.format(where=where), dict(parameters))
        if ids:
            self._changed(Topic.RESOURCES)
        return ids

    def to_sweep(self) -> list[str]:
        """Return the nodes that must be cleaned before they become Alive, sorted."""
        return self._tx.column(_TO_SWEEP)

    def suspectable(self, nodes: Collection[str], *, finaud: bool) -> dict[int, str]:
        """Return the resources of nodes that may become Suspected, each with its node; they are locked."""
        return dict(self._tx.rows(_SUSPECTABLE, {"nodes": list(nodes), "finaud": _flag(finaud)}))

    def move(self, ids: Collection[int], to: ResourceState, *, finaud: bool) -> None:
        """Set the state of resources, and log it. Only ``oar.lib.nodes.state_changes`` calls this method."""
        parameters = {"ids": sorted(ids), "to": to, "number": STATE_NUMBERS[to], "finaud": _flag(finaud)}
        self._tx.execute(_MOVE, parameters)
        self._changed(Topic.RESOURCES)
        self.log(ids, "state", str(to), finaud=finaud)

    def clear_asked_state(self, ids: Collection[int]) -> None:
        """Delete the requested states of resources."""
        if ids:
            self._tx.execute(
                "UPDATE resources SET next_state = %s, next_finaud_decision = 'NO' WHERE resource_id = ANY(%s)",
                (UNCHANGED, sorted(ids)),
            )
            self._changed(Topic.RESOURCES)

    def log(self, ids: Collection[int], attribute: str, value: str, *, finaud: bool = False) -> None:
        """Log the new value of an attribute: close the current interval of its history and open a new one."""
        parameters = {
            "ids": sorted(ids),
            "attribute": attribute,
            "value": value,
            "now": self._tx.now,
            "finaud": _flag(finaud),
        }
        self._tx.execute(_LOG_VALUES, parameters)
        self._changed(Topic.RESOURCES)

    def begin_log(self, values: Sequence[tuple[int, str, str]]) -> None:
        """Begin the history of new resources, given as ``(resource id, attribute, value)``."""
        self._tx.insert_many(
            "INSERT INTO resource_logs (resource_id, attribute, value, date_start) VALUES %s",
            [(*value, self._tx.now) for value in values],
        )
        self._changed(Topic.RESOURCES)

    def close_log(self, ids: Collection[int], attribute: str) -> None:
        """Close the open interval of the history of an attribute."""
        self._tx.execute(
            "UPDATE resource_logs SET date_stop = %s WHERE resource_id = ANY(%s) AND attribute = %s AND date_stop = 0",
            (self._tx.now, sorted(ids), attribute),
        )
        self._changed(Topic.RESOURCES)

    def checkable_nodes(self) -> dict[str, bool]:
        """Return the nodes that Finaud may check, each with whether it is Alive (else Suspected)."""
        return dict(self._tx.rows(_CHECKABLE))

    def is_any_node_alive(self) -> bool:
        """Return whether any node of any kind is Alive, regardless of pending requests."""
        return bool(self._tx.value(_ANY_ALIVE))

    def count_nodes(self) -> int:
        """Return the number of nodes that are not Dead, without desktop computers."""
        count: int = self._tx.value(_COUNT_NODES)
        return count

    def alive_node_names(self) -> list[str]:
        """Return all nodes that are Alive, sorted, without desktop computers."""
        return self._tx.column(_ALIVE_NODES)

    def alive_nodes(self, besides: str, most: int) -> list[str]:
        """Return at most ``most`` random nodes that are Alive, except the node ``besides``."""
        return self._tx.column(_SOME_ALIVE, (besides, most))

    def away_nodes(self) -> list[str]:
        """Return the nodes that are out of service and may return, sorted."""
        return self._tx.column(_AWAY)

    def busy_nodes(self) -> set[str]:
        """Return the nodes on which live jobs hold resources."""
        return set(self._tx.column(_BUSY_NODES))

    def woken_in_vain(self, names: Collection[str], times: int) -> set[str]:
        """Return the given nodes that were woken at least ``times`` times since they became Absent."""
        return set(self._tx.column(_WOKEN_IN_VAIN, (sorted(names), times)))

    def recount_suspended(self) -> None:
        """Recompute ``suspended_jobs`` from the Suspended jobs."""
        if self._tx.execute(_RECOUNT_SUSPENDED):
            self._changed(Topic.RESOURCES)

    def ids_of_nodes(self, names: Collection[str]) -> dict[str, list[int]]:
        """Return the ids of the resources of the existing nodes, by node."""
        ids: dict[str, list[int]] = {}
        for resource_id, name in self._tx.rows(_IDS_OF_NODES, (list(names),)):
            ids.setdefault(name, []).append(resource_id)
        return ids

    def nodes(self) -> list[str]:
        """Return the names of all nodes, sorted by code points."""
        return sorted(self._tx.column("SELECT DISTINCT network_address FROM resources WHERE network_address <> ''"))

    def nodes_of(self, ids: Collection[int]) -> set[str]:
        """Return the names of the nodes of resources."""
        return set(self._tx.column(_NODES_OF, (list(ids),)))

    def hold(self, ids: Collection[int]) -> None:
        """Lock resources until the end of the transaction."""
        self._tx.execute(_HOLD, (list(ids),))

    def existing(self, ids: Collection[int]) -> list[int]:
        """Return the given ids that exist, ascending."""
        return self._tx.column(
            "SELECT resource_id FROM resources WHERE resource_id = ANY(%s) ORDER BY resource_id", (list(ids),)
        )

    def in_state_since(self, ids: Collection[int]) -> dict[int, int]:
        """Return the date of the last state change of resources."""
        return dict(self._tx.rows(_IN_STATE_SINCE, (list(ids),)))

    def in_maintenance(self, ids: Collection[int]) -> set[int]:
        return set(
            self._tx.column(
                "SELECT resource_id FROM resource_logs WHERE resource_id = ANY(%s) AND attribute = 'maintenance'"
                " AND date_stop = 0",
                (list(ids),),
            )
        )

    def keep_asleep(self, ids: Collection[int]) -> list[int]:
        """Exclude resources from halt and wake until ``wake_as_before``; return the changed resources."""
        self._changed(Topic.RESOURCES)
        return self._tx.column(
            "UPDATE resources SET last_available_upto = available_upto, available_upto = 0"
            " WHERE resource_id = ANY(%s) AND available_upto <> 0 RETURNING resource_id",
            (sorted(ids),),
        )

    def wake_as_before(self, ids: Collection[int]) -> list[tuple[int, int]]:
        """Revert ``keep_asleep``; return the changed resources, each with its new ``available_upto``."""
        self._changed(Topic.RESOURCES)
        rows = self._tx.rows(
            "UPDATE resources SET available_upto = last_available_upto WHERE resource_id = ANY(%s)"
            " AND last_available_upto <> 0 AND available_upto <> last_available_upto"
            " RETURNING resource_id, available_upto",
            (sorted(ids),),
        )
        return [(row[0], row[1]) for row in rows]

    def delete(self, resource_id: int) -> None:
        """Delete a resource with its history."""
        for table in ("resources", "resource_logs", "assigned_resources", "state_reasons", *_PLANS):
            self._tx.execute(f"DELETE FROM {table} WHERE resource_id = %s", (resource_id,))
        self._changed(Topic.RESOURCES, Topic.JOBS, Topic.GANTT)

    def has_shared_jobs(self) -> bool:
        """Return whether any job with resources has a type that ``weigh`` counts."""
        return bool(self._tx.value(_HAS_SHARED_TYPES)) and self._tx.row(f"{_SHARED_JOBS} LIMIT 1") is not None

    def weigh(self, levels: Sequence[str], *, logged: bool) -> int:
        """Recompute ``scheduler_priority`` from the current besteffort and timesharing jobs.

        Each such job adds to all resources that share the value of a property in ``levels`` with one of its resources.
        It adds twice the rank of the property, or ten times this value if it is timesharing and not besteffort.
        Resources far from such jobs are therefore selected first. Return the number of changed resources; with
        ``logged``, log the new values.
        """
        parts = [
            f"SELECT o.resource_id, h.factor * {2 * rank} AS weight FROM resources o"
            f" JOIN (SELECT DISTINCT job_id, factor, {quoted(name)} AS value FROM held) h ON h.value = o.{quoted(name)}"
            for rank, name in enumerate(levels, 1)
        ]
        changed = self._tx.rows(_WEIGH.format(shared=_SHARED_JOBS, weights=" UNION ALL ".join(parts)))
        if changed:
            self._changed(Topic.RESOURCES)
        if logged and changed:
            dates = self._tx.now, self._tx.now
            self._tx.insert_many(
                "INSERT INTO resource_logs (resource_id, attribute, value, date_start, date_stop) VALUES %s",
                [(resource, "scheduler_priority", str(value), *dates) for resource, value in changed],
            )
        return len(changed)

    def insert(self, rows: Sequence[Mapping[str, PropertyValue]]) -> list[int]:
        """Insert resources with the given columns (the same in each row); return their ids, in order."""
        names = list(rows[0])
        columns = ", ".join(quoted(name, has_parameters=True) for name in names)
        returned = self._tx.insert_returning(
            f"INSERT INTO resources ({columns}) VALUES %s RETURNING resource_id",
            [tuple(row[name] for name in names) for row in rows],
        )
        self._changed(Topic.RESOURCES)
        return [row[0] for row in returned]

    def set_property(self, ids: Collection[int], name: str, value: PropertyValue) -> list[int]:
        """Set a column of resources; return the changed resources. The caller has checked the name."""
        column = quoted(name, has_parameters=True)
        self._changed(Topic.RESOURCES)
        return self._tx.column(
            f"UPDATE resources SET {column} = %s WHERE resource_id = ANY(%s) AND {column} IS DISTINCT FROM %s"
            " RETURNING resource_id",
            (value, sorted(ids), value),
        )

    def _select(self, where: str, parameters: Sequence[Any]) -> list[Resource]:
        """Return the resources that satisfy a condition, with all current columns."""
        rows, names = self._tx.rows_and_names(f"SELECT * FROM resources WHERE {where} ORDER BY resource_id", parameters)
        return [Resource.of_columns(dict(zip(names, row, strict=True))) for row in rows]


def _pending(row: Row) -> PendingChange:
    resource_id, node, runs_jobs, state, by_finaud, next_state, next_by_finaud = row
    states = ResourceState(state), by_finaud == "YES", ResourceState(next_state), next_by_finaud == "YES"
    return PendingChange(resource_id, node, runs_jobs, *states)


def _flag(value: bool | None) -> str:
    return "YES" if value else "NO"
