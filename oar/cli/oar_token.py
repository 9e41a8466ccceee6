"""oar-token: make, list and revoke tokens, with which programs use the REST API as you."""

import sys
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import click

from oar.cli.common.command import Context, oar_command
from oar.cli.common.options import DIGITS, NUMBER, OneOf, Stop, machine_formats, option
from oar.lib.access import accounts, tokens
from oar.lib.access.scopes import SCOPES
from oar.lib.base.errors import UserError
from oar.lib.base.formats import Format, dump

if TYPE_CHECKING:
    from oar.lib.access.sql_access import ApiToken

_ALL = "all"
DEFAULT_SCOPE = "rw"
_LONGEST_ID = 18
_SCOPES = "; ".join(f"{scope} = {text}" for scope, text in SCOPES.items())


@oar_command(
    "oar-token",
    summary="Create, list and revoke tokens with which programs use the REST API as you.",
    examples={
        "oar-token create --scope ro --expires 30 --comment dashboard": "Create a read-only token for 30 days.",
        "oar-token list": "List your tokens.",
        "oar-token revoke 3": "Revoke token 3.",
    },
)
@click.argument("action", type=OneOf(["create", "list", "revoke"]))
@option("--scope", default=DEFAULT_SCOPE, metavar="SCOPE", help=f"Permissions: {_SCOPES}.")
@option("--agent", default=None, metavar="NAME", help="Create the token for the agent of this desktop computer (node).")
@option("--expires", type=NUMBER, default=None, metavar="DAYS", help="Lifetime of the token (default: 90 days).")
@option("--comment", default="", metavar="TEXT", help="Purpose of the token.")
@option("--user", default=None, metavar="NAME", help="Create the token for this user (oar and root only).")
@option("--everybody", is_flag=True, help="List the tokens of all users (oar and root only).")
@machine_formats
@click.argument("identifiers", nargs=-1, metavar="[ID|all]...")
def main(
    context: Context,
    *,
    action: str,
    scope: str,
    agent: str | None,
    expires: int | None,
    comment: str,
    user: str | None,
    everybody: bool,
    machine: Format | None,
    identifiers: tuple[str, ...],
) -> None:
    """Execute the action in one transaction."""
    if user is not None and action != "create":
        raise Stop(f"{action} takes no --user")
    if agent is not None and (action != "create" or scope != DEFAULT_SCOPE):
        raise Stop("--agent needs create, and excludes --scope")
    if identifiers and action != "revoke":
        raise Stop(f"{action} takes no identifiers")
    try:
        if action == "create":
            granted_scope = scope if agent is None else f"agent:{agent}"
            _create(context, machine, owner=user, scope=granted_scope, expires=expires, comment=comment)
        elif action == "list":
            with context.database.snapshot() as tx:
                shown = tokens.listed(tx, context.user, everybody=everybody)
            _show(shown, machine)
        else:
            _revoke(context, identifiers)
    except UserError as error:
        raise Stop(f"# Error: {error}") from None


def _create(
    context: Context, machine: Format | None, *, owner: str | None, scope: str, expires: int | None, comment: str
) -> None:
    config = context.runtime.config
    with context.database.begin() as tx:
        user = tokens.owner_of(accounts.with_rights(context.user, config), owner, config)
        days = tokens.days_of(expires, config)
        token_id, token = tokens.create(tx, user, scope=scope, days=days, comment=comment, maker=context.user)
    if machine:
        click.echo(dump({"id": token_id, "token": token}, machine), nl=False)
        return
    click.echo(token)
    click.echo(f"# Token {token_id}, valid for {days} days; it is not shown again.", err=True)


def _revoke(context: Context, identifiers: Sequence[str]) -> None:
    if not identifiers:
        raise Stop(f"revoke: no token id is given. List the ids with oar-token list, or write {_ALL}.")
    is_all = identifiers == (_ALL,)
    wrong = [text for text in identifiers if not (DIGITS.issuperset(text) and 0 < len(text) <= _LONGEST_ID)]
    if wrong and not is_all:
        raise Stop(f'"{wrong[0]}" is not a token id. List the ids with: oar-token list')
    with context.database.begin() as tx:
        revoked = tokens.revoke(tx, context.user, None if is_all else [int(text) for text in identifiers])
    click.echo(f"revoked: {', '.join(map(str, revoked)) or 'none'}")


def _show(shown: Sequence["ApiToken"], machine: Format | None) -> None:
    if machine:
        records = [token._asdict() for token in shown]
        for record in records:
            del record["revoked"]  # revoked tokens are not shown
        click.echo(dump(records, machine), nl=False)
        return
    for token in shown:
        used = _day(token.last_used) if token.last_used else "never"
        text = f"{token.id}  {token.user}  {token.scope}  until {_day(token.expires)}  used {used}  {token.comment}"
        click.echo(text.rstrip())


def _day(date: int) -> str:
    return datetime.fromtimestamp(date).strftime("%Y-%m-%d")


if __name__ == "__main__":
    sys.exit(main())
