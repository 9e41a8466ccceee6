"""The Python libraries in the packages; ``setup/debian/libraries.txt`` lists them with their checksums."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from installer import environments
from installer.target import SOURCE, InstallError

LIST = SOURCE / "setup" / "debian" / "libraries.txt"
#: Supported Python versions, those of Debian 12 and 13; names of Debian's architectures in wheels.
PYTHONS = ("3.11", "3.13")
ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}
#: Newest C library that wheels may require: that of Debian 12.
_GLIBC = 36
_HEAD = """\
# The libraries inside the Debian packages: what pyproject.toml asks for, as it was on the day of
# `setup/package --renew-libraries`, which writes this file. Those behind the second line are for the REST API alone.
"""
_OF_API = "# api\n"


@dataclass(frozen=True)
class Library:
    """A version of a library, and the checksums of its wheels."""

    name: str
    version: str
    sums: frozenset[str]

    def __str__(self) -> str:
        """Return the line for pip."""
        return " ".join([f"{self.name}=={self.version}", *(f"--hash=sha256:{each}" for each in sorted(self.sums))])


def renew() -> None:
    """Rewrite the list with the newest versions.  Raises InstallError."""
    base, whole = (_resolved(environments.requirements(extras)) for extras in ([], ["api"]))
    of_api = [library for name, library in whole.items() if name not in base]
    # The versions of the base are those of the complete resolution, so that a machine has one version of each library.
    lines = [str(whole[name]) for name in base]
    LIST.write_text("\n".join([_HEAD.strip(), *sorted(lines), _OF_API.strip(), *sorted(map(str, of_api)), ""]))


def listed() -> tuple[list[str], list[str]]:
    """Return the lines of the list: for all programs, and for the REST API only."""
    base, _, api = LIST.read_text().partition(_OF_API)
    return _lines(base), _lines(api)


def fetch(directory: Path, architecture: str) -> None:
    """Fetch all wheels into ``directory/base`` and ``directory/api``, in one directory per Python version.

    Wheels for every version are in ``all``.  Raises InstallError.
    """
    for part, lines in zip(("base", "api"), listed(), strict=True):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as requirements:
            requirements.write("\n".join(lines))
            requirements.flush()
            for python in PYTHONS:
                place = directory / part / python
                words = ["--no-deps", "--require-hashes", "--requirement", requirements.name, "--dest", str(place)]
                _pip(["download", *words, *_platform(python, architecture)])
        _share(directory / part)


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def _share(directory: Path) -> None:
    """Move wheels that are identical for every Python version to ``all``."""
    first, *others = (directory / python for python in PYTHONS)
    (directory / "all").mkdir()
    for wheel in sorted(first.iterdir()):
        if all((other / wheel.name).exists() for other in others):
            wheel.rename(directory / "all" / wheel.name)
            for other in others:
                (other / wheel.name).unlink()


def _resolved(requirements: Sequence[str]) -> Mapping[str, Library]:
    """Return the versions that pip would install for these requirements, for all Python versions and architectures."""
    found: dict[str, Library] = {}
    for python in PYTHONS:
        for architecture in ARCHITECTURES:
            for name, version, checksum in _report(requirements, python, architecture):
                before = found.get(name, Library(name, version, frozenset()))
                if before.version != version:
                    raise InstallError(f"{name} is {before.version} for one Python and {version} for {python}")
                found[name] = Library(name, version, before.sums | {checksum})
    return found


def _report(requirements: Sequence[str], python: str, architecture: str) -> Iterable[tuple[str, str, str]]:
    with tempfile.TemporaryDirectory(prefix="oar-libraries-") as directory:
        report = Path(directory, "report.json")
        words = ["--dry-run", "--ignore-installed", "--target", directory, "--report", str(report)]
        _pip(["install", *words, *_platform(python, architecture), *requirements])
        for each in json.loads(report.read_text())["install"]:
            sums = each["download_info"]["archive_info"]["hash"].removeprefix("sha256=")
            yield each["metadata"]["name"].lower().replace("_", "-"), each["metadata"]["version"], sums


def _platform(python: str, architecture: str) -> list[str]:
    machine = ARCHITECTURES[architecture]
    names = [f"manylinux_2_{minor}_{machine}" for minor in range(5, _GLIBC + 1)]
    platforms = [word for name in [*names, f"manylinux2014_{machine}"] for word in ("--platform", name)]
    return ["--only-binary", ":all:", "--python-version", python, "--implementation", "cp", *platforms]


def _pip(words: Sequence[str]) -> None:
    done = subprocess.run(
        ["/usr/bin/python3", "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PIP_NO_WARN_CONFLICTS": "1"},
    )
    if done.returncode:
        said = "\n".join(line for line in done.stderr.strip().splitlines() if not line.startswith("WARNING"))
        raise InstallError(f"pip {words[0]} failed:\n{said}")
