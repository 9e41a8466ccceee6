"""The options of oarsub that describe a job, in the same form for the commands and the API."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from oar.lib.jobs.records import JobSpec
from oar.lib.jobs.states import JobTypeName
from oar.lib.submission.proposal import Submission

#: Whether a job that can never run in its advance reservation is refused, or waits.
VERIFICATIONS = (REFUSE, ACCEPT) = ("e", "n")


class ArraySize(NamedTuple):
    """The number of jobs of an array, and how many may run at the same time (None: all)."""

    size: int
    limit: int | None = None

    def __str__(self) -> str:
        """Return the size as users type it."""
        return f"{self.size}" if self.limit is None else f"{self.size}%{self.limit}"


class JobForm(NamedTuple):
    """The options of a job; options that are not given have their empty value."""

    requests: tuple[str, ...] = ()
    array: ArraySize | None = None
    queue: str | None = None
    properties: str | None = None
    nodelist: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    reservation: str | None = None
    advance_reservation: str | None = None
    verify: str | None = None
    checkpoint: int | None = None
    signal: str | None = None
    types: tuple[str, ...] = ()
    directory: str | None = None
    project: str | None = None
    name: str | None = None
    dependencies: tuple[str, ...] = ()
    notify: str | None = None
    max_restarts: int | None = None
    stdout: str | None = None
    stderr: str | None = None
    hold: bool = False
    cpuset_name: str | None = None
    interactive: bool = False
    verbosity: int = 0


#: How the fields that are written in the line of a request are spelt there.
_SPELLINGS: Mapping[str, str] = {
    "requests": "-l",
    "array": "--array",
    "queue": "-q",
    "properties": "-p",
    "nodelist": "--nodelist",
    "exclude": "--exclude",
    "reservation": "-r",
    "advance_reservation": "--ar",
    "verify": "--verify",
    "checkpoint": "--checkpoint",
    "signal": "--signal",
    "types": "-t",
    "directory": "-d",
    "project": "--project",
    "name": "-n",
    "dependencies": "-a",
    "notify": "--notify",
    "max_restarts": "--max-restarts",
    "stdout": "-O",
    "stderr": "-E",
    "hold": "--hold",
    "cpuset_name": "--force_cpuset_name",
}


def submission_of(form: JobForm, user: str, command: str) -> Submission:
    """Return the submission of a form, without the contents of files and the working directory."""
    array = form.array or ArraySize(1)
    return Submission(
        spec=JobSpec(
            user=user,
            command=command,
            name=form.name or None,
            project=form.project or "",
            queue=form.queue or "",
            properties=form.properties or None,
            types=_types(form),
            dependencies=form.dependencies,
            stdout_file=form.stdout or None,
            stderr_file=form.stderr or None,
            notify=form.notify or None,
            checkpoint=form.checkpoint or 0,
            hold=form.hold,
            array_size=array.size,
            array_limit=array.limit,
            cpuset_name=form.cpuset_name,
        ),
        is_interactive=form.interactive,
        requests=form.requests,
        nodes=_nodes(form.nodelist),
        excluded=_nodes(form.exclude),
        reservation=form.reservation,
        signal=form.signal,
        verbosity=form.verbosity,
        advance_reservation=form.advance_reservation,
        verifies=form.verify != ACCEPT,
    )


def words_of(form: JobForm) -> Iterator[str]:
    """Iterate over the options of oarsub that are equivalent to a form.

    >>> list(words_of(JobForm(requests=("nodes=2",), hold=True)))
    ['-l', 'nodes=2', '--hold']
    """
    for field, spelling in _SPELLINGS.items():
        value = getattr(form, field)
        if value is True:
            yield spelling
        elif isinstance(value, tuple) and not isinstance(value, ArraySize):
            for each in value:
                yield from (spelling, str(each))
        elif value not in (None, False):
            yield from (spelling, str(value))


def parameters_of(text: str) -> tuple[str, ...]:
    """Return the lines of a parameter file, without comments and empty lines."""
    lines = (line.partition("#")[0].strip() for line in text.split("\n"))
    return tuple(line for line in lines if line)


def _nodes(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(name.strip() for value in values for name in value.strip().removesuffix(",").split(","))


def _types(form: JobForm) -> tuple[str, ...]:
    """Return the types of the job; the maximum number of restarts is the value of the type idempotent."""
    if form.max_restarts is None:
        return form.types
    others = (job_type for job_type in form.types if job_type != JobTypeName.IDEMPOTENT)
    return (*others, f"{JobTypeName.IDEMPOTENT}={form.max_restarts}")
