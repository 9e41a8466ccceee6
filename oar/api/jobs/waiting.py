"""Requests that wait for another state of a job, or for something new: on the hub, without a thread."""

import asyncio
from collections.abc import Callable, Collection

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from oar.api.serving.hub import BYE, Subscriber, Takes
from oar.api.serving.service import Asking, asking, service_of
from oar.lib.facts.history import JobStateChange
from oar.lib.facts.records import Job
from oar.lib.facts.states import JobState

#: Seconds that a request waits at most; who has waited for so long asks again.
LONGEST_WAIT = 30.0


async def wait_while(request: Request, job_id: int, states: Collection[JobState] | None, seconds: float) -> None:
    """Wait while a job is in one of some states, None: in the one that it has; at most until it has ended.

    Raises NoSuchJob, TooMany if too many listen, and what tells that the caller may not read.
    """
    hub = service_of(request).hub
    until = asyncio.get_running_loop().time() + min(seconds, LONGEST_WAIT)
    who = await run_in_threadpool(asking, request)
    # It listens before the first look, so that no change is between them.
    listener = Subscriber(changes_of(job_id), frozenset())
    hub.add(listener)
    request.state.seat.give_back()
    try:
        job = await run_in_threadpool(_job, who, job_id)
        awaited = frozenset((job.state,)) if states is None else states
        while job.state in awaited and not job.is_final and await _is_told(listener, until):
            job = await run_in_threadpool(_job, who, job_id)
    finally:
        hub.remove(listener)


async def wait_until_seen(
    request: Request,
    listener: Subscriber,
    is_seen: Callable[[Asking], bool],
    seconds: float,
    pause: Callable[[], float] = lambda: LONGEST_WAIT,
) -> None:
    """Wait until something can be seen; look when the listener is told something, and after each pause.

    Raises TooMany if too many listen, and what tells that the caller may not read.
    """
    hub = service_of(request).hub
    until = asyncio.get_running_loop().time() + min(seconds, LONGEST_WAIT)
    who = await run_in_threadpool(asking, request)
    hub.add(listener)
    request.state.seat.give_back()
    try:
        while not await run_in_threadpool(is_seen, who):
            left = until - asyncio.get_running_loop().time()
            messages = await listener.next(max(0.0, min(left, pause())))
            if left <= 0 or any(message.name == BYE for message in messages):
                return
    finally:
        hub.remove(listener)


async def _is_told(listener: Subscriber, until: float) -> bool:
    """Wait for news; whether there are any before time is over or the service ends."""
    messages = await listener.next(max(0.0, until - asyncio.get_running_loop().time()))
    return bool(messages) and all(message.name != BYE for message in messages)


def _job(who: Asking, job_id: int) -> Job:
    with who.database.snapshot() as tx:
        return tx.jobs.get(job_id)


def changes_of(job_id: int) -> Takes:
    return lambda row: isinstance(row, JobStateChange) and row.job_id == job_id
