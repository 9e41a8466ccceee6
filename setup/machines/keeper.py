"""The process that owns the namespaces of a site's machines; they, their network and their mounts end with it.

It is the first process of a pid namespace.  It reads requests from its standard input, one JSON object per line, and
answers each with a line: ``{"boot": NAME, ...}`` with the pid of the machine's first process in this namespace,
``{"pid": NAME}`` with the current pid of a machine that may have rebooted, ``{"halt": NAME}`` when it has ended.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from room import cgroups, kernel, layout

_BRIDGE = "br0"
#: Exit code of systemd-nspawn if the machine reboots and has to be started again.
_REBOOT = 133
_PATIENCE = 180.0
#: Moves a machine's first process into its control groups, which become the root of its view of them.
_JOIN = 'for group in $groups; do echo $$ >"$group/cgroup.procs"; done; exec "$@"'


class Machine:
    """A running machine."""

    def __init__(self, site: Path, group: str, order: Mapping[str, Any]) -> None:
        """``site``: directory of all machines; ``group``: control group of all.

        ``order``: name, number, root (its initial file system), binds (directories of the host that it sees).
        """
        self._name: str = order["boot"]
        self._directory = site / self._name
        self._binds: Sequence[str] = order["binds"]
        self._groups = cgroups.create_machine(group, self._name)
        self._link = f"v{order['number']}"
        self._mount(order["root"])
        self._plug_in(order["number"])
        self._process = self._start()

    @property
    def pid(self) -> int:
        """Return the pid of its first process, which changes with each reboot.  Raises OSError."""
        if self._process.poll() == _REBOOT:
            self._process = self._start()
        return self._first_process()

    def halt(self) -> None:
        """Cut its power, or clean up after it has shut down."""
        if self._process.poll() is None:
            for child in _children(self._process.pid):
                os.kill(child, signal.SIGKILL)
        self._process.wait()
        # Remove the link explicitly: with the network namespace of the machine it would disappear some time later.
        _ip([f"link delete {self._link}", f"netns delete {self._name}"])
        kernel.detach(self._directory / "top")
        for path in self._groups:
            cgroups.remove_tree(Path(path))

    def _start(self) -> subprocess.Popen[bytes]:
        words = ["systemd-nspawn", "--quiet", "--boot", "--register=no", "--keep-unit", "--link-journal=no"]
        words += [f"--directory={self._directory}/top", f"--network-namespace-path=/run/netns/{self._name}"]
        words += ["--resolv-conf=off", "--timezone=off", "--capability=all", "--console=pipe"]
        words += [f"--hostname={self._name}", f"--machine={self._name}", *(f"--bind={each}" for each in self._binds)]
        groups = " ".join(self._groups)
        environment = {"PATH": layout.PATH, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1", "groups": groups}
        with (self._directory / "console").open("ab") as console:
            return subprocess.Popen(
                ["sh", "-c", _JOIN, "sh", *words],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                env=environment,
            )

    def _mount(self, root: str) -> None:
        for part in ("changes", "work", "top"):
            (self._directory / part).mkdir(parents=True, exist_ok=True)
        changes, work, top = (self._directory / part for part in ("changes", "work", "top"))
        kernel.mount("overlay", top, "overlay", options=f"lowerdir={root},upperdir={changes},workdir={work}")

    def _plug_in(self, number: int) -> None:
        """Set its addresses on the bridge; the hardware address stays the same because peers cache it."""
        cable = f"link add {self._link} type veth peer name eth0"
        cable += f" address {layout.hardware_address(number)} netns {self._name}"
        _ip([f"netns add {self._name}", cable, f"link set {self._link} master {_BRIDGE} up"])
        address = f"address add {layout.address(number)}/16 dev eth0"
        _ip(["link set lo up", address, "link set eth0 up"], self._name)

    def _first_process(self) -> int:
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline and self._process.poll() is None:
            for child in _children(self._process.pid):
                with suppress(OSError):  # it has ended
                    if Path(f"/proc/{child}/comm").read_text().strip() == "systemd":
                        return child
            time.sleep(0.02)
        raise OSError(f"{self._name} is off: systemd-nspawn ended with {self._process.poll()}")


def _children(pid: int) -> list[int]:
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _ip(lines: Sequence[str], namespace: str = "") -> None:
    words = ["ip", *(["-n", namespace] if namespace else []), "-batch", "-"]
    subprocess.run(words, input="\n".join(lines), text=True, check=True)


def main() -> int:
    """Serve requests until the end of the input."""
    directory, group = Path(sys.argv[1]), sys.argv[2]
    kernel.make_mounts_private()
    Path("/run/netns").mkdir(exist_ok=True)
    kernel.tmpfs("/run/netns")
    _ip(["link set lo up", f"link add {_BRIDGE} type bridge", f"link set {_BRIDGE} up"])
    machines: dict[str, Machine] = {}
    for line in sys.stdin:
        print(json.dumps(_answer(machines, directory, group, json.loads(line))), flush=True)
    return 0


def _answer(machines: dict[str, Machine], directory: Path, group: str, order: dict[str, Any]) -> dict[str, object]:
    try:
        if name := order.get("boot"):
            machines[name] = Machine(directory, group, order)
            return {"pid": machines[name].pid}
        name = order.get("halt") or order["pid"]
        if name not in machines:
            return {"error": f"{name} is off"}
        if "pid" in order:
            return {"pid": machines[name].pid}
        machines.pop(name).halt()
        return {}
    except (OSError, subprocess.CalledProcessError) as error:
        return {"error": str(error)}


if __name__ == "__main__":
    sys.exit(main())
