"""Records as the text that people and their scripts read; each layout is kept letter for letter.

Whatever a user could choose is shown with ``visible``: no name may forge a line of its own.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from oar.lib.base.times import format_date, format_duration, format_padded_duration
from oar.lib.history.records import Event
from oar.lib.jobs.records import Job
from oar.lib.jobs.states import STATE_LETTERS, Outcome

if TYPE_CHECKING:
    from oar.lib.jobs.accounting import UserConsumption
    from oar.lib.jobs.fields import JobField, Kind
    from oar.lib.jobs.views import JobColumns, JobTimes, JobView
    from oar.lib.nodes.views import JobOnNode, NodeReason, ResourceView

#: Control characters, what readers of Unicode take for the end of a line, and bytes that are not UTF-8 (surrogates).
_HIDDEN = {code: f"\\x{code:02x}" for code in [*range(32), *range(127, 160)]}
_HIDDEN |= {code: f"\\x{code & 0xFF:02x}" for code in range(0xDC80, 0xDD00)}
_HIDDEN |= {9: "\\t", 10: "\\n", 13: "\\r", 0x2028: "\\u2028", 0x2029: "\\u2029"}


def visible(text: str) -> str:
    r"""Return the text with control characters and wrong bytes shown: ``\n``, ``\t``, ``\xHH``.

    >>> print(visible("a\nstate = Running"))
    a\nstate = Running
    """
    return text if text.isprintable() else text.translate(_HIDDEN)


# ------------------------------------------------------------------------------------------------------------ cells

#: Medial vowels and final consonants of Hangul: they are shown on the place of the consonant before them.
_JOINED_HANGUL = range(0x1160, 0x1200)
_SOFT_HYPHEN = "\xad"


def cell(text: str, width: int) -> str:
    """Return the text with exactly this width: cut or padded.

    >>> cell("job", 5), cell("漢字漢", 5), cell("long name", 4)
    ('job  ', '漢字 ', 'long')
    """
    if text.isascii():
        return f"{text:<{width}.{width}}"
    taken = 0
    for place, character in enumerate(text):
        taken += _places(character)
        if taken > width:
            return padded(text[:place], width)
    return padded(text, width)


def padded(text: str, width: int) -> str:
    """Return the text padded to at least this width."""
    return text + " " * (width - places(text))


def places(text: str) -> int:
    """Return the number of places on which a terminal shows a text.

    >>> places("漢字"), places("e\u0301te\u0301"), places("plain")
    (4, 3, 5)
    """
    return len(text) if text.isascii() else sum(map(_places, text))


def _places(character: str) -> int:
    from unicodedata import category, east_asian_width

    if ord(character) in _JOINED_HANGUL or (category(character) in ("Mn", "Me", "Cf") and character != _SOFT_HYPHEN):
        return 0
    return 2 if east_asian_width(character) in ("W", "F") else 1


# --------------------------------------------------------------------------------------------------- tables of jobs

_LAYOUT_1 = (
    "Job id     Name           User           Submission Date     S Queue\n"
    "---------- -------------- -------------- ------------------- - ----------\n"
)
_LAYOUT_1_ARRAY = (
    "Job id    A. id     A. index  Name       User     Submission Date     S Queue\n"
    "--------- --------- --------- ---------- -------- ------------------- - --------\n"
)
_LAYOUT_2 = (
    "Job id    S User     Duration   System message\n"
    "--------- - -------- ---------- ------------------------------------------------\n"
)
_LAYOUT_2_ARRAY = (
    "Job id    A. id     index S User     Duration   System message\n"
    "--------- --------- ----- - -------- ---------- --------------------------------\n"
)
_LAYOUT_4 = (
    "Job id     Name           User           Queue      S Start                 Walltime       Left\n"
    "---------- -------------- -------------- ---------- - ------------------- ---------- ----------\n"
)
_LAYOUT_4_ARRAY = (
    "Job id    A. id     index Name       User     Queue    S Start                 Walltime       Left\n"
    "--------- --------- ----- ---------- -------- -------- - ------------------- ---------- ----------\n"
)


#: Colours of letters of states, for terminals: escape sequences of ECMA-48.
COLORS = {"R": 32, "L": 36, "W": 33, "H": 35, "S": 35, "E": 31, "T": 34, "F": 36}


def job_table(
    jobs: Sequence[Job],
    now: int,
    *,
    layout: int = 1,
    by_array: bool = False,
    folded: int = 0,
    header: bool = True,
    colored: bool = False,
    has_outcomes: bool = False,
    outcomes: Mapping[int, Outcome] = {},
    times: "Mapping[int, JobTimes] | None" = None,
    resources: Mapping[int, str] | None = None,
) -> str:
    """Return the table of jobs, '' if there is none.

    ``by_array`` shows the array and the index of each; ``folded`` makes one line of the jobs of an array, 2 with their
    number in each state at its end; ``has_outcomes`` ends the lines of jobs that did not end well with their outcomes;
    layout 4 shows their ``times``; ``resources`` are shown behind everything else.
    """
    if not jobs:
        return ""
    rows = (
        _folded(jobs, outcomes, with_counts=folded > 1) if folded else [_row(job, outcomes.get(job.id)) for job in jobs]
    )
    if colored:
        rows = [row._replace(letter=_colored(row, outcomes.get(row.job.id))) for row in rows]
    if layout == 1:
        head = _LAYOUT_1_ARRAY if by_array else _LAYOUT_1
        lines = [_row_1(row, by_array=by_array) for row in rows]
    elif layout == 4:
        head = _LAYOUT_4_ARRAY if by_array else _LAYOUT_4
        lines = [_row_4(row, (times or {}).get(row.job.id), by_array=by_array) for row in rows]
    else:
        head = _LAYOUT_2_ARRAY if by_array else _LAYOUT_2
        lines = [_row_2(row, now=now, by_array=by_array) for row in rows]
    if has_outcomes:
        lines = [line + row.failure for line, row in zip(lines, rows, strict=True)]
    if resources is not None:
        titles, dashes = head.splitlines()
        head = f"{titles:<{len(dashes)}} Resources\n{dashes} {'-' * 20}\n"
        lines = [f"{line} {resources.get(row.job.id) or '-'}" for line, row in zip(lines, rows, strict=True)]
    return (head if header else "") + "\n".join(lines) + "\n"


class Row(NamedTuple):
    """A line of a table of jobs."""

    number: str
    letter: str
    job: Job
    counts: str = ""  #: of the states of the jobs that share the line
    failure: str = ""  #: the outcome if the job did not end well, or how many of these jobs have failed


def _row(job: Job, outcome: Outcome | None) -> Row:
    return Row(str(job.id), STATE_LETTERS[job.state], job, failure=format_failure(job.exit_code, outcome))


#: Outcomes that the exit code describes better, or that are none.
_BY_STATUS = (None, Outcome.DONE, Outcome.FAILED, Outcome.UNKNOWN)


def format_failure(status: int | None, outcome: Outcome | None = None) -> str:
    """Return the outcome of a job as the end of a line, of a failed command its exit code; '' if it ended well.

    >>> format_failure(256, Outcome.FAILED), format_failure(9 << 8, Outcome.EVICTED), format_failure(0)
    (' (exit 1)', ' (evicted)', '')
    """
    if outcome not in _BY_STATUS or (outcome is Outcome.FAILED and not status):
        return f" ({outcome})"
    if not status:
        return ""
    return f" (signal {status & 0x7F})" if status & 0x7F else f" (exit {status >> 8})"


def _colored(row: Row, outcome: Outcome | None) -> str:
    if outcome is Outcome.CANCELLED:
        return row.letter
    color = COLORS["E"] if row.failure else COLORS.get(row.letter)
    return f"\033[{color}m{row.letter}\033[0m" if color else row.letter


def _folded(jobs: Sequence[Job], outcomes: Mapping[int, Outcome], *, with_counts: bool) -> list[Row]:
    """Return a row for each array, at the place of its first job: ``<count>@<array id>`` where there are several."""
    arrays: dict[int, list[Job]] = {}
    for job in jobs:
        arrays.setdefault(job.array_id, []).append(job)
    rows = []
    for array, (first, *others) in arrays.items():
        if not others:
            rows.append(_row(first, outcomes.get(first.id)))
            continue
        letters = [STATE_LETTERS[job.state] for job in (first, *others)]
        counts = " ".join(f"{letters.count(letter)}{letter}" for letter in dict.fromkeys(letters))
        failed = sum(bool(job.exit_code) for job in (first, *others))
        failure = f" ({failed} failed)" if failed else ""
        rows.append(Row(f"{len(letters)}@{array}", "-", first, f" ({counts})" if with_counts else "", failure))
    return rows


def _row_1(row: Row, *, by_array: bool) -> str:
    number, letter, job, counts, _ = row
    name, user, queue = visible(job.name or ""), visible(job.user), visible(job.queue)
    date = format_date(job.submission_time)
    if by_array:
        ids = f"{number:<9} {job.array_id:<9} {job.array_index:<9}"
        return f"{ids} {cell(name, 10)} {cell(user, 8)} {date:<19.19} {letter} {cell(queue, 8)}{counts}"
    return f"{number:<10} {cell(name, 14)} {cell(user, 14)} {date:<19.19} {letter} {cell(queue, 10)}{counts}"


def _row_2(row: Row, *, now: int, by_array: bool) -> str:
    number, letter, job, counts, _ = row
    ids = f"{number:<9} {job.array_id:<9} {job.array_index:<5}" if by_array else f"{number:<9}"
    start = job.started
    duration = format_padded_duration((job.stop_time or now) - start if start else 0)
    return f"{ids} {letter} {cell(visible(job.user), 8)} {duration:>10.10} {visible(job.message)}{counts}"


def _row_4(row: Row, times: "JobTimes | None", *, by_array: bool) -> str:
    number, letter, job, counts, _ = row
    name, user, queue = visible(job.name or ""), visible(job.user), visible(job.queue)
    start = format_date(times.start or 0) if times else ""
    durations = [times.walltime, times.remaining] if times else [None, None]
    walltime, remaining = ("-" if duration is None else format_padded_duration(duration) for duration in durations)
    if by_array:
        identity = (
            f"{number:<9} {job.array_id:<9} {job.array_index:<5} {cell(name, 10)} {cell(user, 8)} {cell(queue, 8)}"
        )
    else:
        identity = f"{number:<10} {cell(name, 14)} {cell(user, 14)} {cell(queue, 10)}"
    return f"{identity} {letter} {start or '-':<19} {walltime:>10} {remaining:>10}{counts}"


# ------------------------------------------------------------------------------------------------------ jobs in full


#: Returns events of jobs as text, with the wait statuses of the jobs.
Story = Callable[[Sequence[Event], Mapping[int, int | None]], str]


def full_jobs(jobs: "JobColumns", *, layout: int = 1, story: Story | None = None) -> str:
    """Return all that is known of jobs, ``key = value`` in lines; ``story``: how readers at a terminal see events."""
    from oar.lib.jobs.formats import text_values

    pairs = zip(jobs, text_values(jobs), strict=True)
    return "".join(_full_job(view, fields, layout, story) for view, fields in pairs)


def _full_job(view: "JobView", fields: "Sequence[tuple[JobField, object]]", layout: int, story: Story | None) -> str:
    lines = [f"{'id' if layout >= 3 else 'Job_Id'}: {view.job.id}"]
    for field, value in fields:
        key = field.text_3 if field.text_3 and layout >= 3 else field.text
        lines += [f"    {name} = {visible(text)}" for name, text in _full_lines(view, field, key, value)]
    lines.append("    events = ")
    if story:
        return "\n".join(lines) + f"\n{story(view.events, {view.job.id: view.job.exit_code})}\n"
    lines += [event_line(event) for event in view.events]
    return "\n".join(lines) + "\n\n"


def _full_lines(view: "JobView", field: "JobField", key: str, value: object) -> Sequence[tuple[str, str]]:
    """Return the lines of a field: key and text."""
    if field.name == "reserved_resources":
        if view.reserved_resources is None:
            return []
        ids = [str(entry.id) if entry.is_usable else f"({entry.id})" for entry in view.reserved_resources]
        return [(key, "+".join(ids))]
    if field.name == "checkpoint_signal" and not view.job.checkpoint:
        return []
    if field.name == "end":
        end = view.end
        lines = [("cause", f"{end.cause.code}: {end.text.sentence}"), ("advice", end.text.advice)] if end else []
        return [line for line in lines if line[1]]
    return [(key, _full_value(field, value))]


def _full_value(field: "JobField", value: Any) -> str:
    if value is None:
        return field.missing
    if isinstance(value, Sequence) and not isinstance(value, str):
        return field.separator.join(map(str, value))
    return _formats().get(field.kind, str)(value)


@cache
def _formats() -> "Mapping[Kind, Callable[[Any], str]]":
    """Return how the values of a kind are shown, where it is not as they are."""
    from oar.lib.jobs.ends import format_exit_code, memory_size
    from oar.lib.jobs.fields import Kind

    return {
        Kind.DATE: format_date,
        Kind.DURATION: format_duration,
        Kind.WAIT_STATUS: format_exit_code,
        Kind.RATIO: lambda ratio: f"{100 * ratio:.1f}%",
        Kind.SIZE: memory_size,
        Kind.FLAG: lambda flag: "YES" if flag else "NO",
    }


def event_line(event: Event) -> str:
    """Return an event of a job that is named above it, in one line."""
    return f"{format_date(event.date)}> {visible(event.type)}: {visible(event.description)}"


def job_events(events: Mapping[int, Sequence[Event]]) -> str:
    """Return the events of jobs; long texts take several lines."""
    paragraphs = []
    for job_id, events_of_job in events.items():
        for event in events_of_job:
            start = f"{format_date(event.date)}> [{job_id}] {visible(event.type)}: "
            lines = map(visible, event.description.rstrip("\n").split("\n"))
            paragraphs.append(start + ("\n" + " " * len(start)).join(lines) + "\n")
    return "".join(paragraphs)


def property_lines(resources: "Iterable[ResourceView]") -> str:
    """Return resources in the format of the property file of a job, which oarprint reads."""

    def quoted(value: object) -> str:
        text = "" if value is None else str(value).replace("\\", "\\\\").replace("'", "\\'")
        return f"'{visible(text)}'"

    return "".join(
        ",".join(f" {name} = {quoted(value)} " for name, value in resource.user_columns) + "\n"
        for resource in resources
    )


# --------------------------------------------------------------------------------------------------------- accounting

_USAGE_HEAD = (
    "    User       First window starts  Last window ends     Asked (seconds)  Used (seconds)\n"
    "    ---------- -------------------- -------------------- ---------------- ----------------\n"
)

NO_WINDOW = "No window found"


def usage_table(usages: "Iterable[UserConsumption]", *, header: bool = True) -> str:
    """Return what each user consumed."""
    return (_USAGE_HEAD if header else "") + "".join(
        f"    {cell(visible(usage.user), 10)} {format_date(usage.first_window_start):<19}  "
        f"{format_date(usage.last_window_stop):<19}  {usage.requested:>16} {usage.used:>16}\n"
        for usage in usages
    )


def usage_summary(user: str, start: int, stop: int, usage: "UserConsumption | None") -> str:
    """Return what one user consumed between two dates, by project; ``usage`` is None if no window was found."""
    first = f"Usage summary for user '{visible(user)}' from {format_date(start)[:10]} to {format_date(stop)[:10]}:"
    lines = [
        first,
        "-" * 61,
        _labelled("Start of the first window:", format_date(usage.first_window_start) if usage else NO_WINDOW),
        _labelled("End of the last window:", format_date(usage.last_window_stop) if usage else NO_WINDOW),
        _labelled("Asked consumption:", _consumption(usage.requested if usage else 0)),
        _labelled("Used consumption:", _consumption(usage.used if usage else 0)),
        "By project consumption:",
    ]
    for project in usage.projects if usage else ():
        lines += [
            f"  {visible(project.project)}:",
            _labelled("    Asked:", _consumption(project.requested)),
            _labelled("    Used:", _consumption(project.used)),
        ]
        if project.karma is not None:
            lines.append(_labelled("    Last Karma:", f"{project.karma:g}"))
    return "\n".join(lines) + "\n"


def _labelled(label: str, value: str) -> str:
    return f"{label:<28} {value}"


def _consumption(seconds: int) -> str:
    return f"{seconds} ( {duration_in_words(seconds)} )"


def duration_in_words(seconds: int) -> str:
    """Return a duration in words; only seconds are named when there are none.

    >>> duration_in_words(97220), duration_in_words(144000)
    ('1 day 3 hours 20 seconds', '1 day 16 hours 0 second')
    """
    minutes, rest_of_minute = divmod(seconds, 60)
    parts = [(minutes // 1440, "day"), (minutes // 60 % 24, "hour"), (minutes % 60, "minute")]
    parts_in_words = [_counted(number, unit) for number, unit in parts if number]
    return " ".join([*parts_in_words, _counted(rest_of_minute, "second")])


def _counted(number: int, unit: str) -> str:
    return f"{number} {unit}{'s' if number > 1 else ''}"


# ---------------------------------------------------------------------------------------------------------- resources


def full_resources(resources: "Iterable[ResourceView]", now: int) -> str:
    """Return all that is shown of resources, a paragraph each."""
    paragraphs = []
    for resource in resources:
        state = f"{resource.state} (standby)" if resource.is_standby(now) else str(resource.state)
        is_busy = resource.state == "Alive" and resource.jobs
        jobs = f"jobs: {', '.join(map(str, resource.jobs))}\n" if is_busy else ""
        reserved = f"reserved: {', '.join(map(str, resource.reserved))}\n" if resource.reserved else ""
        paragraphs.append(
            f"network_address: {visible(resource.node)}\n"
            f"resource_id: {resource.id}\n"
            f"state: {state}\n"
            f"{jobs}{reserved}{properties_line(resource)}\n"
        )
    return "".join(paragraphs)


def properties_line(resource: "ResourceView") -> str:
    """Return what describes a resource, in one line."""
    return f"properties: {', '.join(f'{name}={visible(str(value))}' for name, value in resource.properties)}\n"


def node_states(resources: "Iterable[ResourceView]") -> str:
    """Return the states of resources under the names of their nodes."""
    lines: list[str] = []
    node: str | None = None
    for resource in resources:
        if resource.node != node:
            node = resource.node
            lines.append(f"{visible(node)}:\n")
        lines.append(f"    {_state(resource)}\n")
    return "".join(lines)


def resource_states(resources: "Iterable[ResourceView]") -> str:
    """Return the states of resources."""
    return "".join(f"{_state(resource)}\n" for resource in resources)


def _state(resource: "ResourceView") -> str:
    return f"{resource.id}: {resource.state}{' (draining)' if resource.is_drained else ''}"


def node_names(names: Iterable[str]) -> str:
    """Return the names of nodes, one in a line."""
    return "".join(f"{visible(name)}\n" for name in names)


def node_jobs(nodes: "Mapping[str, Sequence[JobOnNode]]") -> str:
    """Return the jobs on nodes."""
    lines = []
    for node, jobs in nodes.items():
        lines.append(f"{visible(node)}:\n")
        for job in jobs:
            fields = {key: value for key, value in job.record.items() if key != "projet"}
            fields |= {"assigned_resources": ", ".join(map(str, job.resources)), "types": ", ".join(job.types)}
            lines.append(f"    {job.job.id}:\n")
            lines += [f"        {key}: {visible(str(value))}\n" for key, value in fields.items()]
    return "".join(lines)


def node_reasons(reasons_of_nodes: "Sequence[NodeReason]") -> str:
    """Return why nodes get no jobs, a line for each node and state under a head; '' without any."""
    if not reasons_of_nodes:
        return ""
    table = [("NODE", "STATE", "SINCE", "WHO", "REASON")]
    for entry in reasons_of_nodes:
        since = format_date(entry.since) if entry.since else "-"
        table.append((visible(entry.node), entry.state, since, entry.author or "-", visible(entry.reason) or "-"))
    widths = [max(len(row[column]) for row in table) for column in range(4)]
    return "".join(
        "  ".join([*(f"{text:<{width}}" for text, width in zip(row[:4], widths, strict=True)), f"{row[4]}\n"])
        for row in table
    )


def node_events(events: Mapping[str, Sequence[Event]]) -> str:
    """Return the events of nodes, a line each."""
    return "".join(
        f"{format_date(event.date)}|{visible(node)}|{event.job_id}|"
        f" {visible(event.type)}: {visible(event.description)}\n"
        for node, events_of_node in events.items()
        for event in events_of_node
    )
