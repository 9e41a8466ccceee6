"""Debian packages on a site: what they enable, that nothing changes them, their removal and purge."""

from __future__ import annotations

from pathlib import Path

from machines.site import Machine, Site

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
