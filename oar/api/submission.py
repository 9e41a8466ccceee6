"""The submission of jobs, in a worker: the same steps as those of oarsub.

A job belongs to who asks.  Relative names count from his home; what his shell holds is unknown here.
"""

import os
import pwd
import time
from collections.abc import Mapping, Sequence
from functools import partial
from http import HTTPStatus
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from oar.api.errors import problem_record
from oar.api.jobs.asked_jobs import AskedJobs
from oar.api.jobs.script_options import with_script_options
from oar.api.workers import Desk, Outcome, problem_of, text_of
from oar.lib.facts.errors import NotAllowed, UserError
from oar.lib.facts.records import User
from oar.lib.io import allowed_networks
from oar.lib.submission import job_environment, preparation, submit
from oar.lib.submission.checks import EVERY_HOST
from oar.lib.submission.initial_request import initial_request
from oar.lib.submission.job_form import submission_of, words_of
from oar.lib.submission.job_keys import KeyPair
from oar.lib.submission.once import REPLAYED, AlreadyDone, Once
from oar.lib.submission.proposal import ImportedKey, Proposal
from oar.lib.submission.staging import StageWish, Staging, staged_file
from oar.lib.submission.submit import Submitted
from oar.lib.user_files import SilentProgram, UserFiles

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction

#: The command of a job whose script comes with the request, as oarsub stores that of one on its standard input.
SCRIPT_ONLY = "-"
_TOO_LATE = "the others took all the time (API_TIMEOUT): send it again"


class SubmitJobs(NamedTuple):
    """The task to submit the jobs of a request."""

    user: User
    asked: AskedJobs
    token: int | None = None  #: that is remembered with the jobs
    once: Once | None = None  #: the key of the request

    def run(self, desk: Desk) -> Outcome:
        """Submit.  Raises UserError, Unavailable."""
        return self.submit(desk, files_of(desk, self.user))

    def submit(self, desk: Desk, files: UserFiles) -> Outcome:
        """Submit, with the files of the user that are named.  Raises UserError, Unavailable."""
        _check_host(desk)
        asked = scanned(desk, self.user, files, self.asked)
        proposal = proposal_of(desk, self.user, asked)
        share = _Share(self, desk.config.api_idempotency_hours)
        try:
            staging, body = (
                Staging(desk.database, desk.config, self.user.name, files),
                _in_home_of(self.user, asked.file),
            )
            with staged_file(staging, body, proposal.spec.types, desk.warnings.append) as file_id:
                spec = proposal.spec._replace(file_id=file_id)
                submitted = submit.submit(desk.database, desk.config, proposal._replace(spec=spec), companion=share)
        except AlreadyDone as done:
            return _created(done.answer, REPLAYED)
        if asked.key.export is not None:
            _export_keys(desk, files, at_home(self.user, asked.key.export), submitted.keys)
        record = record_of(submitted)
        return _created({**record, "warnings": [*record["warnings"], *desk.warnings]})


class SubmitBatch(NamedTuple):
    """The task to submit several requests, each by itself."""

    tasks: Sequence[SubmitJobs]

    def run(self, desk: Desk) -> Outcome:
        """Submit them, in their order, until the time of a request is over.  Raises Unavailable."""
        deadline, files = time.monotonic() + desk.config.api_timeout, files_of(desk, self.tasks[0].user)
        items = [self._item(desk, task, files, deadline) for task in self.tasks]
        return Outcome(HTTPStatus.MULTI_STATUS, {"items": items})

    def _item(self, desk: Desk, task: SubmitJobs, files: UserFiles, deadline: float) -> dict[str, Any]:
        if time.monotonic() > deadline:
            late = problem_record(HTTPStatus.SERVICE_UNAVAILABLE, "too-late", _TOO_LATE)
            return {"status": late["status"], "problem": late}
        desk.warnings.clear()
        try:
            outcome = task.submit(desk, files)
        except (UserError, SilentProgram) as error:
            refused = problem_of(error)
            return {"status": int(refused.status), "problem": refused.record}
        return {"status": int(outcome.status), **outcome.record}


class _Share(NamedTuple):
    """What the API adds to the transaction of a submission."""

    task: SubmitJobs
    hours: int  #: for which keys are kept

    def begin(self, tx: "Transaction") -> None:
        """Take the key of the request.  Raises AlreadyDone, KeyReused."""
        if self.task.once:
            self.task.once.begin(tx, self.hours)

    def end(self, tx: "Transaction", submitted: Submitted) -> None:
        """Keep the answer, and which token it was."""
        if self.task.token:
            tx.api_tokens.remember(self.task.token, submitted.ids)
        if self.task.once:
            self.task.once.end(tx, record_of(submitted))


def record_of(submitted: Submitted) -> dict[str, Any]:
    """Return what is answered to a submission."""
    return {
        "id": submitted.ids[0],
        "ids": submitted.ids,
        "warnings": submitted.warnings,
        "output": text_of(submitted.output),
    }


def _created(record: Mapping[str, Any], headers: Mapping[str, str] = MappingProxyType({})) -> Outcome:
    return Outcome(HTTPStatus.CREATED, record, {"Location": f"/v1/jobs/{record['id']}", **headers})


def files_of(desk: Desk, user: User) -> UserFiles:
    """Return the way to the files of a user, for all that one task does with them."""
    return UserFiles(user, desk.config.oar_privilege_cmd, seconds=desk.config.api_timeout)


def scanned(desk: Desk, user: User, files: UserFiles, asked: AskedJobs) -> AskedJobs:
    """Return a request with the options of its script, if it asks for them.  Raises BadRequest, SilentProgram."""
    if not asked.scans:
        return asked
    return with_script_options(desk, files, partial(at_home, user), asked)


def proposal_of(desk: Desk, user: User, asked: AskedJobs) -> Proposal:
    """Return the proposal of a request, read and checked.  Raises BadSubmission, BadRequest."""
    config, home = desk.config, _home(user)
    form = asked.form._replace(
        stdout=_in_home(asked.form.stdout, home) or None, stderr=_in_home(asked.form.stderr, home) or None
    )
    command = asked.command or (SCRIPT_ONLY if asked.script is not None else "")
    submission = submission_of(form, user.name, command)
    env = job_environment.chosen(asked.env, {})
    spec = submission.spec._replace(
        parameters=asked.parameters,
        launching_directory=os.path.join(home, _in_home(form.directory, home)),
        info_type=config.oarsub_local_address or os.uname().nodename,
        initial_request=_line_of(asked, command),
        env=env if asked.script is None else {**env, job_environment.SCRIPT: asked.script},
    )
    proposal = preparation.prepare(submission._replace(spec=spec), config, int(time.time()))
    has_key = asked.key.is_granted(forced=config.oarsub_force_job_key)
    imported = ImportedKey(asked.key.private, asked.key.public) if asked.key.private is not None else None
    return proposal._replace(use_job_key=has_key, imported_key=imported if has_key else None)


def _export_keys(desk: Desk, files: UserFiles, path: str, keys: Mapping[int, KeyPair]) -> None:
    """Write the private key of each job to a file of the user; what cannot be written is a warning."""
    for job_id, key in keys.items():
        place = path.replace("%jobid%", str(job_id))
        try:
            files.write_secret(place, key.private)
        except (OSError, SilentProgram):
            desk.warnings.append(f"cannot write the key of job {job_id} to {place}.")


def _line_of(asked: AskedJobs, command: str) -> str:
    """Return the line of oarsub that asks for the same."""
    words = [*words_of(asked.form), *_env_words(asked), *asked.file.words]
    return initial_request([*words, *([command] if command else [])])


def _env_words(asked: AskedJobs) -> list[str]:
    return [word for each in asked.env for word in ("--env", each)]


def _check_host(desk: Desk) -> None:
    """Refuse to submit from a host outside ALLOWED_NETWORKS.  Raises NotAllowed."""
    config = desk.config
    if EVERY_HOST.issubset(config.allowed_networks):
        return
    allowed_networks.check_this_host(config.allowed_networks, config.server_hostname, config.server_port)


def _home(user: User) -> str:
    try:
        return pwd.getpwuid(user.uid).pw_dir
    except KeyError:
        raise NotAllowed(f"there is no user {user.name!r} on this machine") from None


def _in_home_of(user: User, body: StageWish) -> StageWish:
    """Return the file for the jobs, whose relative name counts from the home."""
    return body._replace(path=body.path and at_home(user, body.path))


def at_home(user: User, path: str) -> str:
    """Return the whole name of a file of a user, whose relative name counts from his home.  Raises NotAllowed."""
    home = _home(user)
    return os.path.join(home, _in_home(path, home))


def _in_home(path: str | None, home: str) -> str:
    """Return a path with the home of the user for ``~`` and ``$HOME`` at its beginning, '' for none."""
    for sign in ("~", "$HOME"):
        if path == sign or (path or "").startswith(f"{sign}/"):
            return home + (path or "").removeprefix(sign)
    return path or ""
