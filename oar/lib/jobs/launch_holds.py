"""Launch holds: while one is open, rounds start no job and launches wait.

A hold is an open event.  It begins with a fault that would make every launch fail, and ends when the fault is gone.

See docs/design/launch.rst, "Held launches".
"""

from typing import TYPE_CHECKING

from oar.lib.db.sql.lock_keys import LAUNCH_HOLD_LOCK
from oar.lib.facts.messages import Mail, Tag, Wake
from oar.lib.facts.states import HOLDS_OF_LAUNCHES, EventType, JobState, Phase, Reservation
from oar.lib.jobs import lifecycle

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction

#: A hold lasts at least so many seconds: a fault that only launches can find would open one after the other.
LEAST_SECONDS = 30
#: A mail about the same fault is sent again after so many seconds.
MAIL_SECONDS = 86400
#: Phases of a launch that its node has not been told of.
ONLY_SERVER_KNOWS = (Phase.CLAIMED, Phase.NODES_OK, Phase.PROLOGUE_OK)


def hold(tx: "Transaction", fault: str, type_: EventType = EventType.LAUNCH_CONFIGURATION_ERROR) -> None:
    """Hold all launches for a fault, unless they are held for it.

    The administrators get one mail a day about each fault: one that only launches find is held for again and again.
    """
    description = f"[Runner] {fault}"
    if any(event.description == description for event in tx.events.open([type_])):
        return
    tx.advisory_locks.take(LAUNCH_HOLD_LOCK)
    holds = tx.events.open([type_])
    if any(event.description == description for event in holds):
        return
    tx.events.done([event.id for event in holds])
    latest = tx.events.of_types(0, [type_], tx.now - MAIL_SECONDS)
    tx.events.add(type_, 0, description, to_check=True)
    if any(event.description == description for event in latest):
        return
    text = f"{fault}\nNo job is started until this is repaired; then OAR starts jobs again by itself."
    tx.outbox.append(Mail("No job is started", text))


def release(tx: "Transaction", type_: EventType = EventType.LAUNCH_CONFIGURATION_ERROR) -> bool:
    """End the hold of this type, unless it has only just begun; return whether jobs are started again."""
    holds = tx.events.open([type_])
    if not holds or any(tx.now - event.date < LEAST_SECONDS for event in holds):
        return False
    tx.events.done([event.id for event in holds])
    fault = holds[-1].description.partition("] ")[2]
    tx.events.add(EventType.LAUNCHES_RESUMED, 0, f"[Runner] launches are resumed: repaired: {fault}")
    tx.outbox.append(Wake(Tag.SCHEDULING))
    return True


def present_fault(tx: "Transaction") -> str:
    """Return why launches are held; '' if they are not."""
    holds = tx.events.open(HOLDS_OF_LAUNCHES)
    return holds[0].description.partition("] ")[2] if holds else ""


def hold_launch(tx: "Transaction", job_id: int, fault: str) -> bool:
    """Hold all launches for a fault, this one with them; return False if it goes on.

    It goes on if the node of the job may know of it, and if it has begun and the job has a kill request.

    A job that nobody has claimed goes back to the queue, without the resources that it was given.  A reservation keeps
    them, and so does a job whose launch has begun.
    """
    tx.jobs.hold([job_id])
    job, run = tx.jobs.get(job_id), tx.job_runs.find(job_id)
    if job.state is JobState.TO_LAUNCH:
        if job.reservation is Reservation.NONE and lifecycle.move(tx, job_id, JobState.WAITING):
            tx.jobs.take_back(job_id)
    elif (
        job.state is not JobState.LAUNCHING
        or (run and run.phase not in ONLY_SERVER_KNOWS)
        or tx.kill_requests.find(job_id)
    ):
        return False
    hold(tx, fault)
    return True
