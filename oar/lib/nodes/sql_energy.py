"""Questions of energy saving (``tx.node_energy``): which nodes sleep, boot, or could be halted."""

from collections.abc import Collection

from oar.lib.db.predicates import LIVE
from oar.lib.db.statements import Prepared, Table
from oar.lib.nodes.energy_records import NodePower

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


class NodeEnergy(Table):
    """Nodes as energy saving sees them."""

    def nodes(self) -> dict[str, NodePower]:
        """Return all nodes, by name."""
        return {row[0]: NodePower(*row) for row in self._tx.rows(_NODES)}

    def booting(self, asleep: Collection[str]) -> dict[str, int]:
        """Return those of some Absent nodes that were woken and have not come, each with the date of the last time."""
        return dict(self._tx.rows(_BOOTING, (sorted(asleep),)))
