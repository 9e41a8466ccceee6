"""oaradmissionrules: show, add, change, remove and try admission rules."""

import os
import pwd
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import click

from oar.cli.common.administration import command_words, note
from oar.cli.common.command import Context, oar_command
from oar.cli.common.job_selection import show_usage
from oar.cli.common.options import ADMIN, NUMBER, SMALL_NUMBER, Stop, option, optional_argument
from oar.cli.oarsub_parts import options as oarsub_options
from oar.cli.oarsub_parts.command_line import join_words
from oar.lib.access import name_service
from oar.lib.base.times import format_date
from oar.lib.db.transaction import Transaction
from oar.lib.submission import admission_rules, rule_changes
from oar.lib.submission.options import initial_request, spec_of
from oar.lib.submission.preparation import Proposal
from oar.lib.submission.resource_request import texts_of
from oar.lib.submission.rule_changes import BadRuleText
from oar.lib.submission.sql_admission import AdmissionRule

FAILED, NO_RULE, BAD_TEXT = 1, 2, 3

#: What one call does; it returns the exit code.
Action = Callable[[Context, "RuleOptions"], int]


class RuleOptions(NamedTuple):
    """The options of one call."""

    show_all: bool
    show: int | None
    enabled: bool
    disabled: bool
    ids_only: bool
    full: bool
    no_header: bool
    to_file: tuple[str | None, ...]
    new: bool
    modify: int | None
    edit: tuple[str | None, ...]
    from_file: str | None
    priority: int | None
    delete: int | None
    check: tuple[int | None, ...]
    test: bool
    as_user: str | None
    history: int | None
    force: bool
    words: tuple[str, ...]

    @property
    def state(self) -> bool | None:
        """Whether enabled (True) or disabled (False) rules are meant; None without such an option."""
        if self.enabled and self.disabled:
            raise Stop("Error: you cannot use both --enabled and --disabled at a same time")
        return True if self.enabled else False if self.disabled else None


@oar_command(
    "oaradmissionrules",
    summary="Show, add, change, remove and test admission rules.",
    examples={
        "oaradmissionrules --show-all": "List the rules in the order in which they run.",
        "oaradmissionrules --new --priority 20 --from-file - < rule.py": "Add a rule.",
        "oaradmissionrules --test --as alice -- -l nodes=2 ./solve": "Run the rules on a job of alice; submit nothing.",
    },
    style=ADMIN,
)
@option("-S", "--show-all", is_flag=True, help="Show the rules in the order in which they run.")
@option("-s", "--show", type=NUMBER, metavar="ID", help="Show one rule.")
@option("-Y", "--enabled", is_flag=True, help="Show enabled rules only; with -n or -m: enable the rule.")
@option("-N", "--disabled", is_flag=True, help="Show disabled rules only; with -n or -m: disable the rule.")
@option("-I", "--id", "ids_only", is_flag=True, help="Show ids only.")
@option("-f", "--full", is_flag=True, help="Show the whole text.")
@option("-H", "--no-header", is_flag=True, help="Show the text only.")
@optional_argument("-w", "--to-file", metavar="[NAME]", help="Write to a file; %% in NAME is replaced by the id.")
@option("-n", "--new", is_flag=True, help="Add a rule.")
@option("-m", "--modify", type=NUMBER, metavar="ID", help="Change a rule.")
@optional_argument("-e", "--edit", metavar="[COMMAND]", help="Edit the text in an editor.")
@option("-r", "--from-file", metavar="FILE", help="Read the text from FILE; -: standard input.")
@option("-P", "--priority", type=SMALL_NUMBER, metavar="N", help="Priority; rules run in ascending order.")
@option("-d", "--delete", type=NUMBER, metavar="ID", help="Remove a rule.")
@optional_argument(
    "--check", numeric=True, is_list=False, metavar="[ID]", help="Compile the rules without running them."
)
@option("--test", is_flag=True, help="Run the rules on the oarsub arguments after --; store nothing.")
@option("--as", "as_user", metavar="USER", help="With --test: user who submits.")
@option("--history", type=NUMBER, metavar="ID", help="Show previous versions of a rule.")
@option("--force", is_flag=True, help="Store a text that is not valid Python as a disabled rule.")
@click.argument("words", nargs=-1, metavar="[-- OARSUB ARGUMENTS]")
def main(context: Context, **values: Any) -> int | None:
    """Run the action that the options choose."""
    options = RuleOptions(**values)
    if options.words and not options.test:
        way_out = f"Write: oaradmissionrules --test -- {' '.join(options.words)}"
        raise click.UsageError(f"Unexpected argument: {options.words[0]}: only --test takes arguments. {way_out}")
    if options.as_user is not None and not options.test:
        raise click.UsageError("--as needs --test. Write: oaradmissionrules --test --as USER -- OARSUB ARGUMENTS")
    action = _chosen(options)
    if action is None:
        return show_usage()
    if action is not _show:
        context.require_admin()
    return action(context, options)


def _chosen(options: RuleOptions) -> Action | None:
    """Return the requested action, None without one.  Raises UsageError for several."""
    actions: Mapping[str, tuple[Action, bool]] = {
        "--show-all": (_show, options.show_all),
        "--show": (_show, options.show is not None),
        "--new": (_create, options.new),
        "--modify": (_modify, options.modify is not None),
        "--delete": (_delete, options.delete is not None),
        "--check": (_check, bool(options.check)),
        "--test": (_test, options.test),
        "--history": (_history, options.history is not None),
    }
    chosen = {name: action for name, (action, is_chosen) in actions.items() if is_chosen}
    if len(chosen) > 1:
        raise click.UsageError(f"Only one action at a time: {' or '.join(chosen)}.")
    return next(iter(chosen.values()), None)


def _rule(tx: Transaction, rule_id: int | None) -> AdmissionRule:
    rule = tx.admission_rules.find(rule_id or 0)
    if rule is None:
        raise Stop(f"Unknown rule: {rule_id}. List the rules with -S.", NO_RULE)
    return rule


# -- showing ----------------------------------------------------------------------------------------------------------


def _show(context: Context, options: RuleOptions) -> int:
    """Show rules, which everybody may read: under the read-only login.  Files are written with the rights of oar."""
    if options.to_file:
        context.require_admin()
    with context.database.readonly() as tx:
        rules = tx.admission_rules.all(enabled=options.state) if options.show_all else [_rule(tx, options.show)]
    for rule in rules:
        if options.to_file:
            _write(rule, options.to_file[-1])
        elif options.ids_only:
            click.echo(rule.id)
        elif options.no_header:
            click.echo(rule.text.rstrip("\n"))
        else:
            text = rule.text.rstrip("\n") if options.full else rule.text.partition("\n")[0]
            click.echo(f"--- ({'' if rule.enabled else 'DISABLED/'}{rule.priority}) RULE #{rule.id}\n{text}\n---")
    return 0


def _write(rule: AdmissionRule, name: str | None) -> None:
    """Write a rule to a file that does not exist yet."""
    if name is None:
        file, path = tempfile.mkstemp(prefix=f"OAR-admission-rule.{rule.id}.")
    else:
        path = name.replace("%%", str(rule.id))
        try:
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:
            raise Stop(f"Error: cannot write rule #{rule.id} to file {path}, file already exists") from None
        except OSError as error:
            raise _unopened(path, error) from None
    with os.fdopen(file, "w", encoding="utf-8") as out:
        out.write(rule.text)
    click.echo(f"Admission rule #{rule.id} written to {path}")


def _history(context: Context, options: RuleOptions) -> int:
    with context.database.begin() as tx:
        changes = tx.admission_rules.history(options.history or 0)
        if not changes:
            rule = _rule(tx, options.history)
            click.echo(f"Admission rule #{rule.id} has not been changed since the database was made.")
    for date, author, action, text in changes:
        click.echo(f"--- {format_date(date)} {author} {action} RULE #{options.history}\n{text.rstrip()}\n---")
    return 0


# -- changing ---------------------------------------------------------------------------------------------------------


def _create(context: Context, options: RuleOptions) -> int:
    text, path = _text(context, options, "", must_edit=True)
    if not text.strip():
        raise Stop("Aborted, empty rule.")
    is_enabled, priority = options.state is not False, options.priority or 0
    with _compiling(path), context.database.begin() as tx:
        rule_id = rule_changes.create(
            tx, context.user, text, priority=priority, enabled=is_enabled, force=options.force
        )
        rule = _rule(tx, rule_id)
    note(context)
    click.echo(f"New admission rule created: #{rule_id}")
    _warn_if_disabled(context, rule, should_be_enabled=is_enabled)
    return 0


def _modify(context: Context, options: RuleOptions) -> int:
    has_text = bool(options.edit) or options.from_file is not None
    if not has_text and options.priority is None and options.state is None:
        raise Stop("Error: no modification was requested")
    with context.database.begin() as tx:
        former = _rule(tx, options.modify)
    text, path = _text(context, options, former.text, must_edit=False)
    with _compiling(path or f"rule #{former.id}"), context.database.begin() as tx:
        _rule(tx, former.id)
        rule = rule_changes.modify(
            tx,
            context.user,
            former.id,
            text=text if has_text else None,
            priority=options.priority,
            enabled=options.state,
            force=options.force,
        )
    note(context)
    click.echo(f"Admission rule modified: #{former.id}")
    _warn_if_disabled(context, rule, should_be_enabled=bool(options.state))
    return 0


def _warn_if_disabled(context: Context, rule: AdmissionRule, *, should_be_enabled: bool) -> None:
    if should_be_enabled and not rule.enabled:
        context.warn(f"rule #{rule.id} is disabled: its text is not valid Python. Correct it, then enable it (-Y).")


def _delete(context: Context, options: RuleOptions) -> int:
    with context.database.begin() as tx:
        rule_changes.delete(tx, context.user, _rule(tx, options.delete).id)
    note(context)
    click.echo(f"Admission rule deleted: #{options.delete}")
    return 0


def _unopened(path: str, error: OSError, way_out: str = "") -> Stop:
    """Return the error for a file that cannot be opened; files of root may be closed to oar, which runs this."""
    account = pwd.getpwuid(os.geteuid()).pw_name
    whose = f" for the account {account}{way_out}" if isinstance(error, PermissionError) else ""
    return Stop(f"Error: could not open {path}: {error.strerror}{whose}")


def _text(context: Context, options: RuleOptions, former: str, *, must_edit: bool) -> tuple[str, str]:
    """Return the new text of a rule, and the file that holds it, '' if there is none."""
    if options.edit and options.from_file is not None:
        raise Stop("Error: you cannot use both --edit and --from-file at a same time")
    if options.from_file is not None:
        return _read(options.from_file), options.from_file
    if options.edit or must_edit:
        return _edited(former, _editor(context, options.edit[-1] if options.edit else None))
    return former, ""


def _read(path: str) -> str:
    if path == "-":
        return sys.stdin.buffer.read().decode("utf-8", "replace")
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError as error:
        raise _unopened(path, error, f"; use standard input: -r - < {path}") from None


def _editor(context: Context, command: str | None) -> list[str]:
    """Return the command line of the editor; ``command``: value of the option."""
    import shutil

    for source, text in (("--edit", command), ("EDITOR", context.environment.get("EDITOR"))):
        if text:
            return command_words(source, text)
    return ["editor" if shutil.which("editor") else "vi"]


def _edited(text: str, editor: Sequence[str]) -> tuple[str, str]:
    """Let the user edit a text; return it with its file, which is left if the text does not compile."""
    import subprocess

    file, path = tempfile.mkstemp(prefix="OAR-admission-rule.", suffix=".py")
    with os.fdopen(file, "w", encoding="utf-8") as out:
        out.write(text)
    try:
        code = subprocess.run([*editor, path], check=False).returncode
    except OSError as error:
        os.unlink(path)
        raise Stop(f"Error: could not start {editor[0]}: {error.strerror}") from None
    with open(path, encoding="utf-8", errors="replace") as edited:
        result = edited.read()
    if code:
        is_changed = result != text
        if not is_changed:
            os.unlink(path)
        raise Stop(f"Editor process exited with value {code}" + (f"; the text is in {path}" if is_changed else ""))
    if admission_rules.explain_bad_text(0, result) is None:
        os.unlink(path)
    return result, path


@contextmanager
def _compiling(path: str) -> Iterator[None]:
    """Name the file or the rule whose text does not compile.  Raises Stop."""
    try:
        yield
    except BadRuleText as error:
        raise Stop(f"Error: {path}: {error}", BAD_TEXT) from None


# -- trying -----------------------------------------------------------------------------------------------------------


def _check(context: Context, options: RuleOptions) -> int:
    """Compile one rule of the database, or all rules from where submissions read them."""
    rule_id, config = options.check[-1], context.runtime.config
    with context.database.begin() as tx:
        if rule_id is not None:
            rules = [_rule(tx, rule_id)]
        elif config.admission_rules_in_files:
            rules = admission_rules.read_rules(config.admission_rules_path)
        else:
            rules = tx.admission_rules.all()
    errors = [(rule.id, error) for rule in rules if (error := admission_rules.explain_bad_text(rule.id, rule.text))]
    for rule_id, text in errors:
        click.echo(f"#{rule_id}: {text}")
    return FAILED if errors else 0


def _test(context: Context, options: RuleOptions) -> int:
    """Run the rules on a submission, and print the result; nothing is stored."""
    import time

    from oar.lib.submission import admission, preparation
    from oar.lib.submission.checks import BadSubmission

    parsed = oarsub_options.parse(options.words)
    command = join_words(parsed.words, None)
    try:
        user = name_service.account(options.as_user).pw_name if options.as_user is not None else context.user.name
    except KeyError:
        raise Stop(f"Error: --as {options.as_user}: this machine has no user with this name") from None
    spec = spec_of(parsed.job, user, command)._replace(initial_request=initial_request(options.words))
    config = context.runtime.config
    try:
        proposal = preparation.prepare(parsed.job, spec, config, int(time.time()))
        admitted = admission.rehearse(context.database, config, proposal)
    except (admission_rules.RuleRefused, admission_rules.RuleFailed) as error:
        _print_output(error.output)
        trace = error.trace if isinstance(error, admission_rules.RuleFailed) else str(error)
        raise Stop(trace, error.exit_code) from None
    except BadSubmission as error:
        raise Stop(f"{error.prefix}{error}", error.exit_code) from None
    _print_output(admitted.output)
    for name, value in _result(admitted.proposal):
        if value:
            click.echo(f"{name} = {value}")
    click.echo(f"resources = {admitted.size}")
    return 0


def _result(proposal: Proposal) -> Iterator[tuple[str, object]]:
    """Yield the result of the rules: names as rules know them, values as users write them."""
    spec = proposal.spec
    yield "user", spec.user
    yield "job_type", proposal.job_type
    for text in texts_of(proposal.requests):
        yield "resource_request", text
    yield "properties", spec.properties
    yield "properties_applied_after_validation", proposal.later_properties
    yield "reservation_date", proposal.start and format_date(proposal.start)
    yield "types", " ".join(spec.types)
    yield "dependencies", " ".join(spec.dependencies)
    yield "queue", spec.queue
    yield "project", spec.project
    yield "name", spec.name
    yield "command", spec.command
    yield "directory", spec.launching_directory
    yield "stdout", spec.stdout_file
    yield "stderr", spec.stderr_file
    yield "notify", spec.notify
    yield "hold", spec.hold
    if spec.checkpoint:
        yield "checkpoint", spec.checkpoint
        yield "signal", spec.checkpoint_signal
    yield "array_nb", spec.array_size > 1 and spec.array_size


def _print_output(output: admission_rules.RuleOutput) -> None:
    for rule_id, text in output.by_rule:
        for line in text.splitlines():
            click.echo(f"#{rule_id}: {line}")


if __name__ == "__main__":
    main()
