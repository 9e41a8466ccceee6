"""What is done with jobs that exist: the requests of oardel, oarhold and oarresume, and what came of each."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple

from oar.api.errors import problem_record
from oar.lib.facts.messages import Ask, JobAction
from oar.lib.facts.states import JobTypeName
from oar.lib.jobs import answer_texts, control
from oar.lib.jobs.control import ControlOutcome, ControlRefusal, HoldRules, SignalRequest
from oar.lib.reservations import job_deletion

if TYPE_CHECKING:
    from oar.lib.config.files import Config
    from oar.lib.db.transaction import Transaction
    from oar.lib.facts.records import User

#: Status and word of the reasons for which a request is refused; of all others the job is in a wrong state.
_REFUSALS: Mapping[ControlRefusal, tuple[HTTPStatus, str]] = {
    ControlRefusal.UNKNOWN_JOB: (HTTPStatus.NOT_FOUND, "no-such-job"),
    ControlRefusal.NOT_YOURS: (HTTPStatus.FORBIDDEN, "not-allowed"),
    ControlRefusal.NOT_ADMIN: (HTTPStatus.FORBIDDEN, "not-allowed"),
    ControlRefusal.ADMIN_HOLD: (HTTPStatus.FORBIDDEN, "not-allowed"),
    ControlRefusal.ADMIN_RESUME: (HTTPStatus.FORBIDDEN, "not-allowed"),
    ControlRefusal.ALREADY_KILLED: (HTTPStatus.CONFLICT, "already-killed"),
}
_WRONG_STATE = HTTPStatus.CONFLICT, "wrong-state"


class ActOutcome(NamedTuple):
    """What came of a request about one job: a word of what is done, or why it is not."""

    job_id: int
    done: str = ""
    refusal: Mapping[str, Any] | None = None  #: the record of the problem

    @property
    def status(self) -> int:
        """The status of an answer about this job alone."""
        return self.refusal["status"] if self.refusal else HTTPStatus.ACCEPTED

    @property
    def record(self) -> dict[str, Any]:
        """What is told of the job."""
        return {"id": self.job_id, "problem": self.refusal} if self.refusal else {"id": self.job_id, "done": self.done}


class Acted(NamedTuple):
    """What came of a request about several jobs, in their order."""

    outcomes: Sequence[ActOutcome]
    warnings: Sequence[str] = ()


class JobOrders(NamedTuple):
    """Who acts on which jobs, in one transaction."""

    tx: "Transaction"
    config: "Config"
    user: "User"
    ids: Sequence[int]

    def delete(self) -> Acted:
        """Ask for their end."""
        with_inner = self.config.kill_inner_jobs_with_container
        found = job_deletion.delete_jobs(self.tx, self.user, self.ids, with_inner=with_inner)
        told = [
            _told(answer, "had ended" if answer.has_ended else "deletion registered", answer_texts.why_not_ended)
            for answer in found.answers
        ]
        return Acted(told, found.warnings)

    def force_end(self) -> Acted:
        """Ask for the end of those that are stuck while they finish."""
        config = self.config
        least = 4 * config.oar_ssh_connection_timeout + config.server_prologue_epilogue_timeout
        answers = control.force_end(self.tx, self.user, self.ids, least=least)
        return _all(answers, "end forced", partial(answer_texts.why_not_forced, least=least))

    def hold(self, *, running: bool) -> Acted:
        """Let them not start; ``running``: suspend those that run."""
        answers = control.hold(self.tx, self.user, self.ids, HoldRules.of(self.config), running=running)
        return _all(answers, "hold registered", answer_texts.why_not_held)

    def resume(self) -> Acted:
        """Let them go on."""
        answers = control.resume(self.tx, self.user, self.ids, HoldRules.of(self.config))
        return _all(answers, "resumption registered", answer_texts.why_not_resumed)

    def signal(self, number: int | None) -> Acted:
        """Send them a signal; None: that of a checkpoint."""
        done, verb = ("checkpoint registered", "checkpoint") if number is None else ("signal registered", "signal")
        told = []
        for job_id in self.ids:
            answer = control.request_signal(self.tx, self.user, job_id, number)
            if isinstance(answer, SignalRequest):
                self.tx.outbox.append(Ask(JobAction.SIGNAL, job_id))
                told.append(ActOutcome(job_id, done))
            else:
                told.append(_told(answer, done, partial(answer_texts.why_not_ended, verb=verb)))
        return Acted(told)

    def toggle_besteffort(self, *, wanted: bool) -> Acted:
        """Let running jobs be besteffort, or no longer; those that are as it is wanted stay so."""
        types = self.tx.jobs.types(self.ids, current=True)
        same = [job_id for job_id in self.ids if (JobTypeName.BESTEFFORT in types.get(job_id, ())) is wanted]
        others = [job_id for job_id in self.ids if job_id not in same]
        toggled = {answer.job_id: answer for answer in control.toggle_besteffort(self.tx, self.user, others)}
        done = "besteffort" if wanted else "not besteffort"
        answers = [toggled.get(job_id, ControlOutcome(job_id)) for job_id in self.ids]
        return _all(answers, done, answer_texts.why_not_toggled)


def _all(answers: Sequence[ControlOutcome], done: str, why_not: Callable[[ControlOutcome], str]) -> Acted:
    return Acted([_told(answer, done, why_not) for answer in answers])


def _told(answer: ControlOutcome, done: str, why_not: Callable[[ControlOutcome], str]) -> ActOutcome:
    """Return what is told of an answer; ``why_not``: the words for one that is a refusal."""
    if answer.refusal is None:
        return ActOutcome(answer.job_id, done)
    status, word = _REFUSALS.get(answer.refusal, _WRONG_STATE)
    return ActOutcome(answer.job_id, refusal=problem_record(status, word, why_not(answer).removeprefix("/!\\ ")))
