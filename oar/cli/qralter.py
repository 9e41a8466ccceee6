"""qralter: change advance reservations."""

import sys
from collections.abc import Sequence
from functools import partial

import click

from oar.cli.common.command import Context, oar_command
from oar.cli.common.options import RESERVATIONS, Join, NameList, Stop, machine_formats, option
from oar.cli.common.process import Hangup, ending_with_caller
from oar.cli.common.reservation_commands import OutcomePrinter, listed, nothing_named, warn_of_mail
from oar.cli.qrsub import NO_ANSWER, NOBODY, UNANSWERED, slots_line
from oar.lib.base.errors import UserError
from oar.lib.base.formats import Format
from oar.lib.base.grid_engine_times import write_date, write_option_date
from oar.lib.reservations import changes, requests
from oar.lib.reservations.change_requests import Changer, StoredChange
from oar.lib.reservations.changes import NO_ACCESS, WantedChange
from oar.lib.reservations.errors import BadReservation
from oar.lib.reservations.options import ChangeOptions, check_verify
from oar.lib.reservations.records import AdvanceReservation, ReservationChange
from oar.lib.reservations.states import GRANTED, ChangeAnswer
from oar.lib.reservations.views import granted_slots
from oar.lib.runtime import LATER

WITHDRAWN = "the change was withdrawn"
#: Messages about a series and about unchanged reservations of it.
GOES_ON = "Series {} requests this from now on"
STAYS = "  reservation {} is unchanged, series {} continues with the change"


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
def main(
    context: Context, *, verify: str, series: bool, machine: Format | None, words: tuple[str, ...], **values: object
) -> int:
    """Change each reservation that is named; the exit code is the last one that is not 0."""
    options = ChangeOptions(**values)  # type: ignore[arg-type]
    if not words:
        return nothing_named(context)
    warn_of_mail(context, options.mail_options)
    with OutcomePrinter(machine) as outcomes:
        names, is_trial = listed("qralter", words), check_verify(verify, "qralter")
        return _change_all(context, options, names, outcomes, of_series=series, is_trial=is_trial)


def _change_all(
    context: Context,
    options: ChangeOptions,
    names: Sequence[str],
    outcomes: OutcomePrinter,
    *,
    of_series: bool,
    is_trial: bool,
) -> int:
    """Change the given reservations and print the outcomes; return the exit code.  Raises Stop."""
    if of_series and (options.start is not None or options.end is not None):
        raise Stop("qralter: -a and -e cannot be used with -series: use -d for the duration of all reservations")
    code, series, numbers = 0, dict[str, int](), list(names)
    with ending_with_caller(once=True):
        if of_series:
            for name in names:  # the template first, so that no new occurrence misses the change
                try:
                    series |= _change_series(context, options, name, is_trial=is_trial)
                except UserError as error:
                    _print_refusal(outcomes, name, error)
                    code = error.exit_code
            numbers = list(series)
        for index, number in enumerate(numbers, start=1):
            try:
                has_left = (_verify if is_trial else _alter)(context, options, number, outcomes)
            except UserError as error:
                stays = STAYS.format(number, series[number]) if number in series and not is_trial else ""
                _print_refusal(outcomes, number, error, stays)
                code = 1
                continue
            if has_left and numbers[index:]:
                raise Stop(f"not changed: {', '.join(numbers[index:])}", NO_ANSWER)
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


def _print_refusal(outcomes: OutcomePrinter, name: str, error: UserError, more: str = "") -> None:
    text = f"{error}\n{more}" if more else str(error)
    if isinstance(error, NotAltered):
        outcomes.refused(name, text, error.reason, error.proposal or None)
    else:
        outcomes.refused(name, text)


def _change_series(context: Context, options: ChangeOptions, name: str, *, is_trial: bool) -> dict[str, int]:
    """Change the template of the series of a reservation; return the series by number of its future occurrences.

    Wait for the decision about a new request, but not in a trial, which stores nothing.  Raises UserError.
    """
    database, config, changer = context.database, context.runtime.config, _changer(context)
    changed = changer.rehearse_series(options, name)
    if changed.together:
        from oar.kao.rounds.hypothetical import reservation_trials

        reservation_trials.check_overlaps(database, config, changed)
    coming: Sequence[AdvanceReservation | None] = changed.coming
    if not is_trial:
        changed = changer.change_series(options, name)
        patience = config.reservation_answer_timeout
        coming = [
            requests.wait_for_decision(database, partial(requests.find_decision, database, occurrence.id), patience)
            for occurrence in changed.coming
        ]
    return {
        str(occurrence.number): changed.series.id
        for occurrence in coming
        if occurrence is not None and occurrence.state in GRANTED
    }


def _alter(context: Context, options: ChangeOptions, name: str, outcomes: OutcomePrinter) -> bool:
    """Change one reservation; return whether the user has left meanwhile, and the decision was first.

    A change is withdrawn if the caller stops waiting.  Raises Stop, UserError.
    """
    database, patience = context.database, context.runtime.config.reservation_answer_timeout
    written = list[StoredChange]()
    decision, why, has_left = None, NOBODY.format(patience), False

    def note(change: StoredChange) -> None:
        written.append(change)
        context.fate = UNANSWERED.format(patience) if change.change_id else LATER

    try:
        _changer(context).change(options, name, note)
        if change_id := written[0].change_id:
            decision = requests.wait_for_decision(
                database, lambda: requests.find_change_decision(database, change_id), patience
            )
    except (KeyboardInterrupt, Hangup):
        has_left, why = True, ""
    context.fate = ""
    if not written:
        raise Stop(f"{why}{WITHDRAWN}", NO_ANSWER)
    if written[0].change_id and decision is None:
        with database.begin() as tx:
            decision = changes.cancel_change(tx, written[0].change_id)
        if decision is None:
            raise Stop(f"{why}{WITHDRAWN}", NO_ANSWER)
    outcomes.done(name, "\n".join(_lines(context, written[0], decision)))
    return has_left


def _verify(context: Context, options: ChangeOptions, name: str, outcomes: OutcomePrinter) -> bool:
    """Print what would be decided now; nothing is stored.  Raises UserError."""
    from oar.kao.rounds.hypothetical import reservation_trials

    change = _changer(context).rehearse(options, name)
    lines = [f"verification: reservation {change.reservation.number} can be altered"]
    if change.wanted:
        step = reservation_trials.alter(context.database, context.runtime.config, change.reservation, change.wanted)
        if not step.is_granted:
            raise _refusal(change.reservation, change.wanted, step.message, step.proposal)
        lines.append(f"then {write_date(step.start)} to {write_date(step.end)}")
        misfits = [job_id for job_id in step.ended_jobs if job_id not in change.lost]
        lines += [f"job {job_id} would be deleted: it would not fit any more" for job_id in misfits]
    lines += [f"job {job_id} would be deleted: its owner could not use the reservation" for job_id in change.lost]
    outcomes.done(name, "\n".join(lines))
    return False


def _changer(context: Context) -> Changer:
    return Changer(context.database, context.runtime.config, context.user)


def _lines(context: Context, change: StoredChange, decision: ReservationChange | None) -> list[str]:
    """Return the messages about a change.  Raises BadReservation if it was rejected."""
    reservation = change.reservation
    lines = [f"Your reservation {reservation.number} has been altered"]
    if decision is None:
        return lines + [NO_ACCESS.format(job_id) for job_id in change.lost]
    if decision.answer is not ChangeAnswer.GRANTED:
        raise _refusal(reservation, change.wanted or WantedChange(), decision.message, decision.proposal)
    with context.database.snapshot() as tx:
        (present,) = tx.reservations.select([reservation.id])
        slots = granted_slots(tx, present.queue, present.resources)
    lines.append(f"now {write_date(present.start)} to {write_date(present.end)}")
    lines += [decision.message] if decision.message else []
    return lines + ([slots_line(slots)] if present.resources != reservation.resources else [])


def _refusal(reservation: AdvanceReservation, wanted: WantedChange, message: str, proposal: int) -> NotAltered:
    lines = [f"denied: Reservation {reservation.number} can't be altered", f"  {message}"]
    date = write_date(proposal)
    if proposal and wanted.start not in (None, reservation.start):
        lines.append(f"  the earliest possible start is {date} (-a {write_option_date(proposal)})")
    elif proposal:
        extreme = "earliest" if wanted.end is not None and wanted.end < reservation.end else "latest"
        lines.append(f"  the {extreme} possible end is {date}")
    return NotAltered("\n".join(lines), message, proposal)


if __name__ == "__main__":
    sys.exit(main())
