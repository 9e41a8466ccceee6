"""oarsh and oarcp from inside a job, over the shipped sshd configuration and sudo rules, into oarsh_shell."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.process.node_box import ACCOUNTS, NODE, NodeBox
from tests.process.this_machine import free_ports, wait_until

SHIPPED = Path(__file__).resolve().parents[2] / "setup" / "nodes" / "sshd_config"
OAR_CONF = """
OAR_RUNTIME_DIRECTORY="{runtime}"
CPUSET_PATH="{cpuset_path}"
OPENSSH_CMD="/usr/bin/ssh -p {port} -e none"
OARSH_OARSTAT_CMD="{oarstat}"
"""


class Site:
    """A box with the dedicated sshd, keys and configuration of a node."""

    def __init__(self, box: NodeBox) -> None:
        self.box = box
        self.port = free_ports(1, "127.0.0.11")[0]
        self.oarstat = box.base / "oarstat"
        key = box.base / "host_key"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
        text = re.sub(r"(?m)^Port .*", f"Port {self.port}\nListenAddress 127.0.0.1", SHIPPED.read_text())
        (box.base / "sshd_config").write_text(re.sub(r"(?m)^HostKey .*", f"HostKey {key}", text))
        self._make_oarsh_key()
        values = {"runtime": box.runtime, "cpuset_path": box.cpuset_path, "port": self.port, "oarstat": self.oarstat}
        (box.base / "oar.conf").write_text(OAR_CONF.format(**values))
        box.sh(
            f"cp {box.base}/oar.conf /etc/oar/oar.conf; /usr/sbin/sshd -E {box.base}/sshd.log -f {box.base}/sshd_config"
        )

    def _make_oarsh_key(self) -> None:
        ssh = self.box.home("oar") / ".ssh"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(ssh / "oarsh_key")], check=True)
        public = (ssh / "oarsh_key.pub").read_text()
        options = f'command="{self.box.oardir}/oarsh_shell --oarsh",environment="OAR_KEY=0",restrict,pty,X11-forwarding'
        (ssh / "authorized_keys").write_text(f"{options} {public}")
        self.box.sh(f"chown oar:oar {ssh}/*; chmod 600 {ssh}/*")

    def oarsh(self, words: str, user: str = "alice", **environment: str) -> "subprocess.CompletedProcess[str]":
        """Run oarsh as a user outside any job."""
        return self.box.run_as(user, f"{self.box.oardir}/oarsh {words}", **environment)

    def hit(self, name: str, options: str) -> int:
        """Send a signal to a session of alice once it is there, as her terminal would; what it ended with."""
        home, oarsh = self.box.home("alice"), f"{self.box.oardir}/oarsh"
        as_alice = f"setpriv --reuid=alice --regid=alice --init-groups env HOME={home} DISPLAY=:77"
        said = self.box.sh(f"""
            rm -f {home}/there
            {as_alice} xauth -q add $(hostname)/unix:77 MIT-MAGIC-COOKIE-1 {"ab" * 16}
            {as_alice} {oarsh} {options} {NODE} 'touch there; sleep 1000' & caller=$!
            while [ ! -e {home}/there ]; do sleep 0.05; done
            kill -{name} $(pgrep -u oar -f '^/usr/bin/python3 -I {oarsh} ')
            wait $caller; echo $?""")
        return int(said)

    def left(self) -> str:
        """What sessions have left in the home of oar."""
        return self.box.sh(f"cd {self.box.home('oar')} && ls -d .oarsh-* 2>/dev/null || true")

    def in_job(self, job_id: int, command: str, **more: Any) -> str:
        """Run a command as a job of alice; what it wrote."""
        job = self.box.job_data(job_id, command=command, stdout_file="said", stderr_file="said", **more)
        self.box.start(job)
        self.box.ended(job)
        return (self.box.home("alice") / "said").read_text()


@pytest.fixture(scope="module")
def shared_site(shared_box: NodeBox) -> Site:
    return Site(shared_box)


@pytest.fixture
def site(shared_site: Site, box: NodeBox) -> Iterator[Site]:
    yield shared_site
    shared_site.oarstat.unlink(missing_ok=True)


def test_a_job_reaches_its_nodes_as_its_user_in_its_group_with_its_environment(site: Site) -> None:
    oarsh = f"{site.box.oardir}/oarsh"
    remote = (
        "id -un; pwd; cat /proc/self/cpuset; grep freezer /proc/self/cgroup; echo $OAR_JOB_ID $OAR_JOB_NAME; exit 7"
    )
    said = site.in_job(1, f"{oarsh} {NODE} '{remote}'; echo $?", job_name="it's $x").splitlines()
    group = f"{site.box.cpuset_path}/alice_1"
    assert said[:3] == ["alice", str(site.box.home("alice")), group]
    assert re.fullmatch(rf"[0-9]+:freezer:{group}/payload/s[0-9]+", said[3])
    assert said[4:] == ["1 it's $x", "7"]


def test_a_caller_who_lets_nobody_read_what_he_makes_spoils_nothing_for_the_next_one(site: Site) -> None:
    known = site.box.home("oar") / ".ssh/known_hosts"
    known.unlink(missing_ok=True)
    said = site.in_job(8, f"umask 777; {site.box.oardir}/oarsh {NODE} true; echo $?")
    assert said.split() == ["0"]
    assert known.stat().st_mode & 0o777 == 0o600


def test_variables_that_a_user_gave_to_his_job_are_on_all_its_nodes(site: Site) -> None:
    value = 'it\'s "two"\n lines = é $HOME'
    said = site.in_job(4, f"{site.box.oardir}/oarsh {NODE} 'printf %s \"$MINE\"'", job_env={"MINE": value})
    assert said == value


def test_sessions_are_told_the_gpus_of_their_node_and_of_the_part_that_they_ask_for(site: Site) -> None:
    resource = {"resource_id": 7, "type": "default", "network_address": NODE, "cpuset": "0", "gpudevice": "2,3"}
    show = f"{site.box.oardir}/oarsh {NODE} 'echo $CUDA_VISIBLE_DEVICES'"
    said = site.in_job(6, f"{show}; OAR_USER_GPUDEVICE=3 {show}; OAR_USER_GPUDEVICE=5 {show}", resources=[resource])
    warning = "Warning: Failed to set user devices as requested by OAR_USER_GPUDEVICE=5, use the default one"
    assert [line for line in said.splitlines() if line != warning] == ["2,3", "0", "2,3"]
    assert said.count(warning) == 1


def test_sessions_have_what_starts_mpi_programs_over_oarsh(site: Site) -> None:
    show = "echo $OMPI_MCA_plm_rsh_agent $PRTE_MCA_plm_ssh_agent $HYDRA_LAUNCHER_EXEC $HYDRA_HOST_FILE"
    said = site.in_job(7, f"{show}; {site.box.oardir}/oarsh {NODE} '{show}'")
    assert said.splitlines() == [f"oarsh oarsh oarsh {site.box.runtime}/7"] * 2


@pytest.mark.parametrize("program", ["oarcp", "scp -S {oarsh}", "scp -O -S {oarsh}"])
def test_files_are_copied_between_the_nodes_of_a_job(site: Site, program: str) -> None:
    home = site.box.home("alice")
    (home / "copy").unlink(missing_ok=True)
    (home / "it's here").write_text("content")
    copy = program.format(oarsh=f"{site.box.oardir}/oarsh")
    command = f'PATH={site.box.oardir}:$PATH; {copy} -q "it\'s here" {NODE}:{home}/copy && cat copy'
    assert site.in_job(2, command) == "content"
    assert (home / "copy").stat().st_uid == ACCOUNTS["alice"]


def test_a_session_dies_with_its_job(site: Site) -> None:
    job = site.box.job_data(3, command=f"{site.box.oardir}/oarsh {NODE} 'touch there; sleep 1000'")
    site.box.start(job)
    wait_until((site.box.home("alice") / "there").exists)
    site.box.ctl(job, "TERM")
    assert site.box.ended(job)["code"] == 3
    wait_until(lambda: "sleep" not in site.box.sh("ps -o state=,args= -u alice || true"))
    wait_until(lambda: site.box.sh("pgrep -f '[s]shd: oar' || true") == "")


def test_the_caller_s_job_must_be_his_own(site: Site) -> None:
    outside = site.oarsh(NODE)
    assert (outside.returncode, outside.stderr) == (
        6,
        "oarsh: Cannot connect. Please set either a job id or a job key in your\n"
        "oarsh: environment using the OAR_JOB_ID or the OAR_JOB_KEY_FILE variable.\n",
    )
    no_oarstat = site.oarsh(NODE, OAR_JOB_ID="4")
    assert (no_oarstat.returncode, no_oarstat.stderr) == (5, "oarsh: Cannot connect using job id from this host.\n")


def test_a_job_id_is_looked_up_with_oarstat_and_must_be_the_caller_s(site: Site) -> None:
    site.oarstat.write_text(
        '#!/bin/sh\n[ "$1 $2" = "-fj 5" ] && printf "    owner = alice\\n    cpuset_name = alice_5\\n"\n'
    )
    site.oarstat.chmod(0o755)
    job = site.box.job_data(5, command="sleep 1000")
    site.box.start(job)
    good = site.oarsh(f"{NODE} cat /proc/self/cpuset", OAR_JOB_ID="5")
    assert (good.stdout, good.returncode) == (f"{site.box.cpuset_path}/alice_5\n", 0), good.stderr
    other = site.oarsh(NODE, "bob", OAR_JOB_ID="5")
    assert (other.returncode, other.stderr) == (5, "oarsh: Permission denied, seems like job 5 is not yours.\n")
    unknown = site.oarsh(NODE, OAR_JOB_ID="6")
    assert (unknown.returncode, unknown.stderr) == (5, "oarsh: Cannot retrieve the job cpuset name for job id: 6\n")
    strange = site.oarsh(NODE, OAR_JOB_ID="5;x")
    assert (strange.returncode, strange.stderr) == (5, "oarsh: Invalid job id: 5;x\n")


def test_a_job_key_opens_its_job_and_no_other(site: Site) -> None:
    key = site.box.home("alice") / "key"
    site.box.sh(f"ssh-keygen -q -t ed25519 -N '' -f {key}", user="alice")
    keys = {
        "public": {"file_name": ".ssh/authorized_keys_jobs", "key": key.with_suffix(".pub").read_text()},
        "private": {"file_name": "", "key": key.read_text()},
    }
    first, second = site.box.job_data(7, command="sleep 1000"), site.box.job_data(8, command="sleep 1000")
    first["init"] |= {"ssh_keys": keys, "options": {"oardir": str(site.box.oardir)}}
    site.box.start(first)
    site.box.start(second)
    site.box.sh(f"chmod 600 {key}")
    opened = site.oarsh(f"{NODE} 'cat /proc/self/cpuset; echo $OAR_JOB_ID'", OAR_JOB_KEY_FILE=str(key), OAR_JOB_ID="8")
    assert opened.stdout == f"{site.box.cpuset_path}/alice_7\n7\n", opened.stderr
    assert site.oarsh(f"-i {key} {NODE} true").returncode == 0
    assert [site.hit(name, f"-X -i {key}") for name in ("HUP", "TERM")] == [129, 143]
    assert site.left() == ""
    unreadable = site.oarsh(f"{NODE} true", "bob", OAR_JOB_KEY_FILE=str(key))
    assert (unreadable.returncode, unreadable.stderr) == (3, f"oarsh: Failed to read job key: {key}.\n")
    site.box.jrm("clean", first["init"])
    assert site.oarsh(f"{NODE} true", OAR_JOB_KEY_FILE=str(key)).returncode == 255


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        ("-Z host", 7, "oarsh: unknown option -Z\n"),
        ("", 7, "oarsh: cannot retrieve host\n"),
        ("-v", 7, "oarsh: cannot retrieve host\n"),
        ("-- -oProxyCommand=x", 7, "oarsh: '-oProxyCommand=x' is not the name of a host\n"),
        ("'a b'", 7, "oarsh: 'a b' is not the name of a host\n"),
    ],
)
def test_a_wrong_command_line_is_refused(site: Site, words: str, code: int, text: str) -> None:
    done = site.oarsh(words)
    assert (done.returncode, done.stderr) == (code, text)


def test_how_they_are_used_is_told(site: Site) -> None:
    for words in ("-h", "--help"):
        done = site.oarsh(words)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("Usage: oarsh [SSH OPTIONS] HOST [COMMAND]\n")
        assert site.box.sh(f"{site.box.oardir}/oarcp {words}").startswith("Usage: oarcp [SCP OPTIONS] ")


def test_options_that_would_act_with_oar_s_rights_are_dropped(site: Site) -> None:
    oarsh = f"{site.box.oardir}/oarsh -v -l eve -oProxyCommand=/bin/false -F /etc/shadow -L1:x:1 root@{NODE} -q id -un"
    said = site.in_job(9, oarsh)
    for option in ("-l eve", "-o ProxyCommand=/bin/false", "-F /etc/shadow", "-L 1:x:1"):
        assert f"debug oarsh: filtered out {option}\n" in said
    assert "\nalice\n" in said


def test_a_user_s_own_configuration_and_path_rule_nothing_that_runs_as_oar(site: Site) -> None:
    home = site.box.base / "everybody"
    home.mkdir()
    home.chmod(0o1777)
    for name in ("ssh", "sudo"):
        (home / name).write_text(f"#!/bin/sh\nid -un >>{home}/ran\n")
        (home / name).chmod(0o755)
    (home / "own.conf").write_text(
        f'OPENSSH_CMD="{home}/ssh"\nOARSH_OARSTAT_CMD="{home}/ssh"\nGET_CURRENT_CPUSET_CMD="{home}/ssh"\n'
        "OARSH_BYPASS_WHOLE_SECURITY=1\n"
    )
    as_oar = f"sudo -n -H -u oar {site.box.oardir}/oarsh {NODE} true"
    path = f"PATH={home}:/usr/bin:/bin"
    done = site.box.run_as("alice", f"{path} /usr/bin/{as_oar}", OARCONFFILE=f"{home}/own.conf", OAR_JOB_ID="4")
    assert (done.returncode, done.stderr) == (5, "oarsh: Cannot connect using job id from this host.\n")
    assert site.oarsh(f"{NODE} true", OARCONFFILE=f"{home}/own.conf").returncode == 6
    assert not (home / "ran").exists()


def test_a_user_need_not_be_able_to_read_the_configuration_of_a_frontend(site: Site) -> None:
    site.box.sh("chown root:oar /etc/oar/oar.conf; chmod 640 /etc/oar/oar.conf")
    try:
        assert "either a job id or a job key" in site.oarsh(NODE).stderr
    finally:
        site.box.sh("chmod 644 /etc/oar/oar.conf")


def enter(site: Site, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Come in with the oarsh key and variables of one's own choice, as a broken-into frontend could."""
    key, home = site.box.home("oar") / ".ssh" / "oarsh_key", site.box.home("oar")
    words = f"ssh -q -p {site.port} -i {key} -oUserKnownHostsFile={home}/known -oStrictHostKeyChecking=no"
    return site.box.run_as("oar", f"{words} -oSendEnv='{' '.join(variables)}' {NODE} id -un", **variables)


def test_what_the_client_says_is_checked_on_the_node(site: Site) -> None:
    job = site.box.job_data(10, command="sleep 1000")
    site.box.start(job)
    cpuset = f"{site.box.cpuset_path}/alice_10"
    good = {"OAR_CPUSET": cpuset, "OAR_JOB_USER": "alice", "OAR_JOB_ID": "10"}
    assert enter(site, **good).stdout == "alice\n"
    for change, code in (
        ({"OAR_JOB_USER": "bob"}, 61),
        ({"OAR_JOB_USER": "root"}, 67),
        ({"OAR_JOB_USER": "oar"}, 67),
        ({"OAR_JOB_USER": "daemon"}, 61),
        ({"OAR_JOB_USER": "nobody_here"}, 67),
        ({"OAR_JOB_USER": "../alice"}, 67),
        ({"OAR_CPUSET": f"{site.box.cpuset_path}/alice_11"}, 61),
        ({"OAR_CPUSET": "/"}, 61),
        ({"OAR_CPUSET": "undef"}, 61),
        ({"OAR_CPUSET": ""}, 63),
        ({"OAR_JOB_ID": "11"}, 61),
        ({"OAR_JOB_ID": "10; id"}, 61),
        ({"OAR_JOB_USER": ""}, 65),
    ):
        done = enter(site, **(good | change))
        assert (done.returncode, done.stdout) == (code, ""), (change, done.stderr)


def test_a_user_may_ask_for_a_part_of_his_job(site: Site) -> None:
    job = site.box.job_data(11, command="sleep 1000")
    job["init"]["nodes"] = {NODE: ["0", "1"]}
    site.box.start(job)
    site.oarstat.write_text('#!/bin/sh\nprintf "    owner = alice\\n    cpuset_name = alice_11\\n"\n')
    site.oarstat.chmod(0o755)
    asked = site.oarsh(f"{NODE} nproc", OAR_JOB_ID="11", OAR_USER_CPUSET="1")
    assert asked.stdout == "1\n", asked.stderr
    outside = site.oarsh(f"{NODE} nproc", OAR_JOB_ID="11", OAR_USER_CPUSET="9")
    assert outside.stdout == "2\n"
    assert "Warning: Failed to set user cpuset as requested by OAR_USER_CPUSET=9, use the default one" in outside.stderr


def test_the_main_session_of_an_interactive_job_ends_it(site: Site) -> None:
    job = site.box.job_data(12, mode="INTERACTIVE", command=None)
    site.box.start(job)
    variables = {
        "OAR_CPUSET": f"{site.box.cpuset_path}/alice_12",
        "OAR_JOB_USER": "alice",
        "OAR_JOB_ID": "12",
        "OAR_SESSION": "main",
    }
    assert enter(site, **variables).stdout == "alice\n"
    ended = site.box.ended(job)
    assert (ended["code"], ended["status"]) == (34, "N")


def test_the_server_s_key_gives_a_plain_shell_that_reads_no_start_up_file(site: Site) -> None:
    (site.box.home("oar") / ".profile").write_text("echo read\n")
    done = site.box.run_as("oar", f"{site.box.oardir}/oarsh_shell -c 'echo $0; id -un'", OAR_KEY="1")
    assert done.stdout == "/bin/sh\noar\n"
    refused = site.box.run_as("oar", f"{site.box.oardir}/oarsh_shell -c 'id -un'")
    assert refused.returncode == 65
    assert refused.stderr == (
        "oarsh: The OAR_KEY environment variable is not defined and this seems to be a oar user connection.\n"
    )
