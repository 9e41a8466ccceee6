"""Which jobs a client of OAR 2.5 or OAR 3 asks for, in the parameters of both, and in which order."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qs, urlencode

from oar.api.legacy.requests import LegacyCall, PageOf, link, now, number_of
from oar.lib.base.did_you_mean import nearest
from oar.lib.base.errors import BadRequest
from oar.lib.db.user_sql import Subject, evaluate
from oar.lib.jobs.query import JobPlace, JobQuery
from oar.lib.jobs.sql_pages import MOST_COUNTED
from oar.lib.jobs.states import JobState

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction

#: Parameters that choose jobs so that those of API_JOBS_URI_DEFAULT_PARAMS do not count: these also without a value,
#: since no states are all, and no ids none; the others not.
_CHOOSING_ANYWAY = ("state", "states", "ids", "job_ids")
_CHOOSING = ("from", "to", "start_time", "stop_time", "array", "since")
#: Behind all dates that jobs have.
_LATEST = 2**40
#: Orders of a list; by other columns there is no page that costs the same wherever it begins.
_ORDERS: Mapping[str | None, bool] = {None: False, "": False, "id": False, "-id": True}


def with_defaults(call: LegacyCall) -> LegacyCall:
    """Return a call with the parameters of the site, if its own choose no jobs."""
    if any(name in call.parameters for name in _CHOOSING_ANYWAY) or any(call.text(name) for name in _CHOOSING):
        return call
    defaults = parse_qs(call.who.config.api_jobs_uri_default_params, keep_blank_values=True)
    return call._replace(parameters={**defaults, **call.parameters})


def query_of(call: LegacyCall) -> JobQuery:
    """Return which jobs are asked for.  Raises BadRequest, Unidentified, BadCondition."""
    array = call.text("array")
    return JobQuery(
        states=_states(call, call.given("state", "states")),
        ids=_ids(call),
        arrays=(number_of(array, "array"),) if array else (),
        users=tuple(
            call.who.caller.identified().name if each == "me" else each for each in call.words("user", "users", "owner")
        ),
        queues=call.words("queue"),
        projects=call.words("project"),
        names=call.words("name"),
        types=call.words("type"),
        nodes=call.words("node"),
        text=call.text("q"),
        between=_between(call),
        ended_since=call.number("since", 0) or None,
    )


def _ids(call: LegacyCall) -> tuple[int, ...] | None:
    """Return the ids that are named and satisfy the condition; None if neither is given.

    A list of ids without any is one: a client that asks for no job does not mean all of them.
    """
    condition = call.text("sql")
    name = call.given("ids", "job_ids")
    named = None if call.text(name) is None else [number_of(word, name) for word in call.words(name)]
    if not condition:
        return None if named is None else tuple(named)
    satisfying = _satisfying(call, condition)
    return tuple(satisfying if named is None else sorted({*named}.intersection(satisfying)))


def _satisfying(call: LegacyCall, condition: str) -> list[int]:
    return evaluate(call.who.database, Subject.JOBS, condition, call.who.sql_asker())


def _states(call: LegacyCall, name: str) -> frozenset[JobState] | None:
    """Return the states that a parameter means; None: all.  Raises BadRequest."""
    by_name = {state.lower(): state for state in JobState}
    words = [word.strip().lower() for word in (call.text(name) or "").split(",") if word.strip()]
    if not words or "all" in words:
        return None
    if unknown := [word for word in words if word not in by_name]:
        raise BadRequest(f"{name}: {unknown[0]!r} is no state: {', '.join(JobState)}").of(name)
    return frozenset(by_name[word] for word in words)


def _between(call: LegacyCall) -> tuple[int, int] | None:
    begin, end = call.date("from", "start_time"), call.date("to", "stop_time")
    return None if begin is None and end is None else (begin or 0, _LATEST if end is None else end)


class JobPiece(NamedTuple):
    """A piece of the jobs: by an offset, or behind an id, where it costs the same however far that is."""

    page: PageOf
    behind: int | None  #: the id behind which it begins
    newest_first: bool

    @classmethod
    def of(cls, call: LegacyCall) -> "JobPiece":
        """Return the piece that is asked for.  Raises BadRequest."""
        page, order = PageOf.of(call), call.text("order")
        if order not in _ORDERS:
            raise BadRequest(f"order: {order!r} is neither id nor -id").of("order")
        for name, newest_first in (("before_id", True), ("after_id", False)):
            if text := call.text(name):
                return cls(page._replace(offset=0), number_of(text, name), newest_first)
        return cls(page, None, _ORDERS[order])

    def ids(self, tx: "Transaction", query: JobQuery) -> list[int]:
        """Return the ids of the piece, and the one behind it if there is one."""
        place = JobPlace(self.page.offset + self.page.limit, self.behind, self.newest_first)
        return tx.job_pages.page(query, place)[self.page.offset :]

    def collection(self, call: LegacyCall, items: Sequence[Any], ids: Sequence[int], total: int) -> dict[str, Any]:
        """Return the items with links to what is beside them; ``total``: ``MOST_COUNTED + 1`` for more than that."""
        record = self.page.collection(call, items, total)
        if total > MOST_COUNTED:
            record["total_is_estimate"] = True
        if self.behind is not None:
            record["links"] = self._links_by_id(call, ids)
        return record

    def _links_by_id(self, call: LegacyCall, ids: Sequence[int]) -> list[dict[str, str]]:
        name = "before_id" if self.newest_first else "after_id"
        kept = [(key, each) for key, values in call.parameters.items() for each in values]
        kept = [pair for pair in kept if pair[0] not in ("offset", "limit", "before_id", "after_id")]

        def at(behind: int | None) -> str:
            return f"{call.address}?{urlencode([*kept, ('limit', self.page.limit), (name, behind)])}"

        more = len(ids) > self.page.limit
        return [link("self", at(self.behind)), *([link("next", at(ids[self.page.limit - 1]))] if more else [])]


def chosen_fields(call: LegacyCall, items: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return the items with only the fields that are asked for.  Raises BadRequest for one that none of them has."""
    fields = call.words("fields")
    if not fields or not items:
        return items
    known = sorted({name for item in items for name in item})
    if unknown := [name for name in fields if name not in known]:
        near = nearest(unknown[0], known)
        way_out = f"did you mean {near!r}?" if near else f"there are {', '.join(known)}"
        raise BadRequest(f"fields: there is no {unknown[0]!r}\n{way_out}").of("fields")
    return [{name: item.get(name) for name in fields} for item in items]


def by_id(call: LegacyCall, items: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]] | None:
    """Return the items by their ids, where the client or the site wants them so.  Raises BadRequest."""
    structure = "simple" if call.wants_lines else call.text("structure") or call.who.config.api_default_data_structure
    if structure not in ("simple", "oar"):
        raise BadRequest(f"structure: {structure!r} is neither simple nor oar").of("structure")
    if structure == "simple":
        return None
    shown = chosen_fields(call, items)
    return {str(item["id"]): fields for item, fields in zip(items, shown, strict=True)}


def dated(total: int) -> dict[str, Any]:
    """Return what stands beside the items of a list that has no pages."""
    return {"total": total, "offset": 0, "api_timestamp": now()}
