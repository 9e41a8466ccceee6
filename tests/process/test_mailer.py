"""Mails through a real SMTP dialogue, lines to a listening oarsub."""

import email
import email.policy
import socket
import threading
from collections.abc import Iterator

import pytest

from oar.cli.oarsub_parts.interactive import Listener
from oar.lib.base.hourly_limit import HourlyLimit
from oar.lib.config.files import Config
from oar.lib.notifications import mailer as mailer_module
from oar.lib.notifications.mailer import Mailer, MailQueue, QueuedMail
from oar.lib.submission.oarsub_lines import tell_oarsub
from tests.process.this_machine import free_ports, wait_until
from tests.silence import deaf_server
from tests.smtp import MailServer

#: Seconds that mails may take on a busy machine.
PATIENCE = 120


@pytest.fixture
def smtp() -> Iterator[MailServer]:
    with MailServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def configured(server: MailServer) -> Config:
    return Config(mail_smtp_server=server.address, mail_sender="oar@site", mail_recipient=("root@site", "admin@site"))


def test_administrators_get_a_mail_with_subject_and_text(smtp: MailServer) -> None:
    mailer = Mailer(configured(smtp))
    mailer.administrators("Start OAR server", "it is up")
    mailer.close(PATIENCE)
    assert len(smtp.mails) == 1
    assert "Subject: Start OAR server" in smtp.mails[0].text
    assert "To: root@site, admin@site" in smtp.mails[0].text
    assert "it is up" in smtp.mails[0].text


def test_a_flood_of_one_subject_ends_in_one_digest(smtp: MailServer) -> None:
    mailer = Mailer(configured(smtp))
    for number in range(30):
        mailer.administrators("Suspecting nodes", f"node {number}")
    mailer.close(PATIENCE)
    assert len(smtp.mails) == 21
    assert "10 more mails" in smtp.mails[-1].text


def test_a_newline_in_a_job_name_adds_no_header(smtp: MailServer) -> None:
    told: list[str] = []
    mailer = Mailer(configured(smtp))
    mailer.user(["a@b"], "é x\r\nBcc: evil@c\n\nbody", "text", told.append)
    mailer.close(PATIENCE)
    assert told == [""]
    assert smtp.mails[0].recipients == ("a@b",)
    message = email.message_from_string(smtp.mails[0].text, policy=email.policy.default)
    assert message.keys() == [
        *("From", "To", "Subject", "Date", "Message-ID", "Auto-Submitted"),
        *("Content-Type", "Content-Transfer-Encoding", "MIME-Version"),
    ]
    assert message["Subject"] == "é x  Bcc: evil@c  body"
    assert message.get_payload() == "text\n"


def test_who_is_refused_is_told_and_the_others_get_their_mail(smtp: MailServer) -> None:
    told: list[str] = []
    mailer = Mailer(configured(smtp))
    mailer.user(["refused@b", "a@b"], "s", "t", told.append)
    mailer.user(["refused@b"], "s", "t", told.append)
    mailer.close(PATIENCE)
    assert [mail.recipients for mail in smtp.mails] == [("a@b",)]
    assert told[0] == "refused for refused@b"
    assert "no such user" in told[1]


@pytest.mark.parametrize("way", ["silent", "dripping"])
def test_a_mail_server_that_comes_to_no_end_is_left_and_the_next_mail_goes_out(
    smtp: MailServer, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    told: list[str] = []
    mailer = Mailer(configured(smtp), step=0.2 if way == "silent" else 20, longest=0.2 if way == "dripping" else 20)
    monkeypatch.setattr(mailer_module, "_FIRST_DELAY", 0.01)  # on a busy machine 0.2 s may be too short for a good one
    mailer.user([f"{way}@b"], "s", "t", lambda _: told.append(way))
    mailer.user(["a@b"], "s", "t", told.append)
    wait_until(lambda: told)
    mailer.close(0)
    assert told == [""]
    assert {mail.recipients for mail in smtp.mails} == {("a@b",)}


def test_mails_wait_for_a_mail_server_that_is_away_and_are_sent_once_in_their_order() -> None:
    told: list[str] = []
    (port,) = free_ports(1)
    config = Config(mail_smtp_server=f"127.0.0.1:{port}", mail_sender="oar@site")
    mailer = Mailer(config, pause=0.01)
    for subject in ("first", "second"):
        mailer.user(["a@b"], subject, "t", told.append, owner="alice")
    wait_until(lambda: mailer.failures > 2)
    assert told == []
    with MailServer(port) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        wait_until(lambda: told == ["", ""])
        assert [subject_of(mail.text) for mail in server.mails] == ["first", "second"]
        mailer.close(PATIENCE)
        server.shutdown()
        thread.join()


def test_closing_tries_a_mail_server_that_was_away_once_more() -> None:
    (port,) = free_ports(1)
    mailer = Mailer(
        Config(mail_smtp_server=f"127.0.0.1:{port}", mail_sender="oar@site", mail_recipient=("a@b",)), pause=3600
    )
    mailer.administrators("Start OAR server", "t")
    wait_until(lambda: mailer.failures)
    mailer.administrators("Stop OAR server", "t")
    with MailServer(port) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        mailer.close(PATIENCE)
        assert [subject_of(mail.text) for mail in server.mails] == ["Start OAR server", "Stop OAR server"]
        server.shutdown()
        thread.join()


def subject_of(text: str) -> str:
    return str(email.message_from_string(text)["Subject"])


def test_a_mail_that_is_not_accepted_for_now_is_sent_later_and_delays_no_other(
    smtp: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    mailer = Mailer(configured(smtp))
    mailer.user(["busy@b"], "s", "t", lambda error: told.append(f"busy {error}"))
    mailer.user(["a@b"], "s", "t", lambda error: told.append(f"a {error}"))
    wait_until(lambda: told)
    assert told == ["a "]
    monkeypatch.setattr(mailer_module, "_FIRST_DELAY", 0.0)
    mailer.user(["busy@c"], "s", "t", lambda error: told.append(f"busy {error}"))
    wait_until(lambda: len(told) == 2)
    assert told == ["a ", "busy "]
    assert [mail.recipients for mail in smtp.mails] == [("a@b",), ("busy@c",)]
    mailer.close(0)


def test_a_deferred_mail_for_which_the_queue_has_no_room_is_reported(smtp: MailServer) -> None:
    told: list[str] = []
    mailer = Mailer(configured(smtp))
    mailer._mails = MailQueue(max_of_users=0)
    mailer._deferred = [(0.0, QueuedMail(("a@b",), "s", "t", told.append))]
    assert mailer._next_mail() is None
    assert told == ["too many mails are waiting"]


def test_a_mail_that_was_never_accepted_is_dropped_after_some_days(
    smtp: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mailer_module, "_LONGEST_LIFE", -1)
    told: list[str] = []
    mailer = Mailer(configured(smtp))
    mailer.user(["busy@b"], "s", "t", told.append)
    mailer.close(PATIENCE)
    assert len(told) == 1
    assert "try again later" in told[0]


def test_waiting_mails_follow_another_configuration(smtp: MailServer) -> None:
    told: list[str] = []
    (port,) = free_ports(1)
    mailer = Mailer(Config(mail_smtp_server=f"127.0.0.1:{port}", mail_sender="oar@site"), pause=3600)
    mailer.user(["a@b"], "s", "t", told.append)
    wait_until(lambda: mailer.failures)
    mailer.follow(configured(smtp))
    wait_until(lambda: told == [""])
    mailer.close(PATIENCE)


def test_mails_can_be_removed_from_the_queue() -> None:
    queue = MailQueue()
    for number, owner in enumerate(("alice", "bob", "alice", ""), 1):
        queue.add(QueuedMail(("a@b",), str(number), "", owner=owner, is_limited=not owner, id=number))
    queue.forget({2, 3, 4})
    assert len(queue) == 1
    taken = queue.take()
    assert taken is not None
    queue.put_back(taken)
    assert (queue.take(), queue.take()) == (taken, None)


def test_closing_does_not_wait_for_a_mail_server_that_is_silent_even_when_a_thousand_mails_wait() -> None:
    problems: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as silent:
        config = Config(mail_smtp_server=f"127.0.0.1:{silent.getsockname()[1]}", mail_sender="oar@site.org")
        mailer = Mailer(config)
        while not problems:
            mailer.user(["alice@site.org"], "subject", "text", problems.append)
        mailer.close(0.1)
        assert problems == ["too many mails are waiting"]


def test_users_who_are_told_of_much_keep_no_mail_from_the_administrator(smtp: MailServer) -> None:
    mailer = Mailer(configured(smtp), step=2)  # also the mail to the administrators has no more
    problems: list[str] = []
    while "too many mails are waiting" not in problems:
        mailer.user(["silent@b"], "s", "t", problems.append)
    mailer.administrators("a node is lost", "t")
    wait_until(lambda: smtp.mails)
    mailer.close(0.1)
    assert smtp.mails[0].recipients == ("root@site", "admin@site")


def test_a_user_who_is_told_of_much_takes_neither_the_turn_nor_the_place_of_another() -> None:
    def mail(owner: str, number: int) -> QueuedMail:
        return QueuedMail((f"{owner}@b",), f"{owner} {number}", "", owner=owner)

    waiting = MailQueue(max_of_users=6)
    refused = [waiting.add(mail("eve", number)) for number in range(1, 10)]
    assert [each.subject for each in refused if each] == ["eve 7", "eve 8", "eve 9"]
    displaced = [waiting.add(mail("alice", number)) for number in range(1, 6)]
    assert [each.subject for each in displaced if each] == ["eve 6", "eve 5", "eve 4", "alice 4", "alice 5"]
    waiting.add(mail("bob", 1))
    waiting.add(QueuedMail(("root@b",), "a node is lost", "", is_limited=True))
    assert len(waiting) == 7
    taken = []
    while found := waiting.take():
        taken.append(found.subject)
    assert taken == ["a node is lost", "eve 1", "alice 1", "bob 1", "eve 2", "alice 2", "alice 3"]
    assert (len(waiting), waiting.take()) == (0, None)
    for number in range(6):
        assert waiting.add(mail(f"user{number}", 1)) is None
    assert waiting.add(late := mail("late", 1)) is late
    assert len([waiting.take() for _ in range(6)]) == 6
    assert waiting.take() is None


def test_without_configuration_nothing_is_sent() -> None:
    told: list[str] = []
    mailer = Mailer(Config())
    mailer.administrators("s", "t")
    mailer.user(["a@b"], "s", "t", told.append)
    mailer.close(1)
    assert told == ["mail is not configured"]


def test_the_limit_is_by_name_and_hour() -> None:
    limit = HourlyLimit(2)
    assert [limit.allows("a", 0.0), limit.allows("a", 1.0), limit.allows("a", 2.0)] == [True, True, False]
    assert limit.allows("b", 2.0)
    assert limit.digests(3.0) == []
    assert limit.next_digest(3.0) == 3597.0
    assert limit.digests(3601.0) == [("a", 1)]
    assert limit.next_digest(3601.0) is None
    assert limit.allows("a", 3601.0)


def test_a_waiting_oarsub_gets_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as waiting:
        waiting.settimeout(PATIENCE)
        assert tell_oarsub(f"127.0.0.1:{waiting.getsockname()[1]}", "GOOD\nJOB", 5) == ""
        connection, _ = waiting.accept()
        with connection:
            assert connection.makefile("rb").read() == b"GOOD JOB\n"


@pytest.mark.parametrize("address", ["", "host", "host:", ":1", "host:0", "host:99999", "a b:c"])
def test_a_bad_address_is_said_to_be_one(address: str) -> None:
    assert "is not host:port" in tell_oarsub(address, "GOOD JOB", 1)


def test_a_silent_oarsub_is_given_up() -> None:
    with deaf_server() as port:
        assert tell_oarsub(f"127.0.0.1:{port}", "a line", 0.2) == "timed out"


def test_an_oarsub_that_is_gone_is_said_to_be() -> None:
    (port,) = free_ports(1)
    assert "refused" in tell_oarsub(f"127.0.0.1:{port}", "GOOD JOB", 5)


def test_who_is_not_the_server_is_not_listened_to_and_ends_no_waiting() -> None:
    listener = Listener(["127.0.0.2"])
    address = ("127.0.0.1", listener.port)
    with (
        socket.create_connection(address, source_address=("127.0.0.1", 0)) as stranger,
        socket.create_connection(address, source_address=("127.0.0.2", 0)) as server,
    ):
        stranger.sendall(b"JOB KILLED\n")
        server.sendall(b"GOOD JOB\n")
        assert listener.next_line(PATIENCE) == "GOOD JOB"
    listener.close()


def test_a_mail_server_that_takes_no_connection_is_given_up() -> None:
    errors = list[str]()
    with deaf_server() as port:
        config = Config(mail_smtp_server=f"127.0.0.1:{port}", mail_sender="oar@server")
        mailer = Mailer(config, step=0.2, longest=1)
        mailer.user(["alice@site"], "subject", "text", errors.append)
        mailer.close(60)
    assert errors == []
