"""oar-keys on the real cluster: nodes that lost their keys get them by the sshd that is still open."""

from __future__ import annotations

from tests.acceptance.harness import Cluster

SSH = "ssh -p 6667 -i /var/lib/oar/.ssh/id_ed25519 -o UserKnownHostsFile=/var/lib/oar/.ssh/known_hosts"


def test_a_node_that_lost_its_keys_gets_them_again(cluster: Cluster) -> None:
    node, root = cluster.nodes[0], cluster.as_user("root")
    there = node.as_user("root")
    before = there.run("cd /var/lib/oar/.ssh && cat authorized_keys oarsh_key oarsh_key.pub")
    there.run("cd /var/lib/oar/.ssh && sed -i '/oarsh_shell/d' authorized_keys && rm oarsh_key oarsh_key.pub")
    done = root.run(f"oar-keys --ssh '{SSH}' --node oar@{node.name}")
    assert f"oar@{node.name}: the keys are installed." in str(done)
    assert there.run("cd /var/lib/oar/.ssh && cat authorized_keys oarsh_key oarsh_key.pub") == before


def test_a_node_that_does_not_answer_is_one_line(cluster: Cluster) -> None:
    done = cluster.as_user("root").attempt("oar-keys --ssh 'ssh -p 1' --node 127.0.0.1")
    assert done.code == 1
    assert done.err.startswith("[ERROR] 127.0.0.1: ssh: connect to host 127.0.0.1 port 1: Connection refused")


def test_what_is_to_be_installed_is_printed_without_secrets(cluster: Cluster) -> None:
    printed = cluster.as_user("root").attempt("oar-keys --print")
    there = cluster.nodes[0].as_user("root").run("cat /var/lib/oar/.ssh/authorized_keys")
    assert printed.code == 0
    assert str(there).strip() in printed.out
    assert "PRIVATE" not in printed.out
