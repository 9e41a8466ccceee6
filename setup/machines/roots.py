"""Trees of files of bare Debian machines, made once and kept; what a machine changes is in a layer of its own."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

from room import cache

#: What a machine of a site has before OAR comes: the packages that docs/installation.rst names, and those of a machine.
_PACKAGES = (
    *("systemd-sysv", "dbus", "openssh-server", "openssh-client", "sudo", "iproute2", "iputils-ping", "procps"),
    *("make", "python3", "python3-venv", "postgresql", "logrotate"),
)
#: What must not begin by itself on a machine without hardware and without network.
MASKED = ("systemd-udevd.service", "e2scrub_reap.service", "apt-daily.timer", "apt-daily-upgrade.timer")


class MachineError(Exception):
    """What a person is told in one line."""


def root(suite: str) -> Path:
    """The tree of a release of Debian; it is made if it is not there.  Raises MachineError."""
    digest = hashlib.sha256(f"{suite} {_PACKAGES} {MASKED}".encode()).hexdigest()[:12]

    def make(place: Path) -> None:
        print(f"Making the files of a machine with Debian {suite} ...", flush=True)
        _bootstrap(suite, place)

    return cache.kept(f"debian-{suite}-{digest}", make)


def _bootstrap(suite: str, place: Path) -> None:
    mirror = os.environ.get("OAR_DEBIAN_MIRROR", "http://deb.debian.org/debian")
    words = ["mmdebstrap", "--quiet", "--variant=apt", f"--include={','.join(_PACKAGES)}"]
    words += ["--dpkgopt=force-unsafe-io", "--aptopt=Acquire::Languages none"]
    mask = " && ".join(f"ln -sf /dev/null etc/systemd/system/{unit}" for unit in MASKED)
    words += [f"--customize-hook=cd $1 && {mask}", suite, str(place), mirror]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(
        words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, env=environment, umask=0o022
    )
    if done.returncode:
        said = " ".join(done.stderr.strip().splitlines()[-3:])
        raise MachineError(f"the files of Debian {suite} cannot be made: {said}")
