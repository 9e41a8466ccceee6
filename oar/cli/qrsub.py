"""qrsub: request an advance reservation."""

import os
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import click

from oar.cli.common.command import Context, no_argument, oar_command
from oar.cli.common.options import RESERVATIONS, Join, NameList, Stop, machine_formats, option, optional_argument
from oar.cli.common.process import Hangup, ending_with_caller
from oar.cli.common.reservation_commands import warn_of_mail, with_default_options
from oar.lib.base.errors import BadCondition, OarError, Refused
from oar.lib.base.formats import Format, dump
from oar.lib.base.resource_set import format_ranges, from_positions
from oar.lib.reservations import drafts, preparation, requests, rights
from oar.lib.reservations.drafts import Requester
from oar.lib.reservations.frames import StoredRequest
from oar.lib.reservations.grid_engine_times import write_date, write_long_date, write_option_date
from oar.lib.reservations.preparation import ReservationWish
from oar.lib.reservations.records import AccessEntry, AdvanceReservation
from oar.lib.reservations.states import INCOMPLETE, STARTED, ReservationState
from oar.lib.reservations.views import GrantedSlots, granted_slots, reasons, reservation_record, shown
from oar.lib.submission.admission_rules import RuleOutput
from oar.lib.submission.checks import BadSubmission

if TYPE_CHECKING:
    from oar.kao.facts.plan import ReservationStep

NO_ANSWER = 26
NOBODY, WITHDRAWN = "no answer from the scheduler in {:g} s, ", "the request was withdrawn"
#: What becomes of a request while the server is away.
UNANSWERED = "the request waits {:g} s for it, and is withdrawn then"


@oar_command(
    "qrsub",
    summary="Request an advance reservation.",
    examples={
        "qrsub -a +1d -d 3h -l nodes=2 -N course -u alice,bob": "Reserve two nodes for three hours tomorrow.",
        "qrsub -a +1h -d 2:00:00 -pe mpi 4": "Reserve 4 slots of a parallel environment.",
        "qrsub -a +1d -d 2h -l nodes=1 -rrule 'FREQ=WEEKLY;COUNT=10'": "Reserve a node every week, ten times.",
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
@option("-verbose", "is_verbose", is_flag=True, help="Also print what was granted.")
@option("-terse", "is_terse", is_flag=True, help="Print only the number.")
@machine_formats
def main(context: Context, *, is_verbose: bool, is_terse: bool, machine: Format | None, **options: object) -> int:
    """Request a reservation and wait for the decision."""
    values = with_default_options(context, options, ReservationWish._fields)
    wish = ReservationWish(**values)  # type: ignore[arg-type]
    if not context.arguments and wish == ReservationWish():
        raise no_argument(context.command)
    requester = Requester(context.user, " ".join(["qrsub", *context.arguments]))
    output = OutputOptions(is_verbose, is_terse, machine)
    _warn_of_zone(context)
    if wish.mail_options != "n":
        warn_of_mail(context, wish.mail_options)
    try:
        _check_output(output, wish)
        if preparation.check_verify(wish):
            _verify(context, requester, wish, machine)
        else:
            _request(context, requester, wish, output)
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


class OutputOptions(NamedTuple):
    """The output options."""

    is_verbose: bool
    is_terse: bool
    machine: Format | None


class NotGranted(Stop):
    """There is no place for a request."""

    def __init__(self, first_line: str, reason: str, proposal: int, *, is_series: bool) -> None:
        super().__init__(f"{first_line}\n{_refusal(reason, proposal, is_series=is_series)}")
        self.reason = reason
        self.proposal = proposal


def _check_output(output: OutputOptions, wish: ReservationWish) -> None:
    """Reject output options that exclude each other.  Raises Stop."""
    if output.is_terse and output.is_verbose:
        raise Stop("qrsub: the options -verbose and -terse exclude each other")
    if output.is_terse and output.machine:
        raise Stop(f"qrsub: the options -terse and -{output.machine} exclude each other")
    if output.is_terse and wish.verify == "v":
        raise Stop("qrsub: -w v reserves nothing: -terse has no number to print")


def _refusal_record(error: OarError) -> dict[str, object]:
    """Return why there is no reservation, for machine formats; ``proposal``: the earliest possible start."""
    refusal = error if isinstance(error, NotGranted) else None
    return {
        "ok": False,
        "message": str(error),
        "reason": refusal.reason if refusal else None,
        "proposal": refusal.proposal or None if refusal else None,
    }


def _request(context: Context, requester: Requester, wish: ReservationWish, output: OutputOptions) -> None:
    """Request a reservation, wait for the decision and print it.  Raises NotGranted."""
    with ending_with_caller(once=True):
        answer, is_moved = _ask(context, requester, wish)
    _warn_of_denial(context, answer)
    answered = _series_of(context, answer)
    granted = [reservation for reservation in answered if reservation.state is not ReservationState.REFUSED]
    if not granted:
        proposal = _proposal_of_series(context, answered) if answer.series_id else answer.proposal
        raise NotGranted(
            "denied: Reservation can't be granted", answer.message, proposal, is_series=bool(answer.series_id)
        )
    if output.is_terse:
        click.echo("\n".join(str(reservation.number) for reservation in granted))
    elif output.machine:
        click.echo(_document(context, granted, output.machine), nl=False)
    elif answer.series_id:
        click.echo("\n".join(_series_lines(context, answered, granted, is_verbose=output.is_verbose)))
    else:
        click.echo("\n".join(_lines(context, answer, is_moved=is_moved, is_verbose=output.is_verbose)))


# -- request and decision ---------------------------------------------------------------------------------------------


def _ask(context: Context, requester: Requester, wish: ReservationWish) -> tuple[AdvanceReservation, bool]:
    """Return the decided reservation, and whether its window differs from the requested one.

    Cancel the request if the caller stops waiting.  Raises Stop.
    """
    database, config = context.database, context.runtime.config
    patience, written = config.reservation_answer_timeout, list[StoredRequest]()
    context.fate = UNANSWERED.format(patience)
    try:
        draft = drafts.ask(database, config, requester, wish, written.append)
        _print_rules(draft.output)
        answer = requests.wait_for_answer(database, lambda: requests.find_answer(database, written[0].id), patience)
        why = NOBODY.format(patience)
    except (KeyboardInterrupt, Hangup):
        answer, why = None, ""
    context.fate = ""
    for asked in () if answer else written:
        answer = requests.cancel_unanswered(database, asked.id, context.user.name)
    if answer is None:
        raise Stop(f"{why}{WITHDRAWN}", NO_ANSWER)
    return answer, _is_moved(answer, written[0])


def _is_moved(answer: AdvanceReservation, asked: StoredRequest) -> bool:
    """Return whether the window differs from the requested one; an immediate start does not count."""
    is_at_once = asked.start <= answer.submission_time and answer.state in STARTED
    return (answer.start, answer.end) != (asked.start, asked.end) and not is_at_once


def _print_rules(output: RuleOutput) -> None:
    """Print the output of the admission rules on stderr."""
    for text in (output.out, output.err):
        click.echo(text, err=True, nl=False)


def _lines(context: Context, answer: AdvanceReservation, *, is_moved: bool, is_verbose: bool) -> Iterator[str]:
    yield f"Your reservation {answer.number} has been granted"
    if is_moved or is_verbose:
        yield f"It starts at {write_date(answer.start)} and ends at {write_date(answer.end)}."
    yield from _error_lines(answer)
    if is_verbose:
        with context.database.snapshot() as tx:
            yield slots_line(granted_slots(tx, answer.queue, answer.resources))


def _warn_of_denial(context: Context, answer: AdvanceReservation) -> None:
    """Warn if the access list denies the owner."""
    with context.database.snapshot() as tx:
        entries = tx.reservations.access([answer.id])[answer.id]
    if AccessEntry(answer.owner, denied=True) in entries:
        context.warn(f"{answer.owner}, its owner, has no access to it (-u).")


def _error_lines(answer: AdvanceReservation) -> Iterator[str]:
    """Iterate over the reasons for missing resources."""
    for reason in reasons(answer):
        yield f"Its state is {answer.state}: {reason}"


def _document(context: Context, granted: Sequence[AdvanceReservation], machine: Format) -> str:
    """Return the document that qrstat prints of the same reservations."""
    with context.database.snapshot() as tx:
        reader = rights.reader(tx, context.user, is_private=context.runtime.config.oarstat_private)
        items = shown(tx, granted, reader)
    if machine is Format.XML:
        from oar.lib.reservations.xml import reservations_xml

        return reservations_xml(items, (), explains=False)
    return dump({str(item.reservation.number): reservation_record(item) for item in items}, machine)


def slots_line(slots: tuple[GrantedSlots, ...]) -> str:
    """Return the line about granted slots, as in the details of qrstat."""
    return f"{'granted_slots:':<28}{','.join(f'{slot.place}={slot.slots}' for slot in slots)}"


def _refusal(reason: str, proposal: int, *, is_series: bool) -> str:
    """Return the lines about the reason of a rejection and the earliest possible start."""
    later = "" if is_series else "\n  no later start was found"
    if proposal:
        of = " of the whole series" if is_series else ""
        option = write_option_date(proposal)
        later = f"\n  the earliest possible start{of} is {write_date(proposal)} (-a {option})"
    return f"  {reason}{later}"


# -- series -----------------------------------------------------------------------------------------------------------


def _series_of(context: Context, answer: AdvanceReservation) -> list[AdvanceReservation]:
    """Return the occurrences of its series that were answered with a reservation; itself if it is in none."""
    if not answer.series_id:
        return [answer]
    with context.database.snapshot() as tx:
        depth = tx.reservations.select_series([answer.series_id])[answer.series_id].depth
        return [
            reservation
            for reservation in tx.reservations.of_series([answer.series_id])
            if reservation.series_index <= depth
        ]


def _replacements(context: Context, answered: Sequence[AdvanceReservation]) -> Iterator[str]:
    """Yield a line about occurrences requested instead of skipped ones."""
    with context.database.snapshot() as tx:
        occurrences = tx.reservations.of_series([answered[0].series_id])
    later = [reservation.series_index for reservation in occurrences if reservation.series_index > len(answered)]
    if later:
        several = len(later) > 1
        yield (
            f"occurrence{'s' * several} {format_ranges(from_positions(later))} {'are' if several else 'is'} requested"
            f" instead: qrstat shows {'them' if several else 'it'} when granted"
        )


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
    if any(reservation.state is ReservationState.REFUSED for reservation in answered):
        yield from _replacements(context, answered)


# -- verification -----------------------------------------------------------------------------------------------------


def _verify(context: Context, requester: Requester, wish: ReservationWish, machine: Format | None) -> None:
    """Print what would be answered now; nothing is stored.  Raises NotGranted."""
    from oar.kao.rounds.hypothetical import reservation_trials

    draft = drafts.rehearse(context.database, context.runtime.config, requester, wish)
    _print_rules(draft.output)
    skips = draft.series is not None and draft.series.skips_conflicts
    config = context.runtime.config
    steps = reservation_trials.answers(context.database, config, draft.occurrences, skips_conflicts=skips)
    found = [step for step in steps if step.state is not ReservationState.REFUSED]
    if not found:
        proposal = steps[0].proposal
        if draft.series:
            proposal = _fitting(draft.series.rule, draft.series.time_zone, draft.starts, proposal)
        raise NotGranted(
            "verification: no suitable queues", steps[0].message, proposal, is_series=draft.series is not None
        )
    with context.database.snapshot() as tx:
        slots = [granted_slots(tx, draft.new.queue, step.resources) for step in found]
    if machine:
        records = [_verified(step, step_slots) for step, step_slots in zip(found, slots, strict=True)]
        click.echo(dump(records if draft.series else records[0], machine), nl=False)
    else:
        lines = (
            line for step, step_slots in zip(found, slots, strict=True) for line in _verified_lines(step, step_slots)
        )
        click.echo("\n".join(["verification: found suitable queue(s)", *lines]))


def _verified_lines(step: "ReservationStep", slots: tuple[GrantedSlots, ...]) -> Iterator[str]:
    yield slots_line(slots)
    yield f"{'start_time:':<28}{write_long_date(step.start)}"
    if step.state in INCOMPLETE:
        yield f"{'state:':<28}{step.state!s}"
        yield from (f"{'message:':<28}{reason}" for reason in step.message.splitlines())


def _verified(step: "ReservationStep", slots: tuple[GrantedSlots, ...]) -> dict[str, object]:
    return {
        "start_time": step.start,
        "end_time": step.end,
        "state": str(step.state),
        "reasons": step.message.splitlines(),
        "granted_slots": [{"queue": slot.queue, "host": slot.host, "slots": slot.slots} for slot in slots],
        "resources": list(step.resources),
    }


if __name__ == "__main__":
    sys.exit(main())
