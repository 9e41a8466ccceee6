"""Trees of files of bare Debian machines, made once and kept; what a machine changes is in a layer of its own."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from room import cache

#: What a machine of a site has before OAR comes: the packages that docs/installation.rst names, and those of a machine.
_PACKAGES = (
    *("systemd-sysv", "dbus", "openssh-server", "openssh-client", "sudo", "iproute2", "iputils-ping", "procps"),
    *("make", "python3", "python3-venv", "postgresql", "logrotate"),
)
#: What a site has beside it: an MPI on one release, containers, and what an image of one is made of, on the other; a
#: directory of accounts, and what asks it.
_OF_THE_SITE = {
    "trixie": ("openmpi-bin", "libnss-ldapd"),
    "bookworm": ("charliecloud-runtime", "busybox-static", "slapd", "libnss-ldapd"),
}
#: What must not begin by itself on a machine without hardware and without network.
MASKED = ("systemd-udevd.service", "e2scrub_reap.service", "apt-daily.timer", "apt-daily-upgrade.timer")


class MachineError(Exception):
    """What a person is told in one line."""


def root(suite: str) -> Path:
    """The tree of a release of Debian; it is made if it is not there.  Raises MachineError."""
    packages = (*_PACKAGES, *_OF_THE_SITE.get(suite, ()))
    digest = hashlib.sha256(f"{suite} {packages} {MASKED}".encode()).hexdigest()[:12]

    def make(place: Path) -> None:
        print(f"Making the files of a machine with Debian {suite} ...", flush=True)
        mask = " && ".join(f"ln -sf /dev/null etc/systemd/system/{unit}" for unit in MASKED)
        bootstrap(suite, packages, place, mask)

    return cache.kept(f"debian-{suite}-{digest}", make)


def unpack(suite: str, package: str, place: Path) -> None:
    """Make a tree with the files of one package of a release of Debian, below ``unpacked``.  Raises MachineError."""
    fetch = f"APT_CONFIG=$MMDEBSTRAP_APT_CONFIG apt-get download {package} && dpkg-deb -x {package}_*.deb unpacked"
    _mmdebstrap(["--variant=custom", f"--customize-hook=cd $1 && {fetch}"], suite, place)


def bootstrap(suite: str, packages: Sequence[str], place: Path, script: str) -> None:
    """Make a tree with a release of Debian and packages; a script for the shell changes it.  Raises MachineError."""
    words = ["--variant=apt", f"--include={','.join(packages)}"]
    words += ["--dpkgopt=force-unsafe-io", "--aptopt=Acquire::Languages none"]
    _mmdebstrap([*words, f"--customize-hook=cd $1 && {script}"], suite, place)


def _mmdebstrap(options: Sequence[str], suite: str, place: Path) -> None:
    mirror = os.environ.get("OAR_DEBIAN_MIRROR", "http://deb.debian.org/debian")
    words = ["mmdebstrap", "--quiet", *options, suite, str(place), mirror]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(
        words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, env=environment, umask=0o022
    )
    if done.returncode:
        said = " ".join(done.stderr.strip().splitlines()[-3:])
        raise MachineError(f"the files of Debian {suite} cannot be made: {said}")
