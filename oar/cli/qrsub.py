"""qrsub: request an advance reservation."""

import os
import sys
from collections.abc import Iterator, Sequence
from itertools import islice

import click

from oar.cli.common.command import Context, no_argument, oar_command
from oar.cli.common.options import RESERVATIONS, Join, NameList, Stop, machine_formats, option, optional_argument
from oar.cli.common.process import Hangup, ending_with_caller
from oar.cli.common.reservation_commands import warn_of_mail, with_default_options
from oar.lib.base.errors import BadCondition, OarError, Refused
from oar.lib.base.formats import Format, dump
from oar.lib.base.grid_engine_times import write_date, write_long_date, write_option_date
from oar.lib.base.resource_set import format_ranges, from_positions
from oar.lib.reservations import permissions, requests
from oar.lib.reservations.frames import StoredRequest
from oar.lib.reservations.options import ReservationOptions, check_verify
from oar.lib.reservations.records import AccessEntry, AdvanceReservation
from oar.lib.reservations.requests import Requester
from oar.lib.reservations.states import INCOMPLETE, STARTED, ReservationState
from oar.lib.reservations.views import GrantedSlots, granted_slots, reasons, reservation_record, shown
from oar.lib.submission.admission_rules import RuleOutput
from oar.lib.submission.checks import BadSubmission

NO_ANSWER = 26
NOBODY, WITHDRAWN = "no answer from the scheduler in {:g} s, ", "the request was withdrawn"
#: The state of a request while the server is away.
UNANSWERED = "the request waits {:g} s for it, and is withdrawn then"


@oar_command(
    "qrsub",
    summary="Request an advance reservation.",
    examples={
        "qrsub -a +1d -d 3h -l nodes=2 -N course -u alice,bob": "Reserve two nodes for three hours tomorrow.",
        "qrsub -a +1h -d 2:00:00 -pe mpi 4": "Reserve 4 slots of a parallel environment.",
        "qrsub -a +1d -d 2h -l nodes=1 -rrule 'FREQ=WEEKLY;COUNT=10'": "Reserve a node every week, ten times.",
    },
    topics={
        "Time": ("-a", "-d", "-e", "-window", "-earliest", "-idle"),
        "Resources": ("-l", "-pe", "-alloc", "-q", "-masterq", "-h", "-p", "-ckpt", "-now", "-he", "-replace", "-flex"),
        "Series": ("-rrule", "-depth", "-conflict"),
        "Users, names and accounts": ("-u", "-N", "-A", "-project", "-owner"),
        "Mails": ("-m", "-M"),
        "Answer": ("-w", "-verbose", "-terse"),
    },
    style=RESERVATIONS,
    help_names=("-help",),
    exit_codes={BadSubmission: 1, BadCondition: 1, Refused: 1, KeyboardInterrupt: NO_ANSWER, Hangup: NO_ANSWER},
)
@option("-a", "start", metavar="DATE", help="Start: [[CC]YY]MMDDhhmm[.SS], YYYY-MM-DD hh:mm, now, +DURATION, @EPOCH.")
@option("-d", "duration", metavar="TIME", help="Duration: seconds, h:m:s, 90m, 2h, 1d12h.")
@option("-e", "end", metavar="DATE", help="End time, in the format of -a.")
@option("-N", "name", default="", metavar="NAME", help="Name.")
@option("-A", "account", default="", metavar="TEXT", help="Account for the bill.")
@option("-l", "resources", multiple=True, metavar="LIST", help="Resources: name=value,... or an OAR request.")
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
    type=NameList("queues"),
    default="",
    metavar="LIST",
    help="Queues: queue, queue@host, queue@@hostgroup, patterns.",
)
@option(
    "-masterq",
    "master_queues",
    type=NameList("queues"),
    default="",
    metavar="LIST",
    help="Place one slot on a host of this list; jobs start there.",
)
@option(
    "-h",
    "hosts",
    type=NameList("hosts"),
    default="",
    metavar="HOSTS",
    help="Hosts or patterns, separated by commas.",
)
@option(
    "-p",
    "properties",
    join=Join.CONDITION,
    default="",
    metavar="CONDITION",
    help="Condition on the resources, as for oarsub.",
)
@option(
    "-ckpt",
    "checkpoint",
    type=NameList("the name of one"),
    default="",
    metavar="NAME",
    help="Checkpointing environment.",
)
@optional_argument("-now", "now", metavar="yes|no", help="yes: use only resources for interactive jobs.")
@option(
    "-u",
    "users",
    multiple=True,
    metavar="LIST",
    help="Access list: user, @group, %project, pattern, !denied ($user: you).",
)
@option("-he", "hard", metavar="yes|no", help="yes: start no jobs while resources are missing.")
@option(
    "-m",
    "mail_options",
    default="n",
    metavar="b|e|a|n",
    help="Send mails at begin (b), end (e), error (a), or none (n).",
)
@option("-M", "mail_list", multiple=True, metavar="ADDRESSES", help="Mail addresses (default: the owner).")
@option(
    "-w", "verify", default="e", metavar="e|v", help="e: reserve; v: only check whether the request could be granted."
)
@option("-replace", "replace", metavar="yes|no", help="yes: replace lost resources.")
@option("-idle", "idle", metavar="TIME", help="End the reservation when no job was in it for this time.")
@option("-flex", "flex", metavar="yes|no", help="yes: its jobs may also run outside the reservation.")
@option("-window", "window", metavar="TIME", help="Allow a start later by at most this time.")
@option("-earliest", "earliest", is_flag=True, help="Allow a start at any later time.")
@option("-rrule", "rule", metavar="RULE", help="Recurrence rule (RFC 5545), such as FREQ=WEEKLY;BYDAY=MO;COUNT=10.")
@option("-depth", "depth", metavar="NUMBER", help="Number of occurrences of a series to request in advance.")
@option(
    "-conflict",
    "conflict",
    metavar="fail|skip",
    help="If a first occurrence cannot be granted: reject the series, or skip it.",
)
@option("-ignore_jobs", "ignore_jobs", is_flag=True, help="Ignore running jobs (administrators only).")
@option("-project", "project", default="", metavar="NAME", help="Project.")
@option(
    "-owner",
    "owner",
    type=NameList("a user"),
    default="",
    metavar="USER",
    help="Reserve for another user (administrators only).",
)
@option("-verbose", "is_verbose", is_flag=True, help="Also print the granted resources.")
@option("-terse", "is_terse", is_flag=True, help="Print only the number.")
@machine_formats
def main(context: Context, *, is_verbose: bool, is_terse: bool, machine: Format | None, **options: object) -> int:
    """Request a reservation and wait for the decision."""
    values = with_default_options(context, options, ReservationOptions._fields)
    request = ReservationOptions(**values)  # type: ignore[arg-type]
    if not context.arguments and request == ReservationOptions():
        raise no_argument(context.command)
    requester = Requester(context.user, " ".join(["qrsub", *context.arguments]))
    _warn_of_zone(context)
    if request.mail_options != "n":
        warn_of_mail(context, request.mail_options)
    try:
        _check_output(request, is_verbose=is_verbose, is_terse=is_terse, machine=machine)
        if check_verify(request.verify, "qrsub"):
            _verify(context, requester, request, machine)
        else:
            _request(context, requester, request, is_verbose=is_verbose, is_terse=is_terse, machine=machine)
    except OarError as error:
        if machine:
            click.echo(dump(_refusal_record(error), machine), nl=False)
        raise
    return 0


def _warn_of_zone(context: Context) -> None:
    """Warn about an unknown time zone: dates are in UTC."""
    if os.environ.get("TZ"):
        from oar.lib.reservations import recurrence

        if zone := recurrence.unknown_zone():
            context.warn(f'TZ="{zone}" is not a time zone: dates are in UTC.')


class NotGranted(Stop):
    """A request cannot be placed."""

    def __init__(self, first_line: str, reason: str, proposal: int, *, is_series: bool) -> None:
        later = "" if is_series else "\n  no later start was found"
        if proposal:
            of = " of the whole series" if is_series else ""
            option = write_option_date(proposal)
            later = f"\n  the earliest possible start{of} is {write_date(proposal)} (-a {option})"
        super().__init__(f"{first_line}\n  {reason}{later}")
        self.reason = reason
        self.proposal = proposal


def _check_output(options: ReservationOptions, *, is_verbose: bool, is_terse: bool, machine: Format | None) -> None:
    if is_terse and is_verbose:
        raise Stop("qrsub: the options -verbose and -terse exclude each other")
    if is_terse and machine:
        raise Stop(f"qrsub: the options -terse and -{machine} exclude each other")
    if is_terse and options.verify == "v":
        raise Stop("qrsub: -terse cannot be used with -w v, which reserves nothing")


def _refusal_record(error: OarError) -> dict[str, object]:
    """Return why there is no reservation, for machine formats; ``proposal``: the earliest possible start."""
    refusal = error if isinstance(error, NotGranted) else None
    return {
        "ok": False,
        "message": str(error),
        "reason": refusal.reason if refusal else None,
        "proposal": refusal.proposal or None if refusal else None,
    }


def _request(
    context: Context,
    requester: Requester,
    options: ReservationOptions,
    *,
    is_verbose: bool,
    is_terse: bool,
    machine: Format | None,
) -> None:
    """Request a reservation, wait for the decision and print it.  Raises NotGranted."""
    with ending_with_caller(once=True):
        first, is_moved = _wait_for_decision(context, requester, options)
    with context.database.snapshot() as tx:
        access = tx.reservations.access([first.id])[first.id]
        decided = requests.occurrences_requested_together(tx, first)
    if AccessEntry(first.owner, denied=True) in access:
        context.warn(f"{first.owner}, its owner, has no access to it (-u).")
    granted = [reservation for reservation in decided if reservation.state is not ReservationState.REFUSED]
    if not granted:
        proposal = _proposal_of_series(context, decided) if first.series_id else first.proposal
        raise NotGranted(
            "denied: Reservation can't be granted", first.message, proposal, is_series=bool(first.series_id)
        )
    if is_terse:
        click.echo("\n".join(str(reservation.number) for reservation in granted))
    elif machine:
        click.echo(_document(context, granted, machine), nl=False)
    elif first.series_id:
        click.echo("\n".join(_series_lines(context, decided, granted, is_verbose=is_verbose)))
    else:
        click.echo("\n".join(_lines(context, first, is_moved=is_moved, is_verbose=is_verbose)))


# -- request and decision ---------------------------------------------------------------------------------------------


def _wait_for_decision(
    context: Context, requester: Requester, options: ReservationOptions
) -> tuple[AdvanceReservation, bool]:
    """Return the decided reservation, and whether its window differs from the requested one.

    An immediate start does not count as another window.  Cancel the request if the caller stops waiting.  Raises Stop.
    """
    database, config = context.database, context.runtime.config
    patience, written = config.reservation_answer_timeout, list[StoredRequest]()
    context.fate = UNANSWERED.format(patience)
    try:
        request = requests.submit(database, config, requester, options, lambda _, stored, __: written.append(stored))
        _print_rules(request.rule_output)
        decided = requests.wait_for_decision(
            database, lambda: requests.find_decision(database, written[0].id), patience
        )
        why = NOBODY.format(patience)
    except (KeyboardInterrupt, Hangup):
        decided, why = None, ""
    context.fate = ""
    for stored in () if decided else written:
        decided = requests.cancel_undecided(database, stored.id, context.user.name)
    if decided is None:
        raise Stop(f"{why}{WITHDRAWN}", NO_ANSWER)
    starts_at_once = written[0].start <= decided.submission_time and decided.state in STARTED
    is_moved = (decided.start, decided.end) != (written[0].start, written[0].end) and not starts_at_once
    return decided, is_moved


def _print_rules(output: RuleOutput) -> None:
    for text in (output.out, output.err):
        click.echo(text, err=True, nl=False)


def _lines(context: Context, answer: AdvanceReservation, *, is_moved: bool, is_verbose: bool) -> Iterator[str]:
    yield f"Your reservation {answer.number} has been granted"
    if is_moved or is_verbose:
        yield f"It starts at {write_date(answer.start)} and ends at {write_date(answer.end)}."
    yield from (f"Its state is {answer.state}: {reason}" for reason in reasons(answer))
    if is_verbose:
        with context.database.snapshot() as tx:
            yield slots_line(granted_slots(tx, answer.queue, answer.resources))


def _document(context: Context, granted: Sequence[AdvanceReservation], machine: Format) -> str:
    """Return the document that qrstat prints of the same reservations."""
    with context.database.snapshot() as tx:
        reader = permissions.reader(tx, context.user, is_private=context.runtime.config.oarstat_private)
        items = shown(tx, granted, reader)
    if machine is Format.XML:
        from oar.lib.reservations.xml import reservations_xml

        return reservations_xml(items, (), explains=False)
    return dump({str(item.reservation.number): reservation_record(item) for item in items}, machine)


def slots_line(slots: tuple[GrantedSlots, ...]) -> str:
    """Return the line about granted slots, as in the details of qrstat."""
    return f"{'granted_slots:':<28}{','.join(f'{slot.place}={slot.slots}' for slot in slots)}"


# -- series -----------------------------------------------------------------------------------------------------------


def _proposal_of_series(context: Context, refused: Sequence[AdvanceReservation]) -> int:
    """Return the later start of a series that was refused, if its rule gives the dates that were tried; 0 = none."""
    with context.database.snapshot() as tx:
        series = tx.reservations.select_series([refused[0].series_id])[refused[0].series_id]
    starts = [reservation.start for reservation in refused]
    return _fitting(series.rule, series.time_zone, starts, refused[0].proposal)


def _fitting(rule: str, zone: str, starts: Sequence[int], proposal: int) -> int:
    """Return a later start of a series, 0 if its rule does not give the same dates from it on, only later."""
    from oar.lib.reservations import recurrence

    shifted = [proposal + start - starts[0] for start in starts]
    is_given = proposal and list(islice(recurrence.dates(rule, proposal, zone), len(starts))) == shifted
    return proposal if is_given else 0


def _series_lines(
    context: Context, answered: Sequence[AdvanceReservation], granted: Sequence[AdvanceReservation], *, is_verbose: bool
) -> Iterator[str]:
    numbers = format_ranges(from_positions(reservation.number for reservation in granted))
    have = "s {} have" if len(granted) > 1 else " {} has"
    yield f"Your reservation{have.format(numbers)} been granted (series {granted[0].series_id})"
    for reservation in answered:
        if reservation.state is ReservationState.REFUSED:
            start = write_date(reservation.start)
            yield f"occurrence {reservation.series_index}, {start}, is skipped: {reservation.message}"
            continue
        if is_verbose:
            with context.database.snapshot() as tx:
                slots = granted_slots(tx, reservation.queue, reservation.resources)
            start, end = write_date(reservation.start), write_date(reservation.end)
            yield f"{reservation.number} starts at {start} and ends at {end}."
            yield slots_line(slots)
        yield from (
            f"{reservation.number} is in the state {reservation.state}: {reason}" for reason in reasons(reservation)
        )
    if len(granted) == len(answered):
        return
    with context.database.snapshot() as tx:  # occurrences are requested instead of skipped ones
        occurrences = tx.reservations.of_series([answered[0].series_id])
    later = [reservation.series_index for reservation in occurrences if reservation.series_index > len(answered)]
    if later:
        several = len(later) > 1
        yield (
            f"occurrence{'s' * several} {format_ranges(from_positions(later))} {'are' if several else 'is'} requested"
            f" instead: qrstat shows {'them' if several else 'it'} when granted"
        )


# -- verification -----------------------------------------------------------------------------------------------------


def _verify(context: Context, requester: Requester, options: ReservationOptions, machine: Format | None) -> None:
    """Print what would be decided now; nothing is stored.  Raises NotGranted."""
    from oar.kao.rounds.hypothetical import reservation_trials

    database, config = context.database, context.runtime.config
    request = requests.rehearse(database, config, requester, options)
    _print_rules(request.rule_output)
    skips = request.series is not None and request.series.skips_conflicts
    steps = reservation_trials.answers(database, config, request.occurrences, skips_conflicts=skips)
    granted = [step for step in steps if step.state is not ReservationState.REFUSED]
    if not granted:
        proposal = steps[0].proposal
        if request.series:
            proposal = _fitting(request.series.rule, request.series.time_zone, request.starts, proposal)
        raise NotGranted(
            "verification: no suitable queues", steps[0].message, proposal, is_series=request.series is not None
        )
    with database.snapshot() as tx:
        slots = [granted_slots(tx, request.reservation.queue, step.resources) for step in granted]
    if machine:
        records = [reservation_trials.record_of(*pair) for pair in zip(granted, slots, strict=True)]
        click.echo(dump(records if request.series else records[0], machine), nl=False)
        return
    lines = ["verification: found suitable queue(s)"]
    for step, step_slots in zip(granted, slots, strict=True):
        lines += [slots_line(step_slots), f"{'start_time:':<28}{write_long_date(step.start)}"]
        if step.state in INCOMPLETE:
            lines.append(f"{'state:':<28}{step.state!s}")
            lines += [f"{'message:':<28}{reason}" for reason in step.message.splitlines()]
    click.echo("\n".join(lines))


if __name__ == "__main__":
    sys.exit(main())
