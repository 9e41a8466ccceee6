"""What a site chooses beside OAR: nodes that check themselves, plain ssh into jobs, nodes that are switched off."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from machines.roots import MachineError
from machines.site import Site, wait_until

from tests.site.conftest import NEXT, NEXT_VERSION, SOURCES
from tests.site.steps import all_alive, block, kept, reconfigured, submit, wait_for

_SSH = "ssh -oBatchMode=yes -oStrictHostKeyChecking=accept-new node-1"
_KEY = ".ssh/id_ed25519"
_WHOLE = """-l nodes=1,walltime=0:30 -p "network_address='node-1'" """


@pytest.fixture
def login(site: Site) -> Iterator[Site]:
    """Alice has a key with which she may log in to the nodes, which may refuse her as often as they want."""
    frontend, nodes = site["frontend"], [site["node-1"], site["node-2"]]
    for node in nodes:
        node.write("/etc/ssh/sshd_config.d/oar-frontends.conf", block("refused users"))
        node.run("systemctl reload ssh.service")
    make = f"mkdir -m 700 .ssh && ssh-keygen -q -t ed25519 -N '' -f {_KEY} && cp {_KEY}.pub .ssh/authorized_keys"
    frontend.run(make, user="alice")
    yield site
    frontend.run("rm -rf .ssh", user="alice")
    for node in nodes:
        node.run("rm /etc/ssh/sshd_config.d/oar-frontends.conf; systemctl reload ssh.service")


def test_a_node_that_finds_a_fault_is_suspected_until_somebody_removes_what_it_found(site: Site) -> None:
    node, server = site["node-2"], site["server"]
    node.write("/etc/oar/check.d/disk", block("a check of a node"))
    node.write("/etc/oar/check.d/flag", '#!/bin/sh\n[ ! -e /root/broken ] || echo broken >"$CHECKLOGFILE"\n')
    node.run("chmod 755 /etc/oar/check.d/*; touch /root/broken; systemctl enable --now oar-nodecheck.timer")
    with reconfigured(server, block("the checker asks the nodes")):
        server.run("systemctl reload oar-server.service")
        node.run("systemctl start oar-nodecheck.service")
        assert "flag." in node.run("/usr/lib/oar/oarnodechecklist")
        wait_until(lambda: "Suspected" in server.run("oarnodes -s"))
        assert "the checker of the site finds it bad" in server.run("oarnodes -e 'last 9' node-2")
        node.run("rm /root/broken /var/lib/oar/checklogs/flag.*")
        wait_until(lambda: all_alive(site["frontend"]))
    node.run("systemctl disable --now oar-nodecheck.timer; rm /etc/oar/check.d/*")


def test_plain_ssh_leads_into_a_job_and_ends_with_it(login: Site) -> None:
    node, frontend = login["node-1"], login["frontend"]
    with kept(node, "/etc/pam.d/sshd"):
        node.run("cat >> /etc/pam.d/sshd", stdin=block("plain ssh into jobs"))
        node.write("/etc/profile.d/oar_job.sh", block("variables of plain ssh"))
        assert "pam_oar_adopt is disabled" in frontend.run(f"{_SSH} true 2>&1", user="alice")
        node.run("touch /etc/oar/pam_oar_adopt_enabled")
        refused = frontend.attempt(f"{_SSH} id", user="alice")
        assert refused.code == 255
        assert "no running job found for alice" in refused.out + refused.err
        job = submit(login, f"{_WHOLE} 'exec sleep 1000'")
        wait_for(login, job, "Running")
        assert f"/oar/alice_{job}/" in frontend.run(f"{_SSH} cat /proc/self/cgroup", user="alice")
        assert frontend.run(f"{_SSH} '. /etc/profile.d/oar_job.sh; echo $OAR_JOB_ID'", user="alice").split()[-1] == job
        frontend.run("echo text > sent; scp -q -oBatchMode=yes sent node-1:/tmp/sent.alice", user="alice")
        assert node.run("cat /tmp/sent.alice") == "text\n"
        frontend.run(f"{_SSH} 'setsid sleep 2000 >/dev/null 2>&1 &'", user="alice")
        node.run("pgrep -u alice -f 'sleep 2000'")
        frontend.run(f"oardel {job}", user="alice")
        wait_for(login, job, "Error")
        wait_until(lambda: node.attempt("pgrep -u alice").out == "")
        assert frontend.attempt(f"{_SSH} id", user="alice").code == 255
    node.run("rm /etc/oar/pam_oar_adopt_enabled /etc/profile.d/oar_job.sh")


def test_a_list_lets_in_who_has_a_job(login: Site) -> None:
    node, frontend = login["node-1"], login["frontend"]
    with kept(node, "/etc/pam.d/sshd"):
        node.run("cat >> /etc/pam.d/sshd", stdin=block("access by a list"))
        node.write("/etc/security/access_cluster.conf", block("access list"))
        for name in ("prologue", "epilogue"):
            node.run(f"install -m 755 /usr/share/oar/examples/access_{name} /var/lib/oar/oar_{name}")
        assert frontend.attempt(f"{_SSH} id", user="alice").code == 255
        job = submit(login, f"{_WHOLE} 'exec sleep 1000'")
        wait_for(login, job, "Running")
        assert "alice" in frontend.run(f"{_SSH} id", user="alice")
        frontend.run(f"oardel {job}", user="alice")
        wait_for(login, job, "Error")
        assert frontend.attempt(f"{_SSH} id", user="alice").code == 255
    node.run("rm /var/lib/oar/oar_prologue /var/lib/oar/oar_epilogue /etc/security/access_cluster.conf*")


def test_the_server_lets_users_in_on_nodes_that_they_have_as_a_whole(login: Site) -> None:
    server, frontend, nodes = login["server"], login["frontend"], [login["node-1"], login["node-2"]]
    for node in nodes:
        node.run("cp -a /etc/pam.d/sshd /root/pam.kept; cat >> /etc/pam.d/sshd", stdin=block("access by a list"))
        node.write("/etc/security/access_cluster.conf", block("access list"))
    with reconfigured(server, block("access by the server")):
        server.run("systemctl reload oar-server.service")
        part = submit(login, """-l core=1,walltime=0:30 -p "network_address='node-1'" 'exec sleep 1000'""")
        wait_for(login, part, "Running")
        assert frontend.attempt(f"{_SSH} id", user="alice").code == 255
        frontend.run(f"oardel {part}", user="alice")
        wait_for(login, part, "Error")
        whole = submit(login, "-l nodes=2,walltime=0:30 'exec sleep 1000'")
        wait_for(login, whole, "Running")
        assert all(f"+ : alice : ALL #{whole}" in node.run("cat /etc/security/access_cluster.conf") for node in nodes)
        assert "alice" in frontend.run(f"{_SSH} id", user="alice")
        frontend.run(f"oardel {whole}", user="alice")
        wait_for(login, whole, "Error")
        assert frontend.attempt(f"{_SSH} id", user="alice").code == 255
    for node in nodes:
        assert node.run("cat /etc/security/access_cluster.conf") == block("access list")
        node.run("mv /root/pam.kept /etc/pam.d/sshd; rm /etc/security/access_cluster.conf*")


def test_an_agent_is_a_service_of_its_computer(site: Site) -> None:
    server = site["server"]
    is_next = server.run("dpkg-query -W -f '${Version}' oar-common").startswith(NEXT_VERSION)
    packages = NEXT if is_next else f"{SOURCES}/packages"
    server.run(f"DEBIAN_FRONTEND=noninteractive apt-get -y install {packages}/oar-{{api,agent}}_*.deb")
    server.run("systemctl enable --now oar-api.service")
    for line in block("a desktop computer").splitlines()[:1]:
        server.run(line.removeprefix("root# "))
    server.run("oar-token create --agent desk-1 > desk-1.token")
    for line in block("a service of an agent").splitlines():
        server.run(line.removeprefix("desk-1# ").replace("https://oar.example.org/", "-i 1 http://127.0.0.1:6668"))
    job = submit(site, "-t desktop_computing -l nodes=1,walltime=0:05 'id -un'")
    wait_for(site, job, "Terminated", "Error")
    assert site["frontend"].run(f"oarstat --explain {job}", user="alice").count("exit status 0") == 1
    server.run("systemctl stop oar-agent.service")
    wait_until(lambda: "Absent" in server.run("oarnodes -s desk-1"))
    server.run("systemctl disable --now oar-api.service; oarnodesetting -s Dead -h desk-1")
    wait_until(lambda: "Dead" in server.run("oarnodes -s desk-1"))
    number = server.run("oarnodes -r --json --sql \"network_address = 'desk-1'\"").split('"')[1]
    server.run(f"oarremoveresource {number}")


def test_the_example_switches_a_node_off(site: Site) -> None:
    server = site["server"]
    server.run("oarnodesetting -s Absent -h node-2")
    server.run("echo node-2 | sudo -u oar /usr/share/oar/examples/shut_down_nodes.sh")
    wait_until(lambda: is_off(site, "node-2"))
    assert server.attempt("echo node-9 | sudo -u oar /usr/share/oar/examples/shut_down_nodes.sh").code == 1
    site["node-2"].pull_plug()
    site["node-2"].boot()
    server.run("oarnodesetting -s Alive -h node-2")
    wait_until(lambda: all_alive(site["frontend"]))


def is_off(site: Site, name: str) -> bool:
    """Whether a machine has gone off by itself."""
    try:
        site.pid(name)
    except MachineError:
        return True
    return False
