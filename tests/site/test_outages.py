"""Something stops that OAR needs: the check says so, mails do where there is one, and jobs go on afterwards."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from machines.site import Done, Machine, Site, wait_until

from tests.documents import SOURCE
from tests.site.steps import begun, ends_well, reconfigured, submit, wait_for

_MAIL_PORT = 2525
_MAIL = f"""\
MAIL_SMTP_SERVER="127.0.0.1:{_MAIL_PORT}"
MAIL_SENDER="oar@server"
MAIL_RECIPIENT="root@server"
"""
#: An account that only the directory has.
_CAROL = """\
dn: ou=people,dc=nodomain
objectClass: organizationalUnit
ou: people

dn: uid=carol,ou=people,dc=nodomain
objectClass: account
objectClass: posixAccount
cn: carol
uid: carol
uidNumber: 2003
gidNumber: 2003
homeDirectory: /home/carol
loginShell: /bin/bash
"""
_HEALTHY = "OAR OK: no problems found\n"
_BLOCKER = "-l nodes=2,walltime=0:30 'while [ -e block ]; do sleep 0.2; done'"


@pytest.fixture(scope="module")
def watched(site: Site) -> Iterator[Site]:
    """The site with mails to its administrator."""
    server = site["server"]
    server.write("/root/smtp.py", (SOURCE / "tests" / "smtp.py").read_text())
    server.run(f"systemd-run --unit=mails sh -c 'exec python3 /root/smtp.py {_MAIL_PORT} >/root/mails'")
    wait_until(lambda: "listening" in server.run("cat /root/mails"))
    with reconfigured(server, _MAIL):
        server.run("systemctl reload oar-server.service")
        yield site
    server.run("systemctl stop mails; rm /root/mails /root/smtp.py")


@pytest.fixture(scope="module")
def directory(watched: Site) -> Iterator[Machine]:
    """The server, which has a name service, too, by which all machines know carol."""
    server, machines = watched["server"], watched.machines.values()
    server.run("systemctl stop slapd && slapadd && chown -R openldap:openldap /var/lib/ldap", stdin=_CAROL)
    server.run("systemctl start slapd && install -d -o 2003 -g 2003 /home/carol")
    for machine in machines:
        machine.run("cp -a /etc/nslcd.conf /etc/nslcd.conf.kept; cp -a /etc/nsswitch.conf /etc/nsswitch.conf.kept")
        machine.run("sed -i 's,^uri .*,uri ldap://server/,; s/^base .*/base dc=nodomain/' /etc/nslcd.conf")
        machine.run(
            "sed -Ei 's/^(passwd|group): *files.*/\\1: files ldap/' /etc/nsswitch.conf; systemctl restart nslcd"
        )
    wait_until(lambda: all("carol" in machine.run("getent passwd carol") for machine in machines))
    yield server
    for machine in machines:
        machine.run("mv /etc/nslcd.conf.kept /etc/nslcd.conf; mv /etc/nsswitch.conf.kept /etc/nsswitch.conf")
        machine.run("systemctl restart nslcd")


def check(site: Site) -> Done:
    """What monitoring sees."""
    return site["server"].attempt("oar-server status --check")


def mails(site: Site, subject: str) -> list[str]:
    """The texts of the mails of this subject."""
    lines = site["server"].run("cat /root/mails").splitlines()[1:]
    return [mail["text"] for mail in map(json.loads, lines) if f"\nSubject: {subject}\n" in mail["text"]]


def submit_as_carol(site: Site) -> str:
    """Submit a short job; return its number."""
    printed = site["frontend"].run("cd && oarsub -l core=1 true", user="carol")
    return printed.rpartition("OAR_JOB_ID=")[2].strip()


def last_job_of_carol(site: Site) -> str:
    """The state of her last job, which may be a copy of the one that she submitted."""
    statement = "SELECT state FROM jobs WHERE job_user = 'carol' ORDER BY job_id DESC LIMIT 1"
    return site["server"].run("su postgres -c 'psql -At oar'", stdin=statement)


def test_a_directory_that_stops_holds_its_users_and_nobody_else(directory: Machine, watched: Site) -> None:
    watched["frontend"].run("touch block", user="alice")
    wait_for(watched, submit(watched, _BLOCKER), "Running")
    submit_as_carol(watched)
    directory.run("systemctl stop slapd")
    watched["frontend"].run("rm block", user="alice")
    wait_until(lambda: "the account carol is unknown" in check(watched).out)
    assert check(watched).code == 1
    wait_until(lambda: mails(watched, "Launches of carol are held") != [])
    assert "The account carol is unknown." in mails(watched, "Launches of carol are held")[0]
    wait_for(watched, submit(watched, "-l core=1 true"), "Terminated")  # alice is in the files of each machine
    directory.run("systemctl start slapd")
    wait_until(lambda: last_job_of_carol(watched) == "Terminated\n", 600)
    wait_until(lambda: check(watched).out == _HEALTHY)


def test_commands_of_local_users_do_not_wait_for_a_directory_that_hangs(directory: Machine, watched: Site) -> None:
    """``timeout`` ends them long before nslcd gives the directory up."""
    directory.run("systemctl kill --signal=STOP slapd")
    try:
        assert watched["frontend"].attempt("timeout 9 oarstat", user="alice").code == 0
    finally:
        directory.run("systemctl kill --signal=CONT slapd")


def test_a_database_that_falls_silent_is_told_and_jobs_go_on(watched: Site) -> None:
    job, server = begun(watched), watched["server"]
    unit = server.run("systemctl list-units --no-legend --plain 'postgresql@*'").split()[0]
    server.run(f"systemctl freeze {unit}")
    try:
        told = check(watched)
        assert (told.code, "the database cannot be used" in told.out) == (2, True)
    finally:
        server.run(f"systemctl thaw {unit}")
    ends_well(watched, job)
    wait_until(lambda: check(watched).out == _HEALTHY)


def test_a_queue_that_is_stopped_is_told_to_its_users(watched: Site) -> None:
    server = watched["server"]
    server.run("oarqueue -d default")
    job = submit(watched, "-l core=1 true")
    reason = "The queue default is stopped: an administrator has to enable it."
    wait_until(lambda: reason in watched["frontend"].run(f"oarstat --explain {job}", user="alice"))
    server.run("oarqueue -e default")
    wait_for(watched, job, "Terminated")
    wait_until(lambda: check(watched).out == _HEALTHY)


def test_a_rule_that_fails_is_told_until_it_is_removed(watched: Site) -> None:
    server, frontend = watched["server"], watched["frontend"]
    made = server.run("echo 'limit = LIMITS[user]' | oaradmissionrules -n -r - -Y")
    rule = made.rpartition("#")[2].strip()
    for _ in range(3):
        refused = frontend.attempt("oarsub true", user="alice")
        assert (refused.code, f"(rule {rule})" in refused.err) == (254, True)
    wait_until(lambda: f"(rule {rule})" in check(watched).out)
    assert check(watched).code == 1
    server.run(f"oaradmissionrules -d {rule}")
    wait_for(watched, submit(watched, "-l core=1 true"), "Terminated")
    wait_until(lambda: check(watched).out == _HEALTHY)
