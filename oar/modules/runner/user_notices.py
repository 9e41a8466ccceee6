"""Notices to the owners of jobs: sent by mail, or by a command that a bipbip runs (``oarsub --notify``)."""

import logging
from collections.abc import Callable
from functools import partial

from oar.lib.base.errors import BadRequest, DatabaseUnavailable
from oar.lib.bus.messages import Notice, ReservationMail
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.history.event_types import EventType
from oar.lib.logs import of_job
from oar.lib.notifications.mailer import Mailer
from oar.lib.notifications.notices import Subscription, mail_subject, one_line, parse_subscription
from oar.modules.runner.array_mails import ArrayMails
from oar.modules.runner.dispatch import Action, ActionKind

log = logging.getLogger("runner")


class UserNotices:
    """Send notices.

    ``add_action`` adds an action that runs a user's command; it returns False if the action is refused.
    """

    def __init__(self, config: Config, database: Database, add_action: Callable[[Action], bool]) -> None:
        self.mailer = Mailer(config)
        self._database = database
        self._array_mails = ArrayMails(database)
        self._add_action = add_action

    def follow_configuration(self, config: Config) -> None:
        """Use the mail settings of another configuration from now on. Waiting mails are still sent."""
        self.mailer.close(0)
        self.mailer = Mailer(config)

    def send(self, notice: Notice) -> None:
        """Mail the owner of a job, or run his command, according to the job's subscription."""
        try:
            subscription = parse_subscription(notice.notify)
            if subscription.way == "exec":
                self._run_command(notice, subscription)
                return
            for mail in [notice] if subscription.is_each else self._array_mails.instead_of(notice):
                self._mail(mail, subscription)
        except (BadRequest, DatabaseUnavailable) as error:
            of_job(log, notice.job_id).warning("the notice %s is not sent: %s", notice.tag, error)

    def send_about_reservation(self, mail: ReservationMail) -> None:
        """Mail the recipients of notices about an advance reservation."""
        subject = one_line(f"*OAR* {mail.topic} on {self.mailer.instance}")
        note = partial(self._note_reservation_mail, mail)
        self.mailer.user(mail.recipients, subject, mail.text, note, mail.user)

    def _run_command(self, notice: Notice, subscription: Subscription) -> None:
        if not subscription.wants(notice.tag):
            return
        about_job = (str(notice.job_id), notice.job_name, notice.tag, notice.text)
        args = (notice.user, notice.host, notice.tag, *subscription.targets, *about_job)
        if self._add_action(Action(ActionKind.NOTICE, notice.job_id, notice.host, args)):
            return
        with self._database.begin() as tx:
            text = f"[{notice.tag}] {subscription.targets[0]} on {notice.host}: too many commands are waiting"
            tx.events.add(EventType.USER_EXEC_NOTIFICATION_ERROR, notice.job_id, text)

    def _mail(self, notice: Notice, subscription: Subscription) -> None:
        if subscription.wants(notice.tag):
            subject = mail_subject(notice.tag, notice.job_id, notice.job_name, self.mailer.instance)
            text = f"{notice.text}\n\n{notice.why}" if notice.why else notice.text
            self.mailer.user(
                subscription.targets, subject, text, lambda error: self._note_mail(notice, error), notice.user
            )

    def _note_reservation_mail(self, mail: ReservationMail, error: str) -> None:
        text = f"[{mail.topic}] {','.join(mail.recipients)}"
        self._note(mail.frame_id, text, error)

    def _note_mail(self, notice: Notice, error: str) -> None:
        """Store the event of a mail: sent, or failed with ``error``. The mailer's thread calls this."""
        self._note(notice.job_id, f"[{notice.tag}] {notice.notify}", error)

    def _note(self, job_id: int, text: str, error: str) -> None:
        event = EventType.MAIL_NOTIFICATION_ERROR if error else EventType.USER_MAIL_NOTIFICATION
        try:
            with self._database.begin() as tx:
                tx.events.add(event, job_id, f"{text}: {error}" if error else text)
        except DatabaseUnavailable as unavailable:
            of_job(log, job_id).warning("a mail cannot be noted: %s", unavailable)
