"""The decisions of a round so far; the plan is built from them."""

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from oar.kao.facts import reasons
from oar.kao.facts.plan import Answer, Failure, JobStart, Kill, Placement, Reason
from oar.kao.facts.snapshot import WaitingJob
from oar.kao.planner.placement.placement_task import GiveWay
from oar.kao.planner.site.site_extensions import MissingPlugin
from oar.lib.jobs.reason_codes import ReasonCode

Result = TypeVar("Result")


class TimeIsUp(Exception):
    """An urgent pass has no time left to decide whether a job may start now."""


@dataclass(slots=True)
class Decisions:
    """All decisions so far, by job id where they concern one job."""

    now: int
    last_reasons: Mapping[int, Reason] = field(default_factory=dict)  #: those of the last round
    placements: dict[int, Placement] = field(default_factory=dict)
    reasons: dict[int, Reason] = field(default_factory=dict)
    karma: dict[int, float] = field(default_factory=dict)
    shares: dict[int, Mapping[str, float]] = field(default_factory=dict)  #: fair share, for the data of the reason
    started: list[JobStart] = field(default_factory=list)
    kills: dict[int, Kill] = field(default_factory=dict)
    accepted: list[Answer] = field(default_factory=list)
    refused: list[Answer] = field(default_factory=list)
    expired: list[Answer] = field(default_factory=list)
    regained: list[int] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    external: set[int] = field(default_factory=set)  #: jobs placed by external schedulers
    messages: dict[int, str] = field(default_factory=dict)  #: in place of the usual messages
    troubles: list[str] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    def guard(self, job: WaitingJob, decide: Callable[[WaitingJob], Result]) -> Result | None:
        """Decide on one job; return None if an exception was raised.

        The exception is recorded as the reason of this job only.  Raises TimeIsUp, GiveWay.
        """
        try:
            return decide(job)
        except (TimeIsUp, GiveWay):
            raise
        except MissingPlugin as error:
            self.reasons[job.id] = reasons.no_plugin(str(error))
        except Exception as error:  # noqa: BLE001 - one job must not end the round
            self.reasons[job.id] = self._internal(job, f"{type(error).__name__}: {error}")
            frame = traceback.extract_tb(error.__traceback__)[-1]
            origin = f"{type(error).__name__} at {frame.filename}:{frame.lineno}"
            self.failures.append(Failure(job.id, origin, traceback.format_exc()))
        return None

    def _internal(self, job: WaitingJob, detail: str) -> Reason:
        """Return the reason of a job whose planning failed; it names the first round with this failure."""
        last = self.last_reasons.get(job.id)
        if last and last.code is ReasonCode.INTERNAL and last.data.get("detail") == detail:
            return last
        return reasons.internal(self.now, detail)
