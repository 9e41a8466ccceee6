"""oarsub --stagein: a copy of a user's file is kept for the job, which fetches it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from oar.cli.oarsub_parts.call import OarsubCall


@contextmanager
def staged_file(call: OarsubCall, types: Sequence[str]) -> Iterator[int | None]:
    """Have the file of the options ready while a job of these types is submitted; yield its id, None without file.

    Raises BadSubmission.
    """
    path, md5sum = call.options.stagein, call.options.stagein_md5sum
    if path is None and md5sum is None:
        yield None
        return
    from oar.lib.submission import staging

    context = call.context
    place = staging.Staging(context.database, context.runtime.config, context.user.name, call.files)
    with staging.staged_file(place, staging.StageWish(path, md5sum), types, context.warn) as file_id:
        yield file_id
