"""Programs with web pages that run in jobs (``oarsub --app``): which there are, and how their owner opens one."""

import pwd
from http import HTTPStatus
from typing import TYPE_CHECKING

from starlette.requests import Request
from typing_extensions import TypedDict

from oar.api.errors import STATUSES
from oar.api.parameters import JobId
from oar.api.responses import Answer, answer
from oar.api.routing import Router
from oar.api.service import Asking, asking, service_of
from oar.api.submission import this_host
from oar.lib.apps import session_file
from oar.lib.apps.definitions import read_apps
from oar.lib.base.errors import NotAllowed, UserError
from oar.lib.jobs.states import JobState
from oar.lib.submission.options import app_of
from oar.lib.user_files.files import UserFiles

if TYPE_CHECKING:
    from oar.lib.access.records import User
    from oar.lib.apps.session_file import AppSession
    from oar.lib.jobs.records import Job

router = Router("jobs")

#: For the user to replace, where no frontend is known.  The page explains it.
LOGIN_HOST = "LOGIN_HOST"


class AppItem(TypedDict):
    name: str
    title: str
    description: str


AppPage = TypedDict("AppPage", {"items": list[AppItem]})


class AppOpening(TypedDict):
    job_id: int
    app: str
    ready: bool
    host: str | None
    command: str | None
    url: str | None
    password: str | None


class NoApp(UserError):
    """The job runs no program with web pages."""


STATUSES[NoApp] = HTTPStatus.NOT_FOUND


@router.get("/v1/apps", "apps_list", "List the programs with web pages")
def apps_list(request: Request) -> AppPage:
    """Return the programs that a job of the type `app=NAME` can run (`oarsub --app`)."""
    return apps_record(asking(request))


def apps_record(who: Asking) -> AppPage:
    """Return the programs of the site by name."""
    apps = read_apps(who.config.apps_directory).items.values()
    items: list[AppItem] = [
        {"name": app.name, "title": app.title or app.name, "description": app.description}
        for app in sorted(apps, key=lambda app: app.name)
    ]
    return {"items": items}


@router.get("/v1/jobs/{job_id}/app", "job_app", "Open the program of a job", has_tag=False, record=AppOpening)
def job_app(request: Request, job_id: JobId) -> Answer:
    """Return how the owner of a job opens its program with web pages; nobody else may.

    `command` is the line to type on the user's computer, `url` the address to open there while it runs. Both are null
    until the program is `ready`. `command` ends with the frontend of the job, or with `LOGIN_HOST` if the job was
    submitted on the host of the API, to which users often cannot connect. `password` is null if the address contains
    the token. The response is secret: whoever has it acts as the owner of the job. A token needs the scope `rw`.
    """
    who = asking(request)
    user = who.caller.changing()
    with who.database.snapshot() as tx:
        job, run = tx.jobs.get(job_id), tx.job_runs.find(job_id)
        name = app_of(tx.jobs.types([job_id]).get(job_id, ()))
    _check(user, job, name)
    host = run.head_host if run and job.state is JobState.RUNNING else None
    with service_of(request).reading(user.name):
        session = _session(who, user, job_id) if host else None
    is_of_frontend = job.submission_host != this_host(who.config)
    login = f"{job.user}@{job.submission_host if is_of_frontend else LOGIN_HOST}"
    record = _opening(job, name, host, session, login)
    return answer(record, headers={"Cache-Control": "no-store"})


def _check(user: "User", job: "Job", name: str) -> None:
    """Raise NotAllowed for the job of another user, NoApp for one without a program."""
    if user.name != job.user:
        raise NotAllowed(f"the program of job {job.id} is for its owner")
    if not name:
        raise NoApp(f"job {job.id} has no program with web pages: submit one with the type app=NAME")
    if job.is_final:
        raise NoApp(f"job {job.id} has ended: submit another one with the type app={name}")


def _session(who: Asking, user: "User", job_id: int) -> "AppSession | None":
    """Return the session of the program, read with the rights of the user; None until it is ready."""
    try:
        home = pwd.getpwuid(user.uid).pw_dir
    except KeyError:
        return None
    files = UserFiles(user, who.config.oar_privilege_cmd, seconds=who.config.api_timeout)
    path = session_file.session_path(home, who.config.server_hostname, job_id)
    try:
        data = files.read_part(path, 0, session_file.LARGEST).data
    except OSError:
        return None
    return session_file.parse_session(data, job_id, who.config.apps_ports)


def _opening(job: "Job", name: str, host: str | None, session: "AppSession | None", login: str) -> AppOpening:
    """Return the record; ``host``: of the database, never of the file of the user; ``login``: user and frontend."""
    command = url = password = None
    if host and session:
        command = session_file.ssh_command(host, session, login)
        url = session_file.local_url(session)
        password = None if session.has_token_in_path else session.token
    return {
        "job_id": job.id,
        "app": name,
        "ready": command is not None,
        "host": host,
        "command": command,
        "url": url,
        "password": password,
    }
