"""A node in a box: the node programs as real processes, with accounts, files and control groups of their own.

The box is a set of namespaces (mount, pid, ipc, host name) of this machine, with its own passwd file, /tmp and
run-time directory; the control groups are the machine's, below a directory named after the test process.
"""

import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Thread
from typing import Any

from oar.lib.remote.bootstrap import TOOLS
from oar.lib.remote.pool import Remote
from oar.lib.remote.requests import CommandRan, NodeRequest, Outcome, RemoteSettings
from oar.lib.remote.session import Dialogue
from oar.lib.remote.transports import LocalTransport
from tests.process.this_machine import wait_until

ACCOUNTS = {"oar": 5001, "alice": 5002, "bob": 5003}
NODE = "node1"
_INIT = """
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
print("ready", flush=True)
while True:
    signal.sigwait({signal.SIGCHLD})
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
"""
_SETUP = """
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs {base}/over
mkdir {base}/over/upper {base}/over/work
cp -r {base}/etc/. {base}/over/upper/
mount -t overlay -o lowerdir=/etc,upperdir={base}/over/upper,workdir={base}/over/work overlay /etc
for d in /tmp /var/tmp /dev/shm /run/sshd; do mount -t tmpfs -o mode=1777 tmpfs $d; done
chmod 755 /run/sshd
hostname {node}
exec {python} -c "$INIT"
"""
_NODES = Path(__file__).resolve().parents[2] / "setup" / "nodes"


class NodeBox:
    """One node; ``remote`` reaches it as the server would."""

    def __init__(self) -> None:
        remove_stale_boxes()
        self.base = Path(tempfile.mkdtemp(prefix=f"oar-box-{os.getpid()}-", dir="/run"))
        self.base.chmod(0o755)
        self.runtime = self.base / "runtime"
        self.cpuset_path = f"/oar_test_{os.getpid()}_{self.base.name[-8:]}"
        self.oardir = self.base / "lib"
        self._write_files()
        environment = dict(os.environ, INIT=_INIT)
        script = _SETUP.format(base=self.base, node=NODE, python=sys.executable)
        self._init = subprocess.Popen(
            [
                *("setpriv", "--pdeathsig", "KILL"),
                "unshare",
                "--mount",
                "--uts",
                "--ipc",
                "--pid",
                "--fork",
                "--kill-child",
                "--mount-proc",
                "sh",
                "-c",
                script,
            ],
            stdout=subprocess.PIPE,
            env=environment,
        )
        assert self._init.stdout is not None
        assert self._init.stdout.readline() == b"ready\n"
        children = Path(f"/proc/{self._init.pid}/task/{self._init.pid}/children").read_text()
        self.pid = int(children.split()[0])
        self.remote = self.new_remote()

    def new_remote(self) -> Remote:
        """Return another server's way to this node."""
        return Remote(RemoteSettings(), LocalTransport(self.enter()))

    def enter(self) -> list[str]:
        """Return the words before a command that is to run in the box."""
        return ["nsenter", "-t", str(self.pid), "-m", "-u", "-i", "-p"]

    def _write_files(self) -> None:
        """Write what the box has in /etc instead of this machine's, and the homes."""
        Path("/run/sshd").mkdir(exist_ok=True)
        for directory in ("over", "etc/oar", "etc/sudoers.d"):
            (self.base / directory).mkdir(parents=True)
        shutil.copytree(TOOLS, self.oardir, ignore=shutil.ignore_patterns("__pycache__"))
        passwd, group = Path("/etc/passwd").read_text(), Path("/etc/group").read_text()
        for name, uid in ACCOUNTS.items():
            home = self.home(name)
            home.mkdir(parents=True)
            (home / ".ssh").mkdir(mode=0o700)
            for path in (home, home / ".ssh"):
                os.chown(path, uid, uid)
            shell = self.oardir / "oarsh_shell" if name == "oar" else "/bin/bash"
            passwd += f"{name}:x:{uid}:{uid}::{home}:{shell}\n"
            group += f"{name}:x:{uid}:\n"
        files = {
            "passwd": passwd,
            "group": group + "oarsh:x:5009:alice,bob\n",
            "shadow": Path("/etc/shadow").read_text() + "".join(f"{name}:*:19000::::::\n" for name in ACCOUNTS),
            "hosts": f"127.0.0.1 localhost {NODE}\n",
            "sudoers.d/oar": (_NODES / "sudoers").read_text().replace("/usr/lib/oar", str(self.oardir)),
            "sudoers.d/oar-node": (_NODES / "sudoers-node").read_text(),
            "oar/oar.conf": f'OAR_RUNTIME_DIRECTORY="{self.runtime}"\nCPUSET_PATH="{self.cpuset_path}"\n',
        }
        for name, text in files.items():
            (self.base / "etc" / name).write_text(text)
        for file in (self.base / "etc/sudoers.d").iterdir():
            file.chmod(0o440)

    def home(self, name: str) -> Path:
        return self.base / "home" / name

    def run(self, program: str, action: str, data: Mapping[str, Any], seconds: float = 120) -> Outcome:
        return self.remote.run({NODE: NodeRequest(program, action, data)}, seconds)[NODE]

    def jrm(self, action: str, data: Mapping[str, Any]) -> CommandRan:
        outcome = self.run("job_resource_manager_cgroups", action, data)
        assert isinstance(outcome, CommandRan), outcome
        return outcome

    def ctl(self, job: Mapping[str, Any], name: str, **more: Any) -> int:
        data = {"job_id": job["job_id"], "tmp_directory": str(self.runtime), "signal": name, **more}
        outcome = self.run("oarexec", "ctl", data)
        assert isinstance(outcome, CommandRan), outcome
        return outcome.exit

    def probe(self, job: Mapping[str, Any], **more: Any) -> dict[str, Any]:
        """Ask the node what it knows of a job."""
        asked = {
            "job_id": job["job_id"],
            "name": f"{job['user']}_{job['job_id']}",
            "user": job["user"],
            "challenge": hashlib.sha256(job["challenge"].encode()).hexdigest(),
            "attempt": job["attempt"],
            **more,
        }
        data = {"oar_tmp_directory": str(self.runtime), "cpuset_path": self.cpuset_path, "jobs": [asked]}
        outcome = self.run("node_probe", "probe", data)
        assert isinstance(outcome, CommandRan), outcome
        assert outcome.exit == 0, outcome
        answer: dict[str, Any] = json.loads(outcome.lines[0])
        return answer

    @property
    def age(self) -> int:
        """How many seconds ago the node was booted."""
        return int(self.sh("ps -o etimes= -p 1"))

    def sh(self, script: str, user: str = "root") -> str:
        """Run a shell script in the box as a user; its output."""
        done = self.run_as(user, script)
        done.check_returncode()
        return done.stdout

    def run_as(self, user: str, script: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        """Run a shell script in the box as a user; how it ended."""
        words = [*self.enter(), "setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "env", "-i"]
        words += [f"PATH={os.environ['PATH']}", *(f"{name}={value}" for name, value in environment.items())]
        return subprocess.run([*words, "sh", "-c", script], check=False, capture_output=True, text=True, timeout=120)

    @contextlib.contextmanager
    def going_down(self) -> Iterator[None]:
        """In here the node looks as if systemd had begun to end its processes."""
        self.sh("echo systemd-shutdow >/tmp/first; mount --bind /tmp/first /proc/1/comm")
        try:
            yield
        finally:
            self.sh("umount /proc/1/comm; rm /tmp/first")

    def launch(self, job: Mapping[str, Any], remote: Remote | None = None) -> "Launch":
        """Start oarexec for a job as the Runner does."""
        return Launch((remote or self.remote).dialogue(NODE, NodeRequest("oarexec", "run", job), 120), job)

    def start(self, job: Mapping[str, Any]) -> None:
        """Start a job to the point where its command runs and oarexec is detached."""
        with self.launch(job) as launch:
            launch.until("oarexec is initialized and ready to do the job")
            launch.go()
            launch.until("STARTED")
            assert launch.end().exit == 0

    def ended(self, job: Mapping[str, Any]) -> dict[str, Any]:
        """Wait for the end of a job; what the node says of it then."""

        def answer() -> dict[str, Any] | None:
            found = self.probe(job)
            return found if found["answer"] == "ended" else None

        found: dict[str, Any] = wait_until(answer)
        return found

    def run_to_end(self, job: Mapping[str, Any]) -> dict[str, Any]:
        """Start a job and wait for its end; what the node says of it then."""
        self.start(job)
        return self.ended(job)

    def clean(self, job: Mapping[str, Any]) -> CommandRan:
        return self.jrm("clean", self.init_data(job["job_id"], job["user"]))

    def init_data(self, job_id: int = 1, user: str = "alice", **more: Any) -> dict[str, Any]:
        """Return data for ``init`` and ``clean`` of a job with processor 0."""
        resources = [{"resource_id": 7, "type": "default", "network_address": NODE, "cpuset": "0", "core": 1}]
        return {
            "job_id": job_id, "name": f"{user}_{job_id}", "user": user, "job_user": user, "nodes": {NODE: ["0"]},
            "cpuset_path": self.cpuset_path, "compute_thread_siblings": False, "ssh_keys": None,
            "oar_tmp_directory": str(self.runtime), "types": {}, "resources": resources,
            "node_file_db_fields": "network_address", "node_file_db_fields_distinct_values": "resource_id",
            "array_id": job_id, "array_index": 1, "stdout_file": "out", "stderr_file": "err",
            "launching_directory": str(self.home(user)), "job_name": "", "project": "default", "walltime": "1:0:0",
            "walltime_seconds": 3600, "attempt": 1, "options": {}, "job_env": {},
        } | more  # fmt: skip

    def job_data(self, job_id: int = 1, user: str = "alice", **more: Any) -> dict[str, Any]:
        """Return data for oarexec of a passive job, ``init`` included."""
        init = self.init_data(job_id, user)
        init |= {name: value for name, value in more.items() if name in init}
        return {
            "job_id": job_id, "array_id": job_id, "array_index": 1, "user": user, "job_user": user, "job_name": "",
            "project": "default", "types": {}, "reservation": "None", "mode": "PASSIVE", "command": "true",
            "stdout_file": "out", "stderr_file": "err", "launching_directory": str(self.home(user)), "job_env": {},
            "walltime": "1:0:0", "walltime_seconds": 3600, "challenge": "1234567890", "almighty_hostname": "127.0.0.1",
            "almighty_port": 9, "checkpoint_signal": 12, "pro_epi_timeout": 10, "tmp_directory": str(self.runtime),
            "detach_oarexec": 1, "cpuset_full_path": f"{self.cpuset_path}/{user}_{job_id}", "attempt": 1,
            "kill_grace": 0, "init": init,
        } | more  # fmt: skip

    def empty(self) -> None:
        """Remove all jobs and what their users made."""
        data = {"oar_tmp_directory": str(self.runtime), "cpuset_path": self.cpuset_path, "jobs": []}
        swept = self.jrm("sweep", data)
        assert swept.exit == 0, swept.stderr
        for name in ("alice", "bob"):
            for path in self.home(name).iterdir():
                if path.is_file() or path.is_fifo():
                    path.unlink()

    def files_of(self, job_id: int) -> set[str]:
        """Names in the runtime directory that name this job; a number of a process at their end does not."""
        return {path.name for path in self.runtime.iterdir() if re.search(rf"(^|_){job_id}(\.|_|$)", path.name)}

    def groups(self) -> list[Path]:
        """Return the directories of all control groups of this box, of every hierarchy."""
        found = [path for mount in Path("/sys/fs/cgroup").iterdir() for path in mount.glob(self.cpuset_path[1:] + "/*")]
        return [path for path in found if path.is_dir()]

    def close(self) -> None:
        self.remote.close()
        self._init.send_signal(signal.SIGKILL)
        self._init.wait()
        assert self._init.stdout is not None
        self._init.stdout.close()
        for mount in Path("/sys/fs/cgroup").iterdir():
            remove_groups(mount / self.cpuset_path[1:])
        shutil.rmtree(self.base)


class Launch:
    """The server's side of one launch."""

    def __init__(self, dialogue: Dialogue, job: Mapping[str, Any]) -> None:
        self.dialogue = dialogue
        self.job = job
        self.lines: list[str] = []

    def until(self, line: str) -> None:
        """Read lines up to one that must come."""
        while True:
            said = self.dialogue.receive(120)
            assert isinstance(said, str), (said, self.lines)
            self.lines.append(said)
            if said == line:
                return

    def go(self) -> None:
        self.dialogue.send(f"GO {self.job['attempt']}")

    def end(self) -> CommandRan:
        """Read the rest; how the request ended."""
        while True:
            said = self.dialogue.receive(120)
            if isinstance(said, CommandRan):
                return said
            assert said is not None, self.lines
            self.lines.append(said)

    def __enter__(self) -> "Launch":
        return self

    def __exit__(self, *_: object) -> None:
        self.dialogue.close()


def remove_groups(top: Path) -> None:
    """Remove a tree of control groups whose processes are about to end."""

    def removed() -> bool:
        for directory, _, _ in os.walk(top, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(directory)
        return not top.exists()

    wait_until(removed)


def remove_stale_boxes() -> None:
    """Remove what test processes that were killed could not: their boxes have ended with them."""
    found = [*Path("/run").glob("oar-box-*-*"), *Path("/sys/fs/cgroup").glob("*/oar_test_*")]
    for path in found:
        owner = path.name.replace("_", "-").split("-")[2]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            if path.is_relative_to("/run"):
                shutil.rmtree(path, ignore_errors=True)
                continue
            for directory, _, _ in os.walk(path, topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(directory)


def node_box() -> Iterator[NodeBox]:
    """Yield a box and remove it."""
    box = NodeBox()
    try:
        yield box
    finally:
        box.close()


__all__ = ["NODE", "NodeBox", "node_box", "wait_until"]


class Almighty:
    """Takes end reports and answers what the test wants."""

    def __init__(self, *answers: bytes) -> None:
        self.reports: list[str] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._answers = answers
        self._thread = Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        with self._server:
            for answer in self._answers:
                connection, _ = self._server.accept()
                with connection:
                    self.reports.append(connection.makefile().readline())
                    connection.sendall(answer)

    def join(self) -> None:
        self._thread.join(120)
        assert not self._thread.is_alive()
