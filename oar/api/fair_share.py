"""Fair share as people see it: karma term by term, who is ahead, and how it fades."""

from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Path, Query, Request

from oar.api.parameters import PRINTABLE
from oar.api.responses import Answer, answer_unless_known
from oar.api.routing import ApiRoute
from oar.api.service import Asking, asking
from oar.kao.facts.snapshot import ConsumptionSums, FairShare
from oar.kao.planner.fair_share import Share, share_of
from oar.kao.rounds.reading.consumption_reader import summed
from oar.kao.rounds.reading.planner_settings import settings_of
from oar.lib.base.errors import NotAllowed

router = APIRouter(tags=["usage"], route_class=ApiRoute)

DAY = 86400
#: Steps (of a day at most) for which the fading of karma is computed; users ahead that are listed, at most.
STEPS, MAX_AHEAD = 7, 20
#: Queue, user, project, USED or ASKED, resource seconds.
_Rows = Sequence[tuple[str, str, str, str, int]]


@router.get("/v1/fairshare/{user}", operation_id="fairshare", summary="Get the fair share of a user")
def fairshare(
    request: Request,
    user: Annotated[str, Path(max_length=255, pattern=PRINTABLE, description="User name.")],
    project: Annotated[str, Query(max_length=255, pattern=PRINTABLE, description="Project name.")] = "default",
) -> Answer:
    """Return the karma of a user in a project: for each term the consumption, its target and its weight.

    `ahead` lists users with waiting jobs and a smaller karma, smallest first; null if consumption is private. `fades`
    is the karma after each `step` of seconds if the user submits nothing and the other users continue as before.
    """
    who = asking(request)
    _check_private(who, user)
    keys, window = settings_of(who.config).fairshare, who.config.scheduler_fairsharing_window_size
    with who.database.snapshot() as tx:
        queues, since = [queue.name for queue in tx.queues.all()], tx.now - window
        sums = summed(tx.rounds.consumption(queues, since, tx.now))
        ended = tx.usage.in_pieces(user, queues, since, _step(window), STEPS)  # what leaves the window next
        waiting = tx.usage.waiting_by_share() if _shows_others(who) else None
    share = share_of(user, project, sums, keys)
    record = {
        "user": user,
        "project": project,
        "karma": share.karma(keys) + 0.0,
        "window": window,
        "terms": [{**term._asdict(), "karma": term.karma} for term in _terms(share, keys)],
        "ahead": None if waiting is None else _ahead(waiting, (user, project), sums, keys),
        "step": _step(window),
        "fades": _fades(sums, ended, (user, project), keys),
    }
    return answer_unless_known(request, record)


def _step(window: int) -> int:
    return max(1, min(DAY, window // STEPS))


def _fades(sums: ConsumptionSums, ended: Sequence[_Rows], of: tuple[str, str], keys: FairShare) -> list[float]:
    """Return the karma after each piece of time, when what the user consumed in it no longer counts."""
    karmas = []
    for piece in ended:
        sums = _without(sums, summed(piece))
        karmas.append(share_of(*of, sums, keys).karma(keys) + 0.0)
    return karmas


def _without(sums: ConsumptionSums, gone: ConsumptionSums) -> ConsumptionSums:
    """Subtract consumption that no longer counts."""

    def left(all_: Mapping[str, int], part: Mapping[str, int]) -> dict[str, int]:
        return {**all_, **{name: all_.get(name, 0) - seconds for name, seconds in part.items()}}

    return ConsumptionSums(
        sums.used - gone.used,
        sums.asked - gone.asked,
        left(sums.used_by_user, gone.used_by_user),
        left(sums.asked_by_user, gone.asked_by_user),
        left(sums.used_by_project, gone.used_by_project),
    )


def _ahead(
    waiting: Sequence[tuple[str, str, int]], of: tuple[str, str], sums: ConsumptionSums, keys: FairShare
) -> list[dict[str, object]]:
    """Return the users whose waiting jobs come first, and the term in which they are farthest ahead."""
    own = share_of(*of, sums, keys)
    others = [(share_of(name, project, sums, keys), name, project, jobs) for name, project, jobs in waiting]
    before = sorted((share.karma(keys), name, project, jobs, share) for share, name, project, jobs in others)
    return [
        {"user": name, "project": project, "waiting": jobs, "karma": karma + 0.0, "by": _farthest(share, own, keys)}
        for karma, name, project, jobs, share in before
        if karma < own.karma(keys) and (name, project) != of
    ][:MAX_AHEAD]


def _farthest(share: Share, own: Share, keys: FairShare) -> str:
    """Return the name of the term by which a share is the farthest below another one."""
    pairs = zip(_terms(share, keys), _terms(own, keys), strict=True)
    return max((other.karma - this.karma, this.name) for this, other in pairs)[1]


class Term(NamedTuple):
    """A term of the karma of a user: the share that was used, its target and its weight."""

    name: str
    used: float
    target: float
    weight: float

    @property
    def karma(self) -> float:
        """What the term adds to the karma; of a weight of 0 without the sign."""
        return self.weight * (self.used - self.target) + 0.0


def _terms(share: Share, keys: FairShare) -> list[Term]:
    return [
        Term("project", share.project_used, share.project_target, keys.coefficient_project),
        Term("user", share.user_used, share.user_target, keys.coefficient_user),
        Term("asked", share.user_asked, share.asked_target, keys.coefficient_asked),
    ]


def _shows_others(who: Asking) -> bool:
    caller = who.caller.user
    return not who.config.api_accounting_private or bool(caller and caller.is_admin)


def _check_private(who: Asking, user: str) -> None:
    caller = who.caller.user
    if not _shows_others(who) and not (caller and caller.name == user):
        raise NotAllowed("the consumption of others is private here (API_ACCOUNTING_PRIVATE)")
