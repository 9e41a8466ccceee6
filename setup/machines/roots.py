"""Root file systems of minimal Debian machines, created once and cached; changes of a machine are in its own layer."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from room import cache

#: Packages on a machine before OAR is installed: those that docs/installation.rst names, and basic ones.
_PACKAGES = (
    *("systemd-sysv", "dbus", "openssh-server", "openssh-client", "sudo", "iproute2", "iputils-ping", "procps"),
    *("make", "python3", "python3-venv", "postgresql", "logrotate"),
)
#: Additional packages of a site: an MPI on one release, containers and tools for their images on the other; a directory
#: server and its client.
_OF_THE_SITE = {
    "trixie": ("openmpi-bin", "libnss-ldapd"),
    "bookworm": ("charliecloud-runtime", "busybox-static", "slapd", "libnss-ldapd"),
}
#: Units that must not start on a machine without hardware and network.
MASKED = ("systemd-udevd.service", "e2scrub_reap.service", "apt-daily.timer", "apt-daily-upgrade.timer")


class MachineError(Exception):
    """An error with a text of one line."""


def root(suite: str) -> Path:
    """Return the root file system of a Debian release; create it if it is missing.  Raises MachineError."""
    packages = (*_PACKAGES, *_OF_THE_SITE.get(suite, ()))
    digest = hashlib.sha256(f"{suite} {packages} {MASKED}".encode()).hexdigest()[:12]

    def make(place: Path) -> None:
        print(f"Making the files of a machine with Debian {suite} ...", flush=True)
        mask = " && ".join(f"ln -sf /dev/null etc/systemd/system/{unit}" for unit in MASKED)
        bootstrap(suite, packages, place, mask)

    return cache.kept(f"debian-{suite}-{digest}", make)


def unpack(suite: str, package: str, place: Path) -> None:
    """Unpack the files of one package of a Debian release below ``unpacked``.  Raises MachineError."""
    fetch = f"APT_CONFIG=$MMDEBSTRAP_APT_CONFIG apt-get download {package} && dpkg-deb -x {package}_*.deb unpacked"
    _mmdebstrap(["--variant=custom", f"--customize-hook=cd $1 && {fetch}"], suite, place)


def bootstrap(suite: str, packages: Sequence[str], place: Path, script: str) -> None:
    """Create a root file system of a Debian release with packages, modified by a shell script.  Raises MachineError."""
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
