"""A week of work compressed into a morning: everything that happens to a site, one after the other, and all at once.

At its end nothing is left of any job, the accounting is the sum of what ran, and each job is told exactly once.
"""

from __future__ import annotations

import json

from machines.site import Site, wait_until

from tests.site.conftest import NEXT, NEXT_SCHEMA
from tests.site.steps import (
    all_alive,
    back_up,
    begun,
    ends_well,
    follow_chapter,
    mpi_begun,
    mpi_ends_well,
    restore,
    state,
    submit,
    wait_for,
)

_APT = "DEBIAN_FRONTEND=noninteractive apt-get -y"
_NODES = ("node-1", "node-2")
_TOLD = "/var/log/oar-completions.json"
#: What a site that bills, and looks at what it bills, adds to its configuration.
_CONF = f"""
COMPLETION_LOG="{_TOLD}"
RESERVATION_ACCOUNTING="users"
RETENTION_JOBS="30"
"""
#: What alice has used, by the accounting, and by the assignments of those of her jobs that it has counted.
_COUNTED = """
    SELECT COALESCE(sum(consumption), 0) FROM accounting WHERE consumption_type = 'USED' AND accounting_user = 'alice'
"""
_USED = """
    SELECT COALESCE(sum(j.stop_time - j.start_time), 0)
    FROM jobs j JOIN assigned_resources a ON a.moldable_job_id = j.assigned_moldable_job
    WHERE j.start_time > 0 AND j.job_id >= {first} AND j.job_user = 'alice' AND accounted = 'YES'
"""


def asked(site: Site, query: str) -> str:
    """What the database answers to a statement."""
    return site["server"].run("sudo -u postgres psql -qtA oar", stdin=query).strip()


def reservation(site: Site) -> str:
    """An advance reservation of bob's, which has begun, for him and alice."""
    site["server"].run("oaruserset -a bob arusers")
    granted = site["frontend"].run("qrsub -d 600 -u alice,bob -l /core=1", user="bob")
    return granted.split()[2]


def submitted_array(site: Site, size: int, command: str) -> list[str]:
    """Submit an array of alice's; the numbers of its jobs."""
    printed = site["frontend"].run(f"oarsub --array {size} -l core=1,walltime=0:05 '{command}'", user="alice")
    jobs = [line.partition("=")[2] for line in printed.splitlines() if line.startswith("OAR_JOB_ID=")]
    assert len(jobs) == size
    return jobs


def test_a_week(site: Site) -> None:
    server = site["server"]
    server.run("cat >> /etc/oar/oar.conf", stdin=_CONF)
    server.run("systemctl restart oar-server.service && oaraccounting -q")
    counted = int(asked(site, _COUNTED))
    first, second = (submit(site, "-l core=1,walltime=0:05 true") for _ in range(2))
    monday(site, first, second)
    tuesday(site)
    wednesday(site)
    thursday(site)
    friday(site)
    nothing_is_left(site)
    server.run("oaraccounting -q")
    used = int(asked(site, _USED.format(first=first)))
    assert int(asked(site, _COUNTED)) - counted == used > 0
    each_job_is_told_once(site, first)
    sunday(site, first, second)


def monday(site: Site, *before: str) -> None:
    """Jobs of each kind: in an advance reservation, with a date, of an array, one that is suspended for a while."""
    for job in before:
        wait_for(site, job, "Terminated")
    number = reservation(site)
    dated = submit(site, """-r "$(date -d '+40 sec' '+%F %T')" -l core=1,walltime=0:01 true""")
    array = submitted_array(site, 8, "sleep 1")
    inside = submit(site, f"--ar {number} -l core=1,walltime=0:01 true")
    frozen = begun(site)
    site["server"].run(f"oarhold -r {frozen}")
    wait_for(site, frozen, "Suspended")
    site["server"].run(f"oarresume {frozen}")
    wait_for(site, frozen, "Running")
    ends_well(site, frozen)
    for job in (*array, inside, dated):
        wait_for(site, job, "Terminated")
    site["frontend"].run(f"qrdel {number}", user="bob")


def tuesday(site: Site) -> None:
    """A node is rebooted under a job, PostgreSQL and the server under another one, while jobs come and go."""
    lost = begun(site, """-p "network_address='node-2'" """)
    site["node-2"].reboot()
    wait_for(site, lost, "Error")
    kept = begun(site, """-p "network_address='node-1'" """)
    site["server"].run("systemctl restart postgresql.service")
    meanwhile = submit(site, "-l core=1,walltime=0:05 true")
    site["server"].reboot()
    wait_until(lambda: site["server"].run("systemctl is-active oar-server.service") == "active\n")
    wait_for(site, meanwhile, "Terminated")
    ends_well(site, kept)
    wait_until(lambda: all_alive(site["frontend"]))


def wednesday(site: Site) -> None:
    """The logs are turned over again and again while jobs run and end."""
    site["frontend"].run("touch go", user="alice")
    array = submitted_array(site, 20, "while [ -e go ]; do sleep 0.1; done")
    turned = 0
    while not {*map(int, array)} <= {*told(site)}:
        site["server"].run("logrotate --force /etc/logrotate.d/oar")
        turned += 1
        if turned == 2:  # so that it happens again, and while they run
            site["frontend"].run("rm go", user="alice")


def thursday(site: Site) -> None:
    """The next release comes while a job runs; then the site goes back to a dump of before."""
    server, job = site["server"], mpi_begun(site)
    back_up(site)
    server.run(f"{_APT} install {NEXT}/oar-{{common,python,server,user}}_*.deb")
    assert server.attempt("systemctl is-active oar-server.service").out == "inactive\n"
    assert f"Upgrading to {NEXT_SCHEMA}." in server.run("oar-database --setup")
    server.run("systemctl start oar-server.service")
    assert state(site, job) == "Running"  # the frontend has the former release
    follow_chapter(site["frontend"], "upgrade of a frontend", packages=NEXT)
    for node in _NODES:
        follow_chapter(site[node], "upgrade of a node", packages=NEXT)
    assert state(site, job) == "Running"
    restore(site)
    server.run("oar-database --check --deep")
    mpi_ends_well(site, job)
    lost = mpi_begun(site)
    site["node-2"].reboot()
    wait_for(site, lost, "Error", "Terminated")
    wait_until(lambda: all_alive(site["frontend"]))
    mpi_ends_well(site, mpi_begun(site))
    environments = server.run("ls /usr/lib/oar/environments").split()
    assert len(environments) == 2  # that of the release before is kept for what is running in it


def friday(site: Site) -> None:
    """A node is drained while a job is there, gets no other one, and takes jobs again."""
    here = """-p "network_address='node-1'" """
    job = begun(site, here)
    site["server"].run("oarnodesetting -h node-1 --drain on")
    following = submit(site, f"{here} -l core=1,walltime=0:05 true")
    ends_well(site, job)
    assert state(site, following) == "Waiting"
    site["server"].run("oarnodesetting -h node-1 --drain off")
    wait_for(site, following, "Terminated")


def sunday(site: Site, first: str, second: str) -> None:
    """What is old is removed; what is not stays."""
    month = 40 * 86400
    asked(site, f"UPDATE jobs SET stop_time = stop_time - {month} WHERE job_id = {first}")
    purge = site["server"].attempt("oar-database --purge")
    if purge.code:  # the clock seems to have jumped over a month, and no time service keeps it
        assert "If the date is right: oar-database --purge --trust-clock" in purge.err
        site["server"].run("oar-database --purge --trust-clock")
    assert asked(site, f"SELECT count(*) FROM jobs WHERE job_id = {first}") == "0"
    assert asked(site, f"SELECT count(*) FROM jobs WHERE job_id = {second}") == "1"
    site["server"].run("oar-database --check --deep")


def nothing_is_left(site: Site) -> None:
    """No job, no process, no control group and no key of one."""
    wait_until(lambda: all_alive(site["frontend"]))
    assert asked(site, "SELECT count(*) FROM jobs WHERE state NOT IN ('Terminated', 'Error')") == "0"
    for name in _NODES:
        node = site[name]
        wait_until(lambda node=node: node.attempt("pgrep --uid alice,bob").out == "")  # type: ignore[misc]
        assert node.run("find /sys/fs/cgroup /run/cgroup -maxdepth 4 -type d -name 'alice_*' 2>/dev/null; true") == ""
        keys = "cat /var/lib/oar/.ssh/authorized_keys_jobs 2>/dev/null; ls /var/lib/oar | grep -E '_[0-9]+$'; true"
        assert node.run(keys) == ""


def told(site: Site) -> list[int]:
    """The numbers in the completion log and all files into which it was turned over."""
    lines = site["server"].run(f"zcat --force {_TOLD}*").splitlines()
    return [int(json.loads(line)["job_id"]) for line in lines]


def each_job_is_told_once(site: Site, first: str) -> None:
    """Each job since the beginning that the database knows is in the completion log, and none twice."""
    jobs = asked(site, f"SELECT job_id FROM jobs WHERE job_user = 'alice' AND job_id >= {first}")
    ended = {int(each) for each in jobs.split()}
    wait_until(lambda: ended <= {*told(site)})
    numbers = told(site)
    assert len(numbers) == len({*numbers})
