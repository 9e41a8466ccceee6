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

from pydantic import BaseModel, Field
from starlette.requests import Request

from oar.api.concurrency import in_thread
from oar.api.errors import problem_record
from oar.api.job_request import AskedJobs, JobRequest
from oar.api.long_polling import check_wait, with_answer
from oar.api.parameters import LARGEST_ID, STRICT, IdempotencyKey, JobId
from oar.api.records import ResubmittedJob, Submission, SubmittedJobs
from oar.api.responses import Answer, answer
from oar.api.routing import Router
from oar.api.service import Asking, asking, run_task, service_of
from oar.api.workers import Desk, Outcome, answer_of, problem_of, text_of
from oar.lib.access.records import User
from oar.lib.access.scopes import JobAct
from oar.lib.base import allowed_networks
from oar.lib.base.errors import BadRequest, NotAllowed, UserError
from oar.lib.config.files import Config
from oar.lib.submission import job_environment, preparation, resubmission, submit
from oar.lib.submission.checks import EVERY_HOST
from oar.lib.submission.job_keys import ImportedKey, KeyPair, is_key_requested
from oar.lib.submission.once import REPLAYED, AlreadyDone, Once
from oar.lib.submission.options import (
    OPTIONS,
    UNRECORDED,
    Kind,
    add_script_options,
    initial_request,
    parameters_of,
    spec_of,
    words_of,
)
from oar.lib.submission.preparation import Proposal
from oar.lib.submission.script_lines import doubts, joined, values_of, with_place
from oar.lib.submission.staging import Staging, staged_file
from oar.lib.submission.submit import Submitted
from oar.lib.user_files.files import SilentProgram, UserFiles

if TYPE_CHECKING:
    from oar.api.workers import WorkerTask
    from oar.lib.db.transaction import Transaction

router = Router("jobs")


class JobBatch(BaseModel):
    """Several job requests. Submit similar jobs as an array."""

    model_config = STRICT

    jobs: list[JobRequest] = Field(min_length=1, max_length=1000)


@router.post(
    "/v1/jobs",
    "job_submit",
    "Submit a job or a job array",
    status=HTTPStatus.CREATED,
    record=Submission,
    has_location=True,
)
async def job_submit(
    request: Request,
    body: JobRequest,
    key: IdempotencyKey = None,
    wait: Annotated[int, Field(ge=0, le=LARGEST_ID, description="Seconds to wait for the decision, at most 30.")] = 0,
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
    once = Once.of(user.name, key, request.url.path, body.model_dump(exclude_unset=True)) if key else None
    return run_task(request, SubmitJobs(user, body.asked, caller.remembering, once), long=body.asked.uses_files)


@router.post(
    "/v1/job-batches", "jobs_submit", "Submit several jobs", status=HTTPStatus.MULTI_STATUS, record=SubmittedJobs
)
def jobs_submit(request: Request, body: JobBatch, key: IdempotencyKey = None) -> Answer:
    """Submit the jobs one after another, each in its own transaction. Return a result for each job.

    A request that is repeated with the same key submits only what was not submitted before.
    """
    caller = asking(request).caller
    user = caller.submitting()
    tasks = []
    for index, job in enumerate(body.jobs):
        sent = job.model_dump(exclude_unset=True)
        once = Once.of(user.name, f"{key} #{index}", request.url.path, sent) if key else None
        tasks.append(SubmitJobs(user, job.asked, caller.remembering, once))
    return by_worker(request, SubmitBatch(tasks), long=True)


@router.post(
    "/v1/jobs/{job_id}/resubmission",
    "job_resubmit",
    "Resubmit a job",
    status=HTTPStatus.CREATED,
    record=ResubmittedJob,
    has_location=True,
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
_TOO_LATE = "the other requests took all the time (API_TIMEOUT). Send it again."


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
        options, proposal = request.options, proposal_of(desk, self.user, request)
        share = _Share(self, desk.config.api_idempotency_hours)
        staging = Staging(desk.database, desk.config, self.user.name, files)
        if options.stagein:
            options = options._replace(stagein=at_home(self.user, options.stagein))
        try:
            with staged_file(staging, options, proposal.spec.types, desk.warnings.append) as file_id:
                spec = proposal.spec._replace(file_id=file_id)
                submitted = submit.submit(desk.database, desk.config, proposal._replace(spec=spec), companion=share)
        except AlreadyDone as done:
            return _created(done.answer, REPLAYED)
        if options.key_export is not None:
            _export_keys(desk, files, at_home(self.user, options.key_export), submitted.keys)
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
            tx.access.record_submitted_jobs(self.task.token, submitted.ids)
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
    return with_script_options(desk, files, partial(at_home, user), request) if request.scans else request


def this_host(config: Config) -> str:
    """Return the host of the API, as jobs that are submitted here name it."""
    return config.oarsub_local_address or os.uname().nodename


def proposal_of(desk: Desk, user: User, request: AskedJobs) -> Proposal:
    """Return the proposal of a request, read and checked.  Raises BadSubmission, BadRequest."""
    config, home, options = desk.config, _home(user), request.options
    command = request.command or (SCRIPT_ONLY if request.script is not None else "")
    env = job_environment.chosen(options.environment, {})
    spec = spec_of(options, user.name, command)._replace(
        stdout_file=_in_home(options.stdout, home) or None,
        stderr_file=_in_home(options.stderr, home) or None,
        parameters=request.parameters,
        launching_directory=os.path.join(home, _in_home(options.directory, home)),
        info_type=this_host(config),
        initial_request=initial_request([*words_of(options), *([command] if command else [])]),
        env=env if request.script is None else {**env, job_environment.SCRIPT: request.script},
    )
    proposal = preparation.prepare(options, spec, config, int(time.time()))
    has_key = is_key_requested(options, forced=config.oarsub_force_job_key)
    imported = ImportedKey(options.key_inline, options.public_key) if options.key_inline is not None else None
    return proposal._replace(use_job_key=has_key, imported_key=imported if has_key else None)


def _export_keys(desk: Desk, files: UserFiles, path: str, keys: Mapping[int, KeyPair]) -> None:
    """Write the private key of each job to a file of the user; what cannot be written is a warning."""
    for job_id, key in keys.items():
        file = path.replace("%jobid%", str(job_id))
        try:
            files.write_secret(file, key.private)
        except (OSError, SilentProgram):
            desk.warnings.append(f"cannot write the key of job {job_id} to {file}.")


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


def with_script_options(desk: Desk, files: UserFiles, absolute: Absolute, request: AskedJobs) -> AskedJobs:
    """Return a request with the options in the lines of its script; ``absolute``: returns absolute names of files.

    Raises BadRequest.
    """
    text = request.script if request.script is not None else _script_of(files, absolute, request.command)
    values = values_of(text)
    desk.warnings.extend(doubts("the script", text, has_options=bool(values)))
    options = request.options

    def report_ignored(name: str, value: object) -> None:
        if name not in _SILENT:
            shown = " ".join(map(str, values[name]))
            desk.warnings.append(f"ignore script value for {OPTIONS[name].long}: {shown}; the request has another one.")

    for name in (field for field in OPTIONS if field in values and field not in _SILENT):
        is_single = OPTIONS[name].kind not in (Kind.TEXTS, Kind.CONDITION)
        if is_single and len(set(values[name])) > 1:
            last = values[name][-1]
            desk.warnings.append(f"{OPTIONS[name].long} is given several times: {last}: the last value counts.")
    options = add_script_options(
        options,
        {name for name, value in options._asdict().items() if value is not False and value not in (None, "", ())},
        {name: joined(name, occurrences) for name, occurrences in values.items()},
        replace_requests=desk.config.oarsub_script_resources == "replace",
        report_ignored=report_ignored,
    )
    if options.key_file is not None:
        private = options.key_inline or _read_file(files, absolute, options.key_file)
        options = options._replace(key_inline=private, key_file=None)
    command, parameters = request.command, request.parameters
    if request.script is None and not options.directory:
        command = with_place(command)
    if parameters is None and options.parameter_file is not None:
        parameters = parameters_of(_read_file(files, absolute, options.parameter_file))
    return request._replace(scans=False, options=options, command=command, parameters=parameters)


#: Options of which no warning is given when the request overrides those of its script: some are secret.
_SILENT = UNRECORDED | {"stagein", "stagein_md5sum", "environment"}


def _script_of(files: UserFiles, absolute: Absolute, command: str) -> str:
    try:
        arguments = shlex.split(command)
    except ValueError:
        arguments = command.split()
    if not arguments:
        raise BadRequest("scanscript: must be used with a script or a command")
    return _read_file(files, absolute, arguments[0])


def _read_file(files: UserFiles, absolute: Absolute, path: str) -> str:
    if "\0" in path:
        raise BadRequest("scanscript: the name of a file must not contain NUL")
    try:
        return files.read(absolute(path)).data.decode("utf-8", "replace")
    except OSError as error:
        raise BadRequest(f"scanscript: {path} cannot be read: {error.strerror or 'permission denied'}") from None
