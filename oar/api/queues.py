"""Queues: lists, one queue, and the changes that oarqueue makes."""

from collections.abc import Iterable
from http import HTTPStatus
from typing import Annotated

from pydantic import BaseModel, Field
from starlette.requests import Request
from typing_extensions import TypedDict

from oar.api.parameters import PRINTABLE, STRICT, Fields, Force, IfMatch
from oar.api.records import NamedResult, Queue, Result, selectable
from oar.api.responses import Answer, created, select_fields
from oar.api.routing import OF_QUEUES, Router
from oar.api.service import AdminAct, Asking, administering, asking, check_seen, service_of, version_of_values
from oar.kao.rounds.site.scheduler_programs import policy_warnings
from oar.lib.base.errors import BadRequest
from oar.lib.bus.messages import Tag, Wake
from oar.lib.jobs import queues, records
from oar.lib.jobs.queues import NoQueue

router = Router("administration")


@selectable
class QueueItem(Queue):
    pass


QueuePage = TypedDict("QueuePage", {"items": list[QueueItem]})


class DeletedQueue(TypedDict):
    name: str
    done: str
    advance_reservations: list[int]
    warnings: list[str]


reading = Router("nodes")

QueueName = Annotated[str, Field(max_length=100, pattern=r"^[A-Za-z0-9_.-]+$")]
Priority = Annotated[int | None, Field(ge=-999_999_999, le=999_999_999)]
Policy = Annotated[str | None, Field(max_length=100, pattern=r"^[A-Za-z0-9_./-]+$", description="Scheduling policy.")]
PathName = Annotated[str, Field(max_length=100, pattern=r"^[A-Za-z0-9_.-]+$", description="Queue name.")]


class NewQueue(BaseModel):
    """A new queue."""

    model_config = STRICT

    name: QueueName = Field(description="Name.")
    priority: Priority = Field(None, description="Priority; queues with higher priority are scheduled first.")
    policy: Policy = None


class QueueUpdate(BaseModel):
    """New values of a queue. Fields that are not given are kept."""

    model_config = STRICT

    priority: Priority = Field(None, description="Priority; queues with higher priority are scheduled first.")
    policy: Policy = None
    enabled: bool | None = Field(None, description="Whether the jobs of the queue are scheduled.")


class QueueSwitch(BaseModel):
    """Whether the jobs of all queues are scheduled."""

    model_config = STRICT

    enabled: bool = Field(description="Whether jobs are scheduled.")


@router.post(
    "/v1/queues", "queue_add", "Create a queue", status=HTTPStatus.CREATED, record=NamedResult, has_location=True
)
def queue_add(request: Request, body: NewQueue) -> Answer:
    """Create a queue, as `oarqueue --add` does. Administrators only."""
    with administering(request) as act:
        queue = queues.add(act.tx, act.user, _text(body.name, body.priority, body.policy))
        _wake(act)
    warnings = [*act.warnings, *_policy_warnings(request, [queue])]
    return created({"name": body.name, "done": "added", "warnings": warnings}, "queues", body.name)


@router.patch("/v1/queues", "queues_switch", "Enable or disable all queues")
def queues_switch(request: Request, body: QueueSwitch) -> Result:
    """Enable or disable scheduling in all queues, as `oarqueue -E` and `-D` do. Administrators only."""
    with administering(request) as act:
        queues.switch(act.tx, act.user, enable_all=body.enabled, disable_all=not body.enabled)
        enabled = act.tx.queues.all() if body.enabled else []
        _wake(act)
    warnings = [*act.warnings, *_policy_warnings(request, enabled)]
    return {"done": "enabled" if body.enabled else "disabled", "warnings": warnings}


@router.patch("/v1/queues/{name}", "queue_change", "Update a queue")
def queue_change(request: Request, name: PathName, body: QueueUpdate, match: IfMatch = None) -> NamedResult:
    """Update a queue, as `oarqueue --change`, `-e` and `-d` do. Administrators only."""
    if not body.model_fields_set:
        raise BadRequest("use at least one of: priority, policy, enabled")
    with administering(request) as act:
        _check_seen(act, name, match)
        queues.change(act.tx, act.user, _text(name, body.priority, body.policy))
        if body.enabled is not None:
            queues.switch(act.tx, act.user, *(([name],) if body.enabled else ((), [name])))
        queue = queues.held(act.tx, name)
        _wake(act)
    warnings = [*act.warnings, *_policy_warnings(request, [queue])]
    return {"name": name, "done": "changed", "warnings": warnings}


@router.delete("/v1/queues/{name}", "queue_remove", "Delete a queue")
def queue_remove(request: Request, name: PathName, force: Force = False, match: IfMatch = None) -> DeletedQueue:
    """Delete a queue, as `oarqueue --remove` does. Administrators only.

    A queue with live advance reservations is deleted when the last of them has ended.
    """
    with administering(request) as act:
        _check_seen(act, name, match)
        left = queues.remove(act.tx, act.user, name, force=force)
        _wake(act)
    done = "orphaned" if left else "removed"
    return {"name": name, "done": done, "advance_reservations": left, "warnings": act.warnings}


def _check_seen(act: AdminAct, name: str, match: str | None) -> None:
    check_seen(match, f"queue {name}", lambda: version_of_values(*queues.held(act.tx, name)))


def _text(name: str, priority: int | None, policy: str | None) -> str:
    return f"{name},{'' if priority is None else priority},{policy or ''}"


def _wake(act: AdminAct) -> None:
    act.tx.outbox.append(Wake(Tag.TERM))


def _policy_warnings(request: Request, changed: Iterable[records.Queue]) -> list[str]:
    return policy_warnings(service_of(request).runtime, changed)


@reading.get("/v1/queues", "queues_list", "List queues", exports=True, topics=OF_QUEUES)
def queues_list(request: Request, fields: Fields = None) -> QueuePage:
    """Return the queues by descending priority, with the number of jobs in each state."""
    items = queue_items(asking(request))
    return {"items": select_fields(items, fields, QueueItem.__annotations__)}


@reading.get("/v1/queues/{name}", "queue", "Get a queue", topics=OF_QUEUES)
def get_queue(
    request: Request, name: Annotated[str, Field(max_length=100, pattern=PRINTABLE, description="Queue name.")]
) -> Queue:
    """Return a queue with the number of jobs in each state."""
    items = queue_items(asking(request))
    queue = next((item for item in items if item["name"] == name), None)
    if queue is None:
        raise NoQueue(f"there is no queue {name!r}: {', '.join(str(item['name']) for item in items)}")
    return queue


def queue_items(who: Asking) -> list[Queue]:
    """Return the queues with the numbers of their jobs, by priority."""
    with who.database.snapshot() as tx:
        queues = tx.queues.all()
        numbers = tx.listings.live_by_queue()
        oldest = {wait.queue: wait.oldest for wait in tx.usage.waits()}
    return [
        {
            "name": queue.name,
            "priority": queue.priority,
            "policy": queue.policy,
            "state": queue.state,
            "jobs": {state: number for (name, state), number in numbers.items() if name == queue.name},
            "oldest_waiting": oldest.get(queue.name),
            "version": version_of_values(*queue),
        }
        for queue in sorted(queues, key=lambda queue: (-queue.priority, queue.name))
    ]
