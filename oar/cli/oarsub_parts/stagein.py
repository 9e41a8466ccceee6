"""oarsub --stagein: a copy of a user's file is kept for the job, which fetches it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from oar.cli.oarsub_parts.call import OarsubCall
from oar.lib.facts.request import JobTypes
from oar.lib.facts.states import JobTypeName


@contextmanager
def staged_file(call: OarsubCall, types: Sequence[str]) -> Iterator[int | None]:
    """Have the file of the options ready while a job of these types is submitted; yield its id, None without file.

    Raises BadSubmission.
    """
    path, md5sum = call.options.stagein, call.options.stagein_md5sum
    if path is None and md5sum is None:
        yield None
    elif JobTypeName.DESKTOP_COMPUTING not in JobTypes(types):
        call.context.warn("--stagein is only used by desktop_computing jobs.")
        yield None
    else:
        from oar.lib.submission.staging import Staging

        context = call.context
        staging = Staging(context.database, context.runtime.config, context.user.name, call.files)
        with staging.staged(path, md5sum) as file_id:
            yield file_id
