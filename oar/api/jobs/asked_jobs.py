"""What a client asks for, as workers get it."""

from typing import NamedTuple

from oar.lib.submission.job_form import JobForm
from oar.lib.submission.proposal import KeyWish
from oar.lib.submission.staging import StageWish


class AskedJobs(NamedTuple):
    """A request for jobs, as the API gets it."""

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
