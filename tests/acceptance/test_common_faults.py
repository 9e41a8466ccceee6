"""What several nodes need fails for a while: no node is blamed, and OAR goes on by itself when it works again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tests.acceptance.harness import Cluster, configured, wait_until
from tests.acceptance.mailbox import mail_server

#: What each node sees of the accounts of the site, in place of its own file: two of them are gone.
_TAKE_AWAY = """
    grep -v -e '^alice:' -e '^bob:' /etc/passwd >/run/passwd
    mount --bind /run/passwd /etc/passwd"""


@contextlib.contextmanager
def without_directory(cluster: Cluster) -> Iterator[None]:
    """In here no node knows alice and bob, as if the name service were down."""
    for node in cluster.nodes:
        node.as_user("root").run(_TAKE_AWAY)
    try:
        yield
    finally:
        for node in cluster.nodes:
            node.as_user("root").run("umount /etc/passwd")


def resource_states(cluster: Cluster) -> set[str]:
    """The states of the resources."""
    return {row[0] for row in cluster.sql("SELECT DISTINCT state FROM resources")}


def test_a_minute_without_the_directory_holds_its_users_and_nobody_else(cluster: Cluster) -> None:
    cluster.server.do("stop")
    cluster.sql("DELETE FROM outbox")  # mails of earlier tests, which had no mail server
    cluster.server.do("start")
    with mail_server(cluster) as post:
        with without_directory(cluster):
            for user in ("alice", "bob"):
                cluster.as_user(user).submit_all("-l /nodes=1/core=1 true")
                wait_until(
                    lambda: cluster.sql("SELECT count(*) FROM launch_holds WHERE confirmed = 'YES'")[0][0] != "0",
                    lambda: f"held: {cluster.sql('SELECT * FROM launch_holds')}",
                )
            local = cluster.as_user("carol").submit("-l /nodes=1/core=1 true")
            cluster.wait_for_state(local, "Terminated")
            wait_until(
                lambda: cluster.sql("SELECT count(*) FROM launch_holds WHERE confirmed = 'YES'") == [["2"]],
                "both users are held",
            )
            assert resource_states(cluster) == {"Alive"}
            waiting = cluster.sql("SELECT job_id FROM jobs WHERE state = 'Waiting' AND resubmit_job_id <> 0")
            assert len(waiting) == 2
            explained = cluster.as_user("alice").run(f"oarstat --explain {waiting[0][0]}")
            assert "the account alice is unknown" in explained
            wait_until(lambda: post.to("root@server"), "the administrator has a mail")
        cluster.sql("UPDATE launch_holds SET next_try = 0")  # the pause is over
        for (job,) in waiting:
            cluster.wait_for_state(int(job), "Terminated")
        assert resource_states(cluster) == {"Alive"}
        assert cluster.sql("SELECT * FROM launch_holds") == []

        def subjects() -> list[str]:
            return [subject for subject, _ in post.to("root@server")]

        wait_until(lambda: sum("Launches of " in subject for subject in subjects()) == 1, subjects)


def test_a_node_that_alone_does_not_know_an_account_is_suspected_and_comes_back(cluster: Cluster) -> None:
    node = cluster.node("node-1")
    node.as_user("root").run(_TAKE_AWAY)
    try:
        job = cluster.as_user("alice").submit("-p \"network_address = 'node-1'\" -l /core=1 true")
        other = cluster.as_user("alice").submit("-p \"network_address = 'node-2'\" -l /core=1 true")
        cluster.wait_for_state(job, "Error")
        wait_until(lambda: resource_states(cluster) == {"Alive", "Suspected"}, "node-1 is Suspected")
        cluster.wait_for_state(other, "Terminated")
    finally:
        node.as_user("root").run("umount /etc/passwd")
    wait_until(lambda: resource_states(cluster) == {"Alive"}, "Finaud has checked the account again")
    (copy,) = cluster.sql(f"SELECT job_id FROM jobs WHERE resubmit_job_id = {job}")
    cluster.wait_for_state(int(copy[0]), "Terminated")


def test_a_server_prologue_that_fails_for_a_while_stops_no_queue(cluster: Cluster) -> None:
    cluster.as_user("root").run("printf '#!/bin/sh\\nexit 3\\n' >/etc/oar/prologue.sh; chmod 755 /etc/oar/prologue.sh")
    with configured(cluster, 'SERVER_PROLOGUE_EXEC_FILE="/etc/oar/prologue.sh"'):
        job = cluster.as_user("alice").submit("-l /core=1 true")
        cluster.wait_for_state(job, "Error")
        (copy,) = cluster.sql(f"SELECT job_id FROM jobs WHERE resubmit_job_id = {job}")
        assert cluster.sql("SELECT DISTINCT state FROM queues") == [["Active"]]
        cluster.as_user("root").run("printf '#!/bin/sh\\nexit 0\\n' >/etc/oar/prologue.sh")
        cluster.sql("UPDATE launch_holds SET next_try = 0")
        cluster.wait_for_state(int(copy[0]), "Terminated")
        wait_until(lambda: cluster.sql("SELECT * FROM launch_holds") == [], "the hold has ended")
