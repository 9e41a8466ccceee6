"""qrsub: ask for an advance reservation."""

import json
import sys
import time
from typing import NamedTuple

import click

from oar.cli.common.command import Context, Hangup, oar_command
from oar.cli.common.options import RESERVATIONS, Stop, machine_formats, option
from oar.lib.db.transaction import Transaction
from oar.lib.facts.advance_reservations import AdvanceReservation, NewReservation
from oar.lib.facts.errors import BadCondition
from oar.lib.facts.formats import Format
from oar.lib.facts.grid_engine_times import write_date, write_option_date
from oar.lib.facts.records import User
from oar.lib.facts.reservation_requests import encode
from oar.lib.facts.reservation_states import ReservationState
from oar.lib.reservations import admission, asking, listed_users, preparation, requests, rights
from oar.lib.reservations.admission import AdmittedReservation, ReservationProposal
from oar.lib.reservations.preparation import PreparedReservation, ReservationWish
from oar.lib.reservations.requests import ResourceWish
from oar.lib.submission.checks import BadSubmission

NO_ANSWER = 26
#: Pauses between looks at the answer, in seconds.
FIRST_PAUSE, LONGEST_PAUSE = 0.02, 0.5


class QrsubOptions(NamedTuple):
    """The options of qrsub, as they were given."""

    start: str | None
    duration: str | None
    end: str | None
    name: str
    account: str
    resources: tuple[str, ...]
    pe: tuple[str, str] | None
    allocation: tuple[str, str] | None
    queues: str
    hosts: str
    properties: str
    users: tuple[str, ...]
    hard: str | None
    mail_options: str
    mail_list: tuple[str, ...]
    replace: str | None
    idle: str | None
    window: str | None
    earliest: bool
    ignore_jobs: bool
    project: str
    owner: str
    is_verbose: bool
    is_terse: bool
    machine: Format | None


@oar_command(
    "qrsub",
    summary="Ask for an advance reservation.",
    style=RESERVATIONS,
    help_names=("-help",),
    exit_codes={BadSubmission: 1, BadCondition: 1, KeyboardInterrupt: NO_ANSWER, Hangup: NO_ANSWER},
)
@option("-a", "start", metavar="DATE", help="Start: [[CC]YY]MMDDhhmm[.SS], YYYY-MM-DD hh:mm, now, +DURATION.")
@option("-d", "duration", metavar="TIME", help="Duration: seconds, h:m:s, 90m, 2h, 1d12h.")
@option("-e", "end", metavar="DATE", help="End, written like the start.")
@option("-N", "name", default="", metavar="NAME", help="A name.")
@option("-A", "account", default="", metavar="TEXT", help="An account, for the bill.")
@option("-l", "resources", multiple=True, metavar="LIST", help="Resources: name=value,... or a request of OAR.")
@option("-pe", "pe", nargs=2, metavar="NAME RANGE", help="A parallel environment, and slots: n, n-m, n-, -m.")
@option("-alloc", "allocation", nargs=2, metavar="RULE RANGE", help="$fill_up, $pe_slots, or a number on each host.")
@option("-q", "queues", default="", metavar="QUEUE", help="The queue.")
@option("-h", "hosts", default="", metavar="HOSTS", help="Hosts, patterns too, with commas between them.")
@option("-p", "properties", default="", metavar="CONDITION", help="A condition on resources, as of oarsub.")
@option("-u", "users", multiple=True, metavar="LIST", help="Who may use it: user, @group, %project, pattern, !denied.")
@option("-he", "hard", metavar="yes|no", help="No job starts in it while resources are missing.")
@option("-m", "mail_options", default="n", metavar="b|e|a|n", help="Mail at begin, end, error; none.")
@option("-M", "mail_list", multiple=True, metavar="ADDRESSES", help="To whom; the owner if nobody is named.")
@option("-replace", "replace", metavar="yes|no", help="Lost resources are replaced.")
@option("-idle", "idle", metavar="TIME", help="It ends when no job was in it for so long.")
@option("-window", "window", metavar="TIME", help="The start may be so much later.")
@option("-earliest", "earliest", is_flag=True, help="The start may be at any later date.")
@option("-ignore_jobs", "ignore_jobs", is_flag=True, help="Running jobs are not in its way (administrators).")
@option("-project", "project", default="", metavar="NAME", help="The project.")
@option("-owner", "owner", default="", metavar="USER", help="For somebody else (administrators).")
@option("-verbose", "is_verbose", is_flag=True, help="Print also what was granted.")
@option("-terse", "is_terse", is_flag=True, help="Print the number alone.")
@machine_formats
def main(context: Context, **values: object) -> int:
    """Ask, and wait for the answer."""
    options = QrsubOptions(**values)  # type: ignore[arg-type]
    config, user = context.runtime.config, context.user
    _check_rights(user, options)
    now = int(time.time())
    wish = _wish(options)
    prepared = preparation.prepare(wish, user.name, now, config.reservation_duration_offset)
    with context.database.begin() as tx:
        rights.check_creator(tx, user, is_open=config.reservation_open)
        users = listed_users.expand(tx, prepared.access, limit=config.reservation_acl_checked_users)
        owner = options.owner or user.name
        admitted = _admit(context, tx, options, prepared, [name for name in users if name != owner])
        new = _new(context, options, prepared, admitted, owner)
        asked = asking.ask(tx, new, prepared.access, limit=config.max_advance_reservations)
    answer = _wait(context, asked.id, config.reservation_answer_timeout)
    return _tell(answer, options, (prepared.start, prepared.end))


def _check_rights(user: User, options: QrsubOptions) -> None:
    if (options.owner or options.ignore_jobs) and not user.is_admin:
        raise Stop(f'denied: "{user.name}" must be manager for -owner and -ignore_jobs')


def _wish(options: QrsubOptions) -> ReservationWish:
    return ReservationWish(
        start=options.start,
        end=options.end,
        duration=options.duration,
        name=options.name,
        account=options.account,
        users=options.users,
        hard=options.hard,
        mail_options=options.mail_options,
        mail_list=options.mail_list,
        replace=options.replace,
        idle=options.idle,
        window=options.window,
        earliest=options.earliest,
    )


def _admit(
    context: Context, tx: Transaction, options: QrsubOptions, prepared: PreparedReservation, users: list[str]
) -> AdmittedReservation:
    name, slots = options.pe or (None, "1")
    wish = ResourceWish(options.resources, name, slots, options.allocation, options.hosts)
    asked = requests.read(wish, context.runtime.config, requests.site_of(tx, wish))
    proposal = ReservationProposal(
        owner=options.owner or context.user.name,
        users=users,
        queue=options.queues,
        project=options.project,
        name=options.name,
        properties=options.properties,
        start=prepared.start,
        duration=prepared.end - prepared.start,
        alternatives=asked.alternatives,
        initial_request=" ".join(["qrsub", *context.arguments]),
    )
    return admission.admit(tx, context.database, context.runtime.config, proposal)


def _new(
    context: Context, options: QrsubOptions, prepared: PreparedReservation, admitted: AdmittedReservation, owner: str
) -> NewReservation:
    config = context.runtime.config
    replaces = prepared.replaces_lost
    return NewReservation(
        owner=owner,
        start=prepared.start,
        end=prepared.end,
        request=encode(admitted.alternatives),
        name=prepared.name,
        account=prepared.account,
        owner_group=rights.main_group(owner),
        project=admitted.project,
        queue=admitted.queue,
        start_window=prepared.start_window,
        time_offset=max(config.reservation_duration_offset, config.scheduler_job_security_time),
        is_hard=prepared.is_hard,
        replaces_lost=config.reservation_replace_lost if replaces is None else replaces,
        ignores_jobs=options.ignore_jobs,
        idle_limit=prepared.idle_limit,
        resource_list=json.dumps([["request", " ".join(options.resources)]] if options.resources else []),
        mail_options=prepared.mail_options,
        mail_list=prepared.mail_list,
    )


def _wait(context: Context, reservation_id: int, patience: float) -> AdvanceReservation:
    """Return the reservation with its answer; withdraw the request of whom nobody answers.  Raises Stop."""
    limit, pause = time.monotonic() + patience, FIRST_PAUSE
    try:
        while time.monotonic() < limit:
            with context.database.snapshot() as tx:
                (reservation,) = tx.advance_reservations.select([reservation_id])
            if reservation.state is not ReservationState.ASKED:
                return reservation
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
    except (KeyboardInterrupt, Hangup):
        answered = _withdraw(context, reservation_id)
        if answered is None:
            raise
        return answered
    answered = _withdraw(context, reservation_id)
    if answered is None:
        raise Stop(f"no answer from the scheduler in {patience:g} s, the request was withdrawn", NO_ANSWER)
    return answered


def _withdraw(context: Context, reservation_id: int) -> AdvanceReservation | None:
    with context.database.begin() as tx:
        return asking.withdraw(tx, reservation_id, context.user.name)


def _tell(answer: AdvanceReservation, options: QrsubOptions, window: tuple[int, int]) -> int:
    if answer.state is ReservationState.REFUSED:
        click.echo(f"denied: Reservation can't be granted\n  {answer.message}", err=True)
        click.echo(f"  {_proposal(answer)}", err=True)
        return 1
    if options.is_terse:
        click.echo(str(answer.number))
        return 0
    click.echo(f"Your reservation {answer.number} has been granted")
    if (answer.start, answer.end) != window or options.is_verbose:
        click.echo(f"It starts at {write_date(answer.start)} and ends at {write_date(answer.end)}.")
    return 0


def _proposal(answer: AdvanceReservation) -> str:
    if not answer.proposal:
        return "no later start was found"
    return f"the earliest possible start is {write_date(answer.proposal)} (-a {write_option_date(answer.proposal)})"


if __name__ == "__main__":
    sys.exit(main())
