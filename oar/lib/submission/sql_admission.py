"""Checks of submissions (``tx.submission_checks``), and admission rules with their log (``tx.admission_rules``)."""

from collections.abc import Collection, Sequence
from math import prod
from typing import NamedTuple

from oar.lib.db.predicates import LIVE, NO_FRAME
from oar.lib.db.statements import Prepared, Row, Table, quoted
from oar.lib.jobs.records import Group, Level, Memory
from oar.lib.nodes.records import PropertyValue
from oar.lib.submission.resource_request import ALL, BEST_HALF

#: The job has not ended and is not about to.
_RUNS_OR_WAITS = f"{LIVE} AND j.state <> 'Finishing'"

#: A container by its number, or the newest one of a name; with the list of its users.
_CONTAINER = f"""
    SELECT j.job_id, j.job_user, j.reservation <> 'None',
        (SELECT t.type FROM job_types t
         WHERE t.job_id = j.job_id AND t.types_index = 'CURRENT' AND t.type LIKE 'container\\_users=%%'
         ORDER BY t.job_type_id DESC LIMIT 1)
    FROM jobs j
    WHERE {_RUNS_OR_WAITS} AND j.job_id IN (
        SELECT c.job_id FROM job_types c
        WHERE c.types_index = 'CURRENT'
          AND (c.type = %(named)s
               OR (c.job_id = %(id)s AND (c.type = 'container' OR c.type LIKE 'container=%%'))))
    ORDER BY (j.job_id = %(id)s) DESC, j.job_id DESC LIMIT 1"""

#: Values of a property among the resources of a container; the number in its first request while it has none.
_VALUES_IN_CONTAINER = """
    SELECT COALESCE(
        (SELECT NULLIF(count(DISTINCT r.{column}), 0) FROM jobs j
         JOIN assigned_resources a ON a.moldable_job_id = j.assigned_moldable_job
         JOIN resources r USING (resource_id) WHERE j.job_id = %(id)s),
        (SELECT sum(d.res_job_value) FILTER (WHERE d.res_job_value > 0) FROM moldable_job_descriptions m
         JOIN job_resource_groups g ON g.res_group_moldable_id = m.moldable_id
         JOIN job_resource_descriptions d ON d.res_job_group_id = g.res_group_id
         WHERE m.moldable_job_id = %(id)s AND d.res_job_resource_type = %(name)s), 0)"""

_ARRAY_SIZES = Prepared("""
    SELECT array_id, count(DISTINCT array_index) FROM jobs WHERE array_id = ANY(%s) GROUP BY array_id""")

_MEMBERS_OF_ARRAY = "SELECT array_index, max(job_id) FROM jobs WHERE array_id = %s GROUP BY array_index"

#: Reservations of a user that have not begun.
_WAITING_RESERVATIONS = f"""
    SELECT count(*) FROM jobs j WHERE job_user = %s AND state IN ('Waiting', 'Hold', 'toAckReservation')
        AND reservation IN ('toSchedule', 'Scheduled') AND {NO_FRAME}"""

#: Bytes of scripts and variables of the live jobs of a user.
_KEPT_BYTES = f"""
    SELECT COALESCE(sum(octet_length(job_env)), 0)::bigint FROM jobs j
    WHERE job_user = %s AND job_env IS NOT NULL AND {LIVE}"""

#: Live jobs with a name of cpuset.
_JOBS_OF_CPUSET = f"""
    SELECT job_id FROM jobs j WHERE cpuset_name = %s AND {LIVE} ORDER BY job_id"""

#: The text of the quota file as the server read it last, and whether a project has a budget now or later.
_LIMITS = Prepared("""
    SELECT (SELECT value FROM policy_log WHERE kind = 'file' AND name = %s ORDER BY log_id DESC LIMIT 1),
        EXISTS (SELECT FROM project_budgets WHERE period_end > %s)""")


class SubmissionLimits(NamedTuple):
    """What can limit a submission."""

    quota_file: str | None  #: its text as the server read it last
    has_budgets: bool  #: whether a project has a budget now or later


class Container(NamedTuple):
    """A live job in which inner jobs may run."""

    id: int
    user: str
    is_reservation: bool
    users: tuple[str, ...]  #: other users whose jobs may run in it


#: The property that each resource has a value of its own for.
FINEST = "resource_id"


class BlockOrder(NamedTuple):
    """Which of the blocks of resources with different sizes a request takes."""

    sql: str
    takes_all: bool  #: BEST takes all blocks; otherwise it is given only one


LARGEST_FIRST = BlockOrder("size DESC NULLS LAST", takes_all=True)
#: For the least that a request can take.
SMALLEST_FIRST = BlockOrder("size NULLS LAST", takes_all=False)


def _blocks(conditions: Sequence[str], levels: Sequence[Level], free: str, order: BlockOrder) -> str:
    """Return the SQL of the blocks of the outermost level with their sizes; NULL if a block is too small."""
    pool = _pool(conditions, levels)
    if levels[-1].property == FINEST and len({level.property for level in levels}) == len(levels):
        size = f"CASE WHEN {free} THEN 1 END" if free else "1"
        inner = f"SELECT {_columns(levels)}{size} AS size FROM resources WHERE {pool}"
    else:
        size = f"CASE WHEN bool_and({free}) THEN count(*) END" if free else "count(*)"
        inner = (
            f"SELECT {_columns(levels)}{size} AS size FROM resources WHERE {pool}"
            f" GROUP BY {', '.join(str(number + 1) for number in range(len(levels)))}"
        )
    for depth in range(len(levels) - 1, 0, -1):
        inner = _level(inner, depth, levels[depth].quantity, order)
    return inner


def _pool(conditions: Sequence[str], levels: Sequence[Level]) -> str:
    """Return the condition on usable resources: not Dead, and with a value for each level."""
    names = {level.property: quoted(level.property) for level in levels if level.property != FINEST}
    tests = [f"{name} IS NOT NULL AND {name}::text <> ''" for name in names.values()]
    return " AND ".join(["state <> 'Dead'", *tests, *(f"({condition}\n)" for condition in conditions if condition)])


def _columns(levels: Sequence[Level]) -> str:
    return "".join(f"{quoted(level.property)} AS level{number}, " for number, level in enumerate(levels))


def _level(inner: str, depth: int, quantity: int, order: BlockOrder) -> str:
    """Return the SQL of the blocks above ``depth`` with their sizes; NULL if a block is too small."""
    outer = ", ".join(f"level{number}" for number in range(depth))
    ranked = (
        f"SELECT {outer}, size, row_number() OVER (PARTITION BY {outer} ORDER BY {order.sql}) AS place,"
        f" count(size) OVER (PARTITION BY {outer}) AS fitting, count(*) OVER (PARTITION BY {outer}) AS present"
        f" FROM ({inner}) blocks{depth}"
    )
    return f"SELECT {outer}, {_taken(quantity, order)} AS size FROM ({ranked}) ranked{depth} GROUP BY {outer}"


def _outermost(inner: str, levels: Sequence[Level], order: BlockOrder) -> str:
    ranked = (
        f"SELECT size, row_number() OVER (ORDER BY {order.sql}) AS place,"
        f" count(size) OVER () AS fitting, count(*) OVER () AS present FROM ({inner}) blocks"
    )
    return f"SELECT {_taken(levels[0].quantity, order)} FROM ({ranked}) ranked"


def _taken(quantity: int, order: BlockOrder) -> str:
    """Return the SQL of the size taken from ranked blocks, in their order; NULL if there are too few."""
    if quantity > 0:
        return f"CASE WHEN min(fitting) >= {quantity} THEN sum(size) FILTER (WHERE place <= {quantity}) END::bigint"
    if quantity == ALL:
        return "CASE WHEN min(fitting) = min(present) THEN sum(size) END::bigint"
    number = "1" if not order.takes_all else "(fitting + 1) / 2" if quantity == BEST_HALF else "fitting"
    return f"CASE WHEN min(fitting) >= 1 THEN sum(size) FILTER (WHERE place <= {number}) END::bigint"


class NeededMemory(NamedTuple):
    """The memory that a request needs on its nodes."""

    property: str  #: with the MiB of the node of a resource
    memory: Memory
    node_levels: frozenset[str]  #: the properties that name nodes


def _with_memory(conditions: Sequence[str], levels: Sequence[Level], needed: NeededMemory) -> str:
    """Return the condition on resources that have the memory.  Resources without a node need none."""
    column, mib = quoted(needed.property), needed.memory.mib
    if not needed.memory.is_per_core:
        return f"network_address = '' OR {column} >= {mib}"
    at = next((number for number, level in enumerate(levels) if level.property in needed.node_levels), 0)
    count = prod(max(level.quantity, 1) for level in levels[at + 1 :]) if levels[at + 1 :] else "sum(present)"
    fitting = f"LEAST(min(COALESCE({column}, 0)) / {mib}, count(*))"
    names = ", ".join(f"level{number}" for number in range(at + 1))
    return (
        f"({', '.join(quoted(level.property) for level in levels[: at + 1])}) IN (SELECT {names} FROM ("
        f"SELECT {_columns(levels[: at + 1])}count(*) AS present,"
        f" CASE WHEN network_address = '' THEN count(*) ELSE {fitting} END AS fitting"
        f" FROM resources WHERE {_pool(conditions, levels)} GROUP BY {names}, network_address) parts"
        f" GROUP BY {names} HAVING sum(fitting) >= {count})"
    )


_OF_LIVE_JOBS = f"""
    SELECT j.job_id, j.job_user, j.properties FROM jobs j WHERE {LIVE} AND j.properties <> ''
    UNION
    SELECT j.job_id, j.job_user, g.res_group_property FROM jobs j
    JOIN moldable_job_descriptions m ON m.moldable_job_id = j.job_id AND m.moldable_index = 'CURRENT'
    JOIN job_resource_groups g ON g.res_group_moldable_id = m.moldable_id AND g.res_group_index = 'CURRENT'
    WHERE {LIVE} AND g.res_group_property <> ''
    ORDER BY 1, 3"""


class StoredCondition(NamedTuple):
    """A condition on resources of a job."""

    job_id: int
    user: str
    text: str


class SubmissionChecks(Table):
    """Queries about containers, arrays, reservations, limits, and data stored for jobs."""

    def submission_limits(self, path: str) -> SubmissionLimits:
        """Return the text of the quota file with this path, and whether there are budgets."""
        row = self._tx.row(_LIMITS, (path, self._tx.now))
        return SubmissionLimits(*row) if row else SubmissionLimits(None, has_budgets=False)

    def find_container(self, reference: str) -> Container | None:
        """Return the live container with this number or name."""
        number = int(reference) if reference.isascii() and reference.isdigit() and len(reference) <= 18 else 0
        row = self._tx.row(_CONTAINER, {"named": f"container={reference}", "id": number})
        if row is None:
            return None
        users = (row[3] or "").partition("=")[2]
        return Container(row[0], row[1], row[2], tuple(users.split("+")) if users else ())

    def values_in_container(self, container: int, column: str) -> int:
        """Return the number of values of a property in a container.

        Before the container has resources, the number is taken from its request.
        """
        sql = _VALUES_IN_CONTAINER.format(column=quoted(column, has_parameters=True))
        number: int = self._tx.value(sql, {"id": container, "name": column})
        return number

    def members_of_array(self, array: int) -> dict[int, int]:
        """Return the job ids of an array by index; for a resubmitted job, the id of its last copy."""
        return dict(self._tx.rows(_MEMBERS_OF_ARRAY, (array,)))

    def array_sizes(self, arrays: Collection[int]) -> dict[int, int]:
        """Return the number of indexes of each array."""
        return dict(self._tx.rows(_ARRAY_SIZES, (list(arrays),)))

    def count_waiting_reservations(self, user: str) -> int:
        """Return the number of a user's reservations that have not begun."""
        number: int = self._tx.value(_WAITING_RESERVATIONS, (user,))
        return number

    def kept_bytes(self, user: str) -> int:
        """Return the bytes of scripts and variables of a user's live jobs."""
        number: int = self._tx.value(_KEPT_BYTES, (user,))
        return number

    def jobs_of_cpuset(self, name: str) -> list[int]:
        """Return the ids of the live jobs with this cpuset name."""
        return self._tx.column(_JOBS_OF_CPUSET, (name,))

    def count_resources(
        self,
        conditions: Sequence[str],
        levels: Sequence[Level],
        free: str = "",
        order: BlockOrder = LARGEST_FIRST,
        memory: NeededMemory | None = None,
    ) -> int | None:
        """Return how many of the resources that satisfy the conditions the levels take; None if too few satisfy them.

        The properties are column names; a condition may be empty.  ``free``: the condition on resources that may be
        taken.  ``order``: which blocks are taken if their sizes differ.  ``memory``: that of the nodes.
        """
        if memory:
            conditions = [*conditions, _with_memory(conditions, levels, memory)]
        number: int | None = self._tx.value(_outermost(_blocks(conditions, levels, free, order), levels, order))
        return number

    def count_blocks(self, conditions: Sequence[str], levels: Sequence[Level], free: str = "") -> int:
        """Return the number of values of the outermost level that satisfy the inner levels."""
        number: int = self._tx.value(
            f"SELECT count(size) FROM ({_blocks(conditions, levels, free, LARGEST_FIRST)}) blocks"
        )
        return number

    def is_any_declared(self) -> bool:
        """Return whether the site has any resource, including Dead ones."""
        is_any: bool = self._tx.value("SELECT EXISTS (SELECT FROM resources)")
        return is_any

    def pools(
        self, groups: Sequence[Group], condition: str, memory: NeededMemory | None = None
    ) -> tuple[list[dict[str, PropertyValue]], list[int]]:
        """Return the resources that any group could take, with the properties that the groups name, and their pools.

        The pool of a resource is a number whose bit *n* is set if the resource satisfies group *n*.  ``condition``: the
        condition on all groups; ``memory``: that of the nodes.
        """
        names = sorted({level.property for group in groups for level in group.levels} | {FINEST})
        conditions = [[condition, group.filter] for group in groups]
        if memory:
            conditions = [
                [*pair, _with_memory(pair, group.levels, memory)]
                for pair, group in zip(conditions, groups, strict=True)
            ]
        tests = [f"({_pool(needed, group.levels)}) IS TRUE" for needed, group in zip(conditions, groups, strict=True)]
        bits = " + ".join(f"CASE WHEN {test} THEN {1 << number} ELSE 0 END" for number, test in enumerate(tests))
        rows = self._tx.rows(f"SELECT {', '.join(map(quoted, names))}, {bits} FROM resources ORDER BY {FINEST}")
        rows = [row for row in rows if row[-1]]
        pools = [int(row[-1]) for row in rows]  # PostgreSQL returns numbers of more than 63 bits as decimals
        return [dict(zip(names, row, strict=False)) for row in rows], pools

    def conditions_of_live_jobs(self) -> list[StoredCondition]:
        """Return the non-empty conditions of the jobs that have not ended, ordered by job id."""
        return [StoredCondition(*row) for row in self._tx.rows(_OF_LIVE_JOBS)]


_RULES = Prepared("SELECT id, priority, enabled, rule FROM admission_rules ORDER BY priority, id")


class AdmissionRule(NamedTuple):
    """An admission rule in Python."""

    id: int
    priority: int
    enabled: bool
    text: str


class AdmissionRules(Table):
    """Rows of ``admission_rules`` and ``admission_rules_log``."""

    def all(self, *, enabled: bool | None = None) -> list[AdmissionRule]:
        """Return the rules in the order of execution.

        ``enabled``: True for enabled rules only, False for disabled rules only, None for all.
        """
        rules = map(_rule_of, self._tx.rows(_RULES))
        return [rule for rule in rules if enabled is None or rule.enabled is enabled]

    def find(self, rule_id: int) -> AdmissionRule | None:
        """Return one rule; None if it does not exist."""
        row = self._tx.row("SELECT id, priority, enabled, rule FROM admission_rules WHERE id = %s", (rule_id,))
        return _rule_of(row) if row else None

    def hold(self, rule_id: int) -> None:
        """Lock a rule until the end of the transaction."""
        self._tx.execute("SELECT 1 FROM admission_rules WHERE id = %s FOR UPDATE", (rule_id,))

    def insert(self, text: str, *, priority: int, enabled: bool, author: str) -> int:
        """Add a rule; return its id."""
        rule_id: int = self._tx.value(
            "INSERT INTO admission_rules (priority, enabled, rule) VALUES (%s, %s, %s) RETURNING id",
            (priority, "YES" if enabled else "NO", text),
        )
        self._log(rule_id, "create", author, text)
        return rule_id

    def update(self, rule: AdmissionRule, author: str) -> None:
        """Replace a rule; log its former text."""
        former = self.find(rule.id)
        self._log(rule.id, "modify", author, former.text if former else "")
        self._tx.execute(
            "UPDATE admission_rules SET priority = %s, enabled = %s, rule = %s WHERE id = %s",
            (rule.priority, "YES" if rule.enabled else "NO", rule.text, rule.id),
        )

    def delete(self, rule: AdmissionRule, author: str) -> None:
        """Delete a rule; log its text."""
        self._log(rule.id, "delete", author, rule.text)
        self._tx.execute("DELETE FROM admission_rules WHERE id = %s", (rule.id,))

    def history(self, rule_id: int) -> list[tuple[int, str, str, str]]:
        """Return the changes of a rule: ``(date, author, action, text before)``, oldest first."""
        rows = self._tx.rows(
            "SELECT date, author, action, rule FROM admission_rules_log WHERE id = %s ORDER BY log_id", (rule_id,)
        )
        return [(row[0], row[1], row[2], row[3]) for row in rows]

    def _log(self, rule_id: int, action: str, author: str, text: str) -> None:
        self._tx.execute(
            "INSERT INTO admission_rules_log (id, date, author, action, rule) VALUES (%s, %s, %s, %s, %s)",
            (rule_id, self._tx.now, author, action, text),
        )


def _rule_of(row: Row) -> AdmissionRule:
    return AdmissionRule(row[0], row[1], row[2] == "YES", row[3])
