"""Parse and check requests for advance reservations before the database is used.

The order of the checks, and their messages, are documented in docs/design/reservations.rst, "Refusals".
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from oar.lib.base.errors import BadRequest, WordedRefusal
from oar.lib.reservations import access_lists
from oar.lib.reservations.grid_engine_times import NoSuchDay, read_date, read_duration, write_date
from oar.lib.reservations.records import SOON, AccessEntry

#: Seconds by which ``-earliest`` lets the start be later.
ONE_YEAR = 365 * 86400
#: A reservation is over so many years after it was asked for, at the latest.
MOST_YEARS = 10

LONGEST_ACCOUNT = 255
LONGEST_NAME = 128
LONGEST_LIST = 4096
LONGEST_TEXT = 65536
MAX_ADDRESSES = 20

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.+-]*", re.ASCII)
_MAIL_LETTERS = "bea"
_ADDRESS = re.compile(r"[A-Za-z0-9._%+-]{1,64}(@[A-Za-z0-9.-]{1,255})?", re.ASCII)
_DEPTH = re.compile(r"[1-9]\d{0,2}|1000", re.ASCII)
#: What ends a line somewhere or moves a cursor, and what no database takes: bytes that are not UTF-8.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
#: Options whose line ends are white space, and one that is refused in its own words; the others may have no control
#: characters.
_FREE_TEXTS = frozenset({"resources", "properties", "mail_list"})


class BadReservation(WordedRefusal):
    """A request cannot be parsed or satisfied; the message is a complete line."""


def nothing_suits(why: str, way_out: str = "") -> BadReservation:
    """Return the error for a request that no resource can satisfy.

    ``why``: the reasons, one per line; each line is indented by two spaces.
    """
    reasons = "".join(f"\n  {line.removeprefix('# ')}" for line in why.split("\n"))
    return BadReservation(f"Error: No queue instances to reserve{reasons}", way_out)


class ReservationWish(NamedTuple):
    """A requested advance reservation, as the texts of the options of qrsub; None means not given."""

    start: str | None = None
    end: str | None = None
    duration: str | None = None
    name: str = ""
    account: str = ""
    resources: tuple[str, ...] = ()  #: each ``-l``
    pe: tuple[str, str] | None = None  #: pattern of parallel environments, range of slots
    allocation: tuple[str, str] | None = None  #: rule and range of ``-alloc``
    queues: str = ""
    master_queues: str = ""
    hosts: str = ""
    properties: str = ""
    checkpoint: str = ""  #: a checkpointing environment
    now: tuple[str | None, ...] = ()  #: each ``-now``; None = without a word
    users: tuple[str, ...] = ()  #: each ``-u``
    hard: str | None = None
    mail_options: str = "n"
    mail_list: tuple[str, ...] = ()
    verify: str = "e"
    replace: str | None = None
    idle: str | None = None
    flex: str | None = None
    window: str | None = None
    earliest: bool = False
    rule: str | None = None  #: of RFC 5545: a series is asked for
    depth: str | None = None
    conflict: str | None = None  #: what becomes of a series in which there is one: fail, skip
    ignore_jobs: bool = False
    project: str = ""
    owner: str = ""  #: '' = the asker


class ReadDates(NamedTuple):
    """Parsed dates and duration; None means not given."""

    start: int | None
    end: int | None
    duration: int | None


class ReservationAttributes(NamedTuple):
    """Parsed attributes of a reservation, without dates and resources."""

    access: tuple[AccessEntry, ...]
    name: str
    account: str
    is_hard: bool
    replaces_lost: bool | None  #: None = the default of the site
    idle_limit: int
    mail_options: str
    mail_list: str


class PreparedSeries(NamedTuple):
    """A parsed series."""

    rule: str
    zone: str
    starts: tuple[int, ...]  #: all there will be
    depth: int  #: how many are asked for at a time; 0 = the default of the site
    skips_conflicts: bool


class PreparedReservation(NamedTuple):
    """A parsed request."""

    start: int  #: of a series: of its first occurrence
    end: int
    start_window: int
    series: PreparedSeries | None
    is_flexible: bool
    access: tuple[AccessEntry, ...]
    name: str
    account: str
    is_hard: bool
    replaces_lost: bool | None  #: None = the default of the site
    idle_limit: int
    mail_options: str
    mail_list: str


def prepare(wish: ReservationWish, asker: str, now: int, offset: int, program: str = "qrsub") -> PreparedReservation:
    """Return the parsed request.  ``offset``: RESERVATION_DURATION_OFFSET.  Raises BadReservation."""
    check_texts(wish)
    check_verify(wish, program)
    start, end = _window(wish, now, program)
    if end - start <= offset:
        raise BadReservation(f"the duration must be longer than {offset} seconds")
    if wish.earliest and wish.window is not None:
        raise BadReservation(f"{program}: the options -earliest and -window exclude each other")
    window = ONE_YEAR if wish.earliest else _duration(wish.window, "window", program) or 0
    check_horizon(end + window, now)
    series = _series(wish, start, program)
    if series:
        start, end = series.starts[0], series.starts[0] + end - start
    elif wish.start is None and wish.end is None:  # it starts when it is granted, and keeps its duration
        window = max(window, SOON)
    for what, text in (
        ("queue list", wish.queues),
        ("queue list", wish.master_queues),
        ("host list", wish.hosts),
        ("project", wish.project),
    ):
        _text(what, text, LONGEST_LIST if what != "project" else LONGEST_ACCOUNT)
    for each in wish.now:
        _yes_or_no(each, "now", program)
    is_flexible = bool(_yes_or_no(wish.flex, "flex", program))
    return PreparedReservation(start, end, window, series, is_flexible, *read_attributes(wish, asker, program))


def read_attributes(wish: ReservationWish, asker: str, program: str) -> ReservationAttributes:
    """Return the parsed attributes of a request.  Raises BadReservation."""
    return ReservationAttributes(
        access=_access(wish.users, asker, wish.owner or asker),
        name=_name(wish.name),
        account=_text("account", wish.account, LONGEST_ACCOUNT),
        is_hard=bool(_yes_or_no(wish.hard, "he", program)),
        replaces_lost=_yes_or_no(wish.replace, "replace", program),
        idle_limit=_duration(wish.idle, "idle", program) or 0,
        mail_options=_mail_options(wish.mail_options, program),
        mail_list=_mail_list(wish.mail_list),
    )


def check_verify(wish: ReservationWish, program: str = "qrsub") -> bool:
    """Return whether the request is only a verification (``-w v``).  Raises BadReservation for an invalid value."""
    if wish.verify not in ("e", "v"):
        raise _invalid(program, "w", wish.verify, "write e, or v to be told only what would be")
    return wish.verify == "v"


def _invalid(program: str, option: str, text: str, way_out: str) -> BadReservation:
    return BadReservation(f'{program}: invalid option argument "-{option} {text}"', way_out)


#: How a refusal names the texts of a wish that are no word of their option.
_LABELS = {
    "users": "user list",
    "hosts": "host list",
    "queues": "queue list",
    "master_queues": "queue list",
    "pe": "parallel environment",
    "allocation": "allocation rule",
    "checkpoint": "checkpointing environment",
}


def check_texts(wish: ReservationWish) -> None:
    """Raise BadReservation if a request is too long or has control characters, which could forge lines of output."""
    if sum(map(len, _texts(wish))) > LONGEST_TEXT:
        raise BadReservation(f"denied: the request is longer than {LONGEST_TEXT} characters")
    for field, value in wish._asdict().items():
        if field not in _FREE_TEXTS and any(_CONTROL.search(text) for text in _texts(value)):
            label = _LABELS.get(field, field.replace("_", " "))
            raise BadReservation(
                f"denied: the {label} has control characters or is not UTF-8 text", "write it on one line"
            )


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple):
        for each in value:
            yield from _texts(each)


# -- dates ------------------------------------------------------------------------------------------------------------


def _window(wish: ReservationWish, now: int, program: str) -> tuple[int, int]:
    """Return start and end; two of start, end and duration are enough, and three must agree."""
    start, end, duration = read_dates(wish.start, wish.end, wish.duration, now, program)
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
    if end > now + MOST_YEARS * ONE_YEAR:
        raise BadReservation(f"the reservation would end more than {MOST_YEARS} years from now")


def read_dates(start: str | None, end: str | None, duration: str | None, now: int, program: str) -> ReadDates:
    """Return the parsed values of ``-a``, ``-e`` and ``-d``.  Raises BadReservation."""
    return ReadDates(_date(start, "a", now, program), _date(end, "e", now, program), _duration(duration, "d", program))


def _date(text: str | None, option: str, now: int, program: str) -> int | None:
    if text is None:
        return None
    try:
        return read_date(text, now)
    except BadRequest as error:
        lack = f"{error.year} has no such day or time: " if isinstance(error, NoSuchDay) else ""
        raise BadReservation(
            f'{program}: Wrong date/time format "{text}" specified to -{option} option',
            f"{lack}write [[CC]YY]MMDDhhmm[.SS], YYYY-MM-DD hh:mm[:ss], now, or +DURATION",
        ) from None


def _duration(text: str | None, option: str, program: str) -> int | None:
    if text is None:
        return None
    try:
        return read_duration(text)
    except BadRequest:
        raise BadReservation(
            f'{program}: Wrong time format "{text}" specified to -{option} option',
            "write h:m:s, as 1:30:0, seconds, or units, as 90m, 2h, 1d12h",
        ) from None


# -- series -----------------------------------------------------------------------------------------------------------


def _series(wish: ReservationWish, start: int, program: str) -> PreparedSeries | None:
    """Return the parsed series; None if no rule is given.  Raises BadReservation."""
    if wish.rule is None:
        for option, text in (("depth", wish.depth), ("conflict", wish.conflict)):
            if text is not None:
                raise BadReservation(f"{program}: option -{option} is about a series, and needs -rrule")
        return None
    if wish.earliest:
        raise BadReservation(f"{program}: the options -earliest and -rrule exclude each other")
    if wish.conflict not in (None, "fail", "skip"):
        raise _invalid(program, "conflict", wish.conflict, "write fail or skip")
    from oar.lib.reservations import recurrence

    try:
        zone = recurrence.lasting_zone()
    except BadRequest as error:
        raise BadReservation(
            f"denied: {error}, and a series needs one", "write a name, as TZ=Europe/Berlin, or leave TZ out"
        ) from None
    try:
        starts = tuple(recurrence.dates(wish.rule, start, zone))
    except BadRequest as error:
        raise BadReservation(f'{program}: Wrong rule "{wish.rule}" specified to -rrule option: {error}') from None
    if not starts:
        raise BadReservation(f'denied: the rule "{wish.rule}" gives no date from {write_date(start)} on')
    return PreparedSeries(wish.rule, zone, starts, _depth(wish.depth, program), wish.conflict == "skip")


def _depth(text: str | None, program: str) -> int:
    """Return how many occurrences are requested at a time; 0 means the default of the site.  Raises BadReservation."""
    if text is None:
        return 0
    if not _DEPTH.fullmatch(text):
        raise _invalid(program, "depth", text, "write a number from 1 to 1000")
    return int(text)


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


def _text(what: str, text: str, longest: int) -> str:
    if len(text) > longest:
        raise BadReservation(f"denied: the {what} is longer than {longest} characters")
    return text


def _yes_or_no(text: str | None, option: str, program: str) -> bool | None:
    if text is None:
        return None
    if text not in ("y", "yes", "n", "no"):
        raise _invalid(program, option, text, "write yes or no")
    return text.startswith("y")


def _mail_options(text: str, program: str) -> str:
    letters = set(text)
    if text != "n" and not (letters and letters <= set(_MAIL_LETTERS)):
        raise BadReservation(
            f'{program}: Wrong mail options list format "{text}" specified to -m option',
            "write letters of b (begin), e (end) and a (error) together, as bea, or n alone",
        )
    return "".join(letter for letter in "abe" if letter in letters) or "n"


def _mail_list(texts: Sequence[str]) -> str:
    addresses = [word.strip() for text in texts for word in text.split(",") if word.strip()]
    for address in addresses:
        if not _ADDRESS.fullmatch(address):
            raise BadReservation(f'denied: "{address}" is no mail address', "write user or user@host, with commas")
    if len(addresses) > MAX_ADDRESSES:
        raise BadReservation(f"denied: more than {MAX_ADDRESSES} mail addresses")
    return ",".join(addresses)


def _access(texts: Sequence[str], asker: str, owner: str) -> tuple[AccessEntry, ...]:
    if not texts:
        return (AccessEntry(owner),)
    try:
        return access_lists.parse(",".join(texts), asker)
    except BadRequest as error:
        raise BadReservation(f"error: {error}") from None
