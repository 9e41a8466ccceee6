"""oaralter: changes jobs that wait (commands-user.md 17)."""

import click

from oar.cli.command import Context, machine_formats, oar_command, option
from oar.cli.outcomes import Report
from oar.cli.selection import Wanted, select_jobs, show_usage
from oar.lib import alteration
from oar.lib.alteration import Changes, Rehearsals
from oar.lib.errors import NoSuchJob, UserError
from oar.lib.formats import Format

FAILED, BAD_ID = 1, 2


@oar_command("oaralter", summary="Change jobs that wait, with the checks of a submission.")
@option(
    "-l",
    "--resource",
    "requests",
    multiple=True,
    metavar="REQUEST",
    help="Other resources, another walltime, or both; what is not named stays.",
)
@option("-n", "--name", metavar="TEXT", help="Another name.")
@option("-p", "--property", "properties", metavar="SQL", help="Another condition on the resources.")
@option("-q", "--queue", metavar="QUEUE", help="Another queue.")
@option("-a", "--anterior", "--after", "dependencies", multiple=True, metavar="ID", help="Other dependencies.")
@option("--project", metavar="TEXT", help="Another project.")
@option("--notify", metavar="[TAGS]mail:ADDRESS|exec:COMMAND", help="Tell somebody else what becomes of it.")
@option("--array", is_flag=True, help="The identifiers are those of arrays: change all their jobs.")
@machine_formats
@click.argument("words", nargs=-1, metavar="JOB_ID...")
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
    array: bool,
    words: tuple[str, ...],
    machine: Format | None,
) -> int:
    """Change the jobs, each for itself."""
    wanted = tuple(each for each in dependencies if each) if dependencies else None
    changes = Changes(name, properties, queue, project, notify, wanted, requests or None)
    if not words or changes == Changes():
        return show_usage()
    report = Report(machine)
    selection = select_jobs(context, Wanted(words, array))
    report.complain(BAD_ID, selection.complaints)
    database, config = context.database, context.runtime.config
    rehearsals = Rehearsals(database, config)
    for job_id in selection.ids:
        try:
            alteration.alter(database, config, context.user, job_id, changes, rehearsals=rehearsals)
        except UserError as error:
            reason = "this job does not exist." if isinstance(error, NoSuchJob) else str(error)
            report.bad(job_id, FAILED, f"/!\\ Cannot alter {job_id}: {reason}")
        else:
            report.good(job_id, f"[{job_id}] The job was altered.")
    report.close()
    return max(report.codes, default=0)


if __name__ == "__main__":
    main()
