"""Requests for jobs, as clients write them (``POST /v1/jobs``) and as workers receive them."""

import re
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, create_model

from oar.api.parameters import MAX_TEXTS, Count, Text, Texts
from oar.lib.base.errors import BadRequest
from oar.lib.base.times import format_duration
from oar.lib.submission.alteration import NOWHERE, JobChanges
from oar.lib.submission.options import ACCEPT, DEPENDENCIES, OPTIONS, ArraySize, JobOptions, Kind, Option


class AskedJobs(NamedTuple):
    """A request for jobs, as a worker receives it."""

    options: JobOptions
    command: str = ""
    script: str | None = None  #: text that is stored with the job, and runs in the place of the command's first word
    parameters: tuple[str, ...] | None = None  #: of each job of an array
    scans: bool = False  #: whether the options in the lines of the script are asked for, too

    @property
    def uses_files(self) -> bool:
        """Whether programs run as the user, whose files it names: that may take long."""
        return self.scans or self.options.stagein is not None or self.options.key_export is not None


_WALLTIME = re.compile(r"\bwalltime\s*=")
VariableName = Annotated[str, Field(max_length=1000, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class _JobRequest(BaseModel):
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
    array: Count | None = Field(None, description="Number of jobs in the array.")
    array_limit: Count | None = Field(None, description="Maximum number of array jobs that run at the same time.")
    parameters: list[Text] | None = Field(
        None, max_length=100_000, description="Parameters appended to the command: one array job for each."
    )
    accept_misfit: bool = Field(
        default=False, description="Accept a job that can never run in the advance reservation."
    )
    env: dict[VariableName, Text] = Field({}, description="Environment variables of the job.")
    ssh_private_key: Text | None = Field(None, description="SSH private key to import as job key.")
    ssh_public_key: Text | None = Field(None, description="Public key of the imported key.")
    export_job_key_to_file: Text | None = Field(
        None, description="File to which the job key is exported; `%jobid%` is the job id."
    )

    @property
    def asked(self) -> AskedJobs:
        """The request, for a worker."""
        return AskedJobs(
            options=self._options,
            command=self.command or "",
            script=self.script,
            parameters=None if self.parameters is None else tuple(self.parameters),
            scans=self.scanscript,
        )

    @property
    def _options(self) -> JobOptions:
        same = self.model_dump(include=set(JobOptions._fields) - {"array"}, exclude_unset=True)
        for name, value in same.items():
            if isinstance(value, list):
                same[name] = tuple(map(str, value))
            elif OPTIONS[name].may_be_number and value is not None:
                same[name] = str(value)
        size = self.array if self.array is not None else 1  # parameters are counted elsewhere
        has_array = self.array is not None or self.array_limit is not None
        return JobOptions(**same)._replace(
            requests=self._requests,
            array=ArraySize(size, self.array_limit) if has_array else None,
            verify=ACCEPT if self.accept_misfit else None,
            use_job_key=bool(same.get("use_job_key")) or self.ssh_private_key is not None,
            key_inline=self.ssh_private_key,
            public_key=self.ssh_public_key,
            key_export=self.export_job_key_to_file,
            environment=tuple(f"{name}={value}" for name, value in self.env.items()),
        )

    @property
    def _requests(self) -> tuple[str, ...]:
        """Each ``-l``, with the walltime where it names none."""
        texts = [self.resources] if isinstance(self.resources, str) else self.resources
        if self.walltime is None:
            return tuple(texts)
        walltime = self.walltime if isinstance(self.walltime, str) else format_duration(self.walltime)
        own = f"walltime={walltime}"
        return tuple(text if _WALLTIME.search(text) else f"{text},{own}" for text in texts) or (own,)


def _field_of(option: Option) -> tuple[Any, Any]:
    """Return type and declaration of the field that has the name of an option."""
    if option.kind is Kind.FLAG:
        return bool, Field(default=False, description=option.api)
    if option.kind is Kind.TEXTS:
        texts = list[Count | Text] if option.may_be_number else Texts
        return texts, Field([], max_length=MAX_TEXTS, description=option.api)
    if option.kind in (Kind.NUMBER, Kind.COUNT):
        return Count | None, Field(None, description=option.api)
    return Count | Text | None if option.may_be_number else Text | None, Field(None, description=option.api)


if TYPE_CHECKING:

    class JobRequest(_JobRequest):
        """The request with the fields that the options of a job declare; one of them is used by name."""

        reservation: str | None

else:
    _FIELDS = {name: _field_of(option) for name, option in OPTIONS.items() if option.api}
    JobRequest = create_model("JobRequest", __base__=_JobRequest, __doc__=_JobRequest.__doc__, **_FIELDS)


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
            raise BadRequest("use at least one field")
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
