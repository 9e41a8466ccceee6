"""One user's conditions slow nobody: what alice types and has stored costs bob no round."""

from __future__ import annotations

import json
import threading

from tests.acceptance.harness import Cluster, Person, Result, configured, wait_until
from tests.conditions_corpus import AT_THE_LIMITS, HOSTILE

#: Types each condition as one of three commands; prints command, condition, exit code and message.
_TYPE_ALL = """
import json, subprocess, sys
for number, text in enumerate(json.load(sys.stdin)):
    words = (["oarsub", "-p", text, "sleep 1"], ["oarnodes", "--sql", text], ["oarstat", "--sql", text])[number % 3]
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    print(json.dumps([words[0], text, done.returncode, done.stderr]))
"""
#: SQL that an older version would have stored, and that takes the database minutes.
_BOMBS = (
    "(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i % 2 FROM n) SELECT count(*) FROM n) > 0",
    "CASE WHEN extract(epoch FROM now()) > 0 THEN (SELECT count(*) FROM resources a, resources b, resources c) > 0 END",
    "length(repeat('xyxyxyxyxy', 90000000)) > 0",
)
#: The longest argument that a command can be given.
_LONGEST = 100_000
#: What can be typed at all, and stored: neither a NUL nor half a surrogate can, and blanks are no condition.
TYPED = [
    text
    for text in HOSTILE
    if text.strip() and len(text) < _LONGEST and text.replace("\0", "").encode("utf-8", "ignore").decode() == text
]
#: Conditions that are typed with one call, which must not take too long.
_AT_ONCE = 20
BOBS_JOBS = 4


def run_jobs(bob: Person, cluster: Cluster) -> list[int]:
    """Let bob run one small job after the other; return those that a round left waiting."""
    left = []
    for _ in range(BOBS_JOBS):
        job = bob.submit("-l core=1 true")
        cluster.wait_for_state(job, "Terminated")
        left += [job] if cluster.sql(f"SELECT 1 FROM job_waits WHERE job_id = {job}") else []
    return left


def failures_of_rounds(cluster: Cluster) -> int:
    """Return how many rounds have failed."""
    state = json.loads(cluster.as_user("root").run("oarnotify --status --json"))
    failures: int = state["modules"]["meta_sched"]["failures"]
    return failures


def deferrals(cluster: Cluster) -> list[list[str]]:
    """Return the events of conditions for which rounds had no time."""
    return cluster.sql("SELECT description FROM event_logs WHERE type = 'CONDITION_TOO_SLOW'")


def test_nobody_waits_for_hostile_conditions_that_are_typed(cluster: Cluster) -> None:
    alice, bob = cluster.as_user("alice"), cluster.as_user("bob")
    typed: list[Result] = []

    def type_all() -> None:
        for begin in range(0, len(TYPED), _AT_ONCE):
            texts = TYPED[begin : begin + _AT_ONCE]
            typed.append(alice.attempt(["python3", "-c", _TYPE_ALL], stdin=json.dumps(texts)))

    failed, slow = failures_of_rounds(cluster), deferrals(cluster)
    typing = threading.Thread(target=type_all)
    typing.start()
    left = run_jobs(bob, cluster)
    typing.join()
    said = [json.loads(line) for result in typed for line in result.out.splitlines()]
    assert len(said) == len(TYPED)
    assert [each for each in said if "internal error" in each[3] or "Traceback" in each[3]] == []
    assert [each for each in said if each[0] == "oarsub" and each[2] == 0] == []
    assert (left, deferrals(cluster), failures_of_rounds(cluster)) == ([], slow, failed)


def test_nobody_waits_for_hostile_conditions_that_are_stored(cluster: Cluster) -> None:
    alice, bob = cluster.as_user("alice"), cluster.as_user("bob")
    texts = (*_BOMBS, *AT_THE_LIMITS, *TYPED)
    failed, slow = failures_of_rounds(cluster), deferrals(cluster)
    first = alice.submit("--hold -l core=1 true")
    jobs = alice.submit_all(f"--hold --array {len(texts)} -a {first} -l core=1 true")
    for job, text in zip(jobs, texts, strict=True):
        cluster.sql(f"UPDATE jobs SET properties = $condition${text}$condition$ WHERE job_id = {job}")
    with configured(cluster, "USER_SQL_ROUND_SECONDS=5"):  # a busy machine stops a short evaluation for a while, too
        alice.run(f"oarresume {' '.join(map(str, jobs))}")
        wait_until(lambda: not cluster.sql(f"SELECT 1 FROM jobs WHERE job_id > {first} AND state = 'Hold'"))
        left = run_jobs(bob, cluster)
        explained = wait_until(
            lambda: cluster.sql(f"SELECT code FROM job_reasons WHERE job_id BETWEEN {jobs[0]} AND {jobs[-1]}")
        )
    assert len(explained) == len(jobs)
    assert (left, failures_of_rounds(cluster)) == ([], failed)
    assert len(deferrals(cluster)) - len(slow) <= len(AT_THE_LIMITS)
