"""Databases of older versions of OAR, made of the files that those shipped, with rows as their programs write them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from machines import roots
from room import cache

from tests.postgres import PostgreSQL

#: The last release of Debian that has OAR 2.5.
_SUITE, _PACKAGE = "bookworm", "oar-server"

NOW = 1_700_000_000
#: What an administrator of OAR 2.5 adds with oarproperty.
_PROPERTIES = """
    ALTER TABLE resources ADD host varchar(255), ADD cpu integer, ADD core integer, ADD switch varchar(50),
        ADD gpu bigint, ADD disk varchar(255), ADD serial bigint, ADD "Rack" varchar(10);
"""
_RESOURCE = """
    INSERT INTO resources (network_address, state, state_num, host, cpu, core, gpu, disk, cpuset, serial)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, 9000000000)"""
_JOB = """
    INSERT INTO jobs (job_name, job_type, state, job_user, project, command, exit_code, queue_name, properties,
        launching_directory, submission_time, start_time, stop_time, accounted, checkpoint_signal, message,
        initial_request, reservation)
    VALUES (%(name)s, %(job_type)s, 'Waiting', %(user)s, 'default', '/bin/date', %(exit_code)s, %(queue)s,
        %(condition)s, '/home/alice', %(submitted)s, 0, 0, 'NO', 12, '', 'oarsub /bin/date', %(reservation)s)
    RETURNING job_id"""


def shipped() -> Path:
    """The SQL files of OAR 2.5 as Debian has them; they are fetched once."""
    place = cache.kept("oar-2.5-server", lambda place: roots.unpack(_SUITE, _PACKAGE, place))
    return place / "unpacked/usr/lib/oar/database"


class OldSite:
    """A site under OAR 2.5: its database, and what happens there."""

    def __init__(self, postgres: PostgreSQL, name: str) -> None:
        self.host = postgres.socket
        self.address = f"postgresql:///{name}?host={postgres.socket}&user=old"
        self._connection = postgres.connect(name, "old")

    def install(self) -> None:
        """Do what its oar-database did."""
        for file in ("pg_structure.sql", "default_data.sql", "pg_default_admission_rules.sql"):
            self.run((shipped() / file).read_text())

    def close(self) -> None:
        """Leave it."""
        self._connection.close()

    def run(self, statement: str, *values: object) -> None:
        """Run statements."""
        with self._connection.cursor() as cursor:
            cursor.execute(statement, values or None)

    def value(self, question: str, *values: object) -> Any:
        """The answer to a question."""
        with self._connection.cursor() as cursor:
            cursor.execute(question, values or None)
            row = cursor.fetchone()
            return row[0] if row else None

    def rows(self, question: str) -> list[tuple[Any, ...]]:
        """All rows of an answer."""
        with self._connection.cursor() as cursor:
            cursor.execute(question)
            return cursor.fetchall()

    # -- what its programs do ----------------------------------------------------------------------------------------

    def add_nodes(self) -> None:
        """Two nodes with two cores each, the second one suspected, and a history of their states."""
        self.run(_PROPERTIES)
        for number in range(4):
            node = number // 2 + 1
            state = "Alive" if node == 1 else "Suspected"
            values = (f"node-{node}", state, 1 if node == 1 else 3, f"node-{node}", node, number + 1)
            self.run(_RESOURCE, *values, number, "nvme", str(number % 2))
            self._log_state(number + 1, "Alive", NOW - 9000)
            if node == 2:
                self._log_state(number + 1, "Suspected", NOW - 100)

    def _log_state(self, resource: int, state: str, date: int) -> None:
        self.run(
            "UPDATE resource_logs SET date_stop = %s WHERE date_stop = 0 AND attribute = 'state' AND resource_id = %s",
            date,
            resource,
        )
        self.run(
            "INSERT INTO resource_logs (resource_id, attribute, value, date_start) VALUES (%s, 'state', %s, %s)",
            resource,
            state,
            date,
        )

    def submit(self, user: str = "alice", **changes: object) -> int:
        """Do what oarsub did; return the number of the job."""
        values = {
            "user": user,
            "name": None,
            "job_type": "PASSIVE",
            "exit_code": None,
            "queue": "default",
            "condition": "type = 'default'",
            "submitted": NOW,
            "reservation": "None",
            **changes,
        }
        with self._connection.cursor() as cursor:
            cursor.execute(_JOB, values)
            (job,) = cursor.fetchone() or (0,)
        self.run("UPDATE jobs SET array_id = job_id WHERE job_id = %s", job)
        self.run("INSERT INTO challenges (job_id, challenge, ssh_private_key) VALUES (%s, 'abc', 'key')", job)
        moldable = self.value(
            "INSERT INTO moldable_job_descriptions (moldable_job_id, moldable_walltime) VALUES (%s, 3600)"
            " RETURNING moldable_id",
            job,
        )
        group = self.value(
            "INSERT INTO job_resource_groups (res_group_moldable_id, res_group_property) VALUES (%s, '')"
            " RETURNING res_group_id",
            moldable,
        )
        self.run("INSERT INTO job_resource_descriptions VALUES (%s, 'resource_id', 1, 0)", group)
        self.run("INSERT INTO job_types (job_id, type) VALUES (%s, 'idempotent')", job)
        self.run(
            "INSERT INTO job_state_logs (job_id, job_state, date_start) VALUES (%s, 'Waiting', %s)",
            job,
            values["submitted"],
        )
        return int(job)

    def submit_array(self, count: int) -> list[int]:
        """Do what oarsub --array did; return the numbers of the jobs."""
        jobs = [self.submit() for _ in range(count)]
        for index, job in enumerate(jobs, 1):
            self.run("UPDATE jobs SET array_id = %s, array_index = %s WHERE job_id = %s", jobs[0], index, job)
        return jobs

    def add_alternative(self, job: int, walltime: int, cores: int) -> int:
        """Do what a second -l did; return the number of the description."""
        moldable = self.value(
            "INSERT INTO moldable_job_descriptions (moldable_job_id, moldable_walltime) VALUES (%s, %s)"
            " RETURNING moldable_id",
            job,
            walltime,
        )
        group = self.value(
            "INSERT INTO job_resource_groups (res_group_moldable_id, res_group_property) VALUES (%s, '')"
            " RETURNING res_group_id",
            moldable,
        )
        self.run("INSERT INTO job_resource_descriptions VALUES (%s, 'core', %s, 0)", group, cores)
        return int(moldable)

    def set_state(self, job: int, state: str, date: int) -> None:
        """Do what set_job_state did."""
        self.run("UPDATE jobs SET state = %s WHERE job_id = %s", state, job)
        self.run("UPDATE job_state_logs SET date_stop = %s WHERE date_stop = 0 AND job_id = %s", date, job)
        self.run("INSERT INTO job_state_logs (job_id, job_state, date_start) VALUES (%s, %s, %s)", job, state, date)

    def start(self, job: int, resource: int = 1) -> None:
        """Do what the scheduler and bipbip did."""
        self.run("UPDATE jobs SET start_time = submission_time + 10 WHERE job_id = %s", job)
        moldable = self.value("SELECT moldable_id FROM moldable_job_descriptions WHERE moldable_job_id = %s", job)
        self.run("UPDATE jobs SET assigned_moldable_job = %s WHERE job_id = %s", moldable, job)
        self.run("INSERT INTO assigned_resources (moldable_job_id, resource_id) VALUES (%s, %s)", moldable, resource)
        for state in ("toLaunch", "Launching", "Running"):
            self.set_state(job, state, NOW + 10)

    def end(self, job: int, exit_code: int | None = 0, state: str = "Terminated", event: str = "") -> None:
        """Do what bipbip and NodeChangeState did."""
        if event:
            self.add_event(event, job)
        self.run(
            "UPDATE jobs SET stop_time = start_time + 60, exit_code = %s WHERE job_id = %s",
            exit_code,
            job,
        )
        self.set_state(job, state, NOW + 70)
        self.run(
            "UPDATE moldable_job_descriptions SET moldable_index = 'LOG' WHERE moldable_job_id = %s",
            job,
        )

    def add_event(self, kind: str, job: int = 0, host: str = "") -> None:
        """Do what add_new_event did: some events wait for a module."""
        event = self.value(
            "INSERT INTO event_logs (type, job_id, date, description) VALUES (%s, %s, %s, 'told') RETURNING event_id",
            kind,
            job,
            NOW,
        )
        if host:
            self.run("INSERT INTO event_log_hostnames (event_id, hostname) VALUES (%s, %s)", event, host)

    def live(self) -> None:
        """Fill it with a week of work."""
        self.add_nodes()
        for code, event in ((0, ""), (256, ""), (9, ""), (0, "WALLTIME"), (0, "FRAG_JOB_REQUEST"), (127 << 8, "")):
            job = self.submit()
            self.start(job)
            self.end(job, code, "Error" if event == "WALLTIME" else "Terminated", event)
        refused = self.submit(queue="besteffort")
        self.set_state(refused, "Error", NOW + 5)
        self.submit("bob", name="first in line")
        held = self.submit("bob")
        self.set_state(held, "Hold", NOW + 2)
        self.add_event("PING_CHECKER_NODE_SUSPECTED", host="node-2")
        self.run("INSERT INTO accounting VALUES (%s, %s, 'alice', 'default', 'default', 'USED', 360)", NOW, NOW + 86399)
        self.run("INSERT INTO gantt_jobs_predictions_log VALUES (%s, 1, %s)", NOW, NOW)
        self.run("INSERT INTO frag_jobs VALUES (5, %s, 'TIMER_ARMED')", NOW)


def rules(path: Path) -> Iterator[str]:
    """The texts of the rules in a file of OAR 2.5, as PostgreSQL or MySQL would store them."""
    pattern = r"VALUES \(\d+, '(?:YES|NO)', E?'((?:[^'\\]|''|\\.)*)'\);"
    for text in re.findall(pattern, path.read_text(), re.DOTALL):
        plain = text.replace("''", "'")
        yield re.sub(r"\\(.)", lambda match: {"n": "\n"}.get(match[1], match[1]), plain)
