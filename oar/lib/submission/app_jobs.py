"""Jobs that run a program with web pages: the type ``app=NAME`` gives the job its command and its script."""

from typing import TYPE_CHECKING

from oar.lib.base.errors import BadRequest
from oar.lib.jobs.states import JobTypeName
from oar.lib.submission import job_environment
from oar.lib.submission.checks import BadSubmission, Code
from oar.lib.submission.options import JobOptions, app_of
from oar.lib.submission.resource_request import JobTypes

if TYPE_CHECKING:
    from oar.lib.config.files import Config
    from oar.lib.jobs.records import JobSpec

#: Types of jobs whose command does not run on a node of the job, or does not run at all.
_WITHOUT_NODE = (JobTypeName.NOOP, JobTypeName.DEPLOY, JobTypeName.COSYSTEM, JobTypeName.DESKTOP_COMPUTING)


def app_type(name: str) -> str:
    """Return the job type of a program."""
    return f"{JobTypeName.APP}={name}"


def with_app(options: JobOptions, spec: "JobSpec", config: "Config") -> "JobSpec":
    """Return the job with the program that its type names.  Raises BadSubmission, ConfigError."""
    name = app_of(spec.types)
    if not name:
        return spec
    _check(options, spec, name)
    from oar.lib.apps.definitions import find_app
    from oar.lib.apps.launcher import script_of

    try:
        app = find_app(config.apps_directory, name)
    except BadRequest as error:
        raise BadSubmission(Code.REQUEST, str(error), verify=False) from None
    script = script_of(app, config.apps_ports, config.server_hostname)
    env = {**spec.env, job_environment.SCRIPT: script}
    return spec._replace(command=name, name=spec.name or name, env=env)


def _check(options: JobOptions, spec: "JobSpec", name: str) -> None:
    """Raise BadSubmission if the options do not fit a program with web pages."""
    types = JobTypes(spec.types)
    other = next((kind for kind in _WITHOUT_NODE if kind in types), None)
    if len(types.values(JobTypeName.APP)) > 1:
        raise _refusal("a job has one program: give --app once")
    if spec.command.strip() not in ("", name) or job_environment.SCRIPT in spec.env:
        raise _refusal(f"the program {name!r} is the command of the job: give no other command")
    if options.interactive:
        raise _refusal("a program with web pages needs no shell: use --app without -I")
    if spec.array_size != 1 or spec.parameters is not None:
        raise _refusal("a program with web pages cannot be an array: use --app without --array")
    if other is not None:
        raise _refusal(f"a job of the type {other} runs no program on its nodes: use --app without -t {other}")


def _refusal(text: str) -> BadSubmission:
    return BadSubmission(Code.REQUEST, f"{text}.", verify=False)
