"""A site of the previous release: it is upgraded machine by machine, goes back, and loses machines."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from machines.site import Site, wait_until

from tests.previous import PREVIOUS, previous_sources
from tests.site.chapter import Reader
from tests.site.conftest import SOURCES, build
from tests.site.steps import all_alive, back_up, begun, ends_well, follow, follow_chapter, restore, submit, wait_for

_FORMER, _PRESENT = "/srv/former", "/srv/present"
_PACKAGES = ("oar-common", "oar-python", "oar-server", "oar-user", "oar-node")


@pytest.fixture
def former_site(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server, a frontend and two nodes, installed by the chapter of the previous release."""
    sources = previous_sources(tmp_path_factory.mktemp("former") / "oar")
    former = build(sources, tmp_path_factory.mktemp("former-packages"), *_PACKAGES)
    shared = [f"{former}:{SOURCES}/packages", f"{former}:{_FORMER}", f"{packages}:{_PRESENT}"]
    machines = {"server": "bookworm", "node-1": "trixie", "node-2": "trixie", "frontend": "trixie"}
    with Site(machines, lambda top: (top / SOURCES[1:]).mkdir(parents=True), shared) as site:
        Reader(site, SOURCES, sources / "docs" / "installation.rst").install()
        site["server"].run("echo 'FINAUD_FREQUENCY=\"10\"' >> /etc/oar/oar.conf; systemctl reload oar-server.service")
        yield site


def version(site: Site, machine: str) -> str:
    return site[machine].run("dpkg-query --showformat '${Version}' --show oar-common")


@pytest.mark.timeout(1800)  # it installs packages on five machines, one after the other
def test_a_site_is_upgraded_goes_back_and_loses_machines(former_site: Site, tmp_path: Path) -> None:
    frontends_and_nodes_follow_the_server_later(former_site)
    the_server_goes_back_to_the_former_release(former_site)
    the_machine_of_the_database_is_lost(former_site)
    the_machine_of_the_server_is_lost(former_site, tmp_path / "backups")


def frontends_and_nodes_follow_the_server_later(site: Site) -> None:
    """The server is upgraded first; commands of the former release work with it."""
    server = site["server"]
    assert version(site, "server").startswith(PREVIOUS)
    job = begun(site)
    server.run(f"DEBIAN_FRONTEND=noninteractive apt-get -y install {_PRESENT}/oar-{{common,python,server,user}}_*.deb")
    server.run("oar-database --setup && systemctl start oar-server.service")
    wait_for(site, submit(site, "-l core=1,walltime=0:05 true"), "Terminated")
    assert version(site, "frontend").startswith(PREVIOUS)
    ends_well(site, job)
    across = begun(site)
    follow_chapter(site["frontend"], "upgrade of a frontend", packages=_PRESENT)
    for node in ("node-1", "node-2"):
        follow_chapter(site[node], "upgrade of a node", packages=_PRESENT)
    ends_well(site, across)
    wait_for(site, submit(site, "-l core=1,walltime=0:05 true"), "Terminated")


def the_server_goes_back_to_the_former_release(site: Site) -> None:
    """Its programs use the database as it is; then it is upgraded again."""
    server = site["server"]
    job = begun(site)
    follow_chapter(server, "back to the former release", former=_FORMER)
    assert version(site, "server").startswith(PREVIOUS)
    assert server.run("systemctl is-active oar-server.service") == "active\n"
    ends_well(site, job)
    wait_for(site, submit(site, "-l core=1,walltime=0:05 true"), "Terminated")
    server.run(f"DEBIAN_FRONTEND=noninteractive apt-get -y install {_PRESENT}/oar-{{common,python,server,user}}_*.deb")
    assert "is up to date" in server.run("oar-database --setup")
    server.run("systemctl start oar-server.service")
    wait_for(site, submit(site, "-l core=1,walltime=0:05 true"), "Terminated")


def the_machine_of_the_database_is_lost(site: Site) -> None:
    """PostgreSQL is new: neither the database nor its logins are there."""
    server = site["server"]
    job = begun(site)
    back_up(site)
    server.run("systemctl stop oar-server.service")
    name = server.run("ls /etc/postgresql").strip()
    server.run(f"pg_dropcluster --stop {name} main && pg_createcluster {name} main")
    Reader(site, SOURCES).open_database()
    restore(site)
    wait_until(lambda: all_alive(site["frontend"]))
    ends_well(site, job)
    server.run("oar-database --check --deep")
    wait_for(site, submit(site, "-l core=1,walltime=0:05 true"), "Terminated")


def the_machine_of_the_server_is_lost(site: Site, elsewhere: Path) -> None:
    """A bare machine gets its name; the backup was on another one.  A server that moves does the same."""
    server = site["server"]
    job = begun(site)
    back_up(site)
    backups = server.changes / "var/backups"
    shutil.copytree(backups, elsewhere)
    server.pull_plug()
    site.replace("server")
    shutil.copytree(elsewhere, backups)
    server.boot()
    server.run(f"DEBIAN_FRONTEND=noninteractive apt-get -y install {_PRESENT}/oar-{{common,python,server,user}}_*.deb")
    follow(site, "the files of the server")
    Reader(site, SOURCES).open_database()
    restore(site)
    follow(site, "the start of the server")
    wait_until(lambda: all_alive(site["frontend"]))
    ends_well(site, job)
    assert server.run("oar-server status --check").startswith("OAR OK")
