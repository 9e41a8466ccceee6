"""What the worker processes do: a task is a value with all that it needs, its outcome one with all that is answered.

Submissions, estimates and alterations are tasks: admission rules have limits that only a process has for itself (time,
memory, directory, environment, output).  They run one after the other in its main thread.
"""

import traceback
from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from fastapi import Request

from oar.api.errors import (
    OtherVersion,
    error_code,
    error_record,
    internal_error,
    problem_record,
    problem_response,
    status_of,
)
from oar.api.responses import Answer, answer
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.db.sql.connections import DatabaseSettings
from oar.lib.facts.errors import OarError
from oar.lib.runtime import delivery
from oar.lib.submission.admission_rules import RuleFailed, RuleOutput, RuleRefused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oar.lib.facts.messages import Effect


class Outcome(NamedTuple):
    """What a task has come to: the answer, and what stands in the log."""

    status: int
    record: Mapping[str, Any]
    headers: Mapping[str, str] = {}
    trace: str = ""  #: what went wrong, for the administrator


class Desk:
    """What a worker works with: the configuration of the moment, the database, the warnings of the task."""

    def __init__(self, settings: DatabaseSettings) -> None:
        self.config = Config()
        self.database = Database(settings, application="oar:oar-api worker", deliver=self._deliver)
        self.warnings: list[str] = []

    def _deliver(self, effects: "Sequence[Effect]") -> None:
        delivery(self.config, self.warnings.append)(effects)


class WorkerTask(Protocol):
    """Something that a worker can do."""

    def run(self, desk: Desk) -> Outcome:
        """Do it.  Raises OarError."""


def outcome_of(task: WorkerTask, desk: Desk) -> Outcome:
    """Do a task; whatever happens, there is an outcome."""
    desk.warnings.clear()
    try:
        return task.run(desk)
    except OarError as error:
        return problem_of(error)
    except Exception:  # noqa: BLE001 - the client is told that something went wrong, the log what
        return Outcome(HTTPStatus.INTERNAL_SERVER_ERROR, {}, trace=traceback.format_exc())


def problem_of(error: OarError) -> Outcome:
    """Return what is told of an error; of one that is our fault the log tells more."""
    if isinstance(error, RuleRefused | RuleFailed):
        return _of_rules(error)
    status = status_of(error)
    if status == HTTPStatus.INTERNAL_SERVER_ERROR:
        return Outcome(status, {}, trace="".join(traceback.format_exception(error)))
    headers = {"ETag": error.tag} if isinstance(error, OtherVersion) else {}
    return Outcome(status, error_record(error, status), headers)


def _of_rules(error: RuleRefused | RuleFailed) -> Outcome:
    """Tell what an admission rule says; of one that fails the administrator learns more."""
    failed = isinstance(error, RuleFailed)
    status = HTTPStatus.INTERNAL_SERVER_ERROR if failed else HTTPStatus.FORBIDDEN
    text = str(error).removeprefix("# Error: ")
    record = problem_record(status, error_code(type(error)), text, output=text_of(error.output))
    return Outcome(status, record, trace=error.trace if isinstance(error, RuleFailed) else "")


def text_of(output: RuleOutput) -> str:
    """Return what admission rules have printed."""
    return output.out + output.err


def answer_of(request: Request, outcome: Outcome) -> Answer:
    """Return the answer that the outcome of a task is."""
    if outcome.status < HTTPStatus.BAD_REQUEST:
        return answer(outcome.record, status=outcome.status, headers=outcome.headers)
    if not outcome.record:
        return internal_error(request)
    response = problem_response(request, outcome.status, outcome.record)
    response.headers.update(outcome.headers)
    return response
