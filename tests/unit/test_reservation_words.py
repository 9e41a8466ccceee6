"""Advance reservations: each sentence that the specification gives their commands stands in a test, letter for letter.

These are the sentences of its section "Commands".  Those of the tests are read from their source, so that none is
forgotten when a test goes.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

import pytest

from tests.documents import SOURCE

#: Where the tests of the commands are.
FILES = (
    "db/test_oarsub_reservation",
    "db/test_oaruserset",
    "db/test_qralter",
    "db/test_qrdel",
    "db/test_qrstat",
    "db/test_qrsub",
    "db/test_reservation_changes",
    "db/test_reservation_refusals",
    "db/test_reservation_series",
    "db/test_reserved_resources",
)
#: What the commands say; {} stands for a name, a number or a date.
SENTENCES: Mapping[str, Sequence[str]] = {
    "qrsub": (
        "Your reservation {} has been granted",
        "It starts at {} and ends at {}.",
        "Your reservations {} have been granted (series {})",
        "verification: found suitable queue(s)",
        "verification: no suitable queues",
        "denied: Reservation can't be granted",
        "  the earliest possible start is {} (-a {})",
        "  no later start was found",
        "Error: No queue instances to reserve",
        "rejected: only {} advance reservations are allowed per cluster",
        'denied: "{}" must be manager or in userset "arusers"',
        "start time is in the past",
        "start time is later than end time",
        'missing value for "end time or duration" in advance reservation request',
        "difference between end and start time does not correspond to duration",
        "the duration must be longer than 6 seconds",
        'qrsub: Wrong time format "{}" specified to -d option',
        'qrsub: Wrong date/time format "{}" specified to -a option',
        'qrsub: invalid option argument "-w x"',
        'qrsub: Wrong mail options list format "{}" specified to -m option',
        "error: nosuch is not known as a user",
        'Userset or group "nosuch" does not exist',
        'unknown resource "nosuch"',
        "ERROR! no option argument",
        "no answer from the scheduler in {} s, the request was withdrawn",
        'denied: "{}" is not a valid object name (cannot start with a digit)',
        'denied: "{}" is not a valid object name (invalid character)',
    ),
    "what is asked for": (
        '"advance_reservation" denied: use parallel environments instead of requesting slots explicitly',
        'job rejected: the requested parallel environment "{}" does not exist',
        'job rejected: the requested checkpointing environment "{}" does not exist',
        'Job was rejected because job requests unknown queue "{}"',
        "denied: {} slots cannot be divided into {} on each host",
    ),
    "qrstat": (
        "AR-ID   name       owner        state start at            end at              duration",
        "change asked: end {}",
        "Following advance reservations do not exist:",
    ),
    "qralter": (
        "Your reservation {} has been altered",
        "now {} to {}",
        "job {} was deleted: it no longer fits",
        "denied: Reservation {} can't be altered",
        "the latest possible end is {}",
        'denied: "{}" is not allowed to alter advance_reservation {}',
        "denied: a change of advance_reservation {} is pending",
        "the start time of a running advance reservation can't be changed",
    ),
    "qrdel": (
        "{} has deleted advance_reservation {}",
        "{} has registered the advance_reservation {} for deletion",
        "advance_reservation {} is already registered for deletion",
        'denied: advance_reservation "{}" does not exist',
        'denied: "{}" is not allowed to delete advance_reservation {}',
        'denied: "{}" must be manager to modify all advance reservations',
        "There is no advance_reservation registered for the following users: {}",
    ),
    "oaruserset": (
        'added "{}" to access list "{}"',
        '"{}" is already in access list "{}"',
        'deleted user "{}" from access list "{}"',
        'Userset "{}" does not exist',
        'denied: removing "{}" from "{}" would break the advance reservation {}',
    ),
    "jobs": (
        'invalid advance reservation "{}".',
        "the advance reservation {} does not exist.",
        "the advance reservation {} has ended.",
        "the advance reservation {} is not granted yet.",
        "you are not allowed to use the advance reservation {}.",
        "walltime {} is longer than the advance reservation {} allows ({}).",
        "walltime {} is longer than what is left of the advance reservation {} ({}).",
        "the advance reservation {} cannot hold -l",
        "job {} is the frame of the advance reservation {}, use --ar {}.",
        "job {} is the frame of the advance reservation {}, which is deleted.",
        "This job is the frame of the advance reservation {}: use qralter.",
    ),
    "what is reserved": (
        "denied: resource {} is reserved by the advance reservation {}",
        "denied: host {} is reserved by the advance reservation {}",
        "denied: the change of {} would break the advance reservation {}",
        "Queue '{}' is reserved by {} advance reservation(s): it is orphaned and goes with the last one.",
    ),
}
ALL = [sentence for sentences in SENTENCES.values() for sentence in sentences]
#: What stands in the place of a value in a text with values.
VALUE = "7"


@cache
def pattern_of(sentence: str) -> re.Pattern[str]:
    """Return what finds a sentence with its values."""
    return re.compile(".+".join(map(re.escape, sentence.split("{}"))))


@cache
def texts() -> tuple[str, ...]:
    """Return the texts in the tests of the commands."""
    return tuple(text for file in FILES for text in _texts_of(file))


def _texts_of(file: str) -> Iterator[str]:
    for node in ast.walk(ast.parse((SOURCE / "tests" / f"{file}.py").read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else VALUE for part in node.values)


@pytest.mark.parametrize("sentence", ALL)
def test_a_sentence_of_a_command_is_tested(sentence: str) -> None:
    assert any(map(pattern_of(sentence).search, texts()))


def test_each_file_of_tests_is_needed() -> None:
    for file in FILES:
        own = list(_texts_of(file))
        assert any(any(map(pattern_of(sentence).search, own)) for sentence in ALL), file
