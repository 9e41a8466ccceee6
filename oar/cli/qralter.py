"""qralter: change advance reservations."""

import sys
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import click

from oar.cli.common.command import Context, oar_command
from oar.cli.common.options import RESERVATIONS, Join, NameList, Stop, machine_formats, option
from oar.cli.common.process import Hangup, ending_with_caller
from oar.cli.common.reservation_commands import OutcomePrinter, listed, nothing_named, warn_of_mail
from oar.cli.qrsub import NO_ANSWER, NOBODY, UNANSWERED, slots_line
from oar.lib.base.errors import UserError
from oar.lib.base.formats import Format
from oar.lib.reservations import alteration, preparation, requests
from oar.lib.reservations.alteration import NO_ACCESS, WantedChange
from oar.lib.reservations.change_requests import AskedChange, Changer, ChangeWish
from oar.lib.reservations.grid_engine_times import write_date, write_option_date
from oar.lib.reservations.preparation import BadReservation
from oar.lib.reservations.records import AdvanceReservation, ReservationChange
from oar.lib.reservations.states import GRANTED, ChangeAnswer
from oar.lib.reservations.views import granted_slots
from oar.lib.runtime import LATER

WITHDRAWN = "the change was withdrawn"
#: Messages about a series and about unchanged reservations of it.
GOES_ON = "Series {} requests this from now on"
STAYS = "  reservation {} is unchanged, series {} continues with the change"


class QralterOptions(NamedTuple):
    """The options of qralter."""

    start: str | None
    duration: str | None
    end: str | None
    name: str | None
    account: str | None
    hard: str | None
    mail_options: str | None
    mail_list: tuple[str, ...]
    users: tuple[str, ...]
    replace: str | None
    idle: str | None
    resources: tuple[str, ...]
    pe: tuple[str, str] | None
    allocation: tuple[str, str] | None
    queues: str
    properties: str
    verify: str
    is_forced: bool
    series: bool
    machine: Format | None
    words: tuple[str, ...]

    @property
    def wish(self) -> ChangeWish:
        """The changes requested for each reservation."""
        return ChangeWish(**{name: getattr(self, name) for name in ChangeWish._fields})


@oar_command(
    "qralter",
    summary="Change advance reservations. Attributes without an option stay unchanged.",
    examples={
        "qralter -d 3:00:00 5": "Change the duration of reservation 5 to three hours.",
        "qralter -u alice,bob course": "Change who may use the reservation named course.",
    },
    style=RESERVATIONS,
    help_names=("-help",),
    exit_codes={KeyboardInterrupt: NO_ANSWER, Hangup: NO_ANSWER},
)
@option("-a", "start", metavar="DATE", help="Start time; the duration stays unless -d or -e is given.")
@option("-d", "duration", metavar="TIME", help="Duration.")
@option("-e", "end", metavar="DATE", help="End time; the start time stays.")
@option("-N", "name", metavar="NAME", help="Name.")
@option("-A", "account", metavar="TEXT", help="Account.")
@option("-he", "hard", metavar="yes|no", help="yes: start no jobs while resources are missing.")
@option("-m", "mail_options", metavar="b|e|a|n", help="Send mails at begin (b), end (e), error (a), or none (n).")
@option("-M", "mail_list", multiple=True, metavar="ADDRESSES", help="Mail addresses.")
@option(
    "-u",
    "users",
    multiple=True,
    metavar="LIST",
    help="Access list ($user: you); waiting jobs of other users are deleted.",
)
@option("-replace", "replace", metavar="yes|no", help="yes: replace lost resources.")
@option("-idle", "idle", metavar="TIME", help="End the reservation when no job was in it for this time.")
@option("-l", "resources", multiple=True, metavar="LIST", help="New resources: name=value,... or an OAR request.")
@option("-pe", "pe", nargs=2, metavar="NAME RANGE", help="Parallel environment and slots (n, n-m, n-, -m).")
@option(
    "-alloc",
    "allocation",
    nargs=2,
    metavar="RULE RANGE",
    help="Allocation rule: $fill_up, $pe_slots, $round_robin or a number.",
)
@option(
    "-q",
    "queues",
    type=NameList("queue@host"),
    default="",
    metavar="LIST",
    help="Hosts of its queue: queue@host, queue@@hostgroup, patterns.",
)
@option(
    "-p",
    "properties",
    join=Join.CONDITION,
    default="",
    metavar="CONDITION",
    help="Additional condition on the resources.",
)
@option("-w", "verify", default="e", metavar="e|v", help="e: change; v: only check whether the change is possible.")
@option("-f", "is_forced", is_flag=True, help="End jobs that run beyond a new end time at that time.")
@option("-series", "series", is_flag=True, help="Also change all later reservations of the series (no dates).")
@machine_formats
@click.argument("words", nargs=-1, metavar="AR_LIST")
def main(context: Context, **values: object) -> int:
    """Change each reservation that is named; the exit code is the last one that is not 0."""
    options = QralterOptions(**values)  # type: ignore[arg-type]
    if not options.words:
        return nothing_named(context)
    warn_of_mail(context, options.mail_options)
    with OutcomePrinter(options.machine) as outcomes:
        return _change_all(context, options, listed("qralter", options.words), outcomes)


def _change_all(context: Context, options: QralterOptions, names: Sequence[str], outcomes: OutcomePrinter) -> int:
    """Change the given reservations and print the outcomes; return the exit code.  Raises Stop."""
    is_trial = preparation.check_verify(preparation.ReservationWish(verify=options.verify), "qralter")
    alter = _verify if is_trial else _alter
    if options.series and (options.start is not None or options.end is not None):
        raise Stop("qralter: -a and -e are dates of one reservation: with -series write -d for the duration of all")
    code, series, numbers = 0, dict[str, int](), list(names)
    with ending_with_caller(once=True):
        if options.series:
            series, code = _change_series(context, options, names, outcomes, is_trial=is_trial)
            numbers = list(series)
        for place, number in enumerate(numbers, start=1):
            try:
                has_left = alter(context, options, number, outcomes)
            except UserError as error:
                stays = STAYS.format(number, series[number]) if number in series and not is_trial else ""
                _tell_refusal(outcomes, number, error, stays)
                code = 1
                continue
            if has_left and numbers[place:]:
                raise Stop(f"not changed: {', '.join(numbers[place:])}", NO_ANSWER)
        for series_id in dict.fromkeys(series.values()):
            text = f"verification: series {series_id} can be altered" if is_trial else GOES_ON.format(series_id)
            outcomes.done(f"series {series_id}", text)
    return code


class NotAltered(BadReservation):
    """The scheduler refuses a change."""

    def __init__(self, text: str, reason: str, proposal: int) -> None:
        super().__init__(text)
        self.reason = reason
        self.proposal = proposal


def _tell_refusal(outcomes: OutcomePrinter, name: str, error: UserError, more: str = "") -> None:
    """Print a rejection; ``more``: an additional line."""
    text = f"{error}\n{more}" if more else str(error)
    if isinstance(error, NotAltered):
        outcomes.refused(name, text, error.reason, error.proposal or None)
    else:
        outcomes.refused(name, text)


def _change_series(
    context: Context,
    options: QralterOptions,
    names: Sequence[str],
    outcomes: OutcomePrinter,
    *,
    is_trial: bool,
) -> tuple[dict[str, int], int]:
    """Change the given series from now on; return the granted occurrences and the exit code.

    The result maps numbers to series.  The template is changed first, so that no new occurrence misses the change.
    """
    changed_series, code = dict[str, int](), 0
    for name in names:
        try:
            changed_series |= _change_one_series(context, options, name, is_trial=is_trial)
        except UserError as error:
            _tell_refusal(outcomes, name, error)
            code = error.exit_code
    return changed_series, code


def _change_one_series(context: Context, options: QralterOptions, name: str, *, is_trial: bool) -> dict[str, int]:
    """Change the template of the series of a reservation; return the numbers of its future occurrences.

    Wait for the decision about a new request, but not in a trial, which stores nothing.  Raises UserError.
    """
    from oar.lib.reservations import series_changes

    database, config, changer = context.database, context.runtime.config, _changer(context)
    changed = series_changes.rehearse(changer, options.wish, name)
    if changed.together:
        from oar.kao.rounds.hypothetical import reservation_trials

        reservation_trials.check_overlaps(database, config, changed)
    if is_trial:
        return {
            str(occurrence.number): changed.series.id for occurrence in changed.coming if occurrence.state in GRANTED
        }
    changed = series_changes.change(changer, options.wish, name)
    patience = config.reservation_answer_timeout
    answered = [
        requests.wait_for_answer(database, partial(requests.find_answer, database, occurrence.id), patience)
        for occurrence in changed.coming
    ]
    return {
        str(occurrence.number): changed.series.id
        for occurrence in answered
        if occurrence is not None and occurrence.state in GRANTED
    }


def _alter(context: Context, options: QralterOptions, name: str, outcomes: OutcomePrinter) -> bool:
    """Change one reservation; return whether the user has left meanwhile, and the answer was first.

    A change is withdrawn if the caller stops waiting.  Raises Stop, UserError.
    """
    database, patience = context.database, context.runtime.config.reservation_answer_timeout
    written = list[AskedChange]()
    answer, why, has_left = None, NOBODY.format(patience), False

    def note(request: AskedChange) -> None:
        written.append(request)
        context.fate = UNANSWERED.format(patience) if request.change_id else LATER

    try:
        _changer(context).ask(options.wish, name, note)
        if change_id := written[0].change_id:
            answer = requests.wait_for_answer(
                database, lambda: requests.find_change_answer(database, change_id), patience
            )
    except (KeyboardInterrupt, Hangup):
        has_left, why = True, ""
    context.fate = ""
    if not written or (written[0].change_id and answer is None):
        answer = _give_up(context, written)
        if answer is None:
            raise Stop(f"{why}{WITHDRAWN}", NO_ANSWER)
    outcomes.done(name, "\n".join(_lines(context, written[0], answer)))
    return has_left


def _verify(context: Context, options: QralterOptions, name: str, outcomes: OutcomePrinter) -> bool:
    """Print what would be answered now; nothing is stored.  Raises UserError."""
    from oar.kao.rounds.hypothetical import reservation_trials

    request = _changer(context).rehearse(options.wish, name)
    lines = [f"verification: reservation {request.reservation.number} can be altered"]
    if request.wanted:
        step = reservation_trials.alter(context.database, context.runtime.config, request.reservation, request.wanted)
        if not step.is_granted:
            raise _refusal(request.reservation, request.wanted, step.message, step.proposal)
        lines.append(f"then {write_date(step.start)} to {write_date(step.end)}")
        misfits = [job_id for job_id in step.ended_jobs if job_id not in request.lost]
        lines += [f"job {job_id} would be deleted: it would not fit any more" for job_id in misfits]
    lines += [f"job {job_id} would be deleted: its owner could not use the reservation" for job_id in request.lost]
    outcomes.done(name, "\n".join(lines))
    return False


def _changer(context: Context) -> Changer:
    return Changer(context.database, context.runtime.config, context.user)


def _give_up(context: Context, written: list[AskedChange]) -> ReservationChange | None:
    """Withdraw a change, if it was written; return it if its answer was first, else None."""
    for request in written:
        with context.database.begin() as tx:
            return alteration.give_up(tx, request.change_id)
    return None


def _lines(context: Context, request: AskedChange, answer: ReservationChange | None) -> list[str]:
    """Return the messages about a change.  Raises BadReservation if it was rejected."""
    details = (
        _change_lines(context, answer, request) if answer else [NO_ACCESS.format(job_id) for job_id in request.lost]
    )
    return [f"Your reservation {request.reservation.number} has been altered", *details]


def _change_lines(context: Context, answer: ReservationChange, request: AskedChange) -> list[str]:
    """Return the messages about a granted change.  Raises BadReservation if it was rejected."""
    reservation = request.reservation
    if answer.answer is not ChangeAnswer.GRANTED:
        wanted = request.wanted or WantedChange()
        raise _refusal(reservation, wanted, answer.message, answer.proposal)
    with context.database.snapshot() as tx:
        (present,) = tx.reservations.select([reservation.id])
        slots = granted_slots(tx, present.queue, present.resources)
    lines = [f"now {write_date(present.start)} to {write_date(present.end)}"]
    lines += [answer.message] if answer.message else []
    return lines + ([slots_line(slots)] if present.resources != reservation.resources else [])


def _refusal(reservation: AdvanceReservation, wanted: WantedChange, message: str, proposal: int) -> NotAltered:
    lines = [f"denied: Reservation {reservation.number} can't be altered", f"  {message}"]
    lines += [f"  {_proposal(reservation, wanted, proposal)}"] if proposal else []
    return NotAltered("\n".join(lines), message, proposal)


def _proposal(reservation: AdvanceReservation, wanted: WantedChange, date: int) -> str:
    """Return the line about the possible alternative."""
    if wanted.start not in (None, reservation.start):
        return f"the earliest possible start is {write_date(date)} (-a {write_option_date(date)})"
    extreme = "earliest" if wanted.end is not None and wanted.end < reservation.end else "latest"
    return f"the {extreme} possible end is {write_date(date)}"


if __name__ == "__main__":
    sys.exit(main())
