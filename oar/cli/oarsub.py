"""oarsub: submit a job, an array, a reservation; or a job that has ended once more (commands-user.md 3)."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from oar.cli import oarsub_caller, oarsub_options
from oar.cli.as_user import UserFiles
from oar.cli.command import Context, Hangup, Stop, machine_formats, oar_command, optional_argument
from oar.cli.oarsub_options import EXIT_SCRIPT, Options
from oar.lib import submission
from oar.lib.errors import NoSuchJob, UserError
from oar.lib.request import JobTypes
from oar.lib.submission import KeyWish, Submission, Submitted
from oar.lib.submission_checks import BadSubmission, Code, check_modes, parse_window

if TYPE_CHECKING:
    from oar.lib.proposal import Proposal

#: Networks that hold every host: there is nothing to look up.
EVERYBODY = frozenset({"0.0.0.0/0", "::/0"})
#: Texts of which the last line asks to look at the submission again.
VERIFY = "# Error: please verify your job submission syntax."
KEY_OPTIONS = "you must set the --use-job-key (or -k) option in order to use other job key related options."
TWO_KEYS = "you cannot import a job key both inline and from a file at the same time."
INTERRUPTED = 1
#: What may stand beside -C.
WITH_CONNECT = frozenset({"connect", "words", "verbosity", "propagate_exit"})
#: What may stand beside --resubmit.
WITH_RESUBMIT = frozenset({"resubmit", "verbosity", "wait", "parsable"})
#: Digits of the longest job id.
LONGEST_ID = 18


@oar_command(
    "oarsub",
    summary="Submit a job that runs COMMAND, one word for the shell that you type it in.",
    exit_codes={KeyboardInterrupt: INTERRUPTED, Hangup: INTERRUPTED, NoSuchJob: Code.CONNECT},
)
@optional_argument("-C", "--connect", numeric=True, metavar="[ID]", help="Open a shell in a running job.")
@oarsub_options.options
@machine_formats
@click.argument("words", nargs=-1, metavar="[COMMAND]")
def main(context: Context, **given: Any) -> int | None:
    """Submit, and tell what came of it."""
    try:
        return _Oarsub(context, Options(**given)).run()
    except BadSubmission as error:
        return _complain(context, error)


def _complain(context: Context, error: BadSubmission) -> int:
    """Print what is wrong, as documented for each code."""
    _say_error(error.prefix + str(error))
    if error.usage:
        click.echo(context.command.get_usage(click.get_current_context()), err=error.code is not Code.COMMAND)
    if error.verify:
        _say_error(VERIFY)
    return error.exit_code


def _say_error(text: str) -> None:
    click.echo(text.encode("utf-8", "backslashreplace").decode(), err=True)


class _Oarsub:
    """One call of the command."""

    def __init__(self, context: Context, typed: Options) -> None:
        self._context = context
        self._options = typed
        self._requested = oarsub_options.initial_request(context.arguments)
        self._given = _typed_names()
        self._script: str | None = None  #: text of the script that is kept with the job

    def run(self) -> int | None:
        """Do what the options ask, in the documented order of checks."""
        self._read_old_checkpoint()
        options = self._options
        if options.completion is not None:
            from oar.cli import completion

            completion.run(self._context, options.completion)
            return 0
        _check_waiting(options)
        if not options.connect:
            self._check_host()
        if options.resubmit is not None:
            return self._resubmit(options.resubmit)
        command = self._command()
        if options.connect:
            from oar.cli import oarsub_session

            if self._given - WITH_CONNECT:
                self._context.warn("-C opens a shell in a job that exists: the other options are ignored.")
            return oarsub_session.connect(
                self._context, _connected(options), verbose=self._is_verbose, propagate=options.propagate_exit
            )
        check_modes(_modes(options, command))
        if options.scan:
            self._scan(command)
        self._apply_defaults()
        return self._submit(command)

    def _check_host(self) -> None:
        """Refuse to submit from a host outside ALLOWED_NETWORKS.  Raises NotAllowed."""
        config = self._context.runtime.config
        if not EVERYBODY.issubset(config.allowed_networks):
            from oar.lib import networks

            networks.check_this_host(config.allowed_networks, config.server_hostname, config.server_port)

    def _read_old_checkpoint(self) -> None:
        """Read ``-k <seconds> <command>`` as people wrote it when -k was the delay of the checkpoint."""
        options, arguments = self._options, self._context.arguments
        if len(options.words) == 2 and options.words[0].isascii() and options.words[0].isdigit():
            followed = [arguments[place + 1] for place, each in enumerate(arguments[:-1]) if each == "-k"]
            if followed == [options.words[0]]:
                self._context.warn('"-k <seconds>" is obsolete, use --checkpoint.')
                self._options = options._replace(
                    words=options.words[1:], use_job_key=False, checkpoint=int(followed[0])
                )

    def _command(self) -> str:
        options = self._options
        try:
            command = oarsub_options.command_of(options.words, self._context.dashes)
        except ValueError as error:
            raise BadSubmission(Code.COMMAND, str(error), usage=True) from None
        if options.wrapped is not None:
            if command:
                raise BadSubmission(Code.COMMAND, "give the command once: as a word or with --wrap.", usage=True)
            command = options.wrapped
        if options.interactive and command:
            self._context.warn(
                f"you asked for an Interactive job SO I will ignore arguments: {command} ; Is your syntax right?"
            )
            return ""
        return command

    # -- what is read for the user ----------------------------------------------------------------------------------

    @property
    def _files(self) -> UserFiles:
        return UserFiles(self._context.user, self._context.runtime.config.oar_privilege_cmd)

    def _read_lines(self, path: str, what: str) -> list[str]:
        """Return the lines of a file that the user names."""
        try:
            return self._files.read(path).data.decode("utf-8", "surrogateescape").split("\n")
        except OSError:
            raise Stop(f"[ERROR] Cannot open the {what} {path}.", EXIT_SCRIPT) from None

    def _scan(self, command: str) -> None:
        """Add the options of the script, the first word of the command."""
        import shlex

        try:
            words = shlex.split(command)
        except ValueError:
            words = command.split()
        if not words:
            return
        path = words[0]
        try:
            script = oarsub_caller.read_script(self._files, path)
        except OSError:
            raise Stop(f"[ERROR] Cannot open the file {path}.", EXIT_SCRIPT) from None
        scanned = oarsub_options.scan(script.text.replace("\r\n", "\n"), path, self._context.command.params, _say_error)
        self._options = oarsub_options.merge(
            self._options,
            self._given,
            scanned,
            self._context.warn,
            keep_requests=self._context.runtime.config.oarsub_script_resources == "replace",
            long_names=self._long_name,
        )
        self._given |= scanned.given
        self._requested += "".join(f"; {line}" for line in scanned.lines)
        if path == oarsub_caller.STDIN or self._options.spool:
            self._script = script.text
        elif not script.is_executable:
            self._context.warn(f"{path} is not executable.")

    def _apply_defaults(self) -> None:
        """Take what the user always wants where nothing else was said."""
        if self._options.spool and self._script is None:
            raise Stop("# Error: --spool keeps the script that -S reads: use both.")
        default = oarsub_caller.defaults(self._context, self._files, self._context.command.params)
        if default is not None:
            self._options = oarsub_caller.below(self._options, self._given, default)
            self._requested += "".join(f"; {line}" for line in default.lines)

    def _environment(self) -> dict[str, str]:
        """Return the variables of the job, and its script.  Raises BadRequest."""
        from oar.lib import job_environment

        wishes = self._options.environment
        if not wishes and self._script is None:
            return {}
        variables = job_environment.chosen(wishes, oarsub_caller.environment(self._context))
        return variables if self._script is None else {**variables, job_environment.SCRIPT: self._script}

    def _long_name(self, name: str) -> str:
        option = next(each for each in self._context.command.params if each.name == name)
        return next((each for each in option.opts if each.startswith("--")), option.opts[0]).lstrip("-")

    def _parameters(self) -> tuple[str, ...] | None:
        path = self._options.parameter_file
        if path is None:
            return None
        lines = (line.partition("#")[0].strip() for line in self._read_lines(path, "parameter file"))
        return tuple(line for line in lines if line)

    def _directory(self) -> str:
        """Return the working directory of the job, absolute."""
        given = self._options.directory
        if given and given.startswith("/"):
            return given
        try:
            return os.path.join(os.getcwd(), given) if given else os.getcwd()
        except FileNotFoundError:
            raise Stop("# Error: the current directory is gone, give one with -d.") from None

    def _key(self) -> KeyWish | None:
        """Return which job key is asked for.  Raises BadSubmission."""
        options, environment = self._options, self._context.environment
        inline, path = options.key_inline, options.key_file
        if options.public_key is not None and inline is None:
            raise BadSubmission(Code.REQUEST, "--ssh_public_key needs --ssh_private_key.")
        from_environment = environment.get("OAR_JOB_KEY_FILE") or None
        force = self._context.runtime.config.oarsub_force_job_key or from_environment is not None
        is_seeds = any(each.startswith(("--ssh_pr", "--ssh-pr")) for each in self._context.arguments)
        if not (options.use_job_key or force or is_seeds):
            if inline or path or options.key_export:
                raise BadSubmission(Code.REQUEST, KEY_OPTIONS)
            return None
        if inline and path:
            raise BadSubmission(Code.REQUEST, TWO_KEYS)
        path = path or (None if inline else from_environment)
        if path:
            self._explain(f"Import job key from file: {path}")
            inline = self._read_key(path)
        else:
            self._explain("Import job key inline." if inline else "Generate a job key...")
        return KeyWish(inline, options.public_key)

    def _read_key(self, path: str) -> str:
        """Return the private key in a file that the user names.  Raises BadSubmission."""
        try:
            return self._files.read(path).data.decode("utf-8", "surrogateescape")
        except OSError:
            from oar.lib.job_keys import BAD_KEY

            raise BadSubmission(Code.REQUEST, f"{BAD_KEY}\n# The file {path} cannot be read.") from None

    @property
    def _is_verbose(self) -> bool:
        return bool(self._options.verbosity) and not self._is_quiet

    def _explain(self, text: str) -> None:
        if self._is_verbose:
            click.echo(f"# {text}")

    # -- a new job ----------------------------------------------------------------------------------------------------

    def _submit(self, command: str) -> int | None:
        options, runtime = self._options, self._context.runtime
        host = runtime.config.oarsub_local_address or os.uname().nodename
        given = oarsub_options.submission_of(options, self._context.user.name, command)._replace(
            parameters=self._parameters(),
            directory=self._directory(),
            info_type=host,
            initial_request=self._requested,
            env=self._environment(),
        )
        now = int(time.time())
        proposal = submission.prepare(given, runtime.config, now)
        if options.reservation is not None:
            self._guess_window(options.reservation, now)
        if options.estimate:
            return self._estimate(given, proposal)
        given = given._replace(key=self._key())
        proposal = proposal._replace(use_job_key=given.key is not None)
        if options.interactive:
            from oar.cli import oarsub_session

            return oarsub_session.open_interactive(
                self._context,
                lambda address: self._send(given, proposal._replace(info_type=address)),
                self._tell,
                host=host,
                comment=self._comment,
                verbose=self._is_verbose,
                propagate=options.propagate_exit,
            )
        if options.reservation is not None:
            return self._reserve(given, proposal, host)
        submitted = self._send(given, proposal)
        self._tell(submitted)
        return self._stay(submitted.ids)

    @property
    def _is_quiet(self) -> bool:
        """Whether nothing but ids goes to standard output."""
        return self._options.machine is not None or self._options.parsable

    def _stay(self, ids: Sequence[int]) -> int:
        """Wait for the ends of the jobs if that is wanted; return how they ended."""
        if not self._options.wait:
            return 0
        from oar.cli import oarsub_wait

        return oarsub_wait.wait(self._context, ids, kill="kill" in self._options.wait)

    def _estimate(self, given: Submission, proposal: "Proposal") -> int:
        """Tell what would become of the submission; nothing is stored."""
        from oar.cli import oarsub_estimate

        with self._hearing_rules():
            proposal, output, _ = submission.rehearse(self._context.database, self._context.runtime.config, proposal)
        self._print_output(output.out, output.err)
        for text in proposal.warnings:
            self._context.warn(text)
        return oarsub_estimate.show(self._context, proposal, given.array_limit or 0, self._options.machine)

    @contextmanager
    def _hearing_rules(self) -> Iterator[None]:
        """Print what rules have printed before they refused."""
        from oar.lib.admission import RuleFailed, RuleRefused

        try:
            yield
        except (RuleRefused, RuleFailed) as error:
            self._print_output(error.output.out, error.output.err)
            if isinstance(error, RuleFailed):
                self._log(error.trace)
            raise

    def _send(self, given: Submission, proposal: "Proposal") -> Submitted:
        runtime = self._context.runtime
        with self._stagein(given) as file_id, self._hearing_rules():
            given = given._replace(file_id=file_id)
            return submission.submit(self._context.database, runtime.config, given, proposal)

    @contextmanager
    def _stagein(self, given: Submission) -> Iterator[int | None]:
        """Have the file ready that the job is to fetch; its id.  Raises Stop."""
        path, md5sum = self._options.stagein, self._options.stagein_md5sum
        if path is None and md5sum is None:
            yield None
            return
        if "desktop_computing" not in JobTypes(given.types):
            self._context.warn("--stagein is only used by desktop_computing jobs.")
            yield None
            return
        from oar.cli import oarsub_stagein

        with oarsub_stagein.staged(self._context, self._files, path, md5sum) as file_id:
            yield file_id

    def _log(self, trace: str) -> None:
        """Write in the server's log what is wrong with a rule; a host without that log shows it nowhere."""
        import logging

        from oar.lib import logs

        try:
            with logs.logging_to(self._context.runtime.config, "oarsub"):
                logging.getLogger("oar.admission").error("%s", trace)
        except OSError:
            return

    def _print_output(self, out: str, err: str) -> None:
        if not self._is_quiet:
            click.echo(out, nl=False)
        click.echo(err, nl=False, err=True)

    def _tell(self, submitted: Submitted) -> None:
        """Print what other programs read."""
        self._print_output(submitted.output.out, submitted.output.err)
        for text in submitted.warnings:
            self._context.warn(text)
        self._export_keys(submitted)
        self._print_ids(submitted.ids)

    def _print_ids(self, ids: Sequence[int]) -> None:
        if self._options.machine is not None:
            from oar.lib.formats import dump

            for job_id in ids:
                click.echo(dump({"job_id": str(job_id)}, self._options.machine, one_line=True), nl=False)
            return
        if self._options.parsable:
            click.echo(ids[0])
            return
        click.echo("".join(f"OAR_JOB_ID={job_id}\n" for job_id in ids), nl=False)
        if len(ids) > 1:
            click.echo(f"OAR_ARRAY_ID={ids[0]}")

    def _export_keys(self, submitted: Submitted) -> None:
        pattern = self._options.key_export
        if pattern is None:
            return
        for job_id, key in submitted.keys.items():
            path = pattern.replace("%jobid%", str(job_id))
            self._explain(f"Export job key to file: {path}")
            try:
                self._files.write_secret(path, key.private)
            except OSError:
                self._context.warn(f"cannot write the key of job {job_id} to {path}.")

    # -- reservations -------------------------------------------------------------------------------------------------

    def _guess_window(self, reservation: str, now: int) -> None:
        window = parse_window(reservation, now)
        if window.stop:
            self._explain(window.guess())

    def _reserve(self, given: Submission, proposal: "Proposal", host: str) -> int:
        from oar.cli import oarsub_answer
        from oar.cli.oarsub_session import deleting_at_departure
        from oar.cli.staying import staying

        listener = oarsub_answer.Listener(self._context.runtime.config.server_hostname)
        address = f"{host}:{listener.port}"
        try:
            with staying(), deleting_at_departure(self._context, address):
                submitted = self._send(given, proposal._replace(info_type=address))
                self._tell(submitted)
                if given.hold:
                    self._comment(f"The reservation is held: oarresume {submitted.ids[0]} has it planned.")
                self._comment("Advance reservation request: waiting for validation...")
                answer = oarsub_answer.wait(self._context.database, submitted.ids[0], listener)
        finally:
            listener.close()
        self._comment(
            "Reservation valid --> OK" if answer.is_granted else f"Reservation not valid --> KO ({answer.reason})"
        )
        self._run_hook(submitted.ids[0], granted=answer.is_granted)
        return self._stay(submitted.ids) if answer.is_granted else Code.REFUSED_RESERVATION

    def _comment(self, text: str) -> None:
        if not self._is_quiet:
            click.echo(f"# {text}")

    def _run_hook(self, job_id: int, *, granted: bool) -> None:
        hook = self._context.runtime.config.advance_reservation_validation_hook_exec_file
        if not hook:
            return
        import subprocess

        try:
            code = subprocess.run([hook, str(job_id), str(int(granted))], check=False).returncode
        except OSError:
            code = -1
        if code:
            raise Stop("# Error: an error occured in the advance reservation validation hook")

    # -- jobs that exist ----------------------------------------------------------------------------------------------

    def _resubmit(self, job_id: int) -> int:
        from oar.lib import resubmission

        if self._given - WITH_RESUBMIT:
            self._context.warn(f"job {job_id} is submitted as it was: the other options are ignored.")
        if self._options.verbosity and not self._is_quiet:
            click.echo(f"# Resubmitting job {job_id}...", nl=False)
        try:
            with self._context.database.begin() as tx:
                new = resubmission.resubmit(tx, self._context.runtime.config, self._context.user, job_id)
        except UserError as error:
            raise Stop(f"# Error: {error}", Code.RESUBMIT) from None
        if self._options.verbosity and not self._is_quiet:
            click.echo("# DONE")
        self._print_ids([new])
        return self._stay([new])


def _typed_names() -> frozenset[str]:
    """Return the names of the options that stand on the command line."""
    ctx = click.get_current_context()
    return frozenset(
        name for name in Options._fields if ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
    )


def _connected(options: Options) -> int | None:
    """Return the job that -C names; its number may stand behind other options.  Raises Stop."""
    if options.connect[-1] is not None or not options.words:
        return options.connect[-1]
    word = options.words[0]
    if not (word.isascii() and word.isdigit() and len(word) <= LONGEST_ID):
        raise Stop(f'# Error: "{word}" is not the number of a job.', Code.CONNECT)
    return int(word)


def _check_waiting(options: Options) -> None:
    """Refuse what does not go with --wait, --estimate and --parsable.  Raises Stop."""
    if not {None, "kill"}.issuperset(options.wait):
        raise Stop("# Error: --wait takes nothing, or kill behind an equals sign.")
    if options.wait and (options.interactive or options.connect):
        raise Stop("# Error: --wait is for batch jobs: a session ends when you leave it.")
    if options.estimate and (options.resubmit is not None or options.connect):
        raise Stop("# Error: --estimate is for a new submission: --resubmit and --connect do not go with it.")
    if options.parsable and options.machine is not None:
        raise Stop("# Error: --parsable and a machine format are exclusive.")


def _modes(options: Options, command: str) -> Any:
    """Return what decides whether the options that were typed go together; a script may still add to them."""
    typed = Submission(
        user="",
        command=command or ("-" if options.scan else ""),
        is_interactive=options.interactive,
        reservation=options.reservation,
        types=options.types,
        notify=options.notify,
    )
    return typed.modes


if __name__ == "__main__":
    main()
