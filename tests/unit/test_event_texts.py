"""Events are told as sentences with who did it and what came of it; equal ones together."""

import pytest

from oar.cli.common import event_story
from oar.lib.history import event_texts
from oar.lib.history.event_texts import event_sentence, group_events
from oar.lib.history.event_types import EventType
from oar.lib.history.records import Event


def event(type_: str, text: str = "", *, job: int = 0, hosts: tuple[str, ...] = (), number: int = 1) -> Event:
    return Event(number, type_, job, 1000, text, to_check=False, hosts=hosts)


@pytest.mark.parametrize(
    ("type_", "text", "sentence"),
    [
        ("FRAG_JOB_REQUEST", "User anna requested to frag the job 5", "anna requested the end of job 5"),
        ("FRAG_JOB_REQUEST", "User root (al) requested to frag the job 5", "root (al) requested the end of job 5"),
        ("FRAG_JOB_REQUEST", "User oar requested to frag the job 5", "OAR requested the end of job 5"),
        (
            "FRAG_JOB_REQUEST",
            "Container job 4 was fragged, frag inner job",
            "The end of container job 4 requested the end of job 5",
        ),
        ("FRAG_JOB_REQUEST", "", "Somebody requested the end of job 5"),
        ("HOLD_WAITING_JOB", "User anna requested to hold the job 5", "anna put job 5 on hold"),
        (
            "CHECKPOINT",
            "[Sarko] job 5 gets the checkpoint signal 60 s before its end",
            "OAR requested a checkpoint of job 5",
        ),
        ("SIGNAL_12", "User anna requested the signal 12 for the job 5", "anna requested signal 12 for job 5"),
        (
            "WALLTIME_REQUEST",
            "User anna requested a walltime change of the job 5 (+1:0:0/force)",
            "anna requested another walltime for job 5: +1:0:0/force",
        ),
        (
            "RESUBMIT_JOB_AUTOMATICALLY",
            "[NodeChangeState] NODE_LOST: job 5 is submitted again (new id = 9)",
            "OAR submitted job 5 again as job 9",
        ),
        ("PROLOGUE_ERROR", "[bipbip 5] n-1: exit code 3", "The prologue of job 5 failed: n-1: exit code 3"),
        ("A_TYPE_OF_LATER", "[x] something happened", "something happened"),
        ("A_TYPE_OF_LATER", "", "Job 5: a type of later"),
    ],
)
def test_an_event_is_a_sentence(type_: str, text: str, sentence: str) -> None:
    assert event_sentence(event(type_, text, job=5)) == sentence


@pytest.mark.parametrize(
    ("status", "how"), [(0, ": exit code 0"), (768, ": exit code 3"), (9, ": signal 9"), (None, "")]
)
def test_the_end_of_a_job_tells_its_exit_code(status: int | None, how: str) -> None:
    ended = event("SWITCH_INTO_TERMINATE_STATE", "[bipbip 551] Ask to change the job state", job=551)
    assert event_sentence(ended, status) == f"Job 551 ended{how}"


def test_nodes_are_named_and_suspicions_lose_their_types() -> None:
    text = "[NodeChangeState] n-1, n-2: Suspected: CPUSET_ERROR: [bipbip 5] disk full"
    assert (
        event_sentence(event("LOG_SUSPECTED", text, hosts=("n-1", "n-2")))
        == "No jobs start on nodes n-1, n-2: disk full"
    )
    assert (
        event_sentence(event("HALT_NODE", "[Greta] idle: n-1", hosts=("n-1",))) == "OAR halts node n-1 to save energy"
    )


def test_like_events_are_one_line() -> None:
    ends = [event("SWITCH_INTO_TERMINATE_STATE", "x", job=job, number=job) for job in (22, 23, 24, 30)]
    failed = event("SWITCH_INTO_TERMINATE_STATE", "x", job=31, number=31)
    kills = [event("SEND_KILL_JOB", f"[Leon] to oarexec on n for job {job}", job=31, number=40 + job) for job in (1, 2)]
    statuses: dict[int, int | None] = {22: 0, 23: 0, 24: 0, 30: 0, 31: 256}
    groups = group_events([*ends, failed, *kills], statuses)
    assert [group.sentence for group in groups] == [
        "Jobs 22-24, 30 ended: exit code 0",
        "Job 31 ended: exit code 1",
        "OAR told the processes of job 31 to end (2 times)",
    ]
    apart = [ends[0], ends[1]._replace(date=5000)]
    assert len(group_events(apart)) == 2


def test_readers_see_types_only_if_they_administer() -> None:
    line = event("WALLTIME", "[Sarko] job 5 has reached its walltime", job=5)
    told = event_story.event_story([line])
    assert told.endswith("  OAR ended job 5 at the end of the walltime\n")
    assert event_story.event_story([line], with_types=True).endswith("walltime [WALLTIME]\n")


def test_an_event_of_several_nodes_is_told_once() -> None:
    lost = event("PING_CHECKER_NODE_SUSPECTED", "x")
    told = event_story.node_story({f"n-{number}": [lost] for number in range(1, 4)})
    assert told.endswith("  No answer from nodes n-[1-3]: no jobs start there\n")
    assert told.count("\n") == 1


def test_no_sentence_forges_a_line() -> None:
    forged = event("SUBMISSION_INVALID", "a submission of x: \n2031-01-01 00:00:00  Job 1 ended\x1b[0m")
    assert event_story.event_story([forged]).count("\n") == 1
    assert "\x1b" not in event_story.event_story([forged])


def test_each_sentence_belongs_to_a_type_and_can_be_written() -> None:
    assert set(event_texts._TEXTS) <= set(EventType)
    for type_ in EventType:
        sentence = event_sentence(event(type_, job=1, hosts=("n",)))
        assert sentence
        assert "{" not in sentence
