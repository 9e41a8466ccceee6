"""oar-token: what it prints, and what programs can do with what it gives."""

import json

import pytest

from oar.cli import oar_token
from oar.cli.common.command import CommandResult
from oar.lib.access.tokens import MOST_TOKENS, digest_of
from oar.lib.config.files import Config
from tests.db.console import EVE, Console


def _create(console: Console, *words: str) -> str:
    return console.type(oar_token.main, "create", *words, user=EVE).out.strip()


def _ids(console: Console) -> list[int]:
    records = json.loads(console.type(oar_token.main, "list", "--everybody", "-J").out)
    return [record["id"] for record in records]


def _user_of(console: Console, token: str) -> str | None:
    with console.database.snapshot() as tx:
        found = tx.access.find_token(digest_of(token) or "")
    return found.user if found else None


def test_a_token_is_shown_once_and_stored_as_a_sum(console: Console) -> None:
    done = console.type(oar_token.main, "create", "--comment", "dashboard", user=EVE)
    token = done.out.strip()
    assert (len(token), token[:4], _user_of(console, token)) == (47, "oar_", "eve")
    assert done.err == f"# Token {_ids(console)[0]}, valid for 90 days; it is not shown again.\n"
    with console.database.snapshot() as tx:
        assert token not in str(tx.rows("SELECT * FROM api_tokens"))


def test_everybody_lists_and_revokes_his_own(console: Console) -> None:
    token, other = _create(console, "--scope", "ro", "--comment", "one"), _create(console)
    first, second = _ids(console)
    assert [line.split()[:3] for line in console.type(oar_token.main, "list", user=EVE).out.splitlines()] == [
        [str(first), "eve", "ro"],
        [str(second), "eve", "rw"],
    ]
    assert console.type(oar_token.main, "list").out == ""
    assert console.type(oar_token.main, "revoke", first, user=EVE) == CommandResult(0, f"revoked: {first}\n", "")
    assert (_user_of(console, token), _user_of(console, other)) == (None, "eve")
    assert console.type(oar_token.main, "revoke", "all", user=EVE).out == f"revoked: {second}\n"
    assert _user_of(console, other) is None


def test_administrators_see_and_revoke_those_of_everybody(console: Console) -> None:
    token = _create(console)
    records = json.loads(console.type(oar_token.main, "list", "--everybody", "-J").out)
    assert [record["user"] for record in records] == ["eve"]
    assert console.type(oar_token.main, "revoke", records[0]["id"]).exit == 0
    assert _user_of(console, token) is None


def test_a_site_says_how_long_tokens_are_valid_at_most(console: Console) -> None:
    console.config = Config(api_token_days=30)
    assert "valid for 30 days" in console.type(oar_token.main, "create", user=EVE).err
    refused = console.type(oar_token.main, "create", "--expires", "31", user=EVE)
    assert refused == CommandResult(
        1, "", "# Error: the lifetime of a token must be 1 to 30 days (API_TOKEN_DAYS), not 31\n"
    )


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["create", "--scope", "all"], "'all' is not a scope: use rw, ro, submit, job:ID, admin, agent:NAME"),
        (["create", "--scope", "job:0"], "'job:0' is not a scope: use rw, ro, submit, job:ID, admin, agent:NAME"),
        (
            ["create", "--scope", "rw,session"],
            "bad scope: rw,session: only the login page creates sessions. Use rw, ro or submit.",
        ),
        (["create", "--scope", "ro,admin"], "only administrators may have tokens of scope admin"),
        (["create", "--agent", "desk-1"], "only administrators may create agent tokens"),
        (
            ["create", "--scope", "ro,agent:desk-1"],
            "bad scope: ro,agent:desk-1: an agent token has no other scope. Create two tokens.",
        ),
        (["create", "--expires", "0"], "the lifetime of a token must be 1 to 365 days (API_TOKEN_DAYS), not 0"),
        (["create", "--expires", "366"], "the lifetime of a token must be 1 to 365 days (API_TOKEN_DAYS), not 366"),
        (["create", "--comment", "a\nb"], "a comment must have at most 200 characters, all of them printable"),
        (["list", "--everybody"], "only oar and root may list the tokens of other users"),
        (["revoke", "999999"], "you have no token 999999: oar-token list"),
    ],
)
def test_what_cannot_be_is_refused(console: Console, words: list[str], text: str) -> None:
    assert console.type(oar_token.main, *words, user=EVE) == CommandResult(1, "", f"# Error: {text}\n")


def test_a_token_of_somebody_else_cannot_be_revoked(console: Console) -> None:
    assert console.type(oar_token.main, "create").exit == 0
    assert console.type(oar_token.main, "revoke", *_ids(console), user=EVE).exit == 1


def test_nobody_has_tokens_without_end(console: Console) -> None:
    for _ in range(MOST_TOKENS):
        _create(console)
    refused = console.type(oar_token.main, "create", user=EVE)
    assert refused == CommandResult(1, "", "# Error: eve has 100 tokens: revoke one first\n")


def test_administrators_make_the_tokens_of_agents(console: Console) -> None:
    token = console.type(oar_token.main, "create", "--agent", "desk-1").out.strip()
    with console.database.snapshot() as tx:
        found = tx.access.find_token(digest_of(token) or "")
    assert found is not None
    assert found.scope == "agent:desk-1"
    for words in (["--agent", "a b"], ["--agent", "desk-1", "--scope", "ro"], ["--agent", "desk-1,rw"]):
        assert console.type(oar_token.main, "create", *words).exit != 0
