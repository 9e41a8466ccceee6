"""Programs that parse our commands, in a small room of their own; they come from the package index, once."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tests.acceptance.harness import Cluster, Person, Result, checked
from tests.documents import SOURCE, named_blocks

REQUIREMENTS = Path(__file__).parent / "programs.txt"
ENGINES = Path(__file__).parent / "engines.txt"


@dataclass(frozen=True)
class Desk:
    """Where somebody works with the programs: a directory of the home, which all machines share."""

    cluster: Cluster
    person: Person
    venv: Path
    name: str

    @classmethod
    def made(cls, cluster: Cluster, venv: Path, name: str) -> Desk:
        """A new one, empty."""
        person = cluster.as_user("alice")
        person.run(f"rm -rf ~/{name} && mkdir ~/{name}")
        return cls(cluster, person, venv, name)

    def put(self, name: str, text: str = "") -> None:
        """Write a file; without a text it is the one that the user guide shows."""
        text = text or named_blocks(SOURCE / "docs" / "user-guide.rst")[name]
        self.person.run(
            f'cd {self.name} && mkdir -p "$(dirname {name})" && cat >{name} && chmod 755 {name}', stdin=text
        )

    def attempt(self, command: str, *, stdin: str = "") -> Result:
        """Run a command in the directory, with the programs in the path."""
        environment = {
            "PATH": f"{self.venv}/bin:/usr/local/bin:/usr/bin:/bin",
            "LOGNAME": self.person.name,
            "NO_ET": "1",  # nipype would ask the network for its newest version
        }
        return self.person.attempt(f"cd {self.name} && {{\n{command}\n}}", stdin=stdin, env=environment)

    def run(self, command: str, *, stdin: str = "") -> str:
        """The same; it has to succeed.  What it printed."""
        return checked(self.attempt(command, stdin=stdin)).out

    def states(self, condition: str) -> list[str]:
        """The states of all jobs that satisfy a condition."""
        return [row[0] for row in self.cluster.sql(f"SELECT state FROM jobs WHERE {condition} ORDER BY job_id")]

    def hosts(self, condition: str) -> set[str]:
        """The nodes on which such jobs ran."""
        printed = self.person.run(["oarstat", "-J", "--sql", condition])
        return {host for job in json.loads(printed).values() for host in job["assigned_network_address"]}
