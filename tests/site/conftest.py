"""Sites with OAR, as the installation chapter leaves them."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from installer import environments
from installer.files import copy_readable
from installer.target import SOURCE
from machines.site import Site
from packager import libraries
from room import cache

from oar.lib.base.version import version_number
from tests.site.chapter import Reader
from tests.site.steps import mpi_begun, mpi_ends_well

#: Where the sources are on each machine, the packages of the next release, and the mirror of the package index that a
#: site without packages has.
SOURCES, NEXT, _MIRROR = "/root/oar", "/srv/next", "/srv/wheels"
#: The next release, whose database is another one, too.
NEXT_VERSION, NEXT_SCHEMA = "99.1.0", "99.1"
_MIGRATION = """\
\"\"\"The next release.\"\"\"

from alembic import op

revision = "99.1.0"
down_revision = "{before}"
oldest = "{release}"


def upgrade():
    op.execute("ALTER TABLE public.jobs ADD COLUMN of_the_next_release integer")
"""

#: What the suite tells at its end.
TOLD: list[str] = []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell how long an installation takes: the goal is ten minutes."""
    for line in TOLD:
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages of these sources."""
    return build(SOURCE, tmp_path_factory.mktemp("packages"))


@pytest.fixture(scope="session")
def next_packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages of the next release."""
    sources = tmp_path_factory.mktemp("next") / "oar"
    shutil.copytree(SOURCE, sources, ignore=shutil.ignore_patterns(".git", ".*_cache", "__pycache__", ".hypothesis"))
    before = environments.version()
    for name in ("pyproject.toml", "oar/lib/base/version.py"):
        text = (sources / name).read_text()
        text = re.sub(rf'(?m)^(version|VERSION) = "{before}"', rf'\1 = "{NEXT_VERSION}"', text)
        (sources / name).write_text(re.sub(r"(?m)^SCHEMA = .*", f'SCHEMA = "{NEXT_SCHEMA}"', text))
    migration = sources / "setup" / "database" / "versions" / f"{NEXT_VERSION}.py"
    steps = [path.stem for path in migration.parent.glob("[0-9]*.py")]
    migration.write_text(_MIGRATION.format(before=max(steps, key=version_number), release=before))
    names = ("oar-common", "oar-python", "oar-server", "oar-user", "oar-node", "oar-api", "oar-agent")
    return build(sources, tmp_path_factory.mktemp("next-packages"), *names)


def build(sources: Path, output: Path, *packages: str) -> Path:
    """Build packages; the libraries are fetched once."""
    digest = hashlib.sha256(libraries.LIST.read_bytes()).hexdigest()[:12]
    kept = cache.kept(f"libraries-{digest}", lambda place: libraries.fetch(place, "amd64"))
    words = [str(sources / "setup" / "package"), "--output", str(output), "--libraries", str(kept), *packages]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return output


@pytest.fixture(scope="session")
def site(packages: Path, next_packages: Path) -> Iterator[Site]:
    """A server with Debian 12, a frontend and two nodes with 13, installed by the chapter."""
    machines = {"server": "bookworm", "node-1": "trixie", "node-2": "trixie", "frontend": "trixie"}
    shared = [f"{packages}:{SOURCES}/packages", f"{next_packages}:{NEXT}"]
    begin = time.monotonic()
    with Site(machines, lambda top: (top / SOURCES[1:]).mkdir(parents=True), shared) as site:
        Reader(site, SOURCES).install()
        mpi_ends_well(site, mpi_begun(site))
        TOLD.append(f"from bare Debian to the end of the first job of MPI: {time.monotonic() - begin:.0f} s")
        # Finaud looks at suspected nodes every five minutes: nobody waits for that here.
        site["server"].run("echo 'FINAUD_FREQUENCY=\"10\"' >> /etc/oar/oar.conf; systemctl reload oar-server.service")
        yield site


@pytest.fixture
def site_from_sources() -> Iterator[Site]:
    """A server, where users log in, and two nodes, installed by the chapter without packages."""
    with Site(dict.fromkeys(("server", "node-1", "node-2"), "bookworm"), _sources, [f"{_wheels()}:{_MIRROR}"]) as site:
        Reader(site, SOURCES).install(by_packages=False)
        yield site


def _sources(top: Path) -> None:
    copy_readable(SOURCE, top / SOURCES[1:], ".git", ".*_cache", ".hypothesis")
    top.joinpath("etc").mkdir(exist_ok=True)
    top.joinpath("etc/pip.conf").write_text(f"[global]\nno-index = true\nfind-links = {_MIRROR}\n")


def _wheels() -> Path:
    """A directory with the libraries of OAR; it is filled if it is not there."""
    wanted = environments.requirements(["api"])
    digest = hashlib.sha256(str(wanted).encode()).hexdigest()[:12]
    return cache.kept(f"wheels-{digest}", lambda place: environments.collect("/usr/bin/python3", place))
