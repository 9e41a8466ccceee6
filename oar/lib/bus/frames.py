"""The types of the frames between Almighty and its children, and of the requests of other programs.

A frame is one JSON object; its field ``m`` is the type. Invalid data is rejected with ``BadFrame``, never guessed.

See docs/design/bus.rst, "Frames".
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from oar.lib.base.errors import OarError
from oar.lib.bus.messages import (
    Ask,
    Due,
    Effect,
    Energy,
    EnergyCommand,
    JobAction,
    Mail,
    Notice,
    NoticeTag,
    ReservationMail,
    ReservationNews,
    Tag,
    UserMail,
    Wake,
)
from oar.lib.remote.protocol import ReportAnswer

_TAGS = frozenset(tag.value for tag in Tag)
_ENERGY_COMMANDS = frozenset(command.value for command in EnergyCommand)
#: Bytes of a tag; a line on the raw port is no longer.
LONGEST_TAG = 255
_LONGEST_FRAME = 1 << 20
_CONTROL = re.compile("[\\x00-\\x1f\\x7f-\\x9f]")
#: The three forms with underscores that old programs and nodes write.
_UNDERSCORED = re.compile(
    r"(?:OARRUNJOB_(?P<run>[0-9]{1,18})"
    r"|OAREXEC_(?P<exec>[0-9]{1,18})_(?P<code>[0-9]{1,3})_(?P<status>[0-9]{1,5}|N)_(?P<challenge>[0-9]{1,255})"
    r"(?:_(?P<ago>[0-9]{1,9}))?"
    r"|LEONEXTERMINATE_(?P<exterminate>[0-9]{1,18}))\Z",
    re.ASCII,
)


class BadFrame(OarError):
    """Data on the bus that is not a valid message."""


@dataclass(frozen=True, slots=True)
class Hello:
    """A child has started and accepts work."""

    name: str
    pid: int


@dataclass(frozen=True, slots=True)
class RunPass:
    """Almighty orders a pass.

    ``disable``: queues that the meta-scheduler must disable first. ``compare``: Finaud only compares the nodes that the
    servers reach.
    """

    id: int
    disable: tuple[str, ...] = ()
    compare: bool = False


class Renewal(StrEnum):
    """Whether and when a child must be replaced by a new process."""

    NONE = ""
    WHEN_IDLE = "when idle"  #: as soon as nothing is due
    NOW = "now"  #: before its next pass


@dataclass(frozen=True, slots=True)
class Done:
    """The pass has ended. ``next``: Unix time of the next work, if it is known."""

    id: int
    code: int
    next: int | None = None
    renewal: Renewal = Renewal.NONE
    starts: int = 0  #: jobs that the round has started
    record: dict[str, Any] = field(default_factory=dict)  #: what the server tells of the round


@dataclass(frozen=True, slots=True)
class At:
    """The meta-scheduler begins with these queues."""

    queues: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ping:
    """A check whether the child responds."""


@dataclass(frozen=True, slots=True)
class Pong:
    """The response to a ping."""


@dataclass(frozen=True, slots=True)
class StopChild:
    """The child must accept no more work and end. The Runner lets running actions reach a safe point first."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The Runner has read all data that the server needs to start."""


@dataclass(frozen=True, slots=True)
class Away:
    """The warden or the Runner cannot start: the database does not respond, and it retries."""

    reason: str


@dataclass(frozen=True, slots=True)
class Standby:
    """The warden waits for the server lock, which another server holds."""

    holder: str
    since: int  #: Unix time


@dataclass(frozen=True, slots=True)
class Active:
    """The warden holds the server lock and has begun a generation: no former server can change anything."""

    generation: int
    former: str = ""  #: the server that was active before, '' if it was this one
    reason: str = ""  #: why this one has taken over


@dataclass(frozen=True, slots=True)
class Alive:
    """The warden still holds the lock: PostgreSQL has answered a query sent at this time."""

    sent: int  #: milliseconds of the monotonic clock


@dataclass(frozen=True, slots=True)
class Lost:
    """The server is no longer active, or must no longer be."""

    reason: str


@dataclass(frozen=True, slots=True)
class LookAgain:
    """A command has stored a request for a hand-over: the warden must look at the database."""


@dataclass(frozen=True, slots=True)
class Load:
    """The number of waiting and running actions of the Runner, for STATUS."""

    waiting: int
    running: int


@dataclass(frozen=True, slots=True)
class EndReport:
    """An end report of oarexec, forwarded to the Runner. ``peer`` is returned in its ``ReportReply``; -1: none."""

    peer: int
    job_id: int
    code: int
    status: str  #: raw wait status, or "N"
    challenge: str
    ago: int = 0  #: seconds since the end


@dataclass(frozen=True, slots=True)
class ReportReply:
    """The answer that Almighty must write to the peer of a report."""

    peer: int
    text: ReportAnswer


@dataclass(frozen=True, slots=True)
class StatusQuestion:
    """The request of oarnotify --status."""


@dataclass(frozen=True, slots=True)
class Status:
    """The response: plain values, as in JSON."""

    state: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RoundsQuestion:
    """A request for the records of the last scheduling passes."""

    last: int  #: so many of them


@dataclass(frozen=True, slots=True)
class RoundsAnswer:
    """The response: ``rounds`` are records of plain values, the newest first."""

    state: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WaitForRound:
    """The request of oarnotify --wait: notify the client when a pass that begins after this has ended.

    ``tag`` is sent to the automaton first, unless empty.
    """

    tag: str = ""


@dataclass(frozen=True, slots=True)
class Waited:
    """The scheduling pass has ended, with this code of the meta-scheduler."""

    code: int


Frame = (
    Hello | RunPass | Done | At | Ping | Pong | StopChild | Ready | Away | Load | Standby | Active | Alive | Lost
    | LookAgain | EndReport | ReportReply
    | StatusQuestion | Status | RoundsQuestion | RoundsAnswer | WaitForRound | Waited | Effect
)  # fmt: skip

_TYPES: Mapping[str, type[Frame]] = {
    "HELLO": Hello,
    "RUN": RunPass,
    "DONE": Done,
    "AT": At,
    "PING": Ping,
    "PONG": Pong,
    "STOP": StopChild,
    "READY": Ready,
    "AWAY": Away,
    "STANDBY": Standby,
    "ACTIVE": Active,
    "ALIVE": Alive,
    "LOST": Lost,
    "LOOK": LookAgain,
    "LOAD": Load,
    "REPORT": EndReport,
    "ANSWER": ReportReply,
    "STATUS?": StatusQuestion,
    "STATUS": Status,
    "ROUNDS?": RoundsQuestion,
    "ROUNDS": RoundsAnswer,
    "WAIT": WaitForRound,
    "WAITED": Waited,
    "TAG": Wake,
    "JOB": Ask,
    "NOTICE": Notice,
    "AR_MAIL": ReservationMail,
    "AR_NEWS": ReservationNews,
    "USER_MAIL": UserMail,
    "MAIL": Mail,
    "ENERGY": Energy,
    "DUE": Due,
}
_NAMES = {kind: name for name, kind in _TYPES.items()}
#: Where a field is called otherwise in JSON.
_RENAMED = {"tag": "cmd", "action": "cmd", "command": "cmd", "lines": "args"}
_RENAMED_IN = (Wake, Ask, Energy)


def encode(frame: Frame) -> bytes:
    kind = type(frame)
    renamed = _RENAMED if kind in _RENAMED_IN else {}
    content = {renamed.get(name, name): getattr(frame, name) for name in kind.__annotations__}
    return json.dumps({"m": _NAMES[kind], **content}).encode()


def decode(data: bytes) -> Frame:
    """Return the frame in ``data``. Raises BadFrame."""
    content = _object(data)
    kind = _TYPES.get(_text(content.get("m")))
    if kind is None:
        raise BadFrame(f"unknown frame {content.get('m')!r}")
    renamed = _RENAMED if kind in _RENAMED_IN else {}
    values: dict[str, Any] = {}
    for field_name, field_type in kind.__annotations__.items():
        name = renamed.get(field_name, field_name)
        if name in content:
            values[field_name] = _READERS[field_type](content[name])
    try:
        return kind(**values)
    except TypeError:
        raise BadFrame(f"{content['m']} lacks something") from None


def _object(data: bytes) -> dict[str, Any]:
    if len(data) > _LONGEST_FRAME:
        raise BadFrame("a frame is too long")
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        raise BadFrame("not JSON") from None
    if not isinstance(content, dict):
        raise BadFrame("not a JSON object")
    return content


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise BadFrame(f"{value!r:.80} is not a text")
    return value


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= 1 << 63:
        raise BadFrame(f"{value!r:.80} is not a number")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise BadFrame(f"{value!r:.80} is not true or false")
    return value


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise BadFrame(f"{value!r:.80} is not a list")
    return tuple(_text(item) for item in value)


def _arguments(value: object) -> list[str]:
    """Return arguments as texts. They may be numbers in JSON."""
    if not isinstance(value, list) or not all(isinstance(argument, str | int) for argument in value):
        raise BadFrame(f"{value!r:.80} is not a list of arguments")
    return [str(argument) for argument in value]


def _mapping(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadFrame(f"{value!r:.80} is not an object")
    return value


def _member(enumeration: type[StrEnum], name: str) -> Callable[[object], StrEnum]:
    """Return a function that reads a member of an enumeration. ``name`` names the enumeration in errors."""

    def read(value: object) -> StrEnum:
        try:
            return enumeration(_text(value))
        except ValueError:
            raise BadFrame(f"unknown {name} {value!r:.80}") from None

    return read


_READERS: Mapping[Any, Callable[[object], Any]] = {
    str: _text,
    int: _number,
    bool: _flag,
    int | None: lambda value: None if value is None else _number(value),
    tuple[str, ...]: _texts,
    dict[str, Any]: _mapping,
    Renewal: _member(Renewal, "renewal"),
    Tag: _member(Tag, "tag"),
    JobAction: _member(JobAction, "action"),
    NoticeTag: _member(NoticeTag, "notice"),
    EnergyCommand: _member(EnergyCommand, "command"),
    ReportAnswer: _member(ReportAnswer, "answer"),
}


# -- requests of commands, old programs and nodes ---------------------------------------------------------------------

#: Commands of the tag and job endpoints that speak of a job.  Anybody may write there: these only make the Runner look
#: at the job, and what it does, or tells the oarsub that waits, is decided by the database.  Suspending, resuming and
#: cleaning are done as they are asked, so they come over the server's own endpoint alone, as the lines to be told do.
_JOB_COMMANDS = {
    "OARRUN": JobAction.RUN,
    "OARRUNJOB": JobAction.RUN,
    "LEONEXTERMINATE": JobAction.EXTERMINATE,
    **{name.value: name for name in (JobAction.RUN, JobAction.END, JobAction.EXTERMINATE, JobAction.KILL)},
    **{name.value: name for name in (JobAction.SIGNAL, JobAction.TELL)},
}


def decode_tag(text: str) -> Wake | Ask | EndReport:
    """Parse a tag in any of its forms (docs/design/bus.rst, "Tags"). Raises BadFrame.

    >>> decode_tag("OARRUNJOB_42")
    Ask(action=<JobAction.RUN: 'RUN'>, job_id=42, lines=())
    """
    if len(text.encode("utf-8", "replace")) > LONGEST_TAG:
        raise BadFrame("a tag is longer than 255 bytes")
    if _CONTROL.search(text):
        raise BadFrame("control characters in a tag")
    tag = text if text == Tag.QSUB_INTERACTIVE else text.split(" ", 1)[0]
    if tag in _TAGS:
        return Wake(Tag(tag))
    match = _UNDERSCORED.match(tag)
    if match is None:
        raise BadFrame(f"unknown tag {text!r:.80}")
    if match["run"]:
        return Ask(JobAction.RUN, int(match["run"]))
    if match["exterminate"]:
        return Ask(JobAction.EXTERMINATE, int(match["exterminate"]))
    job_id, code, ago = int(match["exec"]), int(match["code"]), int(match["ago"] or 0)
    return EndReport(-1, job_id, code, match["status"], match["challenge"], ago)


def decode_request(data: bytes) -> Wake | Ask | EndReport | Energy:
    """Parse a request to the tag, job or energy endpoint: ``{"cmd": ...}``. Raises BadFrame."""
    content = _object(data)
    command = _text(content.get("cmd"))
    if command in _ENERGY_COMMANDS:
        return Energy(EnergyCommand(command), _texts(content.get("nodes", [])))
    if "job_id" not in content or command in _TAGS:
        return decode_tag(command)
    job_id = _number(content["job_id"])
    if job_id <= 0:
        raise BadFrame(f"{job_id} is no job")
    if command == "OAREXEC":
        return decode_tag("_".join(["OAREXEC", str(job_id), *_arguments(content.get("args"))]))
    if command not in _JOB_COMMANDS:
        raise BadFrame(f"unknown command {command!r:.80}")
    if content.get("args"):
        raise BadFrame(f"{command} from outside takes no arguments")
    return Ask(_JOB_COMMANDS[command], job_id)


def effect_of(text: str | None) -> Wake | Ask | None:
    """Return the effect of a tag, None for a tag without effect. ``text`` None requests a scheduling pass."""
    try:
        found = Wake(Tag.TERM) if text is None else decode_tag(text)
    except BadFrame:
        return None
    return found if isinstance(found, Wake | Ask) else None
