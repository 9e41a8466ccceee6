"""oarstat --top at a real terminal: what appears by itself, and what keys do."""

from __future__ import annotations

from tests.acceptance.harness import Cluster, Person
from tests.acceptance.terminal import INTERRUPT, Terminal

ONE = "-l /resource_id=1"
TERM = {"TERM": "xterm"}


def test_jobs_appear_are_explained_read_and_deleted_by_keys(cluster: Cluster, alice: Person) -> None:
    with Terminal(alice, "oarstat --top", TERM) as terminal:
        terminal.expect(r"jobs of alice")
        terminal.expect(r"No jobs\.")
        job = alice.submit(f"{ONE} -n fem 'echo hello from the job; sleep 1000'")
        terminal.expect(rf" {job} R fem ")  # by itself
        terminal.press("\r")
        terminal.expect(rf"Job {job}\b")
        terminal.expect(r"q back")
        terminal.press("q")
        terminal.expect(rf" {job} R fem ")
        terminal.press("l")
        terminal.expect(r"hello from the job")
        terminal.press("qd")
        terminal.expect(rf"Delete job {job}\? \[y/N\]")
        terminal.press("n")
        terminal.expect(r"e explain")
        assert cluster.state(job) == "Running"
        terminal.resize(12, 60)
        terminal.expect(rf" {job} R fem ")
        terminal.press("dy")
        terminal.expect(rf"Job {job} will be deleted\.")
        terminal.expect(r"No jobs\.")
        terminal.press("h")
        terminal.expect(r"page down")
        terminal.press("qq")
        assert terminal.exit() == 0
    cluster.wait_for_state(job, "Error")


def test_jobs_of_others_cannot_be_deleted_or_read(cluster: Cluster, alice: Person) -> None:
    job = cluster.as_user("bob").submit(f"{ONE} 'sleep 1000'")
    cluster.wait_for_start(job)
    with Terminal(alice, "oarstat --top", TERM) as terminal:
        terminal.expect(r"jobs of alice")
        terminal.press("a")
        terminal.expect(rf" {job} R bob ")
        terminal.press("dy")
        terminal.expect(rf"Cannot delete {job}")
        terminal.press(INTERRUPT)
        assert terminal.exit() == 0
    assert cluster.state(job) == "Running"


def test_without_a_terminal_it_is_one_clear_line(alice: Person) -> None:
    done = alice.attempt("oarstat --top")
    assert (done.code, done.out) == (1, "")
    assert done.err == "# Error: --top needs a terminal: use oarstat, or oarstat --watch.\n"
    refused = alice.attempt("oarstat --top -J")
    assert "--top can only be combined with --user" in refused.err
