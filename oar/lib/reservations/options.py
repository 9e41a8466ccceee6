"""A request for an advance reservation as typed (``qrsub``, the API), and its parser, which uses no database.

The order of the checks, and their messages, are documented in docs/design/reservations.rst, "Refusals".
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from oar.lib.base.errors import BadRequest
from oar.lib.base.grid_engine_times import write_date
from oar.lib.base.times import NoSuchDay, parse_date, parse_duration
from oar.lib.config.files import Config
from oar.lib.reservations.errors import BadReservation
from oar.lib.reservations.permissions import parse_access_list
from oar.lib.reservations.records import SOON, AccessEntry, NewReservation, NewSeries, ReservationAttributes
from oar.lib.submission.admission_rules import RuleOutput

#: Seconds by which ``-earliest`` lets the start be later.
ONE_YEAR = 365 * 86400
#: A reservation ends at most this many years after the request.
MAX_YEARS = 10

LONGEST_ACCOUNT = 255
LONGEST_NAME = 128
LONGEST_LIST = 4096
LONGEST_TEXT = 65536
MAX_ADDRESSES = 20

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.+-]*", re.ASCII)
_ADDRESS = re.compile(r"[A-Za-z0-9._%+-]{1,64}(@[A-Za-z0-9.-]{1,255})?", re.ASCII)
_DEPTH = re.compile(r"[1-9]\d{0,2}|1000", re.ASCII)
#: Line ends, cursor movements, and what no database stores: bytes that are not UTF-8.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
#: Options whose line ends are white space, and one with its own error message; the others may have no control
#: characters.
_FREE_TEXTS = frozenset({"resources", "properties", "mail_list"})
#: Names of options in error messages, where they are not the name of the field.
_LABELS = {
    "users": "user list",
    "hosts": "host list",
    "queues": "queue list",
    "master_queues": "queue list",
    "pe": "parallel environment",
    "allocation": "allocation rule",
    "checkpoint": "checkpointing environment",
}


class ReservationOptions(NamedTuple):
    """A requested advance reservation, as the texts of the options of qrsub; None means not given."""

    start: str | None = None
    end: str | None = None
    duration: str | None = None
    name: str = ""
    account: str = ""
    resources: tuple[str, ...] = ()  #: the values of ``-l``
    pe: tuple[str, str] | None = None  #: pattern of parallel environments, range of slots
    allocation: tuple[str, str] | None = None  #: rule and range of ``-alloc``
    queues: str = ""
    master_queues: str = ""
    hosts: str = ""
    properties: str = ""
    checkpoint: str = ""  #: a checkpointing environment
    now: tuple[str | None, ...] = ()  #: the values of ``-now``; None = without a value
    users: tuple[str, ...] = ()  #: the values of ``-u``
    hard: str | None = None
    mail_options: str = "n"
    mail_list: tuple[str, ...] = ()
    verify: str = "e"
    replace: str | None = None
    idle: str | None = None
    flex: str | None = None
    window: str | None = None
    earliest: bool = False
    rule: str | None = None  #: recurrence rule (RFC 5545) of a series
    depth: str | None = None
    conflict: str | None = None  #: for a series with a conflict: fail, skip
    ignore_jobs: bool = False
    project: str = ""
    owner: str = ""  #: '' = the user who makes the request

    @property
    def is_interactive(self) -> bool:
        """Whether ``-now`` is given; without a value it means yes."""
        return bool(self.now) and self.now[-1] != "no" and self.now[-1] != "n"

    @property
    def slots(self) -> tuple[str, str]:
        """The value of ``-pe`` or ``-alloc``: environment or rule, and the range of slots."""
        return self.pe or self.allocation or ("", "")


class ChangeOptions(NamedTuple):
    """Changes of a reservation, as the texts of the options of qralter; None and empty mean unchanged."""

    start: str | None = None
    duration: str | None = None
    end: str | None = None
    name: str | None = None
    account: str | None = None
    hard: str | None = None
    mail_options: str | None = None
    mail_list: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    replace: str | None = None
    idle: str | None = None
    resources: tuple[str, ...] = ()
    pe: tuple[str, str] | None = None
    allocation: tuple[str, str] | None = None
    queues: str = ""
    properties: str = ""
    is_forced: bool = False


class ReservationRequest(NamedTuple):
    """A validated request, ready to be stored."""

    reservation: NewReservation  #: the reservation, or the first occurrence of the series
    access: tuple[AccessEntry, ...]
    series: NewSeries | None = None
    starts: tuple[int, ...] = ()  #: start times of the occurrences requested together (series only)
    rule_output: RuleOutput = RuleOutput()  #: messages of the admission rules for the owner

    @property
    def occurrences(self) -> list[NewReservation]:
        """The requested reservation, or the first occurrences of the requested series."""
        if self.series is None:
            return [self.reservation]
        duration = self.series.duration
        return [self.reservation._replace(start=start, end=start + duration) for start in self.starts]


class ReadDates(NamedTuple):
    """Parsed dates and duration; None means not given."""

    start: int | None
    end: int | None
    duration: int | None


def parse_request(options: ReservationOptions, user: str, now: int, config: Config) -> ReservationRequest:
    """Return the request without resources and queue, which are checked with the database.  Raises BadReservation."""
    check_texts(options._asdict())
    check_verify(options.verify, "qrsub")
    offset = time_offset(config)
    start, end = _window(options, now)
    if end - start <= offset:
        raise BadReservation(f"the duration must be longer than {offset} seconds")
    if options.earliest and options.window is not None:
        raise BadReservation("qrsub: the options -earliest and -window exclude each other")
    window = ONE_YEAR if options.earliest else _duration(options.window, "window", "qrsub") or 0
    check_horizon(end + window, now)
    starts, zone = _series_starts(options, start)
    depth = min(int(options.depth or config.reservation_series_depth), len(starts))
    if starts:
        start, end = starts[0], starts[0] + end - start
    elif options.start is None and options.end is None:  # it starts when it is granted, and keeps its duration
        window = max(window, SOON)
    _check_length("queue list", options.queues, LONGEST_LIST)
    _check_length("queue list", options.master_queues, LONGEST_LIST)
    _check_length("host list", options.hosts, LONGEST_LIST)
    _check_length("project", options.project, LONGEST_ACCOUNT)
    for word in options.now:
        _yes_or_no(word, "now", "qrsub")
    is_flexible = bool(_yes_or_no(options.flex, "flex", "qrsub"))
    attributes = parse_attributes(options, user, "qrsub").given
    owner = options.owner or user
    access = attributes.pop("access", (AccessEntry(owner),))
    pe, pe_range = options.slots
    reservation = NewReservation(
        owner=owner,
        start=start,
        end=end,
        request="",
        project=options.project,
        start_window=window,
        time_offset=offset,
        is_flexible=is_flexible,
        is_interactive=options.is_interactive,
        ignores_jobs=options.ignore_jobs,
        queue_list=options.queues,
        master_queue_list=options.master_queues,
        host_list=options.hosts,
        properties=options.properties,
        checkpoint_name=options.checkpoint,
        pe=pe,
        pe_range=pe_range,
        **{"replaces_lost": config.reservation_replace_lost, **attributes},
    )
    if not starts:
        return ReservationRequest(reservation, access)
    series = NewSeries(
        owner=owner,
        rule=options.rule or "",
        time_zone=zone,
        first_start=start,
        duration=end - start,
        template="",
        depth=depth,
        skips_conflicts=options.conflict == "skip",
        occurrences=len(starts),
        next_index=depth + 1,
        next_start=starts[depth] if depth < len(starts) else 0,
    )
    return ReservationRequest(reservation, access, series, starts[:depth])


def time_offset(config: Config) -> int:
    """Return how many seconds before the end of a reservation its jobs must have ended."""
    chosen, security_time = config.reservation_duration_offset, config.scheduler_job_security_time
    return config.job_kill_grace + security_time if chosen < 0 else max(chosen, security_time)


def parse_attributes(options: ReservationOptions | ChangeOptions, user: str, program: str) -> ReservationAttributes:
    """Return the attributes that are given.  ``user``: ``$user`` in the access list.  Raises BadReservation."""
    return ReservationAttributes(
        access=_access(options.users, user) if options.users else None,
        name=None if options.name is None else _name(options.name),
        account=None if options.account is None else _check_length("account", options.account, LONGEST_ACCOUNT),
        is_hard=_yes_or_no(options.hard, "he", program),
        replaces_lost=_yes_or_no(options.replace, "replace", program),
        idle_limit=_duration(options.idle, "idle", program),
        mail_options=None if options.mail_options is None else _mail_options(options.mail_options, program),
        mail_list=_mail_list(options.mail_list) if options.mail_list else None,
    )


def check_verify(text: str, program: str) -> bool:
    """Return whether the request is only a verification (``-w v``).  Raises BadReservation for an invalid value."""
    if text not in ("e", "v"):
        raise _invalid(program, "w", text, "use e, or v to verify only")
    return text == "v"


def _invalid(program: str, option: str, text: str, way_out: str) -> BadReservation:
    return BadReservation(f'{program}: invalid option argument "-{option} {text}"', way_out)


def check_texts(options: Mapping[str, object]) -> None:
    """Raise BadReservation if options are too long or have control characters, which could forge lines of output."""
    if sum(len(text) for value in options.values() for text in _texts(value)) > LONGEST_TEXT:
        raise BadReservation(f"denied: the request is longer than {LONGEST_TEXT} characters")
    for field, value in options.items():
        if field not in _FREE_TEXTS and any(_CONTROL.search(text) for text in _texts(value)):
            label = _LABELS.get(field, field.replace("_", " "))
            raise BadReservation(
                f"denied: the {label} has control characters or is not UTF-8 text", "write it on one line"
            )


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple):
        for member in value:
            yield from _texts(member)


# -- dates ------------------------------------------------------------------------------------------------------------


def _window(options: ReservationOptions, now: int) -> tuple[int, int]:
    """Return start and end; two of start, end and duration are enough, and three must agree."""
    start, end, duration = read_dates(options.start, options.end, options.duration, now, "qrsub")
    if end is None and duration is None:
        raise BadReservation(
            'missing value for "end time or duration" in advance reservation request',
            "write -d with a duration, as 2:0:0 or 90m, or -e with a date",
        )
    if start is not None and start < now - now % 60:
        raise BadReservation("start time is in the past")
    if start is None:
        start = now if end is None or duration is None else end - duration
    check_agreement(start, end, duration)
    start = max(start, now)
    end = start + (duration or 0) if end is None else end
    if start >= end:
        hint = "-d 0 leaves it no time: write -d with a duration, as 2:0:0 or 90m" if duration == 0 else ""
        raise BadReservation("start time is later than end time", hint)
    return start, end


def check_agreement(start: int, end: int | None, duration: int | None) -> None:
    """Raise BadReservation if start, end and duration contradict each other.

    An end before the start is reported elsewhere.
    """
    if end is not None and duration is not None and end > start and end - start != duration:
        raise BadReservation("difference between end and start time does not correspond to duration")


def check_horizon(end: int, now: int) -> None:
    """Raise BadReservation if the end is too far in the future."""
    if end > now + MAX_YEARS * ONE_YEAR:
        raise BadReservation(f"the reservation would end more than {MAX_YEARS} years from now")


def read_dates(start: str | None, end: str | None, duration: str | None, now: int, program: str) -> ReadDates:
    """Return the parsed values of ``-a``, ``-e`` and ``-d``.  Raises BadReservation."""
    return ReadDates(_date(start, "a", now, program), _date(end, "e", now, program), _duration(duration, "d", program))


def _date(text: str | None, option: str, now: int, program: str) -> int | None:
    if text is None:
        return None
    try:
        return parse_date(text, now, unit=1)
    except BadRequest as error:
        lack = f"{error.year} has no such day or time: " if isinstance(error, NoSuchDay) else ""
        raise BadReservation(
            f'{program}: Wrong date/time format "{text}" specified to -{option} option',
            f"{lack}write [[CC]YY]MMDDhhmm[.SS], YYYY-MM-DD hh:mm[:ss], tomorrow 8:00, now, or +DURATION",
        ) from None


def _duration(text: str | None, option: str, program: str) -> int | None:
    if text is None:
        return None
    try:
        return parse_duration(text, unit=1)
    except BadRequest:
        raise BadReservation(
            f'{program}: Wrong time format "{text}" specified to -{option} option',
            "write h:m:s, as 1:30:0, seconds, or units, as 90m, 2h, 1d12h",
        ) from None


# -- series -----------------------------------------------------------------------------------------------------------


def _series_starts(options: ReservationOptions, start: int) -> tuple[tuple[int, ...], str]:
    """Return all start times of a series, and its time zone; () if no rule is given.  Raises BadReservation."""
    if options.rule is None:
        for option, text in (("depth", options.depth), ("conflict", options.conflict)):
            if text is not None:
                raise BadReservation(f"qrsub: option -{option} is about a series, and needs -rrule")
        return (), ""
    if options.earliest:
        raise BadReservation("qrsub: the options -earliest and -rrule exclude each other")
    if options.conflict not in (None, "fail", "skip"):
        raise _invalid("qrsub", "conflict", options.conflict, "write fail or skip")
    from oar.lib.reservations import recurrence

    try:
        zone = recurrence.lasting_zone()
    except BadRequest as error:
        raise BadReservation(
            f"denied: {error}, and a series needs one", "write a name, as TZ=Europe/Berlin, or leave TZ out"
        ) from None
    try:
        starts = tuple(recurrence.dates(options.rule, start, zone))
    except BadRequest as error:
        raise BadReservation(f'qrsub: Wrong rule "{options.rule}" specified to -rrule option: {error}') from None
    if not starts:
        raise BadReservation(f'denied: the rule "{options.rule}" gives no date from {write_date(start)} on')
    if options.depth is not None and not _DEPTH.fullmatch(options.depth):
        raise _invalid("qrsub", "depth", options.depth, "write a number from 1 to 1000")
    return starts, zone


# -- texts ------------------------------------------------------------------------------------------------------------


def _name(text: str) -> str:
    if not text or (len(text) <= LONGEST_NAME and _NAME.fullmatch(text)):
        return text
    why = "cannot start with a digit" if text[0].isdigit() else "invalid character"
    why = f"longer than {LONGEST_NAME} characters" if len(text) > LONGEST_NAME else why
    raise BadReservation(
        f'denied: "{text[:LONGEST_NAME]}" is not a valid object name ({why})',
        "a name begins with a letter or _, then there may be letters, digits and _ . + -",
    )


def _check_length(label: str, text: str, longest: int) -> str:
    if len(text) > longest:
        raise BadReservation(f"denied: the {label} is longer than {longest} characters")
    return text


def _yes_or_no(text: str | None, option: str, program: str) -> bool | None:
    if text is None:
        return None
    if text not in ("y", "yes", "n", "no"):
        raise _invalid(program, option, text, "write yes or no")
    return text.startswith("y")


def _mail_options(text: str, program: str) -> str:
    letters = set(text)
    if text != "n" and not (letters and letters <= set("bea")):
        raise BadReservation(
            f'{program}: Wrong mail options list format "{text}" specified to -m option',
            "write letters of b (begin), e (end) and a (error) together, as bea, or n alone",
        )
    return "".join(letter for letter in "abe" if letter in letters) or "n"


def _mail_list(texts: Sequence[str]) -> str:
    addresses = [word.strip() for text in texts for word in text.split(",") if word.strip()]
    for address in addresses:
        if not _ADDRESS.fullmatch(address):
            raise BadReservation(f'denied: "{address}" is not a mail address', "write user or user@host, with commas")
    if len(addresses) > MAX_ADDRESSES:
        raise BadReservation(f"denied: more than {MAX_ADDRESSES} mail addresses")
    return ",".join(addresses)


def _access(texts: Sequence[str], user: str) -> tuple[AccessEntry, ...]:
    try:
        return parse_access_list(",".join(texts), user)
    except BadRequest as error:
        raise BadReservation(f"error: {error}") from None
