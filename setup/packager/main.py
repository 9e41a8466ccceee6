"""The program setup/package."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from installer import environments
from installer.files import write
from installer.target import SOURCE, InstallError

from . import archive, contents, libraries
from .contents import Build, Package
from .scripts import scripts

_DESCRIPTION = """\
Builds the Debian packages of OAR from these sources: oar-common, oar-python, oar-server, oar-user, oar-node, oar-api,
oar-agent, oar-doc, for Debian 12 and 13. The Python libraries are inside, those of setup/debian/libraries.txt; nothing
is fetched when the packages are installed. The same sources give the same bytes.
"""
#: Maintainer of a package: name and mail address.
_PERSON = re.compile(r"[^<>\n,]*[^<>\n, ] <[^<>@\s]+@[^<>@\s]+>")


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the packages named on the command line; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="setup/package", description=_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [package.name for package in contents.PACKAGES]
    parser.add_argument("packages", nargs="*", choices=[*names, []], metavar="PACKAGE", help="only these")
    parser.add_argument("--output", default="packages", metavar="DIR", help="where the packages go (default: packages)")
    parser.add_argument("--revision", default="1", help="what stands behind the version of OAR (default: 1)")
    parser.add_argument(
        "--maintainer",
        type=_person,
        default=_person(environments.maintainer()),
        metavar="'NAME <ADDRESS>'",
        help="who builds the packages, and is written to about them (default: %(default)s)",
    )
    parser.add_argument("--libraries", metavar="DIR", help="keep the libraries here, and fetch them once")
    parser.add_argument("--renew-libraries", action="store_true", help="write the list of libraries anew, and no more")
    options = parser.parse_args(arguments)
    os.umask(0o022)
    try:
        if options.renew_libraries:
            libraries.renew()
            print(f"Written: {libraries.LIST.relative_to(SOURCE)}.")
        else:
            made = build(
                Path(options.output),
                options.revision,
                options.libraries,
                options.packages or names,
                options.maintainer,
            )
            for package in made:
                print(package)
    except (InstallError, OSError) as error:
        print(f"package: {error}", file=sys.stderr)
        return 1
    return 0


def _person(text: str) -> str:
    if not _PERSON.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a name and an address: write 'NAME <ADDRESS>'")
    return text


def build(output: Path, revision: str, kept: str | None, names: Collection[str], maintainer: str) -> list[Path]:
    """Build these packages.  Raises InstallError, OSError."""
    output.mkdir(parents=True, exist_ok=True)
    architecture = _architecture()
    with tempfile.TemporaryDirectory(prefix="oar-packages-") as name:
        work = Path(name)
        wheels = Path(kept) if kept else work / "wheels"
        if not wheels.is_dir():
            libraries.fetch(wheels, architecture)
        what = Build(
            f"{environments.version()}-{revision}",
            contents.environment_name(),
            architecture,
            wheels,
            _environment(work, wheels),
            maintainer,
        )
        return [assemble(package, what, output) for package in contents.PACKAGES if package.name in names]


def _environment(work: Path, wheels: Path) -> Path:
    """Return the Python of an environment like that of the packages; it runs the build steps."""
    own = work / "own"
    (own / f"{sys.version_info.major}.{sys.version_info.minor}").mkdir(parents=True)
    (own / "all").mkdir()
    contents.write_wheel(own / "all")
    words = [str(SOURCE / "setup" / "debian" / "oar-environment"), "make", "build", str(wheels / "base"), str(own)]
    environment = {**os.environ, "OARDIR": str(work), "OAR_REQUIREMENTS": os.devnull}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise InstallError(done.stderr.strip())
    return work / "environments" / "build" / "bin" / "python"


def assemble(package: Package, build: Build, output: Path) -> Path:
    """Build a package.  Raises InstallError, OSError."""
    with tempfile.TemporaryDirectory(prefix="oar-package-") as tree:
        return _assemble(package, build, Path(tree, package.name), output)


def _assemble(package: Package, build: Build, tree: Path, output: Path) -> Path:
    tree.mkdir()
    package.fill(build, tree)
    _documents(package, build, tree)
    architecture = "all" if package.is_for_all else build.architecture
    fields = {
        "Package": package.name,
        "Version": build.version,
        "Architecture": architecture,
        "Maintainer": build.maintainer,
        "Section": "doc" if package.name == "oar-doc" else "admin",
        "Priority": "optional",
        **{name: text.format(version=build.version) for name, text in package.relations.items()},
        "Description": f"{package.summary}\n{textwrap.indent(textwrap.fill(package.description, 78), ' ')}",
    }
    words = {
        "ENVIRONMENT": build.environment,
        "LIBRARIES": contents.LIBRARIES,
        "LIBRARIES_OF_API": contents.LIBRARIES_OF_API,
    }
    return archive.build(tree, fields, scripts(package.name, package.units, words), output, _date())


def _documents(package: Package, build: Build, tree: Path) -> None:
    place = tree / "usr" / "share" / "doc" / package.name
    archive.compressed(place / "changelog.gz", (SOURCE / "CHANGELOG.md").read_text())
    day = time.strftime("%a, %d %b %Y %H:%M:%S +0000", time.gmtime(_date()))
    entry = f"oar ({build.version}) unstable; urgency=medium\n\n  * What is new: changelog.gz beside this file.\n\n"
    archive.compressed(place / "changelog.Debian.gz", f"{entry} -- {build.maintainer}  {day}\n")
    license_ = (SOURCE / "LICENSE").read_text()
    of_debian = "\nOn Debian the text of version 2 is in /usr/share/common-licenses/GPL-2.\n"
    write(place / "copyright", license_ + of_debian, 0o644)


def _architecture() -> str:
    if not shutil.which("dpkg-deb"):
        raise InstallError("dpkg-deb is missing: packages are built on Debian")
    name = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True).stdout.strip()
    if name not in libraries.ARCHITECTURES:
        raise InstallError(f"there are no libraries for {name}, only for {', '.join(libraries.ARCHITECTURES)}")
    return name


def _date() -> int:
    """Return the date of the sources: SOURCE_DATE_EPOCH, else that of the last commit, else of the newest file."""
    if said := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(said)
    words = ["git", "-C", str(SOURCE), "log", "-1", "--format=%ct"]
    done = subprocess.run(words, capture_output=True, text=True, check=False) if shutil.which("git") else None
    if done and done.returncode == 0 and done.stdout.strip():
        return int(done.stdout)
    return int(max(path.stat().st_mtime for path in (SOURCE / "oar").rglob("*.py")))
