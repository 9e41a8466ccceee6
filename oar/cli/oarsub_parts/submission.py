"""The submission of one call of oarsub: prepared, sent with its job key and its file, and its answer printed."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from oar.cli.common.options import Stop
from oar.cli.oarsub_parts.call import OarsubCall
from oar.cli.oarsub_parts.command_line import CommandLine, job_variables
from oar.lib.base.errors import BadRequest, DatabaseUnavailable
from oar.lib.submission import job_keys, preparation, submit
from oar.lib.submission.checks import BadSubmission, Code
from oar.lib.submission.options import parameters_of, spec_of
from oar.lib.submission.preparation import Proposal
from oar.lib.submission.submit import Submitted
from oar.lib.user_files.files import UserFiles

if TYPE_CHECKING:
    from oar.lib.submission.submit import Submitted


def prepare(call: OarsubCall, line: CommandLine, command: str, now: int) -> Proposal:
    """Return the proposal of the command line, read and checked.  Raises BadSubmission, BadRequest, Stop."""
    options, context = call.options.job, call.context
    spec = spec_of(options, context.user.name, command)._replace(
        parameters=_parameters(call.files, options.parameter_file),
        launching_directory=_directory(options.directory, context.place.directory),
        info_type=call.host,
        initial_request=line.initial_request,
        env=job_variables(context, options.environment, line.script),
    )
    proposal = preparation.prepare(options, spec, context.runtime.config, now)
    if options.reservation is not None:
        from oar.lib.submission import job_reservation

        dates = job_reservation.parse(options.reservation, now)
        if dates.stop:
            call.printer.explain(dates.guess())
    return proposal


def _parameters(files: UserFiles, path: str | None) -> tuple[str, ...] | None:
    """Return the lines of a parameter file without comments, None without such a file.  Raises Stop."""
    if path is None:
        return None
    try:
        text = files.read(path).data.decode("utf-8", "surrogateescape")
    except OSError as error:
        why = f"\n# {error.strerror}" if error.strerror else ""
        raise Stop(f"[ERROR] Cannot open the parameter file {path}.{why}", Code.FILE) from None
    return parameters_of(text)


def _directory(path: str | None, current: str | None) -> str:
    """Return the absolute working directory of the job; ``current``: directory of the caller.  Raises Stop."""
    if path and path.startswith("/"):
        return path
    try:
        current = current or os.getcwd()
        return os.path.join(current, path) if path else current
    except FileNotFoundError:
        raise Stop("# Error: the current directory does not exist any more: name a directory with -d.") from None


def submit_jobs(call: OarsubCall, proposal: Proposal, address: str) -> Submitted:
    """Insert the jobs; ``address``: this host, with a port if the server is to call there.

    Raises UserError, Stop, DatabaseUnavailable.
    """
    context = call.context
    with staged_file(call, proposal.spec.types) as file_id, call.printer.showing_refusals():
        spec = proposal.spec._replace(file_id=file_id, info_type=address)
        return submit.submit(context.database, context.runtime.config, proposal._replace(spec=spec))


def report(call: OarsubCall, submitted: Submitted) -> None:
    """Print the output of admission rules, warnings and ids; write the keys of the jobs to the file of ``-e``."""
    call.printer.rule_output(submitted.output)
    for warning in submitted.warnings:
        call.context.warn(warning)
    if call.options.job.key_export is not None:
        _export_keys(call, submitted, call.options.job.key_export)
    call.printer.ids(submitted.ids)
    _show_announcements(call)


def _show_announcements(call: OarsubCall) -> None:
    """Print the announcements of administrators, if a person reads the output."""
    if call.printer.is_quiet or not sys.stdout.isatty():  # a program may take the last line for that of the id
        return
    with suppress(DatabaseUnavailable), call.context.database.snapshot() as tx:
        for text in tx.announcements.texts():
            call.printer.comment(f"Announcement: {text}")


def _export_keys(call: OarsubCall, submitted: Submitted, pattern: str) -> None:
    for job_id, key in submitted.keys.items():
        path = pattern.replace("%jobid%", str(job_id))
        call.printer.explain(f"Export job key to file: {path}")
        try:
            call.files.write_secret(path, key.private)
        except OSError:
            call.context.warn(f"cannot write the key of job {job_id} to {path}.")


def wait_if_asked(call: OarsubCall, ids: Sequence[int]) -> int:
    """Wait for the end of the jobs with ``--wait``; return the exit code."""
    if not call.options.wait:
        return 0
    from oar.cli.oarsub_parts import wait

    return wait.wait(call.context, ids, kill="kill" in call.options.wait)


TWO_KEYS = "you cannot import a job key both inline and from a file at the same time."
#: Beginnings of the options for a private key, which imply -k.
_IMPLYING_KEY = ("--ssh_pr", "--ssh-pr")


def add_key(call: OarsubCall, proposal: Proposal) -> Proposal:
    """Return the proposal with the job key of the options.  Raises BadSubmission."""
    options = call.options.job
    if any(word.startswith(_IMPLYING_KEY) for word in call.context.arguments):
        options = options._replace(use_job_key=True)
    default_path = call.context.environment.get("OAR_JOB_KEY_FILE") or None
    forced = call.context.runtime.config.oarsub_force_job_key or default_path is not None
    try:
        if not job_keys.is_key_requested(options, forced=forced):
            return proposal._replace(use_job_key=False)
    except BadRequest as error:
        raise BadSubmission(Code.REQUEST, str(error)) from None
    if options.key_inline and options.key_file:
        raise BadSubmission(Code.REQUEST, TWO_KEYS)
    private, path = options.key_inline, options.key_file or (None if options.key_inline else default_path)
    if path:
        call.printer.explain(f"Import job key from file: {path}")
        private = _read(call.files, path)
    else:
        call.printer.explain("Import job key inline." if private else "Generate a job key...")
    imported = None if private is None else job_keys.ImportedKey(private, options.public_key)
    return proposal._replace(use_job_key=True, imported_key=imported)


def _read(files: UserFiles, path: str) -> str:
    try:
        return files.read(path).data.decode("utf-8", "surrogateescape")
    except OSError:
        raise BadSubmission(Code.REQUEST, f"{job_keys.BAD_KEY}\n# The file {path} cannot be read.") from None


@contextmanager
def staged_file(call: OarsubCall, types: Sequence[str]) -> Iterator[int | None]:
    """Provide the stage-in file while a job of these types is submitted; yield its id, or None without a file.

    Raises BadSubmission.
    """
    options, context = call.options.job, call.context
    if options.stagein is None and options.stagein_md5sum is None:
        yield None
        return
    from oar.lib.submission import staging

    copies = staging.Staging(context.database, context.runtime.config, context.user.name, call.files)
    with staging.staged_file(copies, options, types, context.warn) as file_id:
        yield file_id
