"""``kao``, the scheduler on the command line: run a scheduling pass, or analyze one.

    kao round                               run a scheduling pass now, like the server: start jobs, update predictions
    kao save FILE                           save the input of a scheduling pass to a file
    kao plan FILE                           plan this input: the same file always gives the same plan
    kao plan FILE --all                     plan all jobs, without the limits of a scheduling pass
    kao plan FILE --json                    print the complete plan
    kao plan FILE --without-node NODE       plan without a node; may be repeated
    kao plan FILE --quotas QUOTAS           plan with the quotas of another file, in either format
    kao plan FILE --walltime JOB=H:M:S      plan with another walltime of a job; may be repeated
    kao plan FILE --explain JOB             show only this job, and the smallest change that would let it start now
    kao honesty                             compare the start times of jobs with their predictions

All commands except ``round`` change nothing. The file contains names of users, projects and nodes, and the requests of
waiting jobs.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from oar.kao.facts.plan import Plan
from oar.kao.facts.snapshot import Snapshot
from oar.kao.planner.schedule import schedule
from oar.kao.rounds import meta_sched, snapshot_files
from oar.kao.rounds.hypothetical import what_if
from oar.kao.rounds.reading import time_zone
from oar.kao.rounds.reading.policy_files import PolicyFiles, parse_quotas
from oar.kao.rounds.reading.snapshot_reader import SnapshotReader
from oar.kao.rounds.site import token_scripts
from oar.kao.rounds.snapshot_files import from_json, to_json
from oar.lib import runtime
from oar.lib.base.errors import BadRequest, OarError
from oar.lib.base.formats import Format
from oar.lib.base.times import format_date, parse_duration
from oar.lib.config.files import Config
from oar.modules import prediction_errors, worker

#: ``kao honesty`` looks back so many days.
DAYS = 30


def main(arguments: Sequence[str]) -> int:
    """Run one of the ``kao`` commands. Return the exit code. Without a command, print the help."""
    if not arguments:
        _parser().print_help()
        return worker.USAGE
    options = _parser().parse_args(arguments)
    if options.command == "round":
        return worker.one_shot("meta_sched", lambda opened, order: meta_sched.run(opened))
    try:
        sys.stdout.write(_answer(options))
    except OarError as error:
        sys.stderr.write(f"[ERROR] {error}\n")
        return error.exit_code
    return 0


def _answer(options: argparse.Namespace) -> str:
    if options.command == "save":
        return _save(options.file)
    if options.command == "plan":
        return _plan(options)
    return prediction_errors.report(options.days, options.machine)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kao", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="round|save|plan|honesty")
    commands.add_parser("round", help="make a round")
    commands.add_parser("save", help="write a round to a file").add_argument("file", type=Path)
    plan = commands.add_parser("plan", help="plan a round from a file")
    plan.add_argument("file", type=Path)
    plan.add_argument("--all", action="store_true", help="as if a round planned all jobs")
    plan.add_argument("--json", action="store_true", help="write the whole plan")
    plan.add_argument(
        "--without-node",
        "--without",
        dest="without",
        action="append",
        default=[],
        metavar="NODE",
        help="as if the node were dead",
    )
    plan.add_argument("--quotas", type=Path, metavar="FILE", help="as if these quotas were in force")
    plan.add_argument(
        "--walltime", action="append", default=[], metavar="JOB=H:M:S", help="as if the job had another walltime"
    )
    plan.add_argument(
        "--explain", type=int, metavar="JOB", help="only this job, and the change that would let it start now"
    )
    honesty = commands.add_parser("honesty", help="compare starts with their predictions")
    honesty.add_argument("--days", type=int, default=DAYS, help=f"number of days to look back ({DAYS})")
    for machine in Format:
        flags = f"-{machine.value[0].upper()}", f"--{machine}"
        honesty.add_argument(
            *flags, dest="machine", action="store_const", const=machine, help=f"print {machine.upper()}"
        )
    return parser


def _save(path: Path) -> str:
    opened = runtime.open_runtime("kao")
    config = opened.config
    tokens = partial(token_scripts.ask, config.scheduler_token_scripts or {}, config.scheduler_timeout)
    try:
        snapshot = SnapshotReader(opened.database, config).read(tokens).snapshot
    finally:
        opened.close()
    try:
        snapshot_files.save(snapshot, path)
    except OSError as error:
        raise BadRequest(f"cannot write {path}: {error.strerror}") from None
    return f"{len(snapshot.waiting)} waiting and {len(snapshot.running)} running jobs in {path}\n"


def _plan(options: argparse.Namespace) -> str:
    saved = read(options.file)
    with time_zone.within(saved.zone):
        return _planned(saved, options)


def _planned(saved: Snapshot, options: argparse.Namespace) -> str:
    if options.all:
        saved = what_if.with_all_planned(saved)
    snapshot = _supposed(saved, options)
    plan = schedule(snapshot)
    if options.explain is not None:
        return _explained(snapshot, plan, options.explain)
    if options.json:
        return to_json(plan) + "\n"
    return plan_table(snapshot, plan, before=None if snapshot is saved else schedule(saved))


def _supposed(snapshot: Snapshot, options: argparse.Namespace) -> Snapshot:
    """Return the snapshot with the changes from the options."""
    if options.without:
        snapshot = what_if.without_nodes(snapshot, options.without)
    if options.quotas:
        snapshot = _with_quotas(snapshot, options.quotas)
    for text in options.walltime:
        job, separator, walltime = text.partition("=")
        if not (separator and job.isascii() and job.isdigit()):
            raise BadRequest(f"{text} is not JOB=H:M:S")
        snapshot = what_if.with_walltime(snapshot, int(job), parse_duration(walltime))
    return snapshot


def _with_quotas(snapshot: Snapshot, path: Path) -> Snapshot:
    """Return the snapshot with the quotas of a file, read with the default settings of the scheduler."""
    try:
        parse_quotas(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadRequest(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise BadRequest(f"{path} is not a file of quotas: {error}") from None
    changed = what_if.with_quotas(snapshot, None)
    return what_if.with_quotas(changed, PolicyFiles(Config(quotas_conf_file=str(path))).quotas(changed, []))


def read(path: Path) -> Snapshot:
    """Load a saved snapshot. Raises BadRequest if the file is not a valid snapshot."""
    try:
        snapshot = from_json(Snapshot, path.read_text(encoding="utf-8"))
        is_whole = _is_whole(snapshot)
    except OSError as error:
        raise BadRequest(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        is_whole = False
    if not is_whole:
        raise BadRequest(f"{path} is not a round saved by this version: write one with kao save")
    return snapshot


def _is_whole(snapshot: Snapshot) -> bool:
    """Return whether the parts of a snapshot are consistent."""
    resources = snapshot.resources
    size = len(resources.ids)
    columns = [resources.types, resources.states, resources.addresses, resources.available_upto]
    pools = {group.pool for job in snapshot.waiting for alternative in job.alternatives for group in alternative.groups}
    sets = [pool.members for pool in snapshot.pools] + [job.resources for job in snapshot.running]
    sets += [job.granted.resources for job in snapshot.waiting if job.granted]
    return (
        isinstance(snapshot.now, int)
        and isinstance(snapshot.zone, str)
        and snapshot.zone.isprintable()
        and all(len(column) == size for column in (*columns, *resources.columns.values()))
        and sorted(resources.order) == sorted(resources.reservation_order) == list(range(size))
        and all(0 <= number < len(snapshot.pools) for number in pools)
        and not any(members & ~resources.everything for members in sets)
    )


def plan_table(snapshot: Snapshot, plan: Plan, only: int | None = None, before: Plan | None = None) -> str:
    """Return a table with a line for each waiting job: id, start, number of resources, reason for waiting.

    ``only``: include only this job. ``before``: the plan without the changes from the options, to show its start times
    too.
    """
    placements = {placement.job_id: placement for placement in plan.placements}
    former_starts = {placement.job_id: placement.start for placement in before.placements} if before else {}
    extra = f"{'instead of':19}  " if before else ""
    lines = [f"{'job':>10}  {'start':19}  {extra}{'resources':>9}  reason"]
    for job in snapshot.waiting:
        if only in (None, job.id):
            placement, reason = placements.get(job.id), plan.reasons.get(job.id)
            start = format_date(placement.start) if placement else "-"
            old = f"{_former(job.id, former_starts):19}  " if before else ""
            count = placement.resources.bit_count() if placement else "-"
            lines.append(f"{job.id:>10}  {start:19}  {old}{count:>9}  {reason.text if reason else ''}".rstrip())
    return "\n".join(lines) + "\n"


def _former(job_id: int, former_starts: Mapping[int, int]) -> str:
    return format_date(former_starts[job_id]) if job_id in former_starts else "-"


def _explained(snapshot: Snapshot, plan: Plan, job_id: int) -> str:
    if all(job.id != job_id for job in snapshot.waiting):
        raise BadRequest(f"no job {job_id} is waiting in this round")
    change = what_if.smallest_change(snapshot, job_id)
    remark = f"It would start now with {change.text}.\n" if change else ""
    return plan_table(snapshot, plan, job_id) + remark
