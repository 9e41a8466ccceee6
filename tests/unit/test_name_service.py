"""A name service that does not answer: what users of commands see, and that commands end."""

import ctypes
import os
import pwd
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import click
import pytest

from oar.cli.common import process
from oar.cli.common.command import Context, invoke, oar_command
from oar.lib.access import name_service


@oar_command("oarstat", summary="Say who asks.")
def who(context: Context) -> None:
    click.echo(context.user.name)


@pytest.fixture
def silence(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A directory that answers when the event is set, and patience that is short."""
    answers, look_up = threading.Event(), pwd.getpwuid

    def wait(number: int) -> pwd.struct_passwd:
        answers.wait()
        return look_up(number)

    monkeypatch.setattr(pwd, "getpwuid", wait)
    monkeypatch.setattr(process, "LOOKUP_PATIENCE", 0.01)
    yield answers
    answers.set()


def test_a_command_says_what_it_waits_for_and_gives_up(
    silence: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "LOOKUP_TIMEOUT", 0.02)
    done = invoke(who, [])
    account = f"account {os.getuid()}"
    assert (done.exit, done.out) == (2, "")
    assert done.err.splitlines() == [
        f"# Warning: waiting for the name service ({account}), at most 0 s.",
        f"# Error: cannot look up: {account}: the name service did not answer within 0 s. Try again later.",
    ]


def test_a_command_goes_on_when_the_answer_comes(silence: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    warn = Context.warn

    def tell(context: Context, text: str) -> None:
        warn(context, text)
        silence.set()

    monkeypatch.setattr(Context, "warn", tell)
    done = invoke(who, [])
    assert (done.exit, done.out) == (0, f"{pwd.getpwuid(os.getuid()).pw_name}\n")
    assert "waiting for the name service" in done.err


def test_programs_that_do_not_watch_wait_for_the_c_library() -> None:
    threads = threading.active_count()
    assert name_service.account(os.getuid()) == pwd.getpwuid(os.getuid())
    assert threading.active_count() == threads


def test_the_errors_of_a_look_up_are_those_of_the_c_library() -> None:
    with name_service.watched(process.limited_lookups(lambda text: None)):
        for missing in ("nobody has this name", "with\0nul", "\udce9"):
            with pytest.raises((KeyError, ValueError)):
                name_service.account(missing)
        with pytest.raises(KeyError):
            name_service.group(4_000_000_000)


def test_the_groups_of_an_account_are_those_that_python_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_service, "_GROUPS", 1)  # too few for an account in more of them
    for account in pwd.getpwall():
        expected = os.getgrouplist(account.pw_name, account.pw_gid)
        assert name_service.groups_of(account.pw_name, account.pw_gid) == expected
    assert name_service.groups_of("root", 4711) == [4711, *os.getgrouplist("root", 4711)[1:]]


def test_a_list_of_groups_that_never_fits_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoGroups:
        """A C library that refuses each list, and does not say how long it would have to be."""

        def __init__(self, name: str | None) -> None:
            self.getgrouplist = lambda *_: -1

    monkeypatch.setattr(ctypes, "CDLL", NoGroups)
    with pytest.raises(OSError, match="cannot look up: groups of root"):
        name_service.groups_of("root", 0)


def test_all_accounts_are_those_that_python_finds_and_nobody_waits_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert name_service.accounts() == pwd.getpwall()
    monkeypatch.setattr(pwd, "getpwall", None)  # it keeps all threads from running
    with ThreadPoolExecutor() as threads:
        lists = list(threads.map(lambda _: name_service.accounts(), range(20)))
    assert lists == [name_service.accounts()] * 20


def test_an_account_is_looked_up_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    done = invoke(who, [])
    assert (done.exit, done.out, done.err) == (0, f"{pwd.getpwuid(os.getuid()).pw_name}\n", "")
