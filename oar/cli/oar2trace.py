"""oar2trace: writes the ended jobs as a trace that simulators read."""

import os
import sys
from collections.abc import Iterable
from typing import IO

from oar.cli.common.command import Context, oar_command
from oar.cli.common.options import ADMIN, COUNT, LARGEST_NUMBER, Stop, option
from oar.lib.base.errors import DatabaseUnavailable
from oar.lib.history.traces import TraceFormat, TraceOptions, resource_records, trace

EXIT_DATABASE = 2


@oar_command(
    "oar2trace",
    summary="Export the ended jobs as a trace for simulators.",
    examples={
        "oar2trace -f /tmp/trace.swf --from 2026-01-01 --to 2026-02-01": "Export the jobs of January.",
    },
    style=ADMIN,
    admins_only=True,
    exit_codes={DatabaseUnavailable: EXIT_DATABASE},
)
@option("-f", "--file", "path", metavar="FILE", required=True, help="Output file; -: standard output.")
@option("-b", "--first", type=COUNT, metavar="ID", help="Id of the first job.")
@option("-e", "--last", type=COUNT, metavar="ID", help="Id of the last job.")
@option("--from", "start", metavar="DATE", help="Only jobs submitted since this date.")
@option("--to", "stop", metavar="DATE", help="Only jobs submitted until this date.")
@option(
    "-p",
    "--property",
    "name",
    metavar="PROPERTY",
    help="Count each value of this property as a processor (default: each resource).",
)
@option("-m", "--mode", metavar="FORMAT", help="swf (standard workload format, default) or owf (with columns of OAR).")
@option("--chunk-size", type=COUNT, metavar="NUMBER", help="Number of jobs read at a time (default: 10000).")
@option("--metadata-file", metavar="FILE", help="Write the resources to this file, as YAML.")
@option("--anonymize", is_flag=True, help="Write no names of users and projects.")
def main(
    context: Context,
    *,
    path: str,
    first: int | None,
    last: int | None,
    start: str | None,
    stop: str | None,
    name: str | None,
    mode: str | None,
    chunk_size: int | None,
    metadata_file: str | None,
    anonymize: bool,
) -> None:
    """Write the trace, and the resources if requested."""
    options = TraceOptions(
        _form(mode),
        1 if first is None else first,
        LARGEST_NUMBER if last is None else last,
        context.past_date(start) if start else 0,
        context.past_date(stop) if stop else LARGEST_NUMBER,
        _known(context, name),
        10_000 if chunk_size is None else chunk_size,
        anonymize,
    )
    _check(options, path, metadata_file)
    if metadata_file is not None:
        from oar.lib.base.formats import Format, dump

        _write(metadata_file, [dump(resource_records(context.database), Format.YAML)])
    _write(path, (f"{line}\n" for line in trace(context.database, options)))


def _check(options: TraceOptions, path: str, metadata_file: str | None) -> None:
    """Refuse what would make a trace of nothing, or two files in one.  Raises Stop."""
    if options.first > options.last:
        raise Stop(
            f"[ERROR] --first {options.first} is greater than --last {options.last}. Write the smaller job id first."
        )
    if options.start > options.stop:
        raise Stop("[ERROR] --from must be earlier than --to: exchange the dates.")
    if not options.chunk:
        raise Stop("[ERROR] --chunk-size must be at least 1.")
    if path == metadata_file:
        raise Stop(
            f"[ERROR] The trace and the resources cannot both be in {path}: use another file for --metadata-file."
        )


def _form(mode: str | None) -> TraceFormat:
    try:
        return TraceFormat(mode or TraceFormat.SWF)
    except ValueError:
        raise Stop(f"[ERROR] {mode} is not a trace format: use {' or '.join(TraceFormat)} (-m).") from None


def _known(context: Context, name: str | None) -> str:
    """Return the name of a property that exists; '' for none.  Raises Stop."""
    if name is None:
        return ""
    with context.database.snapshot() as tx:
        if name not in tx.resources.columns():
            raise Stop(f"[ERROR] There is no property {name}: oarproperty -l lists them.")
    return name


def _write(path: str, texts: Iterable[str]) -> None:
    """Write a file, which appears when it is complete.  Raises Stop."""
    if path == "-":
        sys.stdout.writelines(texts)
        return
    if os.path.exists(path) and not os.path.isfile(path):
        raise Stop(
            f"[ERROR] Cannot write {path}: it must be a regular file. Use a file name, or - for the standard output."
        )
    made = f"{path}.new"
    try:
        with open(made, "w", encoding="utf-8", errors="surrogateescape") as file:
            _fill(file, texts, made)
        os.replace(made, path)
    except OSError as error:
        raise Stop(f"[ERROR] Cannot write {path}: {error.strerror}.") from None


def _fill(file: IO[str], texts: Iterable[str], path: str) -> None:
    try:
        file.writelines(texts)
    except BaseException:
        os.unlink(path)
        raise


if __name__ == "__main__":
    main()
