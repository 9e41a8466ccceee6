"""Job records, from which the machine formats are rendered (docs/design/formats.rst, "Records").

Records are built in pages, and each page column by column. This halves the time for ten thousand jobs and limits the
memory.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, groupby
from operator import attrgetter
from typing import Any, TypeVar

from oar.lib.base.formats import RecordTable, RecordTables
from oar.lib.history.gantt import ranges
from oar.lib.history.views import event_item, event_record
from oar.lib.jobs import output_names
from oar.lib.jobs.fields import FIELDS, ZERO_COUNTS, JobField, Kind
from oar.lib.jobs.records import Job, Moldable, date_of_start
from oar.lib.jobs.sql_listings import FoldedJobs, ListedJob
from oar.lib.jobs.states import FINAL, JobType, Reservation
from oar.lib.jobs.views import INTERACTIVE_OUTPUT, JobColumns, JobView, walltime_of
from oar.lib.submission.resource_request import format_wanted_resources

T = TypeVar("T")
Column = Sequence[object]

#: Number of records that are made at a time: their text is about 400 kB.
PAGE = 250


class JobRecords(RecordTables):
    """The records of jobs, by id."""

    def __init__(self, jobs: JobColumns) -> None:
        self._jobs = jobs

    @cached_property
    def _places(self) -> dict[int, int]:
        return {job.id: place for place, job in enumerate(self._jobs.fields.job)}

    def __getitem__(self, job_id: int) -> dict[str, object]:
        place = self._places[job_id]
        ((_, record),) = _table(self._jobs[place : place + 1]).items()
        return record

    def __iter__(self) -> Iterator[int]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._jobs)

    def tables(self) -> Iterator[RecordTable]:
        """Yield all records in tables; records of reservations that have not started contain an additional key."""
        for start in range(0, len(self._jobs), PAGE):
            page = self._jobs[start : start + PAGE]
            if Reservation.SCHEDULED not in [job.reservation for job in page.fields.job]:
                yield _table(page)
                continue
            begin = 0
            for _, jobs in groupby(page, lambda view: view.reserved_resources is not None):
                end = begin + sum(1 for _ in jobs)
                yield _table(page[begin:end])
                begin = end


def _table(page: JobColumns) -> RecordTable:
    """Return the records of at least one job. Either all jobs have reserved resources, or none has."""
    values = JobValues(page)
    columns = {
        key: _texts(values[field.name]) if field.kind is Kind.TEXT else values[field.name]
        for field in FIELDS
        for key in field.records
    }
    if page[0].reserved_resources is None:
        del columns["reserved_resources"]
    return RecordTable([job.id for job in page.fields.job], columns)


class JobValues:
    """The values of all fields of several jobs: one column per field, with one value per job."""

    def __init__(self, page: JobColumns) -> None:
        """``page`` contains at least one job."""
        self._page = page
        of = self._of = page.fields
        job: Any = Job._make(zip(*of.job, strict=True))  # each field holds the values of all jobs
        self._job = job
        resources, nodes = zip(*of.assigned, strict=True)
        requests, walltimes = _requests(of, job)
        hosts = [some[0] if some else None for some in nodes]
        #: Columns that are shown as they are; what the user may not see is empty in the views.
        self._columns: dict[str, Column] = {
            **job._asdict(),
            "types": of.types,
            "resources": resources,
            "nodes": nodes,
            "wanted_resources": requests,
            "walltime": walltimes,
            "stdout_file": _output_names(job.stdout_file, hosts, job, of),
            "stderr_file": _output_names(job.stderr_file, hosts, job, of),
            "command": of.command,
            "initial_request": of.initial_request,
            "notify": of.notify,
            "advance_reservation": of.advance_reservation,
            "resubmitted_as": of.resubmitted_as,
        }

    def __getitem__(self, name: str) -> Column:
        column = self._columns.get(name)
        if column is None:
            column = getattr(self, name)
        return column

    @property
    def dependencies(self) -> Column:
        """Ids of the required jobs."""
        return _lists(self._of.dependencies, attrgetter("required"))

    @property
    def reserved_resources(self) -> Column:
        """Ids of the resources of accepted reservations before their start."""
        if not any(self._of.planned):
            return [[]] * len(self._page)
        return [[resource.id for resource in view.reserved_resources or ()] for view in self._page]

    @property
    def started(self) -> Column:
        """Start times, 0 for jobs that have not started."""
        job = self._job
        if not any(job.start_time):
            return [0] * len(job.start_time)
        return list(map(date_of_start, job.state, job.start_time, job.stop_time, job.assigned_moldable))

    @property
    def ended(self) -> Column:
        """End times, 0 for jobs that have not ended."""
        ends = zip(self._job.state, self._job.stop_time, strict=True)
        return [date if state in FINAL else 0 for state, date in ends]

    @property
    def scheduled_start(self) -> Column:
        return self._of_predicted(lambda view: view.scheduled_start)

    @property
    def foreseen_at(self) -> Column:
        """Times of the scheduling passes that planned the starts."""
        return self._of_predicted(lambda view: view.foreseen_at or None)

    def _of_predicted(self, value: Callable[[JobView], int | None]) -> Column:
        return list(map(value, self._page)) if any(self._of.prediction) else [None] * len(self._page)

    @property
    def events(self) -> Column:
        """Events, as records of oarstat."""
        return _lists(self._of.events, event_record)

    @property
    def event_items(self) -> Column:
        """Events, as records of the REST API."""
        if not any(self._of.events):
            return _lists(self._of.events, event_item)
        pairs = zip(self._of.job, self._of.events, strict=True)
        return [[event_item(event, job.exit_code) for event in events] for job, events in pairs]

    @property
    def end(self) -> Column:
        if not any(self._of.cause):
            return [None] * len(self._page)
        ends = (view.end for view in self._page)
        return [end.record if end else None for end in ends]

    @property
    def outcome(self) -> Column:
        return [cause.code.outcome if cause else None for cause in self._of.cause]

    @property
    def cpu_seconds(self) -> Column:
        """CPU time used, in seconds."""
        return [usage.cpu_seconds if usage else None for usage in self._of.usage]

    @property
    def cpu_efficiency(self) -> Column:
        """CPU time used, divided by the CPU time of the assigned cores."""
        return [usage.efficiency if usage else None for usage in self._of.usage]

    @property
    def max_rss(self) -> Column:
        """Peak memory in bytes on the node that used most."""
        fullest_nodes = [usage.fullest if usage else None for usage in self._of.usage]
        return [node.memory_peak if node else None for node in fullest_nodes]

    @property
    def version(self) -> Column:
        """Strings that change with each update of a job."""
        return [view.version for view in self._page]


def _requests(of: Any, job: Any) -> tuple[Sequence[str], Sequence[int | None]]:
    """Return the requested resources of jobs as text, and their walltimes.

    Jobs with equal requests usually share the same group objects in memory, so each text is rendered only once.
    """
    if set(map(len, of.moldables)) == {1}:
        alternatives: Any = Moldable._make(zip(*chain.from_iterable(of.moldables), strict=True))
        walltimes = alternatives.walltime
        keys: list[object] = list(zip(map(id, alternatives.groups), walltimes, alternatives.memory, strict=True))
    else:
        walltimes = list(map(walltime_of, of.moldables, job.assigned_moldable, of.prediction))
        keys = [
            tuple([(id(moldable.groups), moldable.walltime, moldable.memory) for moldable in moldables])
            for moldables in of.moldables
        ]
    requests = dict(zip(keys, of.moldables, strict=True))
    texts = {key: format_wanted_resources(moldables) for key, moldables in requests.items()}
    return list(map(texts.__getitem__, keys)), walltimes


def _output_names(patterns: Sequence[str | None], hosts: Sequence[str | None], job: Any, of: Any) -> list[str]:
    """Return the names of the output files of jobs. ``job``, ``of``: the fields of all jobs."""
    names = output_names.expand_all(_texts(patterns), of.job, hosts)
    if JobType.INTERACTIVE not in job.job_type:
        return names
    shown = zip(job.job_type, names, strict=True)
    return [INTERACTIVE_OUTPUT if kind is JobType.INTERACTIVE else name for kind, name in shown]


def _texts(column: Sequence[Any]) -> Sequence[Any]:
    """Return the texts with '' in place of None."""
    return [text or "" for text in column] if None in column else column


def _lists(column: Sequence[Sequence[T]], shown: Callable[[T], object]) -> Sequence[Sequence[object]]:
    """Return the converted members of each sequence; most sequences are empty."""
    return [list(map(shown, some)) for some in column] if any(column) else [[]] * len(column)


#: The fields of the REST API, by key, and those that its lists show.
V1: Mapping[str, JobField] = {field.v1: field for field in FIELDS if field.v1}
V1_LISTED: Mapping[str, JobField] = {key: field for key, field in V1.items() if field.is_listed}
#: The keys of those fields with which a ``ListedJob`` begins.
_KEYS_LISTED = [field.v1 for name in ListedJob._fields for field in V1_LISTED.values() if field.name == name]
_V1_COLUMNS = [(field.name, field.is_null and field.kind not in ZERO_COUNTS) for field in V1.values()]


def job_item(job: ListedJob) -> dict[str, object]:
    """Return the fields of a job that lists of the REST API show."""
    record: dict[str, object] = dict(zip(_KEYS_LISTED, job, strict=False))
    record["started"] = job.started or None
    record["ended"] = job.ended or None
    record["outcome"] = job.outcome
    return record


def members_record(row: FoldedJobs) -> dict[str, object]:
    """Return the jobs of a row of a folded list, with the same keys as an array."""
    return {"total": len(row.ids), "jobs": list(ranges(row.ids)), "started": row.started or None}


def job_details(view: JobView) -> dict[str, object]:
    """Return all fields of a job for the REST API."""
    (record,) = jobs_details(JobColumns([[value] for value in view]))
    return record


def jobs_details(jobs: JobColumns) -> Iterator[dict[str, object]]:
    """Yield all fields of each job for the REST API."""
    for start in range(0, len(jobs), PAGE):
        values = JobValues(jobs[start : start + PAGE])
        columns = [
            [value or None for value in values[name]] if is_null_if_empty else values[name]
            for name, is_null_if_empty in _V1_COLUMNS
        ]
        for row in zip(*columns, strict=True):
            yield dict(zip(V1, row, strict=True))


def legacy_details(view: JobView) -> dict[str, object]:
    """Return all fields of a job for the APIs of OAR 2.5 and OAR 3."""
    values = JobValues(JobColumns([[value] for value in view]))
    return {key: values[field.name][0] for field in FIELDS for key in field.legacy}


def text_values(jobs: JobColumns) -> Iterator[list[tuple[JobField, object]]]:
    """Yield for each job the fields of ``oarstat -f`` with their values, without omitted fields."""
    fields = [field for field in FIELDS if field.text]
    for start in range(0, len(jobs), PAGE):
        values = JobValues(jobs[start : start + PAGE])
        for row in zip(*(values[field.name] for field in fields), strict=True):
            yield [
                (field, value)
                for field, value in zip(fields, row, strict=True)
                if not field.is_left_out or (value is not None if field.kind in ZERO_COUNTS else value)
            ]
