"""The submission of one call of oarsub: prepared from the command line, sent, and its answer printed."""

import os
from collections.abc import Sequence

from oar.cli.common.options import Stop
from oar.cli.oarsub_parts import job_key
from oar.cli.oarsub_parts.call import OarsubCall
from oar.cli.oarsub_parts.caller_environment import job_variables
from oar.cli.oarsub_parts.command_line import CommandLine
from oar.cli.oarsub_parts.stagein import staged_file
from oar.lib.submission import preparation, submit
from oar.lib.submission.checks import Code
from oar.lib.submission.job_form import parameters_of, submission_of
from oar.lib.submission.proposal import Proposal
from oar.lib.submission.submit import Submitted
from oar.lib.user_files.files import UserFiles


def prepare(call: OarsubCall, line: CommandLine, command: str, now: int) -> Proposal:
    """Return the proposal of the command line, read and checked.  Raises BadSubmission, BadRequest, Stop."""
    options, context = call.options, call.context
    submission = submission_of(options.form, context.user.name, command)
    spec = submission.spec._replace(
        parameters=_parameters(call.files, options.parameter_file),
        launching_directory=_directory(options.directory, context.place.directory),
        info_type=call.host,
        initial_request=line.initial_request,
        env=job_variables(context, options.environment, line.script),
    )
    proposal = preparation.prepare(submission._replace(spec=spec), context.runtime.config, now)
    if options.reservation is not None:
        from oar.lib.submission import reservation_dates

        dates = reservation_dates.parse(options.reservation, now)
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
    """Return the working directory of the job, absolute; ``current``: that of the caller.  Raises Stop."""
    if path and path.startswith("/"):
        return path
    try:
        current = current or os.getcwd()
        return os.path.join(current, path) if path else current
    except FileNotFoundError:
        raise Stop("# Error: the current directory does not exist any more: name a directory with -d.") from None


class Submitter:
    """Submits a proposal and prints the answer, in every mode of oarsub."""

    def __init__(self, call: OarsubCall, proposal: Proposal) -> None:
        self.call = call
        self.proposal = proposal

    def submit(self, address: str) -> Submitted:
        """Insert the jobs; ``address``: this host, with a port if the server is to call there.

        Raises UserError, Stop, DatabaseUnavailable.
        """
        context = self.call.context
        with staged_file(self.call, self.proposal.spec.types) as file_id, self.call.printer.showing_refusals():
            spec = self.proposal.spec._replace(file_id=file_id, info_type=address)
            return submit.submit(context.database, context.runtime.config, self.proposal._replace(spec=spec))

    def tell(self, submitted: Submitted) -> None:
        """Print the output of admission rules, warnings and ids; write the keys of the jobs."""
        self.call.printer.rule_output(submitted.output)
        for warning in submitted.warnings:
            self.call.context.warn(warning)
        job_key.export_keys(self.call, submitted)
        self.call.printer.ids(submitted.ids)


def wait_if_asked(call: OarsubCall, ids: Sequence[int]) -> int:
    """Wait for the ends of jobs if ``--wait`` asks for it; return the exit code."""
    if not call.options.wait:
        return 0
    from oar.cli.oarsub_parts import wait

    return wait.wait(call.context, ids, kill="kill" in call.options.wait)
