"""Queues: lists, one queue, and the changes that oarqueue makes."""

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, Field

from oar.api.openapi_schemas import QUEUE
from oar.api.parameters import PRINTABLE, STRICT, FieldsQuery, Force, IfMatch
from oar.api.preconditions import check_seen, version_of_values
from oar.api.responses import Answer, answer, answer_unless_known, created, list_answer, select_fields
from oar.api.routing import ApiRoute
from oar.api.service import AdminAct, Asking, administering, asking, service_of
from oar.kao.rounds.site.scheduler_programs import policy_warnings
from oar.lib.base.errors import BadRequest
from oar.lib.bus.messages import Tag, Wake
from oar.lib.jobs import queues
from oar.lib.jobs.queues import NoQueue
from oar.lib.jobs.records import Queue
from oar.lib.jobs.states import JobState

if TYPE_CHECKING:
    pass

router = APIRouter(tags=["administration"], route_class=ApiRoute)
reading = APIRouter(tags=["nodes"], route_class=ApiRoute)

QueueName = Annotated[str, Field(max_length=100, pattern=r"^[A-Za-z0-9_.-]+$")]
Priority = Annotated[int | None, Field(ge=-999_999_999, le=999_999_999)]
Policy = Annotated[str | None, Field(max_length=100, pattern=r"^[A-Za-z0-9_./-]+$", description="Scheduling policy.")]
PathName = Annotated[str, Path(max_length=100, pattern=r"^[A-Za-z0-9_.-]+$", description="Queue name.")]


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


@router.post("/v1/queues", operation_id="queue_add", summary="Create a queue", status_code=HTTPStatus.CREATED)
def queue_add(request: Request, body: NewQueue) -> Answer:
    """Create a queue, as `oarqueue --add` does. Administrators only."""
    with administering(request) as act:
        queue = queues.add(act.tx, act.user, _text(body.name, body.priority, body.policy))
        _wake(act)
    warnings = [*act.warnings, *_policy_warnings(request, [queue])]
    return created({"name": body.name, "done": "added", "warnings": warnings}, "queues", body.name)


@router.patch("/v1/queues", operation_id="queues_switch", summary="Enable or disable all queues")
def queues_switch(request: Request, body: QueueSwitch) -> Answer:
    """Enable or disable scheduling in all queues, as `oarqueue -E` and `-D` do. Administrators only."""
    with administering(request) as act:
        queues.switch(act.tx, act.user, enable_all=body.enabled, disable_all=not body.enabled)
        enabled = act.tx.queues.all() if body.enabled else []
        _wake(act)
    warnings = [*act.warnings, *_policy_warnings(request, enabled)]
    return answer({"done": "enabled" if body.enabled else "disabled", "warnings": warnings})


@router.patch("/v1/queues/{name}", operation_id="queue_change", summary="Update a queue")
def queue_change(request: Request, name: PathName, body: QueueUpdate, match: IfMatch = None) -> Answer:
    """Update a queue, as `oarqueue --change`, `-e` and `-d` do. Administrators only."""
    if not body.model_fields_set:
        raise BadRequest("name what is to be changed: priority, policy, enabled")
    with administering(request) as act:
        _check_seen(act, name, match)
        queues.change(act.tx, act.user, _text(name, body.priority, body.policy))
        if body.enabled is not None:
            queues.switch(act.tx, act.user, *(([name],) if body.enabled else ((), [name])))
        queue = queues.held(act.tx, name)
        _wake(act)
    warnings = [*act.warnings, *_policy_warnings(request, [queue])]
    return answer({"name": name, "done": "changed", "warnings": warnings})


@router.delete("/v1/queues/{name}", operation_id="queue_remove", summary="Delete a queue")
def queue_remove(request: Request, name: PathName, force: Force = False, match: IfMatch = None) -> Answer:
    """Delete a queue, as `oarqueue --remove` does. Administrators only.

    A queue with live advance reservations is deleted when the last of them has ended.
    """
    with administering(request) as act:
        _check_seen(act, name, match)
        left = queues.remove(act.tx, act.user, name, force=force)
        _wake(act)
    done = "orphaned" if left else "removed"
    return answer({"name": name, "done": done, "advance_reservations": left, "warnings": act.warnings})


def _check_seen(act: AdminAct, name: str, match: str | None) -> None:
    check_seen(match, f"queue {name}", lambda: version_of_values(*queues.held(act.tx, name)))


def _text(name: str, priority: int | None, policy: str | None) -> str:
    """Return a queue in the words of oarqueue."""
    return f"{name},{'' if priority is None else priority},{policy or ''}"


def _wake(act: AdminAct) -> None:
    act.tx.outbox.append(Wake(Tag.TERM))


def _policy_warnings(request: Request, changed: Iterable[Queue]) -> list[str]:
    return policy_warnings(service_of(request).runtime, changed)


@reading.get("/v1/queues", operation_id="queues_list", summary="List queues")
def queues_list(request: Request, fields: FieldsQuery = None) -> Answer:
    """Return the queues by descending priority, with the number of jobs in each state."""
    items = queues_record(asking(request))["items"]
    return list_answer(request, {"items": select_fields(items, fields, QUEUE["properties"])})


@reading.get("/v1/queues/{name}", operation_id="queue", summary="Get a queue")
def get_queue(
    request: Request, name: Annotated[str, Path(max_length=100, pattern=PRINTABLE, description="Queue name.")]
) -> Answer:
    """Return a queue with the number of jobs in each state."""
    items = queues_record(asking(request))["items"]
    queue = next((item for item in items if item["name"] == name), None)
    if queue is None:
        raise NoQueue(f"there is no queue {name!r}: {', '.join(str(item['name']) for item in items)}")
    return answer_unless_known(request, queue)


def queues_record(who: Asking) -> dict[str, list[dict[str, object]]]:
    """Return the queues with the numbers of their jobs."""
    with who.database.snapshot() as tx:
        queues = tx.queues.all()
        numbers = tx.listings.live_by_queue()
        oldest = {wait.queue: wait.oldest for wait in tx.usage.waits()}
    in_order = sorted(queues, key=lambda queue: (-queue.priority, queue.name))
    return {"items": [_queue_item(queue, numbers, oldest.get(queue.name)) for queue in in_order]}


def _queue_item(
    queue: Queue, numbers: Mapping[tuple[str, JobState], int], oldest: int | None = None
) -> dict[str, object]:
    return {
        "name": queue.name,
        "priority": queue.priority,
        "policy": queue.policy,
        "state": queue.state,
        "jobs": {state: number for (name, state), number in numbers.items() if name == queue.name},
        "oldest_waiting": oldest,
        "version": version_of_values(*queue),
    }
