"""What users and administrators are told: mails through a mail server in the room, commands on the frontend."""

from __future__ import annotations

import re

import pytest

from tests.acceptance.harness import Cluster, Person, wait_until
from tests.acceptance.mailbox import Post

#: Writes down who it is, where, and what it was told.
TELL = """#!/bin/sh
{ id -un; hostname; for word; do printf '<%s>' "$word"; done; echo; } | tr '\\n' ' ' >>~/told; echo >>~/told
"""
ONE = "-l /resource_id=1,walltime=0:10"


@pytest.fixture
def alice(cluster: Cluster) -> Person:
    """Alice at the frontend, with a command that writes down what it is told."""
    person = cluster.as_user("alice")
    person.run("rm -rf ~/*; cat >tell; chmod 755 tell", stdin=TELL)
    return person


def told(person: Person) -> list[str]:
    """What the command of a person was told so far."""
    return person.run("cat told 2>/dev/null; true").splitlines()


def without_use(text: str) -> str:
    """A mail about an end without what the job used, which is told of those that ran for a second at least."""
    return re.sub(r"\nIt used [0-9.]+% of one core, and at most [0-9.]+ [KM]?i?B of memory on a node\.\Z", "", text)


def events(cluster: Cluster, job: int, kind: str) -> list[str]:
    """The texts of the events of a kind of a job."""
    rows = cluster.sql(f"SELECT description FROM event_logs WHERE job_id = {job} AND type = '{kind}' ORDER BY event_id")
    return [row[0] for row in rows]


def test_each_step_of_a_job_is_told_by_mail_and_by_a_command(cluster: Cluster, alice: Person, post: Post) -> None:
    mailed = alice.submit(f"-n 'my é job' {ONE} --notify mail:alice@site,bob@site 'sleep 1000'")
    called = alice.submit(f"-n 'x; $(touch evil)' {ONE} --notify 'exec:/home/alice/tell -v ok' 'sleep 1000'")
    for job in (mailed, called):
        cluster.wait_for_state(job, "Running")
    cluster.as_user("root").run(f"oarhold -r {mailed} {called}")
    for job in (mailed, called):
        cluster.wait_for_state(job, "Suspended")
    cluster.as_user("root").run(f"oarresume {mailed} {called}")
    for job in (mailed, called):
        cluster.wait_for_state(job, "Running")
    alice.run(f"oardel {mailed} {called}")
    tags = ["RUNNING", "SUSPENDED", "RESUMING", "RUNNING", "INFO", "ERROR"]
    both = "alice@site, bob@site"
    wait_until(lambda: len(post.to(both)) >= len(tags), lambda: post.to(both))
    assert [subject for subject, _ in post.to(both)] == [f"*OAR* [{tag}]: {mailed} (my é job) on demo" for tag in tags]
    info = f"Your job was asked to be deleted - User alice requested to frag the job {mailed}"
    *texts, end = [text for _, text in post.to(both)]
    assert texts == ["Job is running.", "Job is suspended.", "Job is resuming.", "Job is running.", info]
    why = "Outcome: cancelled\nIts owner alice deleted it (oardel)."
    assert without_use(end) == f"Job stopped abnormally or an OAR error occured.\n\n{why}"
    wait_until(lambda: len(told(alice)) >= len(tags), lambda: told(alice))
    start = f"alice server <-v><ok><{called}><x; $(touch evil)>"
    assert [line.rstrip().partition("><Job ")[0].partition("><Your ")[0] for line in told(alice)] == [
        f"{start}<{tag}" for tag in tags
    ]
    assert "evil" not in alice.run("ls").split()
    wait_until(lambda: len(events(cluster, mailed, "USER_MAIL_NOTIFICATION")) == len(tags))
    wait_until(lambda: len(events(cluster, called, "USER_EXEC_NOTIFICATION")) == len(tags))


def test_who_wants_only_some_of_it_gets_only_that(cluster: Cluster, alice: Person, post: Post) -> None:
    ended = alice.submit(f"-n some {ONE} --notify '[ end , ERROR ] mail : end@site' 'exit 7'")
    started = alice.submit(f"{ONE} --notify '[START]exec:/home/alice/tell' true")
    wait_until(lambda: post.to("end@site"))
    wait_until(lambda: told(alice))
    for job in (ended, started):
        cluster.wait_for_state(job, "Terminated")
    text = (
        f"Job stopped normally.\nexit_code: {7 << 8} (7,0,0)\n\nOutcome: failed\nIts command ended with exit status 7."
    )
    ((subject, body),) = post.to("end@site")
    assert (subject, without_use(body)) == (f"*OAR* [END]: {ended} (some) on demo", text)
    assert told(alice) == [f"alice server <{started}><><RUNNING><Job is running.> "]


def test_an_array_is_mailed_about_once_unless_each_job_is_wanted(cluster: Cluster, alice: Person, post: Post) -> None:
    script = 'test "$OAR_ARRAY_INDEX" != 3'
    jobs = alice.submit_all(f"--array 5 -n sweep {ONE} --notify mail:once@site '{script}'")
    each = alice.submit_all(f"--array 2 {ONE} --notify '[EACH]mail:each@site' true")
    commands = alice.submit_all(f"--array 2 {ONE} --notify '[END]exec:/home/alice/tell' true")
    wait_until(lambda: len(post.to("each@site")) >= 4 and len(told(alice)) >= 2)
    wait_until(lambda: len(post.to("once@site")) >= 2)
    for job in (*jobs, *each, *commands):
        cluster.wait_for_state(job, "Terminated")
    assert post.tags("once@site") == ["RUNNING", "END"]
    assert [subject for subject, _ in post.to("once@site")][1] == f"*OAR* [END]: {jobs[0]} (sweep) on demo"
    assert post.to("once@site")[1][1].splitlines() == [
        "Array stopped: 5 jobs have ended.",
        *("exit code 0: 4", "another exit code: 1", "in error: 0"),
    ]
    assert sorted(post.tags("each@site")) == ["END", "END", "RUNNING", "RUNNING"]
    assert len(told(alice)) == len(commands)


def test_neither_a_mail_that_fails_nor_a_command_that_hangs_holds_anything_up(
    cluster: Cluster, alice: Person, post: Post
) -> None:
    refused = alice.submit(f"{ONE} --notify '[END]mail:refused@site' true")
    cluster.wait_for_state(refused, "Terminated")
    wait_until(lambda: "no such user" in str(events(cluster, refused, "MAIL_NOTIFICATION_ERROR")))
    silent = alice.submit_all(f"--array 4 {ONE} --notify '[EACH]mail:silent@site' true")
    hanging = alice.submit_all(f"--array 6 {ONE} --notify '[END]exec:/bin/sleep 1000' true")
    for job in (*silent, *hanging):
        cluster.wait_for_state(job, "Terminated")
    bob = cluster.as_user("bob")
    bob.run("rm -rf ~/*; cat >tell; chmod 755 tell", stdin=TELL)
    job = bob.submit(f"{ONE} --notify exec:/home/bob/tell 'sleep 1000'")
    cluster.wait_for_state(job, "Running")
    bob.run(f"oardel {job}")
    wait_until(lambda: len(told(bob)) == 3, lambda: told(bob))
    wait_until(lambda: any(events(cluster, job, "USER_EXEC_NOTIFICATION_ERROR") for job in hanging))


def test_what_cannot_be_told_is_refused_at_once(cluster: Cluster, alice: Person) -> None:
    before = cluster.sql("SELECT max(job_id) FROM jobs")
    for text, code, why in (
        ("mail:a@b,-x", 250, "'-x' is not a mail address"),
        ("mail:a@b\nBcc: evil@c", 250, "bad syntax for the notify option"),
        ("[WHEN]mail:a@b", 250, "unknown tag 'WHEN'"),
        ("exec:tell", 250, "'tell' is not an absolute path"),
        ("exec:/bin/sh -c 'x'", 16, "insecure characters found in notification method"),
        ("[END]exec:/bin/a;b", 16, "insecure characters found in notification method"),
    ):
        answer = alice.attempt(["oarsub", "--notify", text, "true"])
        assert (answer.code, why in answer.err) == (code, True), answer
    assert cluster.sql("SELECT max(job_id) FROM jobs") == before


def test_administrators_are_mailed_what_they_should_know(cluster: Cluster, alice: Person, post: Post) -> None:
    cluster.server.do("stop")
    cluster.server.do("start")
    cluster.node("node-4").do("sshd-stop")
    alice.submit("-p \"network_address='node-4'\" -l /resource_id=1 true")

    def told() -> list[str]:
        """Return what is told about the server and this node; since the stop; other mails may have waited before."""
        mails = post.to("root@server")
        subjects = [subject for subject, text in mails if "OAR server" in subject or "node-4" in text]
        return subjects[subjects.index("Stop OAR server") :] if "Stop OAR server" in subjects else []

    wait_until(lambda: told()[:3] == ["Stop OAR server", "Start OAR server", "Suspecting nodes"], told)
