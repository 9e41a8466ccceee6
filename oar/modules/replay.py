"""``kao save`` and ``kao plan``: a round in one file, and the plan of it on any machine (scheduling.md 1).

    kao save FILE                           write what a round would be decided on now
    kao plan FILE                           plan it: the same file gives the same plan everywhere
    kao plan FILE --json                    the plan with all that is in it
    kao plan FILE --without NODE            as if the node were dead; may be repeated
    kao plan FILE --walltime JOB=H:M:S      as if the job had another walltime; may be repeated
    kao plan FILE --explain JOB             only this job, with the smallest change that would let it start now

Neither changes anything.  The file holds names of users, projects and nodes, and what is asked by jobs that wait.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from oar.kao import forecast
from oar.kao.codec import from_json, to_json
from oar.kao.model import Plan, Snapshot
from oar.kao.platform import Platform
from oar.kao.schedule import schedule
from oar.lib import runtime
from oar.lib.errors import BadRequest, OarError
from oar.lib.times import format_date, parse_duration


def main(arguments: Sequence[str]) -> int:
    """Run ``kao save`` or ``kao plan``; return the exit code."""
    asked = _parser().parse_args(arguments)
    try:
        sys.stdout.write(_save(asked.file) if asked.command == "save" else _plan(asked))
    except OarError as error:
        sys.stderr.write(f"[ERROR] {error}\n")
        return error.exit_code
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kao", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="save|plan")
    commands.add_parser("save", help="write a round to a file").add_argument("file", type=Path)
    plan = commands.add_parser("plan", help="plan a round from a file")
    plan.add_argument("file", type=Path)
    plan.add_argument("--json", action="store_true", help="write the whole plan")
    plan.add_argument("--without", action="append", default=[], metavar="NODE", help="as if the node were dead")
    plan.add_argument(
        "--walltime", action="append", default=[], metavar="JOB=H:M:S", help="as if the job had another walltime"
    )
    plan.add_argument("--explain", type=int, metavar="JOB", help="only this job, and what would let it start now")
    return parser


def _save(path: Path) -> str:
    opened = runtime.open_runtime("kao")
    try:
        snapshot = Platform(opened.database, opened.config).read().snapshot
    finally:
        opened.close()
    try:
        path.write_text(to_json(snapshot), encoding="utf-8")
    except OSError as error:
        raise BadRequest(f"cannot write {path}: {error.strerror}") from None
    return f"{len(snapshot.waiting)} waiting and {len(snapshot.running)} running jobs in {path}\n"


def _plan(asked: argparse.Namespace) -> str:
    snapshot = read(asked.file)
    if asked.without:
        snapshot = forecast.without_nodes(snapshot, asked.without)
    for text in asked.walltime:
        job, separator, walltime = text.partition("=")
        if not (separator and job.isascii() and job.isdigit()):
            raise BadRequest(f"{text} is not JOB=H:M:S")
        snapshot = forecast.with_walltime(snapshot, int(job), parse_duration(walltime))
    plan = schedule(snapshot)
    if asked.explain is not None:
        return _explained(snapshot, plan, asked.explain)
    return to_json(plan) + "\n" if asked.json else shown(snapshot, plan)


def read(path: Path) -> Snapshot:
    """Read a saved round.  Raises BadRequest if it is none."""
    try:
        return from_json(Snapshot, path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadRequest(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, TypeError, KeyError, AttributeError):
        raise BadRequest(f"{path} is not a round saved by this version: write one with kao save") from None


def shown(snapshot: Snapshot, plan: Plan, only: int | None = None) -> str:
    """Return a line for each job that waits: number, start, number of resources, why it does not start now."""
    places = {place.job_id: place for place in plan.placements}
    lines = [f"{'job':>10}  {'start':19}  {'resources':>9}  reason"]
    for job in snapshot.waiting:
        if only in (None, job.id):
            place, reason = places.get(job.id), plan.reasons.get(job.id)
            start = format_date(place.start) if place else "-"
            count = place.resources.bit_count() if place else "-"
            lines.append(f"{job.id:>10}  {start:19}  {count:>9}  {reason.text if reason else ''}".rstrip())
    return "\n".join(lines) + "\n"


def _explained(snapshot: Snapshot, plan: Plan, job_id: int) -> str:
    if all(job.id != job_id for job in snapshot.waiting):
        raise BadRequest(f"no job {job_id} is waiting in this round")
    change = forecast.smallest_change(snapshot, job_id)
    remark = f"It would start now with {change.text}.\n" if change else ""
    return shown(snapshot, plan, job_id) + remark
