"""Debian packages on a site: upgraded while a job runs, removed, and purged."""

from __future__ import annotations

from pathlib import Path

from machines.site import Machine, Site, wait_until

from tests.site.conftest import NEXT, NEXT_VERSION
from tests.site.steps import all_alive, back_up, mpi_begun, mpi_ends_well, restore, state, wait_for

_APT = "DEBIAN_FRONTEND=noninteractive apt-get -y"


def version(machine: Machine, package: str) -> str:
    """The version of a package on a machine, nothing where it is not."""
    return machine.attempt(f"dpkg-query --showformat '${{db:Status-Abbrev}}${{Version}}' --show {package}").out


def test_what_a_site_expects_is_enabled_by_the_packages(site: Site) -> None:
    asked = site["server"].run("systemctl is-enabled oar-server.service oar-accounting.timer oar-purge.timer")
    assert asked.split() == ["enabled"] * 3
    assert site["node-1"].run("systemctl is-enabled oar-node.service") == "enabled\n"
    site["server"].run("logrotate --debug /etc/logrotate.d/oar")
    assert "ii" in version(site["frontend"], "oar-user")


def test_nothing_of_the_packages_was_changed_by_what_runs(site: Site) -> None:
    for machine in site.machines.values():
        changed = machine.attempt("dpkg --verify 'oar-*'").out
        assert not [line for line in changed.splitlines() if "/etc/" not in line]


def test_a_job_runs_on_through_an_upgrade_and_the_restore_of_a_dump_of_before(site: Site) -> None:
    job = mpi_begun(site)
    back_up(site)
    site["server"].run(f"{_APT} install {NEXT}/oar-{{common,python,server,user}}_*.deb")
    if version(site["server"], "oar-server").startswith(f"ii {NEXT_VERSION}"):
        stopped = site["server"].attempt("systemctl is-active oar-server.service")
        assert stopped.out == "inactive\n"
    told = site["server"].run("oar-database --setup")
    assert f"Upgrading to {NEXT_VERSION}." in told
    site["server"].run("systemctl start oar-server.service")
    refused = site["frontend"].attempt("oarstat", user="alice")
    assert refused.code != 0
    assert "version" in refused.err
    site["frontend"].run(f"{_APT} install {NEXT}/oar-{{common,python,user}}_*.deb")
    assert state(site, job) == "Running"
    restore(site)
    site["server"].run("oar-database --check --deep")
    mpi_ends_well(site, job)
    lost = mpi_begun(site)
    site["node-2"].reboot()
    wait_for(site, lost, "Error", "Terminated")
    wait_until(lambda: all_alive(site["frontend"]))
    mpi_ends_well(site, mpi_begun(site))
    environments = site["server"].run("ls /usr/lib/oar/environments").split()
    assert len(environments) == 2  # that of the release before is kept for what is running in it


def test_a_purge_leaves_nothing_but_the_database_which_a_new_installation_finds(packages: Path) -> None:
    with Site({"server": "trixie"}, lambda top: None, [f"{packages}:/srv"]) as site:
        machine = site["server"]
        machine.run(f"{_APT} install /srv/oar-*.deb")
        words = "-e 's/^#* *DB_BASE_PASSWD=.*/DB_BASE_PASSWD=x/' -e 's/^#* *DB_BASE_PASSWD_RO=.*/DB_BASE_PASSWD_RO=y/'"
        machine.run(f"sed -i {words} /etc/oar/oar.conf && oar-database --create --db-is-local")
        machine.run("systemctl start oar-server.service && systemctl enable --now oar-node-script.service")
        machine.run("oarnodesetting -a -h node-of-before")
        machine.run(f"{_APT} remove 'oar-*'")
        assert machine.run("ls /etc/oar/oar.conf")
        assert "oar-server: the database is kept" in machine.run(f"{_APT} purge 'oar-*'")
        places = " ".join(f"-not -path '{each}'" for each in ("/proc/*", "/srv/*", "/var/lib/postgresql/*", "*board*"))
        assert machine.run(f"find / -xdev -name '*oar*' {places}") == ""
        assert "oar" in machine.run("su postgres -c 'psql -l'")
        machine.run(f"{_APT} install /srv/oar-*.deb")
        machine.run(f"sed -i {words.replace('=x/', '=new/')} /etc/oar/oar.conf")
        assert "is up to date" in machine.run("oar-database --setup --db-is-local")
        machine.run("systemctl start oar-server.service")
        assert machine.run("oarnodes -l") == "node-of-before\n"
