"""Files, ports and editors: what people have elsewhere reaches into their jobs, and stays in them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.acceptance.harness import Cluster, Person, wait_until
from tests.documents import SOURCE, named_blocks

#: What the user guide tells people to write.
GUIDE = named_blocks(SOURCE / "docs" / "user-guide.rst")


@pytest.fixture
def alice(cluster: Cluster) -> Iterator[Person]:
    """Alice at the frontend, in an empty home."""
    person = cluster.as_user("alice")
    person.run("rm -rf ~/* ~/.ssh")
    yield person
    person.run("rm -rf ~/* ~/.ssh")


@pytest.fixture
def job(cluster: Cluster, alice: Person) -> int:
    """A job of hers that runs on the first node."""
    number = alice.submit("-p \"network_address = 'node-1'\" -l /resource_id=1,walltime=0:30 'sleep 1000'")
    cluster.wait_for_state(number, "Running")
    return number


@pytest.fixture
def own_sshd(alice: Person) -> Person:
    """Alice with the files of the guide, by which ssh finds its way into her jobs."""
    alice.run("mkdir -m 700 ~/.ssh")
    for name in ("job_sshd_config", "config"):
        alice.run(f"cat >~/.ssh/{name}", stdin=GUIDE[f".ssh/{name}"])
    alice.run("ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/job_host_key; ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/job_key")
    return alice


@pytest.mark.parametrize(
    ("send", "fetch"),
    [
        ("oarcp -q data/one node-1:there/one", "oarcp -q node-1:there/one back"),
        ("scp -q -S oarsh data/one node-1:there/one", "scp -q -S oarsh node-1:there/one back"),
        ("rsync -a -e oarsh data/ node-1:there/", "rsync -a -e oarsh node-1:there/one back"),
        ("echo put data/one there/one | sftp -q -S oarsh node-1", "echo get there/one back | sftp -q -S oarsh node-1"),
    ],
)
def test_files_are_copied_through_a_job_by_its_number(alice: Person, job: int, send: str, fetch: str) -> None:
    alice.run("mkdir data there; echo content >data/one")
    for command in (send, fetch):
        alice.run(command, env={"OAR_JOB_ID": str(job)})
    assert alice.run("cat there/one back") == "content\n" * 2


@pytest.mark.parametrize(
    "copy",
    [
        "scp -q data/one node-1:there/one",
        "rsync -a data/ node-1:there/",
        "echo put data/one there/one | sftp -q node-1",
        "tar c -C data one | ssh node-1 'tar x -C there'",
    ],
)
def test_plain_ssh_and_what_uses_it_reach_into_a_job(own_sshd: Person, job: int, copy: str) -> None:
    own_sshd.run("mkdir data there; echo content >data/one")
    own_sshd.run(copy, env={"OAR_JOB_ID": str(job)})
    assert own_sshd.run("cat there/one") == "content\n"


def test_what_an_editor_starts_by_ssh_is_in_the_job_and_ends_with_it(
    cluster: Cluster, own_sshd: Person, job: int
) -> None:
    """As an editor does: a server that stays when its session is left, and a forwarded port to it."""
    here = {"OAR_JOB_ID": str(job)}
    own_sshd.run("mkdir shown; echo content >shown/page")
    serve = "cd shown; setsid python3 -m http.server --bind 127.0.0.1 8123 >/dev/null 2>&1 </dev/null & echo $!"
    server = own_sshd.run(f"ssh node-1 '{serve}'", env=here).strip()
    assert own_sshd.run(f"ssh node-1 cat /proc/{server}/cpuset", env=here) == f"/oar/alice_{job}\n"
    get = "python3 -c \"import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:8124/page').read())\""
    forwarded = "ssh -f -o ExitOnForwardFailure=yes -L 8124:127.0.0.1:8123 node-1 'sleep 1000' >/dev/null 2>&1"
    own_sshd.run(forwarded, env=here)
    wait_until(lambda: own_sshd.attempt(get).out == "b'content\\n'\n", lambda: own_sshd.attempt(get))
    own_sshd.run(f"oardel {job}")
    cluster.wait_for_state(job, "Error")
    there = cluster.node("node-1").as_user("root")
    wait_until(lambda: there.attempt("pgrep -u alice").code == 1, "nothing of the job runs on its node")
    wait_until(lambda: own_sshd.attempt("pgrep -u alice -x ssh").code == 1)


def test_nobody_else_is_let_in(cluster: Cluster, own_sshd: Person, job: int) -> None:
    bob = cluster.as_user("bob")
    refused = bob.attempt("ssh -F ~alice/.ssh/config node-1 id", env={"OAR_JOB_ID": str(job)})
    assert refused.code == 255
    bob.run("mkdir -p -m 700 ~/.ssh; ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/other")
    way = "oarsh node-1 /usr/sbin/sshd -i -f ~/.ssh/job_sshd_config -h ~/.ssh/job_host_key"
    own_sshd.run("ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/other")
    other = f"ssh -F none -o StrictHostKeyChecking=no -o ProxyCommand='{way}' -i ~/.ssh/other node-1 id"
    assert "Permission denied (publickey)" in own_sshd.attempt(other, env={"OAR_JOB_ID": str(job)}).err
    bob.run("rm -rf ~/.ssh")
