"""oaradmissionrules: show, add, change, remove and try the rules of submission (commands-admin.md 7)."""

import os
import pwd
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import click

from oar.cli import oarsub_options
from oar.cli.administration import note
from oar.cli.command import ADMIN, NUMBER, Context, Stop, oar_command, option, optional_argument
from oar.cli.selection import show_usage
from oar.lib import admission
from oar.lib.db.engine import Transaction
from oar.lib.db.queues import Rule
from oar.lib.proposal import Proposal
from oar.lib.request import format_request
from oar.lib.times import format_date

FAILED, NO_RULE, BAD_TEXT = 1, 2, 3


class Wish(NamedTuple):
    """What is asked, as it was given."""

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
        """Whether enabled (True) or disabled (False) rules are meant; None if nothing is said."""
        if self.enabled and self.disabled:
            raise Stop("Error: you cannot use both --enabled and --disabled at a same time")
        return True if self.enabled else False if self.disabled else None


@oar_command("oaradmissionrules", summary="Show, add, change, remove and try admission rules.", style=ADMIN)
@option("-S", "--show-all", is_flag=True, help="Show the rules in the order in which they run.")
@option("-s", "--show", type=NUMBER, metavar="ID", help="Show one rule.")
@option("-Y", "--enabled", is_flag=True, help="Enabled rules only; the rule becomes enabled.")
@option("-N", "--disabled", is_flag=True, help="Disabled rules only; the rule becomes disabled.")
@option("-I", "--id", "ids_only", is_flag=True, help="Show ids only.")
@option("-f", "--full", is_flag=True, help="Show the whole text.")
@option("-H", "--no-header", is_flag=True, help="Show the text only.")
@optional_argument("-w", "--to-file", metavar="[NAME]", help="Write to a file; %% in NAME stands for the id.")
@option("-n", "--new", is_flag=True, help="Add a rule.")
@option("-m", "--modify", type=NUMBER, metavar="ID", help="Change a rule.")
@optional_argument("-e", "--edit", metavar="[COMMAND]", help="Write the text with an editor.")
@option("-r", "--from-file", metavar="FILE", help="Take the text from FILE; -: stdin.")
@option("-P", "--priority", type=NUMBER, metavar="N", help="Rules run in the order of their priorities.")
@option("-d", "--delete", type=NUMBER, metavar="ID", help="Remove a rule.")
@optional_argument("--check", numeric=True, metavar="[ID]", help="Compile the rules and run none.")
@option("--test", is_flag=True, help="Run the rules on the oarsub arguments behind --, and store nothing.")
@option("--as", "as_user", metavar="USER", help="With --test: who submits.")
@option("--history", type=NUMBER, metavar="ID", help="Show the former texts of a rule.")
@option("--force", is_flag=True, help="Store a text that is not Python, disabled.")
@click.argument("words", nargs=-1, metavar="[-- OARSUB ARGUMENTS]")
def main(context: Context, **given: Any) -> int | None:
    """Do the one thing that is asked."""
    wish = Wish(**given)
    if wish.show_all or wish.show is not None:
        return _show(context, wish)
    actions = {
        _create: wish.new,
        _modify: wish.modify is not None,
        _delete: wish.delete is not None,
        _check: bool(wish.check),
        _test: wish.test,
        _history: wish.history is not None,
    }
    for action, is_asked in actions.items():
        if is_asked:
            context.require_admin()
            return action(context, wish)
    return show_usage()


def _found(tx: Transaction, rule_id: int | None) -> Rule:
    rule = tx.queues.rule(rule_id or 0)
    if rule is None:
        raise Stop("Error: could not retrieve admission rule from database", NO_RULE)
    return rule


# -- looking ----------------------------------------------------------------------------------------------------------


def _show(context: Context, wish: Wish) -> int:
    """Show rules, under the login that only reads: everybody may."""
    with context.database.readonly() as tx:
        rules = tx.queues.rules(enabled=wish.state) if wish.show_all else [_found(tx, wish.show)]
    for rule in rules:
        if wish.to_file:
            _write(rule, wish.to_file[-1])
        elif wish.ids_only:
            click.echo(rule.id)
        else:
            click.echo(_shown(rule, wish))
    return 0


def _shown(rule: Rule, wish: Wish) -> str:
    text = rule.text.rstrip("\n")
    if wish.no_header:
        return text
    body = text if wish.full else text.partition("\n")[0]
    return f"--- ({'' if rule.enabled else 'DISABLED/'}{rule.priority}) RULE #{rule.id}\n{body}\n---"


def _write(rule: Rule, name: str | None) -> None:
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


def _history(context: Context, wish: Wish) -> int:
    with context.database.begin() as tx:
        changes = tx.queues.rule_history(wish.history or 0)
        if not changes:
            rule = _found(tx, wish.history)
            click.echo(f"Admission rule #{rule.id} has not been changed since the database was made.")
    for date, author, action, text in changes:
        click.echo(f"--- {format_date(date)} {author} {action} RULE #{wish.history}\n{text.rstrip()}\n---")
    return 0


# -- changing ---------------------------------------------------------------------------------------------------------


def _create(context: Context, wish: Wish) -> int:
    text, path = _text(context, wish, "", must_edit=True)
    if not text.strip():
        raise Stop("Aborted, empty rule.")
    is_enabled = wish.state is not False and _compiles(text, path, wish)
    with context.database.begin() as tx:
        author = context.user.name
        rule_id = tx.queues.insert_rule(text, priority=wish.priority or 0, enabled=is_enabled, author=author)
    note(context)
    click.echo(f"New admission rule created: #{rule_id}")
    return 0


def _modify(context: Context, wish: Wish) -> int:
    is_text = bool(wish.edit) or wish.from_file is not None
    if not is_text and wish.priority is None and wish.state is None:
        raise Stop("Error: no modification was requested")
    with context.database.begin() as tx:
        former = _found(tx, wish.modify)
    text, path = _text(context, wish, former.text, must_edit=False)
    compiles = not is_text or _compiles(text, path, wish)
    is_enabled = former.enabled if wish.state is None else wish.state
    priority = former.priority if wish.priority is None else wish.priority
    with context.database.begin() as tx:
        _found(tx, former.id)
        tx.queues.update_rule(Rule(former.id, priority, is_enabled and compiles, text), context.user.name)
    note(context)
    click.echo(f"Admission rule modified: #{former.id}")
    return 0


def _delete(context: Context, wish: Wish) -> int:
    with context.database.begin() as tx:
        tx.queues.delete_rule(_found(tx, wish.delete), context.user.name)
    note(context)
    click.echo(f"Admission rule deleted: #{wish.delete}")
    return 0


def _unopened(path: str, error: OSError, way_out: str = "") -> Stop:
    """What is said of a file that cannot be opened: root's own files are closed to oar, who runs this."""
    account = pwd.getpwuid(os.geteuid()).pw_name
    whose = f" for the account {account}{way_out}" if isinstance(error, PermissionError) else ""
    return Stop(f"Error: could not open {path}: {error.strerror}{whose}")


def _text(context: Context, wish: Wish, former: str, *, must_edit: bool) -> tuple[str, str]:
    """Return the text that is given for a rule, and the file in which it stands."""
    if wish.edit and wish.from_file is not None:
        raise Stop("Error: you cannot use both --edit and --from-file at a same time")
    if wish.from_file is not None:
        return _read(wish.from_file), wish.from_file
    if wish.edit or must_edit:
        return _edited(former, _editor(context, wish.edit[-1] if wish.edit else None))
    return former, ""


def _read(path: str) -> str:
    if path == "-":
        return sys.stdin.buffer.read().decode("utf-8", "replace")
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError as error:
        raise _unopened(path, error, f"; give it on standard input: -r - < {path}") from None


def _editor(context: Context, given: str | None) -> list[str]:
    import shlex
    import shutil

    named = given or context.environment.get("EDITOR")
    return shlex.split(named) if named else ["editor" if shutil.which("editor") else "vi"]


def _edited(text: str, editor: Sequence[str]) -> tuple[str, str]:
    """Let somebody edit a text; return it with the file, which is left for a text that is not stored."""
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
    if admission.explain_bad_text(0, result) is None:
        os.unlink(path)
    return result, path


def _compiles(text: str, path: str, wish: Wish) -> bool:
    """Whether a text is Python; one that is not is stored only by force."""
    error = admission.explain_bad_text(0, text)
    if error is not None and not wish.force:
        raise Stop(f"Error: {path}: {error}", BAD_TEXT)
    return error is None


# -- trying -----------------------------------------------------------------------------------------------------------


def _check(context: Context, wish: Wish) -> int:
    with context.database.begin() as tx:
        rules = [_found(tx, wish.check[-1])] if wish.check[-1] is not None else tx.queues.rules()
    errors = [(rule.id, error) for rule in rules if (error := admission.explain_bad_text(rule.id, rule.text))]
    for rule_id, text in errors:
        click.echo(f"#{rule_id}: {text}")
    return FAILED if errors else 0


def _test(context: Context, wish: Wish) -> int:
    """Run the rules on a submission that is not made."""
    import time

    from oar.lib import submission
    from oar.lib.submission_checks import BadSubmission

    options = oarsub_options.parse(wish.words)
    command = oarsub_options.command_of(options.words, None)
    given = oarsub_options.submission_of(options, _submitter(context, wish.as_user), command)
    given = given._replace(initial_request=oarsub_options.initial_request(wish.words))
    config = context.runtime.config
    try:
        proposal = submission.prepare(given, config, int(time.time()))
        proposal, output, size = submission.rehearse(context.database, config, proposal)
    except (admission.RuleRefused, admission.RuleFailed) as error:
        _print_steps(error.output)
        trace = error.trace if isinstance(error, admission.RuleFailed) else str(error)
        raise Stop(trace, error.exit_code) from None
    except BadSubmission as error:
        raise Stop(f"{error.prefix}{error}", error.exit_code) from None
    _print_steps(output)
    for name, value in _left(proposal):
        if value:
            click.echo(f"{name} = {value}")
    click.echo(f"resources = {size}")
    return 0


def _submitter(context: Context, name: str | None) -> str:
    """Return who is supposed to submit."""
    if name is None:
        return context.user.name
    try:
        return pwd.getpwnam(name).pw_name
    except KeyError:
        raise Stop(f"Error: --as {name}: there is no user of that name on this machine") from None


def _left(proposal: Proposal) -> Iterator[tuple[str, object]]:
    """What the rules have left of a submission: names as rules know them, values as users write them."""
    yield "user", proposal.user
    yield "job_type", proposal.job_type
    for request in proposal.requests:
        yield "resource_request", format_request(request.groups, request.walltime)
    yield "properties", proposal.properties
    yield "properties_applied_after_validation", proposal.later_properties
    yield "reservation_date", proposal.start and format_date(proposal.start)
    yield "types", " ".join(proposal.types)
    yield "dependencies", " ".join(proposal.dependencies)
    for name in ("queue", "project", "name", "command", "directory", "stdout", "stderr", "notify", "hold"):
        yield name, getattr(proposal, name)
    if proposal.checkpoint:
        yield "checkpoint", proposal.checkpoint
        yield "signal", proposal.signal
    yield "array_nb", proposal.array_size > 1 and proposal.array_size


def _print_steps(output: admission.Output) -> None:
    for rule_id, text in output.by_rule:
        for line in text.splitlines():
            click.echo(f"#{rule_id}: {line}")


if __name__ == "__main__":
    main()
