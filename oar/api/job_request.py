"""Requests for jobs, as clients write them (``POST /v1/jobs``) and as workers receive them."""

import re
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from oar.api.parameters import MAX_TEXTS, Count, Text, Texts
from oar.lib.base.errors import BadRequest
from oar.lib.base.times import format_duration
from oar.lib.submission.alteration import NOWHERE, JobChanges
from oar.lib.submission.job_form import ACCEPT, ArraySize, JobForm
from oar.lib.submission.proposal import KeyWish
from oar.lib.submission.staging import StageWish


class AskedJobs(NamedTuple):
    """A request for jobs, as a worker receives it."""

    form: JobForm
    command: str = ""
    script: str | None = None  #: text that is stored with the job, and runs in the place of the command's first word
    parameters: tuple[str, ...] | None = None  #: of each job of an array
    env: tuple[str, ...] = ()  #: each like ``--env``
    key: KeyWish = KeyWish()
    file: StageWish = StageWish()
    scans: bool = False  #: whether the options in the lines of the script are asked for, too

    @property
    def uses_files(self) -> bool:
        """Whether programs run as the user, whose files it names: that may take long."""
        return self.scans or self.file.path is not None or self.key.export is not None


DEPENDENCIES = (
    "Each as with `-a`: `12`, `12:any`, `12[*]` (all jobs of array 12), `12[]` (each job of an array: the job of the"
    " same index in array 12; a single job: all jobs of array 12)."
)
_WALLTIME = re.compile(r"\bwalltime\s*=")


VariableName = Annotated[str, Field(max_length=1000, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class JobRequest(BaseModel):
    """Request for a job or a job array. Fields that are not given have the defaults of `oarsub`."""

    model_config = ConfigDict(extra="forbid", strict=True, title="JobRequest")

    command: Text | None = Field(None, description="Shell command of the job, one line.")
    script: Text | None = Field(None, description="Script, stored with the job and run instead of a command.")
    scanscript: bool = Field(
        default=False,
        description="Read options from the `#OAR` lines of the script; fields of the request take precedence.",
    )
    # Made by a factory, so that the document names no default: generated clients would send the text "[]".
    resources: Text | Texts = Field(
        default_factory=list,
        description="Resource requests, as with `-l`: alternatives, of which the scheduler chooses the best.",
    )
    walltime: Count | Text | None = Field(
        None, description="Walltime in seconds or as `h:m:s`, for `resources` without one."
    )
    properties: Text | None = Field(None, description="Condition on resource properties, as with `-p`.")
    nodelist: Texts = Field([], description="Nodes to choose from.")
    exclude: Texts = Field([], description="Nodes to exclude.")
    types: Texts = Field([], description="Job types, as with `-t`.")
    queue: Text | None = Field(None, description="Queue; default: chosen by the site.")
    project: Text | None = Field(None, description="Project that the consumption is charged to.")
    name: Text | None = Field(None, description="Job name.")
    directory: Text | None = Field(None, description="Working directory; default: the home directory.")
    array: Count | None = Field(None, description="Number of jobs in the array.")
    array_limit: Count | None = Field(None, description="Maximum number of array jobs that run at the same time.")
    parameters: list[Text] | None = Field(
        None, max_length=100_000, description="Parameters appended to the command: one array job for each."
    )
    dependencies: list[Count | Text] = Field([], max_length=MAX_TEXTS, description=DEPENDENCIES)
    reservation: Text | None = Field(None, description="Reserved start date, as with `-r`.")
    advance_reservation: Text | Count | None = Field(None, description="Advance reservation to run in, as with `--ar`.")
    accept_misfit: bool = Field(
        default=False, description="Accept a job that can never run in the advance reservation."
    )
    checkpoint: Count | None = Field(
        None, description="Seconds before the end of the walltime at which the job gets the checkpoint signal."
    )
    signal: Count | Text | None = Field(None, description="Checkpoint signal.")
    notify: Text | None = Field(None, description="Notification, as with `--notify`.")
    max_restarts: Count | None = Field(
        None, description="Make the job idempotent and resubmit it at most this many times."
    )
    stdout: Text | None = Field(None, description="File for standard output; `%jobid%` is the job id.")
    stderr: Text | None = Field(None, description="File for standard error.")
    hold: bool = Field(default=False, description="Hold the job until it is resumed.")
    env: dict[VariableName, Text] = Field({}, description="Environment variables of the job.")
    use_job_key: bool = Field(default=False, description="Create an SSH key for the job.")
    ssh_private_key: Text | None = Field(None, description="SSH private key to import as job key.")
    ssh_public_key: Text | None = Field(None, description="Public key of the imported key.")
    export_job_key_to_file: Text | None = Field(
        None, description="File to which the job key is exported; `%jobid%` is the job id."
    )
    stagein: Text | None = Field(None, description="File of the user for a job of type `desktop_computing`.")
    stagein_md5sum: Text | None = Field(
        None, description="MD5 checksum of the file, or of a file that was staged before."
    )
    cpuset_name: Text | None = Field(None, description="Cpuset name, as with `--force_cpuset_name`.")

    @property
    def asked(self) -> AskedJobs:
        """The request, for a worker."""
        return AskedJobs(
            form=self._form,
            command=self.command or "",
            script=self.script,
            parameters=None if self.parameters is None else tuple(self.parameters),
            key=KeyWish(
                self.use_job_key or self.ssh_private_key is not None,
                self.ssh_private_key,
                self.ssh_public_key,
                export=self.export_job_key_to_file,
            ),
            file=StageWish(self.stagein, self.stagein_md5sum),
            env=tuple(f"{name}={value}" for name, value in self.env.items()),
            scans=self.scanscript,
        )

    @property
    def _form(self) -> JobForm:
        same = self.model_dump(include=set(JobForm._fields), exclude_unset=True)
        lists = {name: tuple(map(str, value)) for name, value in same.items() if isinstance(value, list)}
        numbers = ("signal", "advance_reservation")
        texts = {name: str(same[name]) for name in numbers if same.get(name) is not None}
        return JobForm(**{**same, **lists, **texts})._replace(
            requests=self._requests,
            array=None if self.array is None and self.array_limit is None else ArraySize(self._size, self.array_limit),
            verify=ACCEPT if self.accept_misfit else None,
        )

    @property
    def _size(self) -> int:
        """The requested number of jobs; parameters are counted elsewhere."""
        return self.array if self.array is not None else 1

    @property
    def _requests(self) -> tuple[str, ...]:
        """Each ``-l``, with the walltime where it names none."""
        texts = [self.resources] if isinstance(self.resources, str) else self.resources
        if self.walltime is None:
            return tuple(texts)
        walltime = self.walltime if isinstance(self.walltime, str) else format_duration(self.walltime)
        own = f"walltime={walltime}"
        return tuple(text if _WALLTIME.search(text) else f"{text},{own}" for text in texts) or (own,)


class JobUpdate(BaseModel):
    """New values of a waiting job; null removes a value. Fields that are not given are kept."""

    model_config = ConfigDict(extra="forbid", strict=True)

    resources: Text | Texts | None = Field(
        None, description="Resource request; parts that are not given, such as the walltime, are kept."
    )
    properties: Text | None = Field(None, description="Condition on resource properties.")
    queue: Text | None = Field(None, description="Queue.")
    project: Text | None = Field(None, description="Project that the consumption is charged to.")
    name: Text | None = Field(None, description="Job name.")
    notify: Text | None = Field(None, description="Notification, as with `--notify`.")
    dependencies: list[Count | Text] | None = Field(None, max_length=MAX_TEXTS, description=DEPENDENCIES)
    advance_reservation: Text | Count | None = Field(None, description="Advance reservation to run in; null: none.")

    @property
    def changes(self) -> JobChanges:
        """The changes, as options of oaralter.  Raises BadRequest if there are none."""
        fields = {name: getattr(self, name) for name in self.model_fields_set}
        if not fields:
            raise BadRequest("name what is to be changed")
        changed: dict[str, Any] = {name: "" if value is None else value for name, value in fields.items()}
        if "resources" in fields:
            texts = changed.pop("resources") or []
            changed["requests"] = (texts,) if isinstance(texts, str) else tuple(texts)
        if "dependencies" in fields:
            changed["dependencies"] = tuple(map(str, fields["dependencies"] or ()))
        if "advance_reservation" in fields:
            reservation = fields["advance_reservation"]
            changed["advance_reservation"] = NOWHERE if reservation is None else str(reservation)
        return JobChanges(**changed)
