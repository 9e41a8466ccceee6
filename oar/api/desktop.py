"""Agents of desktop computers: their requests, and the results of jobs for the owners.

See docs/design/desktop.rst, "Protocol".
"""

import os
import re
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import IO, TYPE_CHECKING, Annotated

from pydantic import BaseModel, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse

from oar.api.authentication import AgentToken, check_encrypted
from oar.api.concurrency import in_thread
from oar.api.errors import STATUSES, bad_request_of
from oar.api.job_output import OutputNotHere
from oar.api.parameters import LARGEST_ID, STRICT, JobId
from oar.api.request_bodies import MULTIPART, FileBegins, FileData, FormField, agent_boundary_of, form_events
from oar.api.responses import Answer, answer
from oar.api.routing import Router
from oar.api.service import asking, service_of
from oar.lib.access.scopes import JobAct, Scopes
from oar.lib.base.errors import BadRequest, NotAllowed, WrongState
from oar.lib.desktop import pull, stageouts
from oar.lib.desktop.records import AgentCall, AgentJob, AgentJobState, AgentRequest

if TYPE_CHECKING:
    from oar.api.service import Service

router = Router("jobs")

#: Jobs in a request of an agent, characters of a reason, and bytes that are written at a time, at most.
MAX_JOBS, MAX_REASON, BLOCK = 1000, 1000, 1 << 20
_ARCHIVE = "application/gzip"
_JOB_ID = re.compile(r"[1-9][0-9]{0,17}")
#: Any text without spaces and control characters; whether such a host exists is checked later.
_HOST = r"^[^\x00-\x20]+$"

STATUSES[pull.UnknownComputer] = HTTPStatus.NOT_FOUND
STATUSES[pull.NoDesktopComputer] = HTTPStatus.CONFLICT


class ToldJob(BaseModel):
    """A job in a request of an agent."""

    model_config = STRICT

    state: AgentJobState = Field(strict=False)
    status: Annotated[int, Field(ge=0, le=0xFFFF)] | None = None
    reason: str = Field("", max_length=MAX_REASON)

    @property
    def job(self) -> AgentJob:
        """The same for the server; a text of others is shown to people."""
        text = "".join(letter if letter.isprintable() else "?" for letter in self.reason)
        return AgentJob(self.state, self.status, text)


class AgentQuestion(BaseModel):
    """A question of an agent."""

    model_config = STRICT

    request: AgentRequest = Field(strict=False)
    hostname: str = Field(min_length=1, max_length=255, pattern=_HOST)
    agent: str = Field("", max_length=64, pattern=r"^[0-9a-zA-Z_-]*$")
    quit: bool = False
    jobs: dict[Annotated[str, Field(pattern=r"^[1-9][0-9]{0,17}$")], ToldJob] = Field({}, max_length=MAX_JOBS)
    job_id: int | None = Field(None, ge=1, le=LARGEST_ID)


@router.post("/oar-cgi")
async def oar_cgi(request: Request) -> Answer:
    """Answer an agent."""
    agent = await in_thread(_identify, request)
    boundary = agent_boundary_of(request.headers.get("content-type", ""))
    if boundary is not None:
        return await _keep_results(request, agent, boundary)
    if request.headers.get("content-type", "").startswith(MULTIPART):
        raise BadRequest("the Content-Type of the form must have a boundary")  # it may be large, and is no question
    question = _question(await request.body())
    return await in_thread(_answer, request, agent, question)


def _identify(request: Request) -> AgentToken:
    """Return the token of an agent.  Raises Unidentified, NotAllowed."""
    service = service_of(request)
    check_encrypted(request, "a token of an agent")
    return service.identities.identify_agent(request, service.runtime.config)


def _question(body: bytes) -> AgentQuestion:
    """Return the question of an agent.  Raises BadRequest."""
    try:
        return AgentQuestion.model_validate_json(body)
    except ValidationError as error:
        raise bad_request_of(error.errors(include_url=False, include_input=False)) from None


def _check_host(request: Request, agent: AgentToken, host: str) -> None:
    """Check that a token belongs to a computer, and count the request.  Raises NotAllowed, TooOften."""
    if not agent.scopes.is_agent_of(host):
        raise NotAllowed(f"the token does not belong to {host[:255]!r}")
    service_of(request).count_agent(request, agent, host)


def _answer(request: Request, agent: AgentToken, question: AgentQuestion) -> Answer:
    _check_host(request, agent, question.hostname)
    service = service_of(request)
    if question.request is AgentRequest.PULL:
        return _pull(service, agent.scopes, question)
    if question.request is AgentRequest.STAGEIN:
        return _staged_file(service, question)
    raise BadRequest("STAGEOUT must be a form with a file")


def _pull(service: "Service", scopes: Scopes, question: AgentQuestion) -> Answer:
    config = service.runtime.config
    jobs = {int(text): job.job for text, job in question.jobs.items()}
    call = AgentCall(question.hostname, jobs, question.quit, question.agent)
    may_create = config.desktop_computing_allow_create_node and scopes.is_any_agent
    with service.warnings(), service.runtime.database.begin() as tx:
        response = pull.pull(tx, call, config, may_create=may_create)
    return answer(response.record)


def _staged_file(service: "Service", question: AgentQuestion) -> Answer:
    """Return the file that a user gave to a job of an agent.  Raises BadRequest, WrongState, OutputNotHere."""
    job_id = _job_of(question.job_id)
    with service.runtime.database.snapshot() as tx:
        _check_job(tx.desktop_computers.is_job_of(job_id, question.hostname), job_id, question.hostname)
        staged = tx.desktop_computers.input_of(job_id)
    if staged is None or not os.path.isfile(staged.location):
        raise OutputNotHere(f"job {job_id} has no file")
    return FileResponse(staged.location, media_type="application/octet-stream")


def _job_of(job_id: int | None) -> int:
    if job_id is None:
        raise BadRequest("job_id: a value is required")
    return job_id


def _check_job(is_there: bool, job_id: int, host: str) -> None:
    if not is_there:
        raise WrongState(f"{host} does not run job {job_id}")


# -- results ----------------------------------------------------------------------------------------------------------


async def _keep_results(request: Request, agent: AgentToken, boundary: str) -> Answer:
    """Store the results of a job, which come as the file of a form.  Raises BadRequest, NotAllowed, WrongState."""
    service = service_of(request)
    request.state.seat.give_back()
    fields: dict[str, str] = {}
    events = form_events(boundary, request.stream())
    async for event in events:
        if isinstance(event, FormField):
            fields[event.name] = event.value
        elif isinstance(event, FileBegins):
            break
    else:
        raise BadRequest("the form must have a file")
    host = fields.get("hostname", "")
    job_id = await in_thread(_check_upload, request, agent, fields)
    with service.uploads.one_more(host, service.runtime.config.api_max_follows):
        await _store(service, job_id, events)
    return answer({"status": "created"})


def _check_upload(request: Request, agent: AgentToken, fields: dict[str, str]) -> int:
    """Return the job whose results an agent sends.  Raises BadRequest, NotAllowed, WrongState, TooOften."""
    host, text = fields.get("hostname", ""), fields.get("job_id", "")
    if fields.get("request") != AgentRequest.STAGEOUT or not re.fullmatch(_HOST, host) or not _JOB_ID.fullmatch(text):
        raise BadRequest("the form must have the fields request=STAGEOUT, hostname, job_id and file")
    _check_host(request, agent, host)
    with service_of(request).runtime.database.snapshot() as tx:
        _check_job(tx.desktop_computers.is_job_of(int(text), host), int(text), host)
    return int(text)


async def _store(service: "Service", job_id: int, events: "AsyncIterator[object]") -> None:
    """Write a file as it comes; it has its name when all of it is there."""
    config = service.runtime.config
    keeping = stageouts.new_file(config, job_id)
    file: IO[bytes] = await in_thread(keeping.__enter__)
    try:
        left = config.api_max_upload
        async for event in events:
            if isinstance(event, FileData):
                left -= len(event.data)
                _check_size(left)
                await in_thread(file.write, event.data)
    except BaseException as error:
        keeping.__exit__(type(error), error, error.__traceback__)
        raise
    await in_thread(keeping.__exit__, None, None, None)


def _check_size(left: int) -> None:
    if left < 0:
        raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)


@router.get(
    "/v1/jobs/{job_id}/stageout",
    "job_stageout",
    "Download the results of a desktop computing job",
    has_tag=False,
    media_types=("application/gzip",),
)
def job_stageout(request: Request, job_id: JobId) -> Answer:
    """Return the tar archive that the agent of a desktop computer uploaded; 404 if there is none."""
    who = asking(request)
    user = who.caller.acting(JobAct.READ_OUTPUT, [job_id])
    job = who.database.look(lambda tx: tx.jobs.get(job_id))
    if user.name != job.user:
        raise NotAllowed(f"only the owner of job {job_id} may read its results")
    path = stageouts.path_of(who.config, job_id)
    if not os.path.isfile(path):
        raise OutputNotHere(f"there are no results of job {job_id}")
    return FileResponse(path, media_type=_ARCHIVE, filename=f"{job_id}.tgz")
