"""Submission of jobs: the routes, and the task of a worker that takes the same steps as oarsub.

A job belongs to the caller.  Relative file names are relative to his home; the environment of his shell is unknown.
"""

import os
import pwd
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field

from oar.api.concurrency import in_thread
from oar.api.errors import problem_record
from oar.api.job_request import AskedJobs, JobRequest
from oar.api.long_polling import check_wait, with_answer
from oar.api.parameters import LARGEST_ID, STRICT, IdempotencyKey, JobId
from oar.api.responses import Answer, answer
from oar.api.routing import ApiRoute
from oar.api.service import Asking, asking, run_task, service_of
from oar.api.workers import Desk, Outcome, answer_of, problem_of, text_of
from oar.lib.access.records import User
from oar.lib.access.scopes import JobAct
from oar.lib.base import allowed_networks
from oar.lib.base.errors import BadRequest, NotAllowed, UserError
from oar.lib.submission import job_environment, preparation, resubmission, submit
from oar.lib.submission.checks import EVERY_HOST
from oar.lib.submission.initial_request import initial_request
from oar.lib.submission.job_form import JobForm, parameters_of, submission_of, words_of
from oar.lib.submission.job_keys import KeyPair
from oar.lib.submission.once import REPLAYED, AlreadyDone, Once
from oar.lib.submission.proposal import ImportedKey, Proposal
from oar.lib.submission.script_lines import Argument, Value, doubts, joined, option_of, values_of, with_place
from oar.lib.submission.staging import StageWish, Staging, staged_file
from oar.lib.submission.submit import Submitted
from oar.lib.user_files.files import SilentProgram, UserFiles

if TYPE_CHECKING:
    from oar.api.workers import WorkerTask
    from oar.lib.db.transaction import Transaction

router = APIRouter(tags=["jobs"], route_class=ApiRoute)


class JobBatch(BaseModel):
    """Several job requests. Submit similar jobs as an array."""

    model_config = STRICT

    jobs: list[JobRequest] = Field(min_length=1, max_length=1000)


@router.post(
    "/v1/jobs", operation_id="job_submit", summary="Submit a job or a job array", status_code=HTTPStatus.CREATED
)
async def job_submit(
    request: Request,
    body: JobRequest,
    key: IdempotencyKey = None,
    wait: Annotated[int, Query(ge=0, le=LARGEST_ID, description="Seconds to wait for the decision, at most 30.")] = 0,
) -> Answer:
    """Submit a job or a job array for the caller, as `oarsub` does.

    With `wait`, a `reservation` waits for the decision of the scheduler: `reservation` is `Scheduled`, or `toSchedule`
    if it is still undecided. A rejected reservation is 409 (`reservation-refused`).
    """
    check_wait(wait, body.reservation)
    outcome = await in_thread(_submitted, request, body, key)
    return answer_of(request, await with_answer(request, outcome, wait) if wait else outcome)


def _submitted(request: Request, body: JobRequest, key: str | None) -> "Outcome":
    caller = asking(request).caller
    user = caller.submitting()
    once = Once.of(user.name, key, f"{request.url.path} {body.model_dump_json()}") if key else None
    return run_task(request, SubmitJobs(user, body.asked, caller.remembering, once), long=body.asked.uses_files)


@router.post(
    "/v1/job-batches", operation_id="jobs_submit", summary="Submit several jobs", status_code=HTTPStatus.MULTI_STATUS
)
def jobs_submit(request: Request, body: JobBatch, key: IdempotencyKey = None) -> Answer:
    """Submit the jobs one after another, each in its own transaction. Return a result for each job.

    A request that is repeated with the same key submits only what was not submitted before.
    """
    caller = asking(request).caller
    user = caller.submitting()
    tasks = [
        SubmitJobs(
            user,
            job.asked,
            caller.remembering,
            Once.of(user.name, f"{key} #{index}", f"{request.url.path} {job.model_dump_json()}") if key else None,
        )
        for index, job in enumerate(body.jobs)
    ]
    return by_worker(request, SubmitBatch(tasks), long=True)


@router.post(
    "/v1/jobs/{job_id}/resubmission",
    operation_id="job_resubmit",
    summary="Resubmit a job",
    status_code=HTTPStatus.CREATED,
)
def job_resubmit(request: Request, job_id: JobId, key: IdempotencyKey = None) -> Answer:
    """Submit a copy of an ended job, as `oarsub --resubmit` does."""
    record, headers = resubmitted(request, asking(request), job_id, key, request.url.path)
    headers["Location"] = f"/v1/jobs/{record['id']}"
    return answer(record, status=HTTPStatus.CREATED, headers=headers)


def resubmitted(
    request: Request, who: Asking, job_id: int, key: str | None, what: str
) -> tuple[Mapping[str, Any], dict[str, str]]:
    """Submit a copy of a job once for a key of the client; the record of the new job, and headers of the answer.

    ``what`` distinguishes this request from others with the same key.  Raises Unidentified, NotAllowed, UserError.
    """
    user = who.caller.acting(JobAct.RESUBMIT, [job_id])
    once = Once.of(user.name, key, what) if key else None
    headers: dict[str, str] = {}
    try:
        with service_of(request).warnings() as warnings, who.database.begin() as tx:
            if once:
                once.begin(tx, who.config.api_idempotency_hours)
            record: Mapping[str, Any] = {"id": resubmission.resubmit(tx, who.config, user, job_id)}
            if once:
                once.end(tx, record)
    except AlreadyDone as done:
        record, headers = done.answer, dict(REPLAYED)
    return {**record, "warnings": warnings}, headers


def by_worker(request: Request, task: "WorkerTask", *, long: bool = False) -> Answer:
    return answer_of(request, run_task(request, task, long=long))


#: The command of a job whose script is in the request, as oarsub stores it for a script on its standard input.
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
        request = scanned(desk, self.user, files, self.asked)
        proposal = proposal_of(desk, self.user, request)
        share = _Share(self, desk.config.api_idempotency_hours)
        try:
            staging, body = (
                Staging(desk.database, desk.config, self.user.name, files),
                _in_home_of(self.user, request.file),
            )
            with staged_file(staging, body, proposal.spec.types, desk.warnings.append) as file_id:
                spec = proposal.spec._replace(file_id=file_id)
                submitted = submit.submit(desk.database, desk.config, proposal._replace(spec=spec), companion=share)
        except AlreadyDone as done:
            return _created(done.answer, REPLAYED)
        if request.key.export is not None:
            _export_keys(desk, files, at_home(self.user, request.key.export), submitted.keys)
        record = record_of(submitted)
        return _created({**record, "warnings": [*record["warnings"], *desk.warnings]})


class SubmitBatch(NamedTuple):
    """The task to submit several requests, each by itself."""

    tasks: Sequence[SubmitJobs]

    def run(self, desk: Desk) -> Outcome:
        """Submit the jobs in their order, until the time limit of a request.  Raises Unavailable."""
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
    """The idempotency key and the token of a request, recorded in the transaction of the submission."""

    task: SubmitJobs
    hours: int  #: for which keys are kept

    def begin(self, tx: "Transaction") -> None:
        """Reserve the key of the request.  Raises AlreadyDone, KeyReused."""
        if self.task.once:
            self.task.once.begin(tx, self.hours)

    def end(self, tx: "Transaction", submitted: Submitted) -> None:
        """Record the response and the token."""
        if self.task.token:
            tx.access.remember_token(self.task.token, submitted.ids)
        if self.task.once:
            self.task.once.end(tx, record_of(submitted))


def record_of(submitted: Submitted) -> dict[str, Any]:
    """Return the record of a submission."""
    return {
        "id": submitted.ids[0],
        "ids": submitted.ids,
        "warnings": submitted.warnings,
        "output": text_of(submitted.output),
    }


def _created(record: Mapping[str, Any], headers: Mapping[str, str] = MappingProxyType({})) -> Outcome:
    return Outcome(HTTPStatus.CREATED, record, {"Location": f"/v1/jobs/{record['id']}", **headers})


def files_of(desk: Desk, user: User) -> UserFiles:
    """Return access to the files of a user, for one task."""
    return UserFiles(user, desk.config.oar_privilege_cmd, seconds=desk.config.api_timeout)


def scanned(desk: Desk, user: User, files: UserFiles, request: AskedJobs) -> AskedJobs:
    """Return a request with the options of its script, if ``scans`` is set.  Raises BadRequest, SilentProgram."""
    if not request.scans:
        return request
    return with_script_options(desk, files, partial(at_home, user), request)


def proposal_of(desk: Desk, user: User, request: AskedJobs) -> Proposal:
    """Return the proposal of a request, read and checked.  Raises BadSubmission, BadRequest."""
    config, home = desk.config, _home(user)
    form = request.form._replace(
        stdout=_in_home(request.form.stdout, home) or None, stderr=_in_home(request.form.stderr, home) or None
    )
    command = request.command or (SCRIPT_ONLY if request.script is not None else "")
    submission = submission_of(form, user.name, command)
    env = job_environment.chosen(request.env, {})
    spec = submission.spec._replace(
        parameters=request.parameters,
        launching_directory=os.path.join(home, _in_home(form.directory, home)),
        info_type=config.oarsub_local_address or os.uname().nodename,
        initial_request=_line_of(request, command),
        env=env if request.script is None else {**env, job_environment.SCRIPT: request.script},
    )
    proposal = preparation.prepare(submission._replace(spec=spec), config, int(time.time()))
    has_key = request.key.is_granted(forced=config.oarsub_force_job_key)
    imported = ImportedKey(request.key.private, request.key.public) if request.key.private is not None else None
    return proposal._replace(use_job_key=has_key, imported_key=imported if has_key else None)


def _export_keys(desk: Desk, files: UserFiles, path: str, keys: Mapping[int, KeyPair]) -> None:
    """Write the private key of each job to a file of the user; what cannot be written is a warning."""
    for job_id, key in keys.items():
        file = path.replace("%jobid%", str(job_id))
        try:
            files.write_secret(file, key.private)
        except (OSError, SilentProgram):
            desk.warnings.append(f"cannot write the key of job {job_id} to {file}.")


def _line_of(request: AskedJobs, command: str) -> str:
    """Return the equivalent command line of oarsub."""
    options = [*words_of(request.form), *_env_words(request), *request.file.words]
    return initial_request([*options, *([command] if command else [])])


def _env_words(request: AskedJobs) -> list[str]:
    return [option for variable in request.env for option in ("--env", variable)]


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


Absolute = Callable[[str], str]

#: Options whose values in the script are added after those of the request.
ADDED = frozenset({"requests", "types", "dependencies"})


def with_script_options(desk: "Desk", files: "UserFiles", absolute: Absolute, request: "AskedJobs") -> "AskedJobs":
    """Return a request with the options in the lines of its script; ``absolute``: returns absolute names of files.

    Raises BadRequest.
    """
    text = request.script if request.script is not None else _script_of(files, absolute, request.command)
    values = values_of(text)
    desk.warnings.extend(doubts("the script", text, has_options=bool(values)))
    merged = request._replace(scans=False, form=_form_with_script(desk, request.form, values))
    if request.script is None and not merged.form.directory:
        merged = merged._replace(command=with_place(request.command))
    if "parameter_file" in values and request.parameters is None:
        merged = merged._replace(parameters=parameters_of(_read_file(files, absolute, values["parameter_file"][-1])))
    last_values = {name: str(occurrences[-1]) for name, occurrences in values.items()}
    environment = tuple(map(str, values.get("environment", ())))
    key = request.key._replace(
        use=request.key.use or "use_job_key" in values,
        private=request.key.private or last_values.get("key_inline") or _key_file(files, absolute, values),
        public=request.key.public or last_values.get("public_key"),
        export=request.key.export or last_values.get("key_export"),
    )
    file = request.file._replace(
        path=request.file.path or last_values.get("stagein"),
        md5sum=request.file.md5sum or last_values.get("stagein_md5sum"),
    )
    return merged._replace(env=(*environment, *request.env), key=key, file=file)


def _form_with_script(desk: "Desk", form: JobForm, values: Mapping[str, Sequence[Value]]) -> JobForm:
    """Return a form with the values of a script; values that the request has, too, are ignored with a warning."""
    replaces = desk.config.oarsub_script_resources == "replace" and bool(form.requests)
    changes: dict[str, Any] = {}
    for name in (field for field in JobForm._fields if field in values):
        option, typed = option_of(name), getattr(form, name)
        value = joined(option, values[name])
        if option.kind is not Argument.TEXTS and name != "properties" and len(set(values[name])) > 1:
            desk.warnings.append(f"{option.long} is given several times: {value}: the last value counts.")
        if name in ADDED and not (name == "requests" and replaces):
            changes[name] = (*typed, *values[name])
        elif typed is False or typed in (None, "", ()):
            changes[name] = value
        elif option.kind is not Argument.FLAG:
            shown = " ".join(map(str, values[name]))
            desk.warnings.append(f"ignore script value for {option.long}: {shown}; the request has another one.")
    return form._replace(**changes)


def _script_of(files: "UserFiles", absolute: Absolute, command: str) -> str:
    """Return the text of the script that a command begins with.  Raises BadRequest."""
    try:
        arguments = shlex.split(command)
    except ValueError:
        arguments = command.split()
    if not arguments:
        raise BadRequest("scanscript: there is no script and no command")
    return _read_file(files, absolute, arguments[0])


def _key_file(files: "UserFiles", absolute: Absolute, values: Mapping[str, Sequence[Value]]) -> str | None:
    return _read_file(files, absolute, values["key_file"][-1]) if "key_file" in values else None


def _read_file(files: "UserFiles", absolute: Absolute, path: Value) -> str:
    """Return the text of a file of the user.  Raises BadRequest."""
    if "\0" in str(path):
        raise BadRequest("scanscript: a name of a file holds no NUL")
    try:
        return files.read(absolute(str(path))).data.decode("utf-8", "replace")
    except OSError as error:
        raise BadRequest(f"scanscript: {path} cannot be read: {error.strerror or 'not with your rights'}") from None
