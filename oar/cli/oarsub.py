"""oarsub: submit a job, an array, a reservation; or a job that has ended once more."""

import time
from typing import Any

import click

from oar.cli.common.command import Context, oar_command
from oar.cli.common.options import Stop, machine_formats, optional_argument
from oar.cli.common.process import Hangup
from oar.cli.oarsub_parts import command_line
from oar.cli.oarsub_parts import options as oarsub_options
from oar.cli.oarsub_parts.call import OarsubCall, Printer, print_error
from oar.cli.oarsub_parts.command_line import CommandLine
from oar.cli.oarsub_parts.options import OarsubOptions
from oar.lib.base.errors import NoSuchJob
from oar.lib.submission.checks import EVERY_HOST, BadSubmission, Code, check_modes
from oar.lib.submission.options import app_of, spec_of

#: The last line of errors in a request.
VERIFY = "# Error: please verify your job submission syntax."
INTERRUPTED = 1


@oar_command(
    "oarsub",
    summary="Submit a job that runs COMMAND. Quote a command that has arguments.",
    examples={
        "oarsub -l nodes=2,walltime=1:00:00 './solve input.dat'": "Submit a job for two whole nodes and one hour.",
        "oarsub -S ./job.sh": "Submit a script that has its options in #OAR lines.",
        "oarsub --array 100%10 './render $OAR_ARRAY_INDEX'": "Submit an array of 100 jobs; at most 10 run at a time.",
        "oarsub -I -l core=1,walltime=0:30:00": "Open a shell on a node for half an hour.",
        "oarsub --app jupyter -l core=2,walltime=4:00": "Run JupyterLab on a node for four hours.",
    },
    topics={
        "Resources": (
            "-l",
            "--mem",
            "--mem-per-core",
            "-p",
            "--nodelist",
            "--exclude",
            "-q",
            "--project",
            "-t",
            "--ar",
            "--verify",
        ),
        "Start, order and restarts": ("-r", "--hold", "-a", "--max-restarts", "--estimate"),
        "Command, files and environment": (
            "-S",
            "--spool",
            "--wrap",
            "-n",
            "-d",
            "-O",
            "-E",
            "--env",
            "-s",
            "--stagein-md5sum",
        ),
        "Arrays": ("--array", "--array-param-file"),
        "Interactive jobs and applications": ("-I", "-C", "--app", "--propagate-exit"),
        "Signals and notifications": ("--checkpoint", "--signal", "--notify", "--wait"),
        "Ended jobs": ("--resubmit", "--sql", "--state"),
        "SSH keys and cpusets": (
            "-k",
            "-i",
            "--import-job-key-inline",
            "--ssh_public_key",
            "-e",
            "--force_cpuset_name",
        ),
        "Output of the command": ("--parsable", "-v", "-D", "-X", "-Y", "-J"),
    },
    exit_codes={KeyboardInterrupt: INTERRUPTED, Hangup: INTERRUPTED, NoSuchJob: Code.CONNECT},
)
@optional_argument(
    "-C", "--connect", numeric=True, is_list=False, lasts=True, metavar="[ID]", help="Open a shell in a running job."
)
@oarsub_options.options
@machine_formats
@click.argument("words", nargs=-1, metavar="[COMMAND]")
def main(context: Context, **values: Any) -> int | None:
    """Run oarsub; return the exit code."""
    try:
        return _run(context, OarsubOptions.of(values))
    except BadSubmission as error:
        return _complain(context, error)


#: How a command is given.
_WAYS = "# A command: oarsub 'sleep 60'; a script: oarsub -S ./job.sh, or oarsub -S - < job.sh; a shell: oarsub -I"


def _complain(context: Context, error: BadSubmission) -> int:
    """Print the error of a submission, as documented for its code; return the exit code."""
    print_error(error.prefix + str(error))
    if error.usage:
        click.echo(context.command.get_usage(click.get_current_context()), err=error.code is not Code.COMMAND)
    if error.usage and error.code is Code.COMMAND:
        arguments = context.arguments
        if "-J" in arguments and len(arguments) > 2:
            print_error("# -J prints JSON; the name of a job is -n NAME")
        print_error(_WAYS)
    if error.verify:
        print_error(VERIFY)
    return error.exit_code


def _run(context: Context, options: OarsubOptions) -> int | None:
    """Run the mode that the options choose, after the checks in the documented order; return the exit code."""
    line = command_line.read(context, options)
    options = line.options
    if options.completion is not None:
        from oar.cli import completion

        completion.run(context, options.completion)
        return 0
    _check_exclusive(options)
    if not options.connect:
        _check_host(context)
    call = OarsubCall(context, options, context.files, Printer(options))
    if options.resubmit:
        from oar.cli.oarsub_parts import resubmit

        return resubmit.resubmit(call, line.names)
    if options.app is not None:
        from oar.cli.oarsub_parts import app

        if job_id := app.job_of(options):
            return app.reopen(call, job_id, line.names)
        options = app.with_type(options)
        line, call = line._replace(options=options), call._replace(options=options)
    command = command_line.command_of(context, options) or app_of(options.job.types)
    if options.connect:
        from oar.cli.oarsub_parts import job_shell

        return job_shell.connect(call, line.names)
    try:
        check_modes(options.job, spec_of(options.job, context.user.name, command or ("-" if options.scan else "")))
    except BadSubmission as error:
        if error.code is Code.COMMAND and not command:
            error.args = (f"{error}{command_line.hint_on_missing(context.arguments)}",)
        raise
    if options.scan:
        line = command_line.with_script(call, line, command)
        command = line.command
    line = command_line.with_defaults(call, line)
    return _submit(call._replace(options=line.options), line, command)


def _check_exclusive(options: OarsubOptions) -> None:
    """Refuse options that --wait, --estimate and --parsable exclude.  Raises Stop."""
    if not {None, "kill"}.issuperset(options.wait):
        raise Stop("# Error: --wait takes no argument, or =kill.")
    if options.wait and (options.job.interactive or options.connect):
        raise Stop("# Error: --wait requires a batch job: use it without -I and -C.")
    if options.estimate and (options.resubmit or options.connect):
        raise Stop("# Error: --estimate is for a new submission: use it without --resubmit and --connect.")
    if not options.resubmit and (options.resubmit_sql is not None or options.resubmit_states):
        raise Stop("# Error: --sql and --state select jobs for --resubmit: use them with it.")
    if options.parsable and options.machine is not None:
        raise Stop("# Error: --parsable and a machine format are exclusive.")


def _check_host(context: Context) -> None:
    """Refuse to submit from a host outside ALLOWED_NETWORKS.  Raises NotAllowed."""
    config = context.runtime.config
    if not EVERY_HOST.issubset(config.allowed_networks):
        from oar.lib.base import allowed_networks

        allowed_networks.check_this_host(config.allowed_networks, config.server_hostname, config.server_port)


def _submit(call: OarsubCall, line: CommandLine, command: str) -> int:
    """Submit a new job in the mode that the options choose; return the exit code."""
    from oar.cli.oarsub_parts import submission

    options = call.options
    if "verify" in line.names and options.job.advance_reservation is None:  # a default file may hold it for other jobs
        call.context.warn("--verify has no effect without --ar.")
    for doubt in command_line.doubts(call, line, command):
        call.context.warn(doubt)
    proposal = submission.prepare(call, line, command, int(time.time()))
    if options.estimate:
        from oar.cli.oarsub_parts import estimate

        return estimate.estimate(call, proposal)
    proposal = submission.add_key(call, proposal)
    if options.job.interactive:
        from oar.cli.oarsub_parts import interactive

        return interactive.open_interactive(call, proposal)
    if options.job.reservation is not None:
        from oar.cli.oarsub_parts import reservation

        return reservation.reserve(call, proposal)
    submitted = submission.submit_jobs(call, proposal, call.host)
    submission.report(call, submitted)
    if options.app is not None:
        from oar.cli.oarsub_parts import app

        return app.AppWait(call, submitted.ids[0]).run()
    return submission.wait_if_asked(call, submitted.ids)


if __name__ == "__main__":
    main()
