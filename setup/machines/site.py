"""A site of machines for tests: run commands on them, reboot them, cut their power."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from room import cgroups, layout

from . import roots
from .roots import MachineError

#: User accounts, with the same ids and homes on all machines, as with LDAP and NFS.
PEOPLE = {"alice": 2001, "bob": 2002}
#: Timeout in seconds of a boot; only a hung machine reaches it, even on a busy host.
PATIENCE = 300.0


@dataclass(frozen=True)
class Done:
    """Result of a command."""

    command: str
    code: int
    out: str
    err: str


class Machine:
    """One machine of a site."""

    def __init__(self, site: Site, name: str) -> None:
        """The site boots the machine."""
        self._site = site
        self.name = name

    @property
    def changes(self) -> Path:
        """Path on the host of the files that the machine has changed."""
        return self._site.directory / self.name / "changes"

    def attempt(self, command: str, *, user: str = "root", stdin: str = "") -> Done:
        """Run a command in a login shell; return its result."""
        inside = ["nsenter", "-t", str(self._site.pid(self.name)), "-a", "--wdns=/"]
        words = [*self._site.enter, *inside, "su", "-", user, "-c", command]
        done = subprocess.run(words, input=stdin, capture_output=True, text=True, check=False, timeout=600)
        return Done(f"{self.name}: {command}", done.returncode, done.stdout, done.stderr)

    def run(self, command: str, *, user: str = "root", stdin: str = "") -> str:
        """Run a command and return its output.  Raises MachineError if it fails."""
        done = self.attempt(command, user=user, stdin=stdin)
        if done.code:
            raise MachineError(
                f"{done.command!r} ended with {done.code}\n--- stdout\n{done.out}\n--- stderr\n{done.err}"
            )
        return done.out

    def write(self, path: str, text: str) -> None:
        """Write a file as root."""
        self.run(f"cat > {shlex.quote(path)}", stdin=text)

    def wait_until_up(self) -> None:
        """Wait until systemd has started all units."""
        wait_until(lambda: self.attempt("systemctl is-system-running").out.strip() in ("running", "degraded"))

    def reboot(self) -> None:
        """Reboot like an administrator, and wait until the machine is up again."""
        before = self._site.pid(self.name)
        self.attempt("systemctl reboot")
        wait_until(lambda: self._site.pid(self.name) != before)
        self.wait_until_up()

    def pull_plug(self) -> None:
        """Cut the power."""
        self._site.order({"halt": self.name})

    def boot(self) -> None:
        """Switch the machine on, and wait until it is up."""
        self._site.boot(self.name)
        self.wait_until_up()


class Site:
    """Debian machines in a private network."""

    def __init__(self, machines: Mapping[str, str], files: Callable[[Path], None], shared: Sequence[str] = ()) -> None:
        """``machines``: Debian release of each.  ``files``: function that adds files below the root of a machine.

        ``shared``: directories of the host that all machines see, as ``HOST PATH:MACHINE PATH``.
        """
        self._files = files
        self._shared = shared
        self._roots = {name: str(roots.root(suite)) for name, suite in machines.items()}
        cgroups.sweep()
        self.directory = Path(tempfile.mkdtemp(prefix="oar-site-", dir="/var/tmp"))
        self.directory.chmod(0o755)
        self._group = f"{cgroups.PREFIX}{self.directory.name}-{os.getpid()}"
        cgroups.create_room(self._group)
        self._keeper = self._start_keeper()
        self.machines = {name: Machine(self, name) for name in machines}
        try:
            for name in machines:
                self._prepare(name)
                self.boot(name)
            for machine in self.machines.values():
                machine.wait_until_up()
        except BaseException:
            self.close()
            raise

    def __getitem__(self, name: str) -> Machine:
        return self.machines[name]

    def __enter__(self) -> Site:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def enter(self) -> list[str]:
        """Return the arguments that run a command in the namespaces of the machines."""
        return ["nsenter", "-t", str(self._first), "-m", "-n", "-p"]

    def order(self, order: Mapping[str, object]) -> dict[str, Any]:
        """Send a request to the keeper; return its response.  Raises MachineError."""
        assert self._keeper.stdin is not None
        assert self._keeper.stdout is not None
        self._keeper.stdin.write(json.dumps(order) + "\n")
        self._keeper.stdin.flush()
        answer: dict[str, Any] = json.loads(self._keeper.stdout.readline() or '{"error": "the keeper has ended"}')
        if "error" in answer:
            raise MachineError(f"{order}: {answer['error']}")
        return answer

    def pid(self, name: str) -> int:
        """Return the pid of a machine's first process in the namespace of the keeper."""
        return int(self.order({"pid": name})["pid"])

    def boot(self, name: str) -> None:
        """Switch a machine on."""
        number = list(self._roots).index(name)
        binds = [f"{self.directory}/home:/home", *self._shared]
        self.order({"boot": name, "number": number, "root": self._roots[name], "binds": binds})

    def replace(self, name: str) -> None:
        """Replace a machine that is switched off by a freshly installed one."""
        for part in ("changes", "work"):
            shutil.rmtree(self.directory / name / part)
        self._prepare(name)

    def close(self) -> None:
        """Switch all machines off and remove everything."""
        self._keeper.kill()
        self._keeper.communicate()
        cgroups.remove_room(self._group)
        shutil.rmtree(self.directory)

    def _start_keeper(self) -> subprocess.Popen[str]:
        words = ["unshare", "--mount", "--net", "--ipc", "--pid", "--fork", "--kill-child=KILL", "--mount-proc", "--"]
        words += [sys.executable, str(Path(__file__).with_name("keeper.py")), str(self.directory), self._group]
        return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    @property
    def _first(self) -> int:
        """Return the pid of the keeper: the child of unshare."""
        children = Path(f"/proc/{self._keeper.pid}/task/{self._keeper.pid}/children").read_text().split()
        return int(children[0])

    def _prepare(self, name: str) -> None:
        """Set up a machine before OAR is installed: host names, users, homes, files of the test."""
        self._files(self.directory / name / "changes")
        etc = self.directory / name / "changes" / "etc"
        etc.mkdir(parents=True, exist_ok=True)
        _show_control_groups(etc / "systemd" / "system")
        addresses = (f"{layout.address(number)} {each}" for number, each in enumerate(self._roots))
        (etc / "hosts").write_text("\n".join(["127.0.0.1 localhost", *addresses, ""]))
        (etc / "hostname").write_text(f"{name}\n")
        root = Path(self._roots[name], "etc")
        for file, line in (
            ("passwd", "{name}:x:{uid}:{uid}::/home/{name}:/bin/bash"),
            ("group", "{name}:x:{uid}:"),
            ("shadow", "{name}:*:19000::::::"),
        ):
            lines = [line.format(name=name, uid=uid) for name, uid in PEOPLE.items()]
            (etc / file).write_text((root / file).read_text() + "\n".join([*lines, ""]))
            (etc / file).chmod((root / file).stat().st_mode & 0o777)
        for person, uid in PEOPLE.items():
            home = self.directory / "home" / person
            home.mkdir(parents=True, exist_ok=True)
            os.chown(home, uid, uid)


def _show_control_groups(units: Path) -> None:
    """On a host with controllers of version 1, mount the machine's part of them in addition to version 2."""
    places = [(each.options, f"/run/cgroup/{each.path.name}") for each in cgroups.hierarchies() if each.controllers]
    if not places:
        return
    lines = ["[Unit]", "Description=Controllers of version 1", "[Service]", "Type=oneshot", "RemainAfterExit=yes"]
    for options, place in places:
        lines += [f"ExecStart=/bin/mkdir -p {place}", f"ExecStart=/bin/mount -t cgroup -o {options} cgroup {place}"]
    wanted = units / "multi-user.target.wants"
    wanted.mkdir(parents=True, exist_ok=True)
    (units / "cgroups-v1.service").write_text("\n".join([*lines, ""]))
    (wanted / "cgroups-v1.service").symlink_to("../cgroups-v1.service")


def wait_until(condition: Callable[[], bool], seconds: float = PATIENCE) -> None:
    """Wait for a condition; checks that raise are repeated.  Raises MachineError at the timeout."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if condition():
                return
        except MachineError:
            if time.monotonic() > deadline:
                raise
        if time.monotonic() > deadline:
            raise MachineError(f"not so within {seconds:.0f} s")
        time.sleep(0.2)
