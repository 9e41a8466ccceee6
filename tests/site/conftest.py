"""A site with OAR, as the installation chapter leaves it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from installer import environments
from installer.files import copy_readable
from machines.site import Site
from room import cache

from tests.documents import SOURCE
from tests.site.chapter import Reader

#: Where the sources are on each machine, and the mirror of the package index that the site has.
SOURCES = "/root/oar"
_MIRROR = "/srv/wheels"


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    """A server, a frontend and two nodes, on which the chapter was typed as it stands."""
    names = ("server", "node-1", "node-2", "frontend")
    with Site(dict.fromkeys(names, "bookworm"), _files, [f"{_wheels()}:{_MIRROR}"]) as site:
        Reader(site, SOURCES).install()
        # Finaud looks at suspected nodes every five minutes: nobody waits for that here.
        site["server"].run("echo 'FINAUD_FREQUENCY=\"10\"' >> /etc/oar/oar.conf; systemctl reload oar-server.service")
        yield site


def _files(top: Path) -> None:
    copy_readable(SOURCE, top / SOURCES[1:], ".git", ".*_cache", ".hypothesis")
    top.joinpath("etc").mkdir(exist_ok=True)
    top.joinpath("etc/pip.conf").write_text(f"[global]\nno-index = true\nfind-links = {_MIRROR}\n")


def _wheels() -> Path:
    """A directory with the libraries of OAR; it is filled if it is not there."""
    wanted = environments.requirements(["api"])
    digest = hashlib.sha256(str(wanted).encode()).hexdigest()[:12]
    return cache.kept(f"wheels-{digest}", lambda place: environments.collect("/usr/bin/python3", place))
