"""Harm at an exact moment: a program of OAR stands still in the middle of a transaction, and is killed there.

Triggers that only tests have make the database hold whoever writes a given step of a given job.  At ``EARLY`` the
transaction is open: who is killed now has written nothing.  At ``LATE`` it is being committed: who is killed now has
written it, and did not live to do anything else.  A transaction that several jobs share fails there, as if somebody had
locked the job; then each of them has one of its own, and the others are not held.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from room import layout

from tests.acceptance.harness import Cluster, wait_until

EARLY = "early"
LATE = "late"

#: Where the steps of a job are written: table, column, column with the job's number.
_WRITTEN = (("jobs", "state", "job_id"), ("job_runs", "phase", "job_id"), ("frag_jobs", "frag_state", "frag_id_job"))
#: Who stands at a stop holds an advisory lock of this class, by which he is seen.
_LOCK_CLASS = 0x46415554
_HOLD = f"""
CREATE SCHEMA fault;
CREATE TABLE fault.stops (id serial PRIMARY KEY, job_id bigint, step text, moment text);
CREATE FUNCTION fault.hold() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    moment_now text := TG_ARGV[0];
    step_now text := to_jsonb(NEW) ->> TG_ARGV[1];
    job bigint := (to_jsonb(NEW) ->> TG_ARGV[2])::bigint;
    stop integer;
BEGIN
    IF TG_OP = 'UPDATE' AND to_jsonb(OLD) ->> TG_ARGV[1] = step_now THEN
        RETURN NULL;
    END IF;
    SELECT id INTO stop FROM fault.stops WHERE job_id = job AND step = step_now AND moment = moment_now;
    IF stop IS NOT NULL THEN
        IF current_setting('lock_timeout') <> '0' THEN
            RAISE EXCEPTION 'a step shared with other jobs' USING ERRCODE = 'lock_not_available';
        END IF;
        PERFORM pg_advisory_xact_lock_shared({_LOCK_CLASS}, stop);
        WHILE EXISTS (SELECT FROM fault.stops WHERE id = stop) LOOP
            PERFORM pg_sleep(0.02);
        END LOOP;
    END IF;
    RETURN NULL;
END $$;
"""
#: Whoever writes a job meanwhile holds one table and wants the next: he goes first, not into a deadlock with this.
_NO_HOLD = """
DO $$ BEGIN
    LOOP
        BEGIN
            SET LOCAL lock_timeout = '100ms';
            DROP SCHEMA IF EXISTS fault CASCADE;
            EXIT;
        EXCEPTION WHEN lock_not_available THEN
            PERFORM pg_sleep(0.02);
        END;
    END LOOP;
    SET LOCAL lock_timeout = 0;
END $$;
"""

#: How the processes of the server are found: words of their command lines.
SERVER_PROCESSES: Mapping[str, str] = {
    "almighty": "oar.modules.almighty",
    "runner": "oar.modules.runner.bipbip_commander",
    "bipbip": "oar.modules.runner.bipbip ",
    "meta_sched": "oar.modules.meta_sched",
    "node_change_state": "oar.modules.node_change_state",
    "leon": "oar.modules.leon",
    "sarko": "oar.modules.sarko",
    "finaud": "oar.modules.finaud",
    "greta": "oar.modules.greta",
}


#: Accounts whose processes on a node belong to jobs.
PEOPLE = ("alice", "bob", "carol")


@dataclass(frozen=True)
class Step:
    """What is written about a job: a state, a phase of its launch, a state of its kill; and when the writer is held."""

    name: str
    moment: str = EARLY

    def __str__(self) -> str:
        """For the report of a failed test."""
        return f"{self.moment} at {self.name}"


class Stops:
    """Places where whoever brings a job to a step is held."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def install(self) -> None:
        """Make the triggers."""
        triggers = [
            f"CREATE TRIGGER fault_early AFTER INSERT OR UPDATE ON {table} FOR EACH ROW"
            f" EXECUTE FUNCTION fault.hold('{EARLY}', '{column}', '{job}');"
            f"CREATE CONSTRAINT TRIGGER fault_late AFTER INSERT OR UPDATE ON {table} DEFERRABLE INITIALLY DEFERRED"
            f" FOR EACH ROW EXECUTE FUNCTION fault.hold('{LATE}', '{column}', '{job}');"
            for table, column, job in _WRITTEN
        ]
        self._cluster.sql(_NO_HOLD + _HOLD + "".join(triggers))

    def remove(self) -> None:
        """Take them away; who stands at one goes on."""
        self.lift()
        self._cluster.sql(_NO_HOLD)

    def hold(self, stops: Mapping[int, Step]) -> None:
        """Hold whoever brings these jobs to these steps."""
        rows = ", ".join(f"({job}, '{one.name}', '{one.moment}')" for job, one in stops.items())
        self._cluster.sql(f"INSERT INTO fault.stops (job_id, step, moment) VALUES {rows}")

    def held(self) -> set[int]:
        """The jobs at whose stops somebody stands."""
        rows = self._cluster.sql(
            "SELECT job_id FROM fault.stops JOIN pg_locks ON objid = id::oid"
            f" WHERE locktype = 'advisory' AND classid = {_LOCK_CLASS}"
        )
        return {int(row[0]) for row in rows}

    def wait_for(self, jobs: Collection[int]) -> None:
        """Wait until somebody stands at the stops of all these jobs."""
        wanted = set(jobs)
        wait_until(lambda: wanted <= self.held(), lambda: f"somebody stands at {wanted}, not only at {self.held()}")

    def lift(self) -> None:
        """Let everybody go on."""
        self._cluster.sql("DELETE FROM fault.stops")


@contextlib.contextmanager
def stops_in(cluster: Cluster) -> Iterator[Stops]:
    """The stops of a cluster, while a test needs them."""
    stops = Stops(cluster)
    stops.install()
    try:
        yield stops
    finally:
        stops.remove()


# -- processes --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Process:
    """A process of a machine, by its number on this computer."""

    pid: int
    command: str

    def kill(self) -> None:
        """End it as nothing else does."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    @property
    def parent(self) -> int:
        """The number of its parent."""
        return int(_status_field(self.pid, "PPid"))

    @property
    def user(self) -> str:
        """The number of its account."""
        return _status_field(self.pid, "Uid").split()[0]

    @property
    def number_inside(self) -> int:
        """Its number on its machine."""
        return int(_status_field(self.pid, "NSpid").split()[-1])


class Machine:
    """The processes and files of a machine, seen from this computer."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.name = name
        self._init = int(cluster.status()["machines"][name]["pid"])
        self._namespace = os.readlink(f"/proc/{self._init}/ns/pid")

    def processes(self, words: str = "") -> list[Process]:
        """Every process whose command line contains some words."""
        found = []
        for directory in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if os.readlink(directory / "ns/pid") == self._namespace:
                    command = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    if command and words in command:
                        found.append(Process(int(directory.name), command))
        return found

    def path(self, inside: str) -> Path:
        """A file of the machine."""
        return Path(f"/proc/{self._init}/root{inside}")

    # -- on nodes --

    def session(self) -> list[Process]:
        """The warm end of the server's connection: the interpreter that sshd or sudo has started."""
        everything = {one.pid: one.command for one in self.processes()}
        return [
            Process(pid, command)
            for pid, command in everything.items()
            if "python3 -I -S -c" in command
            and everything.get(Process(pid, command).parent, "").startswith(("sudo ", "sshd:"))
        ]

    def oarexec(self, job: int) -> list[Process]:
        """The process that decides about a job."""
        number = self.state_of(job).get("pid")
        return [one for one in self.processes() if one.number_inside == number]

    def state_of(self, job: int) -> dict[str, Any]:
        """What oarexec has written about a job."""
        try:
            state: dict[str, Any] = json.loads(self.path(f"/var/lib/oar/oarexec_{job}.state").read_text())
        except FileNotFoundError:
            return {}
        return state

    def is_clean(self) -> bool:
        """Whether no job has left anything."""
        return not self.leftovers()

    def leftovers(self) -> list[str]:
        """What of ours should not be there when no job is: files of oarexec, processes of users."""
        files = [str(path) for path in self.path("/var/lib/oar").glob("oarexec_*")]
        people = [pwd for pwd in self.path("/etc/passwd").read_text().splitlines() if pwd.split(":")[0] in PEOPLE]
        numbers = {pwd.split(":")[2] for pwd in people}
        return [*files, *(one.command for one in self.processes() if one.user in numbers)]


def _status_field(pid: int, name: str) -> str:
    """A line of /proc/PID/status; of a process that is gone: a number that nobody has."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return line.partition(":")[2].strip()
    return "-1"


def processes_of(cluster: Cluster, part: str) -> list[Process]:
    """The processes of a part of the server, or the sessions on all nodes."""
    if part == "session":
        return [one for name in nodes_that_are_up(cluster) for one in Machine(cluster, name).session()]
    return Machine(cluster, "server").processes(SERVER_PROCESSES[part])


# -- what must be true afterwards -------------------------------------------------------------------------------------


def assert_sound(cluster: Cluster) -> None:
    """The database fits together, nothing is pending, nothing of a job is left on a node."""
    wait_until(lambda: not pending_events(cluster), lambda: f"no event is pending: {pending_events(cluster)}")
    check = cluster.as_user("root").attempt("oar-database --check --deep")
    assert check.code == 0, check
    for name in nodes_that_are_up(cluster):
        machine = Machine(cluster, name)
        wait_until(machine.is_clean, machine.leftovers)


def nodes_that_are_up(cluster: Cluster) -> list[str]:
    """The nodes that are not crashed."""
    machines = cluster.status()["machines"]
    return [name for name, facts in machines.items() if name not in layout.SERVERS and facts["pid"]]


def pending_events(cluster: Cluster) -> list[list[str]]:
    """Events that NodeChangeState has not treated."""
    return cluster.sql("SELECT event_id, type, job_id FROM event_logs WHERE to_check = 'YES'")


# -- jobs that are watched --------------------------------------------------------------------------------------------

#: What may become of a job: state, wait status of its command, starts of it.
RAN = ("Terminated", str(7 << 8), 1)
KILLED = ("Error", "", 1)
NEVER_RAN = ("Error", "", 0)

#: Counts its starts, waits until it may end, and ends with 7.
WORK = """\
#!/bin/sh
echo start >> starts/$OAR_JOB_ID
until [ -e end/all ] || [ -e end/$OAR_JOB_ID ]; do sleep 0.1; done
exit 7
"""


class Scene:
    """Jobs of alice that can be held at their steps."""

    def __init__(self, cluster: Cluster, stops: Stops) -> None:
        self.cluster = cluster
        self.stops = stops
        self.alice = cluster.as_user("alice")
        self.home = Machine(cluster, "server").path("/home/alice")
        self.alice.run("rm -rf starts end; mkdir starts end; cat > work; chmod 755 work", stdin=WORK)
        self.steps: dict[int, Step] = {}

    def submit(self, steps: Sequence[Step], walltime: str = "0:10") -> list[int]:
        """Submit a job for each of these steps, to be held there."""
        jobs = self.prepare(steps, f"-l /resource_id=1,walltime={walltime}")
        self.begin(jobs)
        return jobs

    def prepare(self, steps: Sequence[Step], options: str) -> list[int]:
        """The same, but the jobs do not begin yet."""
        jobs = self.alice.submit_all(f"--hold --array {len(steps)} -t timesharing=*,* {options} ./work")
        stops = dict(zip(jobs, steps, strict=True))
        self.steps |= stops
        self.stops.hold(stops)
        return jobs

    def begin(self, jobs: Sequence[int]) -> None:
        """Let jobs be scheduled."""
        self.alice.run(f"oarresume {' '.join(map(str, jobs))}")

    def go_on(self, victim: str) -> None:
        """Lift the stops; start what does not come back by itself."""
        self.stops.lift()
        if victim == "almighty":
            self.cluster.server.do("start")

    def let_end(self, *jobs: int) -> None:
        """Let the commands of some jobs end, or of all."""
        for name in jobs or ("all",):
            (self.home / "end" / str(name)).touch()

    def starts(self, job: int) -> int:
        """How often the command of a job was started."""
        path = self.home / "starts" / str(job)
        return path.read_text().count("start") if path.exists() else 0

    def facts(self) -> dict[int, tuple[str, str, int]]:
        """State, exit status and starts of each job."""
        rows = self.cluster.sql(f"SELECT job_id, state, exit_code FROM jobs WHERE job_id IN ({self._numbers})")
        return {int(job): (state, status, self.starts(int(job))) for job, state, status in rows}

    def ends_on(self, node: Machine, job: int) -> None:
        """Wait until the state file on a node tells the end of a job."""
        wait_until(lambda: node.state_of(job).get("phase") == "ended", lambda: node.state_of(job))

    def wait_for_end(self) -> None:
        """Wait until all jobs are in a final state."""
        wait_until(self.all_ended, self.told)

    def told(self) -> dict[str, object]:
        """Each step with what became of its job."""
        return {f"{job}, {self.steps[job]}": facts for job, facts in self.facts().items()}

    def assert_all(self, fate: tuple[str, str, int]) -> None:
        """Every job has ended like this, and has left nothing."""
        self.wait_for_end()
        told = self.told()
        assert told == dict.fromkeys(told, fate), told
        assert_sound(self.cluster)

    def wait_for_start(self, *jobs: int) -> None:
        """Wait until the commands of jobs run, and the server knows that they do."""
        wait_until(lambda: all(self.starts(job) for job in jobs), "the commands run")
        self.cluster.wait_for_start(*jobs)

    @property
    def _numbers(self) -> str:
        return ", ".join(map(str, self.steps))

    def all_ended(self) -> bool:
        """Whether all jobs are in a final state."""
        return all(state in ("Terminated", "Error") for state, _, _ in self.facts().values())
