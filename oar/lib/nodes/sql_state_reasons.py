"""Why resources are in their states (``tx.state_reasons``): rows of ``state_reasons``, one for each resource."""

from collections.abc import Collection

from oar.lib.bus.topics import Topic
from oar.lib.db.statements import Prepared, Row, Table
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


class StateReasons(Table):
    """Rows of ``state_reasons``."""

    def set(
        self, resources: Collection[int], author: str, reason: str, check: NodeCheck | None = None, user: str = ""
    ) -> None:
        """Note why resources get their state; ``author`` '' = OAR decided it."""
        if not resources:
            return
        values = {"now": self._tx.now, "author": author, "reason": reason, "check": check or "", "user": user}
        self._tx.execute(_SET, {**values, "ids": sorted(resources)})
        self._changed(Topic.RESOURCES)

    def require_check(self, node: str, reason: str, check: NodeCheck, user: str) -> None:
        """Let a node that Finaud suspects already come back only when a check succeeds."""
        values = {"now": self._tx.now, "node": node, "reason": reason, "check": check, "user": user}
        self._tx.execute(_REQUIRE_CHECK, values)
        self._changed(Topic.RESOURCES)

    def forget(self, resources: Collection[int]) -> None:
        """Delete the reasons of resources, which work again."""
        if resources:
            self._tx.execute(_FORGET, (sorted(resources),))
            self._changed(Topic.RESOURCES)

    def of_resources(self, resources: Collection[int]) -> list[StateReason]:
        """Return the reasons of some resources, by id."""
        return [_reason(row) for row in self._tx.rows(_OF_RESOURCES, (list(resources),))]

    def checks(self) -> dict[str, list[tuple[NodeCheck, str]]]:
        """Return by node the checks that end its suspicion, each with the user whose account or home is checked."""
        checks: dict[str, list[tuple[NodeCheck, str]]] = {}
        for node, check, user in self._tx.rows(_CHECKS):
            checks.setdefault(node, []).append((NodeCheck(check), user))
        return checks


def _reason(row: Row) -> StateReason:
    resource, date, author, reason, check, user = row
    return StateReason(resource, date, author, reason, NodeCheck(check) if check else None, user)
