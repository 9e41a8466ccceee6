"""One call of oarsub: its options, user, configuration, database and files, and its output."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import click

from oar.cli.common.command import Context
from oar.cli.oarsub_parts.options import OarsubOptions
from oar.lib.user_files.files import UserFiles

if TYPE_CHECKING:
    from oar.lib.submission.admission_rules import RuleOutput


def print_error(text: str) -> None:
    """Print a line on stderr; a text of the user may hold bytes that are no UTF-8."""
    click.echo(text.encode("utf-8", "backslashreplace").decode(), err=True)


class Printer:
    """Prints for one call of oarsub; quiet (only ids go to stdout) if a program reads the output."""

    def __init__(self, options: OarsubOptions) -> None:
        self._machine = options.machine
        self._is_parsable = options.parsable
        self.is_quiet = options.machine is not None or options.parsable
        self.is_verbose = bool(options.job.verbosity) and not self.is_quiet

    def comment(self, text: str) -> None:
        """Print a comment."""
        if not self.is_quiet:
            click.echo(f"# {text}")

    def explain(self, text: str) -> None:
        """Print a message with -v only."""
        if self.is_verbose:
            click.echo(f"# {text}")

    def ids(self, ids: Sequence[int]) -> None:
        """Print the ids of new jobs, in the format that was chosen."""
        if self._machine is not None:
            from oar.lib.base.formats import dump

            for job_id in ids:
                click.echo(dump({"job_id": str(job_id)}, self._machine, one_line=True), nl=False)
        elif self._is_parsable:
            click.echo(ids[0])
        else:
            click.echo("".join(f"OAR_JOB_ID={job_id}\n" for job_id in ids), nl=False)
            if len(ids) > 1:
                click.echo(f"OAR_ARRAY_ID={ids[0]}")

    def rule_output(self, output: "RuleOutput") -> None:
        """Print the output of admission rules."""
        if not self.is_quiet:
            click.echo(output.out, nl=False)
        click.echo(output.err, nl=False, err=True)

    @contextmanager
    def showing_refusals(self) -> Iterator[None]:
        """Print the output of the admission rules if one of them refuses or fails."""
        from oar.lib.submission.admission_rules import RuleFailed, RuleRefused

        try:
            yield
        except (RuleRefused, RuleFailed) as error:
            self.rule_output(error.output)
            raise


class OarsubCall(NamedTuple):
    """One call of oarsub: user, configuration and database, options, files of the user, output."""

    context: Context
    options: OarsubOptions
    files: UserFiles
    printer: Printer

    @property
    def host(self) -> str:
        """The name of this host for the server, which calls an oarsub that waits."""
        return self.context.runtime.config.oarsub_local_address or os.uname().nodename
