"""Mails through a real SMTP dialogue, lines to a listening oarsub."""

import socket
import socketserver
import threading
from collections.abc import Iterator

import pytest

from oar.lib.config import Config
from oar.lib.notify import HourlyLimit, Mailer, tell_oarsub


class Smtp(socketserver.StreamRequestHandler):
    """The least a mail server must say."""

    server: "SmtpServer"

    def handle(self) -> None:
        self.wfile.write(b"220 here\r\n")
        while line := self.rfile.readline():
            if line.upper().startswith(b"DATA"):
                self.wfile.write(b"354 go on\r\n")
                lines = []
                while (text := self.rfile.readline()) != b".\r\n":
                    lines.append(text.decode())
                self.server.mails.append("".join(lines))
            self.wfile.write(b"221 bye\r\n" if line.upper().startswith(b"QUIT") else b"250 ok\r\n")


class SmtpServer(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Smtp)
        self.mails: list[str] = []


@pytest.fixture
def smtp() -> Iterator[SmtpServer]:
    with SmtpServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def configured(server: SmtpServer) -> Config:
    return Config(
        mail_smtp_server=f"127.0.0.1:{server.server_address[1]}",
        mail_sender="oar@site",
        mail_recipient=("root@site", "admin@site"),
    )


def test_administrators_get_a_mail_with_subject_and_text(smtp: SmtpServer) -> None:
    mailer = Mailer(configured(smtp))
    mailer.administrators("Start OAR server", "it is up")
    mailer.close(20)
    assert len(smtp.mails) == 1
    assert "Subject: Start OAR server" in smtp.mails[0]
    assert "To: root@site, admin@site" in smtp.mails[0]
    assert "it is up" in smtp.mails[0]


def test_a_flood_of_one_subject_ends_in_one_digest(smtp: SmtpServer) -> None:
    mailer = Mailer(configured(smtp))
    for number in range(30):
        mailer.administrators("Suspecting nodes", f"node {number}")
    mailer.close(20)
    assert len(smtp.mails) == 21
    assert "10 more mails" in smtp.mails[-1]


def test_a_newline_in_a_job_name_adds_no_header(smtp: SmtpServer) -> None:
    told: list[str] = []
    mailer = Mailer(configured(smtp))
    mailer.user(["a@b"], "x\r\nBcc: evil@c", "text", told.append)
    mailer.close(20)
    assert told == [""]
    assert "\nBcc:" not in smtp.mails[0]


def test_a_mail_server_that_is_not_there_is_told_and_stops_nobody() -> None:
    told: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    mailer = Mailer(Config(mail_smtp_server=f"127.0.0.1:{port}", mail_sender="oar@site"))
    mailer.user(["a@b"], "s", "t", told.append)
    mailer.close(20)
    assert len(told) == 1
    assert "refused" in told[0]


def test_closing_does_not_wait_for_a_mail_server_that_is_silent_even_when_a_thousand_mails_wait() -> None:
    problems: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as silent:
        config = Config(mail_smtp_server=f"127.0.0.1:{silent.getsockname()[1]}", mail_sender="oar@site.org")
        mailer = Mailer(config)
        while not problems:
            mailer.user(["alice@site.org"], "subject", "text", problems.append)
        mailer.close(0.1)
        assert problems == ["too many mails are waiting"]


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
    assert limit.digests(3601.0) == [("a", 1)]
    assert limit.allows("a", 3601.0)


def test_a_waiting_oarsub_gets_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as waiting:
        waiting.settimeout(20)
        assert tell_oarsub(f"127.0.0.1:{waiting.getsockname()[1]}", "GOOD\nJOB", 5) == ""
        connection, _ = waiting.accept()
        with connection:
            assert connection.makefile("rb").read() == b"GOOD JOB\n"


@pytest.mark.parametrize("address", ["", "host", "host:", ":1", "host:0", "host:99999", "a b:c"])
def test_a_bad_address_is_said_to_be_one(address: str) -> None:
    assert "is not host:port" in tell_oarsub(address, "GOOD JOB", 1)


def test_an_oarsub_that_is_gone_is_said_to_be() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert "refused" in tell_oarsub(f"127.0.0.1:{port}", "GOOD JOB", 5)
