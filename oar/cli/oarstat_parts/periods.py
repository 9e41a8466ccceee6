"""What oarstat prints of a period: resource consumption, bills, errors of predictions, jobs on resources."""

from oar.cli.common import render
from oar.cli.common.command import Context
from oar.cli.common.options import Stop
from oar.cli.oarstat_parts import tables
from oar.cli.oarstat_parts.filters import find_reservations
from oar.lib.base.errors import BadRequest
from oar.lib.base.formats import Format, dump
from oar.lib.base.times import parse_date


def interval(context: Context, text: str, option: str) -> tuple[int, int]:
    """Return the two dates of an interval.  Raises Stop."""
    from oar.lib.submission.job_reservation import parse_interval

    with context.database.snapshot() as tx:
        now = tx.now
    try:
        return parse_interval(text, now)
    except BadRequest:
        raise Stop(
            f'Bad syntax for {option}\n# Write two dates, the earlier one first: "YYYY-MM-DD hh:mm:ss, YYYY-MM-DD"'
            "\n# Or write: now,+1h; 8:00,now; yesterday,today; 7d,now."
        ) from None


def accounting_text(
    context: Context, dates: tuple[int, int], user: str | None, machine: Format | None, *, header: bool
) -> str:
    from oar.lib.jobs.accounting import consumption_by_user

    with context.database.snapshot() as tx:
        consumptions = consumption_by_user(tx, *dates, user)
    if machine:
        return dump({consumption.user: consumption.record for consumption in consumptions}, machine)
    if user is None:
        return render.usage_table(consumptions, header=header)
    return render.usage_summary(user, *dates, consumptions[0] if consumptions else None)


def bills_text(
    context: Context,
    dates: tuple[int, int],
    user: str | None,
    named: str | None,
    machine: Format | None,
    *,
    header: bool,
) -> str:
    """Return what advance reservations used; ``named``: number or name of one, None for all."""
    with context.database.snapshot() as tx:
        ids = None if named is None else find_reservations(tx, named)
        totals = tx.reservation_logs.reservation_totals(*dates, ids=ids, owner=user)
    if machine:
        return dump(tables.bill_records(totals), machine)
    return tables.bills_table(totals, header=header)


def accuracy_text(context: Context, since: str | None, machine: Format | None) -> str:
    with context.database.snapshot() as tx:
        start = tx.now - 7 * 86400 if since is None else parse_date(since, tx.now, is_past=True)
        errors = tx.job_waits.prediction_errors(start)
    if machine:
        queues = {row.queue: row._asdict() for row in errors if row.queue is not None}
        return dump(
            {"queues": queues, "all": next((row._asdict() for row in errors if row.queue is None), {})}, machine
        )
    return tables.accuracy_table(errors)


def gantt_text(context: Context, dates: tuple[int, int], machine: Format | None, *, as_chart: bool) -> str:
    from oar.lib.history.gantt import gantt

    with context.database.snapshot() as tx:
        record = gantt(tx, *dates, context.privacy(tx))
    if as_chart:
        return tables.chart(record, *dates)
    return dump(record, machine or Format.DUMPER)


def density_text(context: Context, dates: tuple[int, int], machine: Format | None) -> str:
    from oar.lib.history.gantt import node_densities

    if dates[1] <= dates[0]:
        raise Stop("--gantt: the second date must be later than the first")
    with context.database.snapshot() as tx:
        densities = node_densities(tx, *dates)
    if machine:
        return dump({density.node: density.record for density in densities}, machine)
    return tables.density_table(densities)
