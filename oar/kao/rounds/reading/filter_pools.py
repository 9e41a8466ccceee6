"""The filters of requests -> pools of resources, within a budget of time.

A filter is two conditions: that of the job (``-p``) and that of a group (``{...}``).  A condition is evaluated once as
long as no resource changes: on columns in memory where that is possible, else by the database, for which all conditions
of a round have USER_SQL_ROUND_SECONDS, and those of one user a fifth of it.
"""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from oar.kao.facts.snapshot import Pool
from oar.kao.rounds.reading.numbered_resources import NumberedResources
from oar.kao.rounds.reading.resource_versions import LAST_USE
from oar.lib.conditions.in_memory import ColumnIndex, NotInMemory, evaluate
from oar.lib.conditions.parser import ConditionTable, ParsedCondition, parse
from oar.lib.conditions.tree import columns as columns_of
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.db.transaction import Transaction
from oar.lib.db.user_sql import Asker, Conditions, Subject, TooSlow, condition_table, session
from oar.lib.facts.errors import BadCondition
from oar.lib.facts.resource_set import ResourceSet
from oar.lib.facts.states import ResourceState

#: The filter of a job with that of one of its groups; '' = none.
Filters = tuple[str, str]

#: The part of the budget that the conditions of one user may use.
SHARE = 0.2
#: A condition that took too long is tried again after so many seconds; the pause doubles up to the longest.
FIRST_PAUSE, LONGEST_PAUSE = 60.0, 3600.0

_TEXTS = ("character varying", "text")
_WHOLE_NUMBERS = ("smallint", "integer", "bigint")


class Deferral(NamedTuple):
    """A condition for which a round had no time."""

    owners: frozenset[str]
    condition: str
    seconds: float  #: that it was given


class _Pause(NamedTuple):
    """How long a condition that took too long rests."""

    until: float
    seconds: float


class FilterPools:
    """Evaluates filters; keeps the answers as long as the resources have not changed.

    A pair of filters keeps the number of its pool, so that a new one changes nothing for the jobs that were there
    before.
    """

    def __init__(self, database: Database, config: Config) -> None:
        self._database = database
        self._config = config
        self.deferrals: list[Deferral] = []  #: of the last round, those that are new
        self._pauses: dict[str, _Pause] = {}
        self.forget()

    def forget(self) -> None:
        """Evaluate all filters again the next time, with new numbers."""
        self.numbers: dict[Filters, int] = {}  #: index of each pool in ``Snapshot.pools``
        self._begin(())

    def _begin(self, key: tuple[object, ...]) -> None:
        """Forget the answers about other resources."""
        self._key = key
        self._table: ConditionTable | None = None
        self._parsed: dict[str, ParsedCondition | BadCondition] = {}
        self._indexes: dict[str, ColumnIndex] = {}
        self._answers: dict[str, ResourceSet | BadCondition] = {}

    def read_columns(self, tx: Transaction, filters: Iterable[Filters], resources: NumberedResources) -> None:
        """Read the columns on which new conditions can be evaluated in memory."""
        if self._key != resources.key:
            self._begin(resources.key)
        self._forget_last_use()
        texts = {text for pair in filters for text in pair if text} - self._answers.keys()
        if not texts:
            return
        if self._table is None:
            self._table = condition_table(tx, Subject.RESOURCES)
        names = self._columns_of(texts, self._table) - self._indexes.keys()
        if names:
            self._index(tx.rounds.column_values(sorted(names)), sorted(names), self._table, resources)

    def _forget_last_use(self) -> None:
        """Forget the answers that may change although the resources have the same version."""
        self._indexes.pop(LAST_USE, None)
        for text, condition in self._parsed.items():
            if not isinstance(condition, BadCondition) and LAST_USE in columns_of(condition.tree):
                self._answers.pop(text, None)

    def _columns_of(self, texts: Iterable[str], table: ConditionTable) -> set[str]:
        """Parse conditions; return the columns that they name and that can be held in memory."""
        names: set[str] = set()
        for text in texts:
            if text not in self._parsed:
                self._parsed[text] = _parsed(text, table)
            condition = self._parsed[text]
            if not isinstance(condition, BadCondition):
                names |= columns_of(condition.tree)
        return {name for name in names if table.types[name] in _TEXTS + _WHOLE_NUMBERS}

    def _index(
        self,
        rows: Mapping[int, Sequence[str | int | None]],
        names: Sequence[str],
        table: ConditionTable,
        resources: NumberedResources,
    ) -> None:
        nothing = (None,) * len(names)
        ordered = [rows.get(number, nothing) for number in resources.columns.ids]
        for column, name in enumerate(names):
            self._indexes[name] = ColumnIndex([row[column] for row in ordered], is_text=table.types[name] in _TEXTS)

    def read(self, owners: Mapping[Filters, Collection[str]], resources: NumberedResources) -> tuple[Pool, ...]:
        """Return all pools in the order of their numbers; those of filters that no job has any more are empty.

        ``owners``: the users whose jobs wait with each pair of filters.
        """
        self.deferrals = []
        for pair in owners:
            self.numbers.setdefault(pair, len(self.numbers))
        self._answers = {text: answer for text, answer in self._answers.items() if not isinstance(answer, TooSlow)}
        users: dict[str, set[str]] = {}
        for pair, names in owners.items():
            for text in pair:
                users.setdefault(text, set()).update(names)
        self._answer({text: names for text, names in users.items() if text and text not in self._answers}, resources)
        columns = resources.columns
        not_dead = columns.everything & ~columns.where(columns.states, ResourceState.DEAD)
        pools = {pair: self._pool(pair, not_dead) for pair in owners}
        return tuple(pools.get(pair) or Pool(0, pair[1]) for pair in self.numbers)

    def _pool(self, pair: Filters, not_dead: ResourceSet) -> Pool:
        members = not_dead
        for text in pair:
            answer = self._answers[text] if text else not_dead
            if isinstance(answer, BadCondition):
                return Pool(0, pair[1], str(answer))
            members &= answer
        return Pool(members, pair[1])

    def _answer(self, users: Mapping[str, Collection[str]], resources: NumberedResources) -> None:
        """Evaluate conditions that have no answer yet."""
        rows = len(resources.columns.ids)
        unanswered: dict[str, Collection[str]] = {}
        for text, names in users.items():
            condition = self._parsed[text]
            if isinstance(condition, BadCondition) and not self._may_use_sql(names):
                self._answers[text] = condition
                continue
            try:
                if isinstance(condition, BadCondition):
                    raise NotInMemory
                self._answers[text] = evaluate(condition.tree, self._indexes, rows)
            except NotInMemory:
                unanswered[text] = names
        if unanswered:
            self._ask_database(unanswered, resources)

    def _may_use_sql(self, users: Collection[str]) -> bool:
        return bool(set(users) & set(self._config.user_sql_full_users))

    def _ask_database(self, users: Mapping[str, Collection[str]], resources: NumberedResources) -> None:
        """Let the database evaluate conditions, as long as there is time for them."""
        budget = _Budget(self._config.user_sql_round_seconds)
        with session(self._database, Subject.RESOURCES, Asker(has_full_sql=True)) as conditions:
            for text, names in sorted(users.items(), key=lambda item: len(item[0])):
                self._ask(conditions, text, names, budget, resources)

    def _ask(
        self, conditions: Conditions, text: str, users: Collection[str], budget: "_Budget", resources: NumberedResources
    ) -> None:
        begin = time.monotonic()
        pause = self._pauses.get(text)
        seconds = budget.left(users)
        if seconds <= 0 or (pause and begin < pause.until):
            self._answers[text] = TooSlow(_NO_TIME)
            return
        conditions.limit(min(seconds, self._config.user_sql_timeout))
        try:
            self._answers[text] = resources.members(conditions.ids(text))
        except TooSlow:
            self._answers[text] = TooSlow(_NO_TIME)
            self._defer(text, users, seconds)
        except BadCondition as error:
            self._answers[text] = error
        budget.spend(users, time.monotonic() - begin)

    def _defer(self, text: str, users: Collection[str], seconds: float) -> None:
        before = self._pauses.get(text)
        pause = min(2 * before.seconds, LONGEST_PAUSE) if before else FIRST_PAUSE
        self._pauses[text] = _Pause(time.monotonic() + pause, pause)
        if before is None:
            self.deferrals.append(Deferral(frozenset(users), text, seconds))


_NO_TIME = "its evaluation takes more time than a round has for the conditions of one user"


class _Budget:
    """The time that the conditions of a round may take."""

    def __init__(self, seconds: float) -> None:
        self._left = seconds
        self._of_each = SHARE * seconds
        self._spent: dict[str, float] = {}

    def left(self, users: Collection[str]) -> float:
        """Return the seconds that a condition may take: what is left to that of its users who has most."""
        shares = [self._of_each - self._spent.get(user, 0.0) for user in users]
        return min(self._left, max(shares))

    def spend(self, users: Collection[str], seconds: float) -> None:
        """Note how long a condition took; its users share the time."""
        self._left -= seconds
        for user in users:
            self._spent[user] = self._spent.get(user, 0.0) + seconds / len(users)


def _parsed(text: str, table: ConditionTable) -> ParsedCondition | BadCondition:
    try:
        return parse(text, table)
    except BadCondition as error:
        return error
