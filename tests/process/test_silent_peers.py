"""Peers of the server that are silent: each is given up after a time that is set."""

from oar.lib.config.files import Config
from oar.lib.notifications.mailer import Mailer
from oar.lib.submission.oarsub_lines import tell_oarsub
from tests.silence import deaf_server


def test_a_silent_frontend_is_given_up() -> None:
    with deaf_server() as port:
        assert tell_oarsub(f"127.0.0.1:{port}", "a line", 0.2) == "timed out"


def test_a_mail_server_that_takes_no_connection_is_given_up() -> None:
    errors = list[str]()
    with deaf_server() as port:
        config = Config(mail_smtp_server=f"127.0.0.1:{port}", mail_sender="oar@server")
        mailer = Mailer(config, step=0.2, longest=1)
        mailer.user(["alice@site"], "subject", "text", errors.append)
        mailer.close(60)
    assert errors == ["timed out"]
