"""The filters of requests, evaluated to pools of resources within a time budget.

A filter consists of two conditions: that of the job (``-p``) and that of a group (``{...}``).  A condition is evaluated
once as long as no resource changes: in memory where possible, otherwise by the database.  All conditions of a round
together may take USER_SQL_ROUND_SECONDS, and those of one user a fifth of it.
"""

import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from oar.kao.facts.snapshot import Pool
from oar.kao.rounds.reading.numbered_resources import LAST_USE, NumberedResources
from oar.lib.base.errors import BadCondition
from oar.lib.base.resource_set import ResourceSet
from oar.lib.conditions.in_memory import ColumnIndex, NotInMemory, OutOfTime, evaluate
from oar.lib.conditions.parser import ConditionTable, ParsedCondition, parse
from oar.lib.conditions.tree import columns as columns_of
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.db.transaction import Transaction
from oar.lib.db.user_sql import Asker, Conditions, Subject, TooSlow, condition_table, session
from oar.lib.nodes.states import ResourceState

#: The filter of a job with that of one of its groups; '' = none.
Filters = tuple[str, str]

#: The part of the budget that the conditions of one user may use.
SHARE = 0.2
#: Characters of the longest condition whose tree is kept; longer ones are read again when resources have changed.
LONGEST_KEPT = 1000
#: A condition that took too long is tried again after so many seconds; the pause doubles up to the longest.
FIRST_PAUSE, LONGEST_PAUSE = 60.0, 3600.0

_TEXTS = ("character varying", "text")
_WHOLE_NUMBERS = ("smallint", "integer", "bigint")


class Deferral(NamedTuple):
    """A condition that was not evaluated because the time was too short."""

    owners: frozenset[str]
    condition: str
    seconds: float  #: that it was given


class _Pause(NamedTuple):
    """How long a slow condition is not evaluated."""

    until: float
    seconds: float


class FilterPools:
    """Evaluates filters; caches the results as long as the resources do not change.

    A pair of filters keeps the number of its pool, so a new pair does not change the requests of existing jobs.
    """

    def __init__(self, database: Database, config: Config) -> None:
        self._database = database
        self._config = config
        self.deferrals: list[Deferral] = []  #: of the last round, those that are new
        self._pauses: dict[str, _Pause] = {}
        self._table: ConditionTable | None = None
        self._parsed: dict[str, ParsedCondition | BadCondition] = {}
        self._budget = _Budget(0.0)
        self.forget()

    def forget(self) -> None:
        """Delete all results: the next call evaluates all filters again, with new numbers."""
        self.numbers: dict[Filters, int] = {}  #: index of each pool in ``Snapshot.pools``
        self._begin(())

    def _begin(self, key: tuple[object, ...]) -> None:
        self._key = key
        self._has_table = False  #: the table is known to be that of these resources
        self._indexes: dict[str, ColumnIndex] = {}
        self._answers: dict[str, ResourceSet | BadCondition] = {}
        self._of_last_use: set[str] = set()  #: conditions whose answers change with LAST_USE

    def read_columns(
        self, tx: Transaction, owners: Mapping[Filters, Collection[str]], resources: NumberedResources
    ) -> None:
        """Read the columns that are needed to evaluate new conditions in memory."""
        self._budget = _Budget(self._config.user_sql_round_seconds)
        if self._key != resources.key:
            self._begin(resources.key)
        users = _users(owners)
        self._forget_answers(users)
        new = {text: names for text, names in users.items() if text not in self._answers}
        if not new:
            return
        table = self._present_table(tx)
        columns = self._columns_of(new, table) - self._indexes.keys()
        if columns:
            names, rows = sorted(columns), tx.rounds.column_values(sorted(columns))
            ordered = [rows.get(number, (None,) * len(names)) for number in resources.columns.ids]
            for index, name in enumerate(names):
                is_text = table.types[name] in _TEXTS
                self._indexes[name] = ColumnIndex([row[index] for row in ordered], is_text=is_text)

    def _present_table(self, tx: Transaction) -> ConditionTable:
        """Return the columns and types allowed in conditions; delete parsed conditions if they have changed."""
        if self._table is None or not self._has_table:
            table = condition_table(tx, Subject.RESOURCES)
            if table != self._table:
                self._parsed = {}
            self._table, self._has_table = table, True
        return self._table

    def _forget_answers(self, texts: Collection[str]) -> None:
        """Delete all cached data except that of these conditions, if it is still valid."""
        self._indexes.pop(LAST_USE, None)
        self._of_last_use.intersection_update(texts)
        self._answers = {
            text: answer
            for text, answer in self._answers.items()
            if text in texts and text not in self._of_last_use and not isinstance(answer, TooSlow)
        }
        self._parsed = {text: condition for text, condition in self._parsed.items() if text in texts}
        now = time.monotonic()
        self._pauses = {
            text: pause for text, pause in self._pauses.items() if text in texts or now < pause.until + LONGEST_PAUSE
        }

    def _columns_of(self, users: Mapping[str, Collection[str]], table: ConditionTable) -> set[str]:
        """Parse conditions in at most half of the time; return their columns that can be held in memory."""
        columns: set[str] = set()
        for text, names in sorted(users.items(), key=_by_length):
            if text not in self._parsed and self._budget.left(names) > self._budget.share / 2:
                with self._budget.spending(names):
                    self._parsed[text] = _parsed(text, table)
            condition = self._parsed.get(text)
            if isinstance(condition, ParsedCondition):
                named = columns_of(condition.tree)
                columns |= named
                if LAST_USE in named:
                    self._of_last_use.add(text)
        return {name for name in columns if table.types[name] in _TEXTS + _WHOLE_NUMBERS}

    def read(self, owners: Mapping[Filters, Collection[str]], resources: NumberedResources) -> tuple[Pool, ...]:
        """Return all pools by number; ``owners``: the users whose jobs wait with each pair of filters."""
        self.deferrals = []
        for pair in owners:
            self.numbers.setdefault(pair, len(self.numbers))
        self._answer({text: names for text, names in _users(owners).items() if text not in self._answers}, resources)
        self._parsed = {text: condition for text, condition in self._parsed.items() if self._keeps(text)}
        columns = resources.columns
        not_dead = columns.everything & ~columns.where(columns.states, ResourceState.DEAD)
        pools = {pair: self._pool(pair, not_dead) for pair in owners}
        return tuple(pools.get(pair) or Pool(0, pair[1]) for pair in self.numbers)

    def _keeps(self, text: str) -> bool:
        """Return whether a parsed condition is kept; a long one is kept only until it has been evaluated."""
        return len(text) <= LONGEST_KEPT or (isinstance(self._answers[text], TooSlow) and text not in self._pauses)

    def _pool(self, pair: Filters, not_dead: ResourceSet) -> Pool:
        members = not_dead
        for text in pair:
            answer = self._answers[text] if text else not_dead
            if isinstance(answer, BadCondition):
                return Pool(0, pair[1], str(answer), isinstance(answer, TooSlow))
            members &= answer
        return Pool(members, pair[1])

    def _answer(self, users: Mapping[str, Collection[str]], resources: NumberedResources) -> None:
        """Evaluate conditions that have no result yet."""
        rows, full_users = len(resources.columns.ids), set(self._config.user_sql_full_users)
        unanswered: dict[str, Collection[str]] = {}
        for text, names in sorted(users.items(), key=_by_length):
            condition = self._parsed.get(text)
            if condition is None or self._rests(text, names):
                self._answers[text] = TooSlow(_NO_TIME)
            elif isinstance(condition, BadCondition) and not full_users.intersection(names):
                self._answers[text] = condition
            elif isinstance(condition, BadCondition) or not self._evaluate(text, condition, names, rows):
                unanswered[text] = names
        if unanswered:
            with session(self._database, Subject.RESOURCES, Asker(has_full_sql=True)) as conditions:
                for text, names in unanswered.items():
                    self._ask(conditions, text, names, resources)

    def _rests(self, text: str, users: Collection[str]) -> bool:
        pause = self._pauses.get(text)
        return self._budget.left(users) <= 0 or (pause is not None and time.monotonic() < pause.until)

    def _evaluate(self, text: str, condition: ParsedCondition, users: Collection[str], rows: int) -> bool:
        """Evaluate a condition in memory; return False if the database must evaluate it."""
        seconds = self._budget.left(users)
        end = time.monotonic() + seconds
        with self._budget.spending(users):
            try:
                self._answers[text] = evaluate(condition.tree, self._indexes, rows, lambda: time.monotonic() < end)
            except OutOfTime:
                self._defer(text, users, seconds)
            except NotInMemory:
                return False
        return True

    def _ask(self, conditions: Conditions, text: str, users: Collection[str], resources: NumberedResources) -> None:
        seconds = self._budget.left(users)
        if seconds <= 0:
            self._answers[text] = TooSlow(_NO_TIME)
            return
        conditions.limit(min(seconds, self._config.user_sql_timeout))
        with self._budget.spending(users):
            try:
                self._answers[text] = resources.members(conditions.ids(text))
            except TooSlow:
                self._defer(text, users, seconds)
            except BadCondition as error:
                self._answers[text] = error

    def _defer(self, text: str, users: Collection[str], seconds: float) -> None:
        """Defer a condition: until the next round if other conditions used up the time, otherwise for a pause."""
        self._answers[text] = TooSlow(_NO_TIME)
        if seconds < self._budget.share / 2:
            return
        before = self._pauses.get(text)
        pause = min(2 * before.seconds, LONGEST_PAUSE) if before else FIRST_PAUSE
        self._pauses[text] = _Pause(time.monotonic() + pause, pause)
        if before is None:
            self.deferrals.append(Deferral(frozenset(users), text, seconds))


_NO_TIME = "its evaluation takes more time than a round has for the conditions of one user"


class _Budget:
    """The time budget for the conditions of a round."""

    def __init__(self, seconds: float) -> None:
        self._left = seconds
        self.share = SHARE * seconds  #: of each user
        self._spent: dict[str, float] = {}

    def left(self, users: Collection[str]) -> float:
        """Return the seconds that a condition may take: the largest remaining share of its users."""
        shares = [self.share - self._spent.get(user, 0.0) for user in users]
        return min(self._left, max(shares))

    @contextmanager
    def spending(self, users: Collection[str]) -> Iterator[None]:
        """Measure the time of a part of the work on a condition; its users share the time.

        The time beyond the share of its users does not reduce the budget of the others.
        """
        begin, most = time.monotonic(), max(0.0, self.left(users))
        yield
        seconds = time.monotonic() - begin
        self._left -= min(seconds, most)
        for user in users:
            self._spent[user] = self._spent.get(user, 0.0) + seconds / len(users)


def _by_length(item: tuple[str, object]) -> tuple[int, str]:
    return len(item[0]), item[0]


def _users(owners: Mapping[Filters, Collection[str]]) -> dict[str, set[str]]:
    users: dict[str, set[str]] = {}
    for pair, names in owners.items():
        for text in filter(None, pair):
            users.setdefault(text, set()).update(names)
    return users


def _parsed(text: str, table: ConditionTable) -> ParsedCondition | BadCondition:
    try:
        return parse(text, table)
    except BadCondition as error:
        return error
