"""The Python environments of an installation: one for each state of the sources, side by side.

Programs name their environment by its full path, so that a running program keeps the modules it started with.  An
installation creates a new environment, lets the programs name it, and keeps the previous one until the next
installation.  An incomplete environment is recreated.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from . import files
from .target import SOURCE, InstallError, Target

#: File that marks a complete environment; it contains the extras.
_COMPLETE = "oar-environment.json"
_NAMED = re.compile(rb"/(environments/[^/]+|venv)/bin/python")
#: In an environment: the directory of its packages, and the client of the command service below it.
PACKAGES, CLIENT = "packages", "oar/cli/command_server/client.pl"
#: Advice if libraries cannot be fetched.
_NO_INDEX = "If this machine does not reach the package index: --wheels DIR, filled by --collect DIR on one that does."
_COLLECTED_ELSEWHERE = "The directory of --wheels has to be filled by --collect on a machine with the same Python."
#: Build requirement of the sources; every environment has it, so that a build fetches nothing.
BUILD = "setuptools>=68"


def prepare(target: Target, extras: Iterable[str] = (), libraries: Path | None = None) -> str:
    """Return the path of an environment with the package of the current sources; create it if it is missing.

    ``extras``: optional parts of the package (pyproject.toml), in addition to those that this machine already has.
    ``libraries``: an environment whose files the new one hard-links instead of fetching them.
    Raises InstallError.
    """
    all_extras = sorted({*extras, *_extras_here(target)})
    wanted = [*requirements(all_extras), *_of_site(target)]
    path = f"{target.programs}/environments/{version()}-{_digest(target, wanted)}"
    place = target.under(path)
    if not (place / _COMPLETE).exists():
        shutil.rmtree(place, ignore_errors=True)
        _fill(target, place, wanted, libraries)
        give_names(place)
        files.write(place / _COMPLETE, json.dumps({"extras": all_extras}), 0o644)
    return path


def _fill(target: Target, place: Path, wanted: Sequence[str], libraries: Path | None) -> None:
    if libraries is None:
        make(target.python, place, [BUILD, *wanted], target.wheels)
    else:
        shutil.copytree(libraries, place, symlinks=True, copy_function=os.link)
    _add_package(place, target.wheels)


def make(python: str, venv: Path, wanted: Sequence[str], wheels: str = "") -> None:
    """Create a virtual environment that every user can run, with these packages, by uv if available, else by pip.

    ``wheels``: directory of all packages, instead of the index.
    """
    if uv := shutil.which("uv"):
        _call([uv, "venv", "--quiet", "--python", python, str(venv)])
    else:
        _call([python, "-m", "venv", str(venv)])
    if wanted:
        _add(venv, wanted, wheels)


def collect(python: str, directory: Path) -> None:
    """Fetch the wheels for an installation without network into a directory.  Raises InstallError."""
    with tempfile.TemporaryDirectory(prefix="oar-wheels-") as venv:
        _call([python, "-m", "venv", venv])
        pip = [f"{venv}/bin/python", "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-input"]
        _call([*pip, "--wheel-dir", str(directory), BUILD, *requirements(["api"])])


def requirements(extras: Iterable[str] = ()) -> list[str]:
    """Return the requirements of the package and of its extras, from pyproject.toml."""
    project = tomllib.loads((SOURCE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [*project["dependencies"], *(each for extra in extras for each in project["optional-dependencies"][extra])]


def named(target: Target) -> set[str]:
    """Return the environments that the installed programs name, as paths below OARDIR."""
    programs = target.under(f"{target.programs}/x").parent
    heads = (path.read_bytes()[:400] for path in programs.iterdir() if path.is_file())
    return {match[1].decode() for head in heads if (match := _NAMED.search(head))}


def forget(target: Target, before: set[str]) -> None:
    """Point OARDIR/venv to the newest environment; remove unused environments, except the previous ones.

    ``before``: environments that the programs named before this installation.  A directory OARDIR/venv comes from a
    release with a single environment; running programs still need it.
    """
    top, now = target.under(f"{target.programs}/x").parent, named(target)
    kept = now | before
    for path in [*top.glob("environments/*"), top / "venv"]:
        if now != before and str(path.relative_to(top)) not in kept and path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
    complete = [path for path in now if (top / path / _COMPLETE).exists()]
    newest = max(complete, key=lambda path: (top / path / _COMPLETE).stat().st_mtime)
    if not (top / "venv").is_dir() or (top / "venv").is_symlink():
        files.link(top / "venv", newest)


def give_names(place: Path) -> None:
    """Create the paths in an environment that programs name, independent of the Python version."""
    (packages,) = place.glob("lib/python*/site-packages")
    files.link(place / PACKAGES, str(packages.relative_to(place)))


def _extras_here(target: Target) -> set[str]:
    top = target.under(f"{target.programs}/x").parent
    if not top.is_dir():
        return set()
    notes = [top / path / _COMPLETE for path in named(target)]
    return {extra for note in notes if note.exists() for extra in json.loads(note.read_text())["extras"]}


def _of_site(target: Target) -> list[str]:
    """Return the additional requirements of the site for its policies: requirements.txt of its configuration."""
    path = target.under(f"{target.confdir}/requirements.txt")
    lines = path.read_text().splitlines() if path.is_file() else []
    return [line.partition("#")[0].strip() for line in lines if line.partition("#")[0].strip()]


def version() -> str:
    return str(_project()["version"])


def maintainer() -> str:
    """Return the first maintainer of the sources, ``NAME <ADDRESS>``."""
    first = _project()["maintainers"][0]
    return f"{first['name']} <{first['email']}>"


def _project() -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((SOURCE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project


def _digest(target: Target, wanted: Sequence[str]) -> str:
    """Return a digest of the sources, the requirements and the Python version."""
    python = subprocess.run([target.python, "-VV"], capture_output=True, text=True, check=False).stdout
    digest = hashlib.sha256(f"{python} {list(wanted)}".encode())
    for part in _of_package():
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()[:12]


def _of_package() -> Iterator[bytes]:
    for path in sorted((SOURCE / "oar").rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield str(path.relative_to(SOURCE)).encode()
            yield path.read_bytes()


def _add_package(venv: Path, wheels: str) -> None:
    """Build and install the package from a copy of its sources, because a build must not write among them."""
    with tempfile.TemporaryDirectory(prefix="oar-build-") as copy:
        for name in ("pyproject.toml", "README.md"):
            if (SOURCE / name).exists():
                shutil.copy(SOURCE / name, copy)
            else:
                Path(copy, name).touch()
        shutil.copytree(SOURCE / "oar", Path(copy, "oar"), ignore=shutil.ignore_patterns("__pycache__"))
        _add(venv, ["--no-deps", "--no-build-isolation", copy], wheels)


def _add(venv: Path, what: Sequence[str], wheels: str) -> None:
    """Install into an environment, including bytecode."""
    python = venv / "bin" / "python"
    source = ["--no-index", "--find-links", wheels] if wheels else []
    if uv := shutil.which("uv"):
        command = [uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", str(python)]
    else:
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    try:
        _call([*command, *source, *what])
    except InstallError as error:
        raise InstallError(f"{error}\n{_COLLECTED_ELSEWHERE if wheels else _NO_INDEX}") from None


def _call(command: Sequence[str]) -> None:
    environment = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV")
    }
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment, check=False, umask=0o022
    )
    if done.returncode:
        said = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
        raise InstallError(f"{' '.join(command[:4])} ... failed:\n{said}")
