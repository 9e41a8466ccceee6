"""Frames of the bus: written and read back, and nothing else accepted."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oar.lib.bus import frames
from oar.lib.bus.frames import BadFrame, decode, decode_request, decode_tag, encode
from oar.lib.bus.messages import (
    Ask,
    Energy,
    EnergyCommand,
    JobAction,
    Mail,
    Notice,
    NoticeTag,
    Tag,
    Wake,
    encode_request,
)
from oar.lib.remote.protocol import ReportAnswer

EXAMPLES: list[frames.Frame] = [
    frames.Hello("sarko", 12),
    frames.RunPass(3, ("default", "admin")),
    frames.RunPass(4, compare=True),
    frames.Done(3, 1, 1700000000),
    frames.Done(3, 0),
    frames.Done(3, 0, None, frames.Renewal.WHEN_IDLE),
    frames.Done(3, 0, starts=7),
    frames.At(("default",)),
    frames.Ping(),
    frames.Pong(),
    frames.StopChild(),
    frames.Ready(),
    frames.Away("Connection refused"),
    frames.Load(2, 5),
    frames.EndReport(9, 42, 0, "N", "123"),
    frames.ReportReply(9, ReportAnswer.OK),
    frames.StatusQuestion(),
    frames.Status({"lanes": {"sched": None}}),
    frames.RoundsQuestion(20),
    frames.RoundsAnswer({"rounds": [{"duration": 0.25}]}),
    frames.WaitForRound("Term"),
    frames.Waited(0),
    Wake(Tag.CHSTATE),
    Ask(JobAction.TELL, 42, ("GOOD JOB",)),
    Notice(1, "a\nb", "alice", "mail:a@b", "front", NoticeTag.END, "text"),
    Mail("subject", "text"),
    Energy(EnergyCommand.HALT, ("node-1",)),
]


@pytest.mark.parametrize("frame", EXAMPLES, ids=lambda frame: type(frame).__name__)
def test_a_frame_is_read_back_as_it_was_written(frame: frames.Frame) -> None:
    assert decode(encode(frame)) == frame


def test_the_frames_look_as_documented() -> None:
    assert json.loads(encode(frames.Hello("sarko", 1))) == {"m": "HELLO", "name": "sarko", "pid": 1}
    assert json.loads(encode(Wake(Tag.CHSTATE))) == {"m": "TAG", "cmd": "ChState"}
    assert json.loads(encode(Ask(JobAction.RUN, 42))) == {"m": "JOB", "cmd": "RUN", "job_id": 42, "args": []}
    assert json.loads(encode(frames.RunPass(1))) == {"m": "RUN", "id": 1, "disable": [], "compare": False}
    assert decode(b'{"m":"DONE","id":1,"code":0}') == frames.Done(1, 0, None)


@given(st.binary(max_size=100))
def test_bytes_that_are_no_frame_are_refused_and_nothing_else_happens(data: bytes) -> None:
    for read in (decode, decode_request):
        try:
            read(data)
        except BadFrame:
            continue


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3)
)


@given(
    st.sampled_from(sorted(frames._TYPES)),
    st.dictionaries(st.sampled_from(["cmd", "job_id", "args", "id", "code", "next", "name", "pid"]), json_values),
)
def test_values_of_another_type_are_refused(word: str, values: dict[str, object]) -> None:
    try:
        frame = decode(json.dumps({"m": word, **values}).encode())
    except BadFrame:
        return
    assert decode(encode(frame)) == frame


@pytest.mark.parametrize("tag", list(Tag))
def test_each_documented_tag_is_known(tag: Tag) -> None:
    assert decode_tag(tag.value) == Wake(tag)
    assert decode_request(encode_request(Wake(tag))) == Wake(tag)


@given(st.dictionaries(st.sampled_from(["job_id", "args", "nodes"]), json_values))
def test_no_request_from_outside_does_more_than_being_refused(values: dict[str, object]) -> None:
    for word in ("OAREXEC", "OARRUN", "SIGNAL", "HALT", "Term"):
        try:
            decode_request(json.dumps({"job_id": 1} | values | {"cmd": word}).encode())
        except BadFrame:
            continue


def test_text_behind_the_first_blank_is_ignored_except_for_qsub_i() -> None:
    assert decode_tag("Qsub 12 please") == Wake(Tag.QSUB)
    assert decode_tag("Qsub -I") == Wake(Tag.QSUB_INTERACTIVE)


def test_the_forms_with_underscores_speak_of_a_job() -> None:
    assert decode_tag("OARRUNJOB_42") == Ask(JobAction.RUN, 42)
    assert decode_tag("LEONEXTERMINATE_42") == Ask(JobAction.EXTERMINATE, 42)
    assert decode_tag("OAREXEC_42_0_256_987") == frames.EndReport(-1, 42, 0, "256", "987")
    assert decode_tag("OAREXEC_42_30_N_987") == frames.EndReport(-1, 42, 30, "N", "987")
    assert decode_tag("OAREXEC_42_0_256_987_3600") == frames.EndReport(-1, 42, 0, "256", "987", ago=3600)


@pytest.mark.parametrize(
    "tag",
    [
        "",
        "(",
        "qsub",
        "Qsubs",
        "Term\0",
        "Term\x1b[0m",
        "OARRUNJOB_",
        "OARRUNJOB_1234567890123456789",
        "OARRUNJOB_4²",
        "OAREXEC_1_0_x_2",
        "xOARRUNJOB_1",
        "OARRUNJOB_1x",
        "Term " + "x" * 260,
    ],
)
def test_another_tag_is_refused(tag: str) -> None:
    with pytest.raises(BadFrame):
        decode_tag(tag)


def test_jobs_may_be_asked_for_as_oar_3_does() -> None:
    assert decode_request(b'{"cmd": "OARRUN", "job_id": 42, "args": []}') == Ask(JobAction.RUN, 42)
    assert decode_request(b'{"cmd": "SIGNAL", "job_id": 42}') == Ask(JobAction.SIGNAL, 42)
    assert decode_request(b'{"job_id": 42, "cmd": "LEONEXTERMINATE"}') == Ask(JobAction.EXTERMINATE, 42)
    assert decode_request(b'{"job_id": 42, "cmd": "OAREXEC", "args": [0, "N", 77]}') == frames.EndReport(
        -1, 42, 0, "N", "77"
    )
    assert decode_request(b'{"cmd": "HALT", "nodes": ["n1"]}') == Energy(EnergyCommand.HALT, ("n1",))
    for action in (JobAction.RUN, JobAction.SIGNAL, JobAction.KILL, JobAction.TELL):
        assert decode_request(encode_request(Ask(action, 7))) == Ask(action, 7)


@pytest.mark.parametrize(
    "data",
    [
        b'{"cmd": "TELL", "job_id": 1, "args": ["GOOD JOB"]}',
        *(f'{{"cmd": "{word}", "job_id": 1}}'.encode() for word in ("SUSPEND", "RESUME", "SWEEP", "HEAL")),
        *(f'{{"cmd": "OAREXEC", "job_id": 1, "args": {each}}}'.encode() for each in ("5", "true", "null", "[[1]]")),
        b'{"cmd": "OARRUN", "job_id": 0}',
        b'{"cmd": "OARRUN", "job_id": "1"}',
        b'{"cmd": "OARRUN", "job_id": true}',
        b'{"cmd": ["Term"]}',
        b'{"cmd": "HALT", "nodes": "n1"}',
        b'["Term"]',
        b"[" * 100000,
    ],
)
def test_a_request_from_outside_that_makes_no_sense_is_refused(data: bytes) -> None:
    with pytest.raises(BadFrame):
        decode_request(data)
