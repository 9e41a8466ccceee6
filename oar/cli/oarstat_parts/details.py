"""What oarstat prints of chosen jobs in detail: states, events, resources, all fields or some of them."""

import sys
from collections.abc import Collection, Iterable, Sequence
from functools import partial

from oar.cli.common import render
from oar.cli.common.command import Context
from oar.lib.base.formats import Format, dump, pieces
from oar.lib.db.transaction import Transaction
from oar.lib.jobs.records import Job


def states_text(tx: Transaction, ids: Collection[int], machine: Format | None) -> str:
    states = tx.jobs.states(ids)
    if machine:
        return dump(states, machine)
    return "".join(f"{job_id}: {state}\n" for job_id, state in states.items())


def events_text(context: Context, tx: Transaction, jobs: Sequence[Job], machine: Format | None) -> str:
    events_by_job = tx.events.of_jobs([job.id for job in jobs])
    events = {job.id: events_by_job.get(job.id, []) for job in jobs}
    if not machine and sys.stdout.isatty():
        from oar.cli.common import event_story

        statuses = {job.id: job.exit_code for job in jobs}
        told = [event for some in events.values() for event in some]
        return event_story.event_story(told, statuses, with_types=context.user.is_admin)
    if not machine:
        return render.job_events(events)
    records = {
        job_id: [{"date": event.date, "type": event.type, "description": event.description} for event in job_events]
        for job_id, job_events in events.items()
    }
    return dump(records, machine)


def properties_text(tx: Transaction, jobs: Sequence[Job], machine: Format | None) -> str:
    from oar.lib.nodes.views import resources_of_jobs

    resources = resources_of_jobs(tx, [job.id for job in jobs])
    if machine:
        return dump(
            {job_id: [assignment.columns for assignment in some] for job_id, some in resources.items()}, machine
        )
    return render.property_lines(assignment for some in resources.values() for assignment in some)


def full_texts(
    context: Context, tx: Transaction, jobs: Sequence[Job], machine: Format | None, layout: int
) -> Iterable[str]:
    from oar.lib.jobs.formats import JobRecords
    from oar.lib.jobs.views import job_columns

    columns = job_columns(tx, jobs, context.privacy(tx))
    if machine:
        return pieces(JobRecords(columns), machine)
    story: render.Story | None = None
    if sys.stdout.isatty():  # a program that reads a pipe knows the types of events
        from oar.cli.common import event_story

        story = partial(event_story.event_story, with_types=context.user.is_admin)
    return [render.full_jobs(columns, layout=layout, story=story)]


def fields_text(
    context: Context, tx: Transaction, jobs: Sequence[Job], names: str, machine: Format | None, *, header: bool
) -> str:
    from oar.cli.oarstat_parts import tables
    from oar.lib.jobs.formats import JobRecords
    from oar.lib.jobs.views import job_columns

    fields = tables.read_fields(names)
    records = JobRecords(job_columns(tx, jobs, context.privacy(tx)))
    if machine:
        return dump(tables.chosen_fields(records, fields), machine)
    return tables.fields_table(records, fields, header=header)
