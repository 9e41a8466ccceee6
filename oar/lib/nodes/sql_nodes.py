"""Nodes (``tx.nodes``): reasons for their states, energy saving, property columns."""

from collections.abc import Collection, Sequence

import psycopg2.errors

from oar.lib.base.errors import Busy
from oar.lib.bus.messages import Topic
from oar.lib.db.lock_keys import SCHEMA_LOCK
from oar.lib.db.predicates import LIVE
from oar.lib.db.statements import Prepared, Table, quoted
from oar.lib.nodes.energy_records import NodePower
from oar.lib.nodes.records import StateReason
from oar.lib.nodes.states import NodeCheck

_SET = """
    INSERT INTO state_reasons (resource_id, date, author, reason, node_check, job_user)
    SELECT id, %(now)s, %(author)s, %(reason)s, %(check)s, %(user)s FROM unnest(%(ids)s::integer[]) id ORDER BY id
    ON CONFLICT (resource_id) DO UPDATE SET date = EXCLUDED.date, author = EXCLUDED.author, reason = EXCLUDED.reason,
        node_check = EXCLUDED.node_check, job_user = EXCLUDED.job_user"""

#: A check that is required already stays: what made it necessary is not over.
_REQUIRE_CHECK = """
    INSERT INTO state_reasons (resource_id, date, reason, node_check, job_user)
    SELECT resource_id, %(now)s, %(reason)s, %(check)s, %(user)s FROM resources
    WHERE network_address = %(node)s AND state = 'Suspected' AND finaud_decision = 'YES' ORDER BY resource_id
    ON CONFLICT (resource_id) DO UPDATE SET
        reason = EXCLUDED.reason, node_check = EXCLUDED.node_check, job_user = EXCLUDED.job_user
    WHERE state_reasons.node_check = ''"""

_FORGET = "DELETE FROM state_reasons WHERE resource_id = ANY(%s)"

_OF_RESOURCES = """
    SELECT resource_id, date, author, reason, node_check, job_user FROM state_reasons
    WHERE resource_id = ANY(%s) ORDER BY resource_id"""

#: The checks that may end the suspicion of each node.
_CHECKS = Prepared("""
    SELECT DISTINCT r.network_address, s.node_check, s.job_user
    FROM state_reasons s JOIN resources r USING (resource_id)
    WHERE s.node_check <> '' AND r.state = 'Suspected' AND r.finaud_decision = 'YES' AND r.next_state = 'UnChanged'
    ORDER BY r.network_address, s.node_check, s.job_user""")


#: All nodes that consist of resources on which jobs run.
_NODES = Prepared(f"""
    SELECT r.network_address, bool_and(r.state = 'Alive' AND r.next_state IN ('UnChanged', 'Alive')),
        bool_and(r.state = 'Absent' AND r.next_state = 'UnChanged'), bool_or(r.next_state = 'Absent'),
        bool_or(h.resource_id IS NOT NULL), min(r.available_upto), max(r.available_upto)
    FROM resources r LEFT JOIN (
        SELECT DISTINCT a.resource_id FROM assigned_resources a
        JOIN jobs j ON j.assigned_moldable_job = a.moldable_job_id
        WHERE a.assigned_resource_index = 'CURRENT' AND {LIVE}) h
        USING (resource_id)
    WHERE r.type = 'default' AND r.desktop_computing = 'NO' AND r.network_address <> ''
    GROUP BY r.network_address ORDER BY r.network_address""")

#: Those of some nodes whose last order since they are Absent was a wake, with its date.
_BOOTING = Prepared("""
    WITH absent AS (
        SELECT r.network_address AS name, max(l.date_start) AS since
        FROM resources r JOIN resource_logs l USING (resource_id)
        WHERE r.network_address = ANY(%s) AND r.state = 'Absent' AND l.attribute = 'state' AND l.date_stop = 0
        GROUP BY r.network_address)
    SELECT a.name, last.date FROM absent a CROSS JOIN LATERAL (
        SELECT e.type, e.date FROM event_log_hostnames h JOIN event_logs e ON e.event_id = h.event_id
        WHERE h.hostname = a.name AND e.type IN ('HALT_NODE', 'WAKEUP_NODE')
        ORDER BY h.event_id DESC LIMIT 1) last
    WHERE last.type = 'WAKEUP_NODE' AND last.date >= a.since""")

#: How long a change of the table waits for those who read it.
LOCK_TIMEOUT = "10s"

_RESERVED = "SELECT 1 FROM pg_get_keywords() WHERE word = %s AND catcode IN ('R', 'T')"


class Nodes(Table):
    """Rows of ``state_reasons``; power states of nodes; property columns."""

    def set_reason(
        self, resources: Collection[int], author: str, reason: str, check: NodeCheck | None = None, user: str = ""
    ) -> None:
        """Store why resources get their state; ``author`` '' = OAR."""
        if not resources:
            return
        values = {"now": self._tx.now, "author": author, "reason": reason, "check": check or "", "user": user}
        self._tx.execute(_SET, {**values, "ids": sorted(resources)})
        self._changed(Topic.RESOURCES)

    def require_check(self, node: str, reason: str, check: NodeCheck, user: str) -> None:
        """Make the return of a node that Finaud suspects depend on a successful check."""
        values = {"now": self._tx.now, "node": node, "reason": reason, "check": check, "user": user}
        self._tx.execute(_REQUIRE_CHECK, values)
        self._changed(Topic.RESOURCES)

    def forget_reasons(self, resources: Collection[int]) -> None:
        """Delete the state reasons of resources."""
        if resources:
            self._tx.execute(_FORGET, (sorted(resources),))
            self._changed(Topic.RESOURCES)

    def reasons_of_resources(self, resources: Collection[int]) -> list[StateReason]:
        """Return the state reasons of resources, by id."""
        return [
            StateReason(resource, date, author, reason, NodeCheck(check) if check else None, user)
            for resource, date, author, reason, check, user in self._tx.rows(_OF_RESOURCES, (list(resources),))
        ]

    def due_checks(self) -> dict[str, list[tuple[NodeCheck, str]]]:
        """Return the checks that end the suspicion of nodes, by node.

        Each check is paired with the user whose account or home directory is checked.
        """
        checks: dict[str, list[tuple[NodeCheck, str]]] = {}
        for node, check, user in self._tx.rows(_CHECKS):
            checks.setdefault(node, []).append((NodeCheck(check), user))
        return checks

    def energy_nodes(self) -> dict[str, NodePower]:
        """Return the power states of all nodes, by name."""
        return {row[0]: NodePower(*row) for row in self._tx.rows(_NODES)}

    def booting_nodes(self, asleep: Collection[str]) -> dict[str, int]:
        """Return the Absent nodes that were woken and are still booting, with the date of the last wake-up."""
        return dict(self._tx.rows(_BOOTING, (sorted(asleep),)))

    def lock_properties(self) -> None:
        """Prevent concurrent schema changes until the end of the transaction. Raises Busy."""
        if not self._tx.value("SELECT pg_try_advisory_xact_lock(%s, %s)", SCHEMA_LOCK):
            raise Busy("the table is busy, try again")
        self._tx.execute(f"SET LOCAL lock_timeout TO '{LOCK_TIMEOUT}'")

    def is_reserved_word(self, name: str) -> bool:
        """Return whether a name must be quoted in SQL."""
        return self._tx.row(_RESERVED, (name,)) is not None

    def add_property(self, name: str, *, is_text: bool) -> None:
        """Add a column.  Raises Busy."""
        self._alter(f"ADD COLUMN {quoted(name)} {'varchar(255)' if is_text else 'integer'}")

    def drop_property(self, name: str) -> None:
        """Delete a column; its history stays. Raises Busy."""
        self._alter(f"DROP COLUMN {quoted(name)}")

    def rename_property(self, old: str, new: str) -> None:
        """Rename a column, also in the history and in the levels of requests. Raises Busy."""
        self._alter(f"RENAME COLUMN {quoted(old)} TO {quoted(new)}")
        self._tx.execute(
            "UPDATE job_resource_descriptions SET res_job_resource_type = %s WHERE res_job_resource_type = %s",
            (new, old),
        )
        self._changed(Topic.JOBS)
        self._tx.execute("UPDATE resource_logs SET attribute = %s WHERE attribute = %s", (new, old))

    def property_counts(self, names: Sequence[str]) -> dict[str, tuple[int, int]]:
        """Return for each column the number of distinct values, and the number of resources without a value."""
        if not names:
            return {}
        counted = ", ".join(
            f"count(DISTINCT {quoted(name)}), count(*) FILTER (WHERE {quoted(name)} IS NULL)" for name in names
        )
        row = self._tx.row(f"SELECT {counted} FROM resources") or ()
        return dict(zip(names, zip(row[::2], row[1::2], strict=True), strict=True))

    def largest_value(self, name: str) -> str | int | None:
        """Return the largest value of a column; return None if there is none. The caller has checked the name."""
        value: str | int | None = self._tx.value(f"SELECT max({quoted(name)}) FROM resources")
        return value

    def _alter(self, change: str) -> None:
        try:
            self._tx.execute(f"ALTER TABLE resources {change}")
        except psycopg2.errors.LockNotAvailable as error:
            raise Busy("the table is busy, try again") from error
        self._changed(Topic.RESOURCES)
