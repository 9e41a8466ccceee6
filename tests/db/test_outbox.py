"""Mails and notices are stored by the transaction that decides, and deleted after their delivery."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from oar.lib.bus.messages import (
    Ask,
    Effect,
    JobAction,
    Mail,
    Notice,
    NoticeTag,
    ReservationMail,
    Stored,
    Tag,
    UserMail,
    Wake,
    announcements,
)
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.history.event_types import EventType
from oar.modules.runner import user_notices
from oar.modules.runner.dispatch import Action, ActionKind
from oar.modules.runner.user_notices import UserNotices
from tests.builders import add_job, execute_sql
from tests.process.this_machine import free_ports, wait_until
from tests.smtp import MailServer


def notice(job_id: int, notify: str = "mail:alice@site", tag: NoticeTag = NoticeTag.END, user: str = "alice") -> Notice:
    return Notice(job_id, "j", user, notify, "frontend", tag, "text")


def decide(database: Database, *effects: Effect) -> None:
    """Commit a transaction with effects."""
    with database.begin() as tx:
        tx.outbox.extend(effects)


def waiting(database: Database) -> list[Stored]:
    with database.snapshot() as tx:
        return [message.content for message in tx.unsent.read(tx.unsent.ids())]


@dataclass
class Site:
    """A database, a mail server that may be away, and the messages of the Runners that were started."""

    database: Database
    port: int = field(default_factory=lambda: free_ports(1)[0])
    actions: list[Action] = field(default_factory=list)
    is_full: bool = False

    def runner(self) -> UserNotices:
        """Return the messages of a new Runner."""
        config = Config(
            mail_smtp_server=f"127.0.0.1:{self.port}", mail_sender="oar@site", mail_recipient=("root@site",)
        )
        return UserNotices(config, self.database, self.add)

    def add(self, action: Action) -> bool:
        self.actions.append(action)
        return not self.is_full

    def events(self, job_id: int, kind: EventType) -> list[str]:
        with self.database.snapshot() as tx:
            return [event.description for event in tx.events.of_types(job_id, [kind])]


@pytest.fixture
def site(database: Database) -> Site:
    return Site(database)


@pytest.fixture
def smtp(site: Site) -> Iterator[MailServer]:
    with MailServer(site.port) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_message_is_stored_with_its_decision_and_not_without_it(database: Database) -> None:
    mails = ReservationMail(3, "bob", ("bob", "a@b"), "[AR END]: 1", "text"), Mail("subject", "a\0b")
    decide(database, notice(1), Wake(Tag.TERM), *mails)
    with pytest.raises(ZeroDivisionError), database.begin() as tx:
        tx.outbox.append(notice(2))
        raise ZeroDivisionError
    assert waiting(database) == [notice(1), *mails]


def test_a_transaction_without_messages_has_no_further_statement(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("oar.lib.db.outbox.UnsentMessages.add", refuse)
    decide(database, Wake(Tag.TERM), Ask(JobAction.RUN, 1))


def test_messages_are_announced_once_and_without_their_content() -> None:
    announced = announcements([notice(1), Wake(Tag.TERM), Mail("a", "b")])
    assert announced == [Wake(Tag.TERM), Ask(JobAction.SEND, 0)]
    assert announcements([Wake(Tag.TERM)]) == [Wake(Tag.TERM)]


def test_each_message_is_sent_once_and_then_deleted(site: Site, smtp: MailServer) -> None:
    job_id = add_job(site.database)
    decide(site.database, notice(job_id), Mail("A node", "is lost"), ReservationMail(job_id, "bob", ("bob",), "t", "x"))
    decide(site.database, UserMail(("carl", "dora"), "80 % used", "text"))
    runner = site.runner()
    for _ in range(3):
        runner.send_waiting()
    runner.close(60)
    recipients = sorted(mail.recipients for mail in smtp.mails)
    assert recipients == [("alice@site",), ("bob",), ("carl", "dora"), ("root@site",)]
    assert waiting(site.database) == []
    assert site.events(job_id, EventType.USER_MAIL_NOTIFICATION) == ["[t] bob", "[END] mail:alice@site"][::-1]


def test_a_runner_that_ends_before_it_has_sent_a_message_leaves_it_to_the_next_one(site: Site) -> None:
    job_id = add_job(site.database)
    decide(site.database, notice(job_id), Mail("A node", "is lost"))
    for _ in range(2):
        runner = site.runner()  # the mail server is away
        runner.send_waiting()
        wait_until(lambda runner=runner: runner.mailer.failures)  # type: ignore[misc]
        runner.close(0)
    assert len(waiting(site.database)) == 2
    with MailServer(site.port) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        runner = site.runner()
        runner.send_waiting()
        runner.close(60)
        server.shutdown()
        thread.join()
    assert sorted(mail.recipients for mail in server.mails) == [("alice@site",), ("root@site",)]
    assert waiting(site.database) == []


def test_a_message_of_a_later_release_is_kept_and_read_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    add = "INSERT INTO outbox (date, job_user, message) VALUES (0, '', '{\"type\": \"later\"}')"
    execute_sql(site.database, add)
    runner = site.runner()
    runner.send_waiting()
    monkeypatch.setattr("oar.lib.db.outbox.UnsentMessages.read", None)
    runner.send_waiting()
    runner.close(60)
    with site.database.snapshot() as tx:
        assert len(tx.unsent.ids()) == 1


def test_a_mail_that_cannot_be_sent_is_noted_and_deleted(site: Site, smtp: MailServer) -> None:
    job_id = add_job(site.database)
    decide(site.database, notice(job_id, "mail:refused@site"), notice(job_id, "[ERROR]mail:a@b"), notice(job_id, "?"))
    runner = site.runner()
    runner.send_waiting()
    runner.close(60)
    assert smtp.mails == []
    assert len(site.events(job_id, EventType.MAIL_NOTIFICATION_ERROR)) == 1
    assert waiting(site.database) == []


def test_a_command_is_deleted_when_its_action_has_ended(site: Site) -> None:
    job_id = add_job(site.database)
    decide(site.database, notice(job_id, "exec:/bin/true"), notice(job_id, "exec:/bin/true"))
    runner = site.runner()
    runner.send_waiting()
    runner.send_waiting()
    assert [action.kind for action in site.actions] == [ActionKind.NOTICE, ActionKind.NOTICE]
    runner.finish(site.actions[0].message)
    runner.settle()
    assert len(waiting(site.database)) == 1
    site.runner().send_waiting()  # the Runner was replaced: its commands run again
    assert len(site.actions) == 3


def test_a_command_that_is_refused_is_noted_and_deleted(site: Site) -> None:
    site.is_full = True
    job_id = add_job(site.database)
    decide(site.database, notice(job_id, "exec:/bin/true"))
    site.runner().send_waiting()
    assert waiting(site.database) == []
    assert len(site.events(job_id, EventType.USER_EXEC_NOTIFICATION_ERROR)) == 1


def test_of_too_many_messages_the_oldest_of_the_user_with_the_most_are_dropped(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_notices, "MAX_WAITING", 4)
    decide(site.database, notice(1, user="bob"), *(notice(number) for number in range(2, 6)))
    runner = site.runner()
    runner.send_waiting()
    decide(site.database, notice(6))
    runner.send_waiting()
    left = [message.job_id for message in waiting(site.database) if isinstance(message, Notice)]
    assert left == [1, 4, 5, 6]
    events = site.events(0, EventType.MESSAGES_DROPPED)
    assert events == ["[Runner] 1 waiting messages of jobs of alice were dropped: more than 4 wait"] * 2
    runner.close(0)


def test_a_message_of_a_later_release_is_left_alone(site: Site) -> None:
    execute_sql(site.database, """INSERT INTO outbox (message) VALUES ('{"m": "PIGEON"}')""")
    site.runner().send_waiting()
    with site.database.snapshot() as tx:
        assert len(tx.unsent.ids()) == 1
