"""oaralter: change jobs that wait."""

import click

from oar.cli.common.command import Context, oar_command
from oar.cli.common.job_selection import JobCriteria, OutcomeReport, no_job_given, select_jobs, show_usage
from oar.cli.common.options import Join, machine_formats, option
from oar.lib.base.errors import NoSuchJob, UserError
from oar.lib.base.formats import Format

FAILED, BAD_ID = 1, 2


@oar_command(
    "oaralter",
    summary="Change waiting jobs, with the checks of a submission.",
    examples={
        "oaralter -l nodes=1,walltime=2:00:00 118": "Change the resources and the walltime of waiting job 118.",
        "oaralter -n training --project physics 118 119": "Set the name and the project of two jobs.",
    },
)
@option(
    "-l",
    "--resource",
    "requests",
    multiple=True,
    metavar="REQUEST",
    help="New resources or walltime; omitted parts stay unchanged.",
)
@option("-n", "--name", metavar="TEXT", help="New name.")
@option("-p", "--property", "properties", join=Join.CONDITION, metavar="SQL", help="New condition on the resources.")
@option("-q", "--queue", metavar="QUEUE", help="New queue.")
@option("-a", "--anterior", "--after", "dependencies", multiple=True, metavar="ID", help="New dependencies.")
@option("--project", metavar="TEXT", help="New project.")
@option("--notify", metavar="[TAGS]mail:ADDRESS|exec:COMMAND", help="New notification.")
@option(
    *("--ar", "-ar", "--advance-reservation"),
    "advance_reservation",
    metavar="ID|NAME|none",
    help="Move the job into this advance reservation; none: remove it from its reservation.",
)
@option("--array", is_flag=True, help="The ids are array ids: change all jobs of these arrays.")
@machine_formats
@click.argument("identifiers", nargs=-1, metavar="JOB_ID...")
def main(
    context: Context,
    *,
    requests: tuple[str, ...],
    name: str | None,
    properties: str | None,
    queue: str | None,
    dependencies: tuple[str, ...],
    project: str | None,
    notify: str | None,
    advance_reservation: str | None,
    array: bool,
    identifiers: tuple[str, ...],
    machine: Format | None,
) -> int:
    """Change the jobs, each in its own transaction."""
    from oar.lib.submission import alteration
    from oar.lib.submission.alteration import JobChanges, Rehearsals

    changes = JobChanges(
        name=name,
        properties=properties,
        queue=queue,
        project=project,
        notify=notify,
        advance_reservation=advance_reservation,
        dependencies=tuple(text for text in dependencies if text) if dependencies else None,
        requests=requests or None,
    )
    if not identifiers:
        return no_job_given(context)
    if changes == JobChanges():
        return show_usage("No change is given: write one before the jobs, as -l walltime=2:00, -n NAME or -q QUEUE")
    report = OutcomeReport(machine)
    selection = select_jobs(context, JobCriteria(identifiers, array))
    report.complain(BAD_ID, selection.complaints)
    database, config = context.database, context.runtime.config
    rehearsals = Rehearsals(database, config)
    for job_id in selection.ids:
        try:
            alteration.alter(database, config, context.user, job_id, changes, rehearsals=rehearsals)
        except UserError as error:
            reason = "this job does not exist." if isinstance(error, NoSuchJob) else str(error)
            stop = " ; " if isinstance(error, alteration.StaysInside) else ": "
            report.bad(job_id, FAILED, f"/!\\ Cannot alter {job_id}{stop}{reason}")
        else:
            report.good(job_id, f"[{job_id}] The job was altered.")
    report.close()
    return max(report.codes, default=0)


if __name__ == "__main__":
    main()
