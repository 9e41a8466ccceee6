"""The installation chapter, typed as it stands on the machines of a site."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from machines.site import Machine, Site

from tests.documents import SOURCE, named_blocks

_CHAPTER = SOURCE / "docs" / "installation.rst"
_PROMPT = re.compile(r"    (?:(alice)@)?(server|frontend|node)[#$] (.+)")
_ANY_PROMPT = re.compile(r"    [\w@-]+[#$] ")
#: Where the programs come from: by packages, or by another section instead.
_PACKAGES, _SOURCES = "Programs", "From the sources"
#: Sections that an administrator reads for later.
_FOR_LATER = {"A server for the commands of users", "Mail", "Upgrade", "Rolling upgrade", "Removal"}
_FOR_LATER |= {"The REST API", "Back to the former release"}
#: Commands beside which the chapter names another way, which is the one that is typed here.
_OTHER_WAYS = (
    "setup/install",
    "oar-database --create --db-admin-user",
    "oar_resources_add",
    "oarproperty --add",
    "oarnodesetting -a",
    "oar-keys --node",
)


@dataclass(frozen=True)
class Step:
    """A command of the chapter, and the machine on which it is typed; or the name of a block that is filled in."""

    section: str
    where: str
    command: str
    user: str = "root"
    shown: tuple[str, ...] = ()  #: what it prints, as the chapter shows it; () where nothing is shown

    def prints(self, printed: str) -> bool:
        """Whether this is what is shown: ``...`` stands for anything, and alone for any lines."""
        pattern = "".join(_line_pattern(line) for line in self.shown)
        return not self.shown or re.fullmatch(pattern, printed) is not None


def _line_pattern(line: str) -> str:
    if line.strip() == "...":
        return r"(?:.*\n)*"
    return ".*".join(map(re.escape, line.split("..."))) + r"\s*\n"


def steps(*, by_packages: bool = True, chapter: Path = _CHAPTER) -> Iterator[Step]:
    """Everything that the chapter has its reader do, in its order."""
    written = list(_written(chapter))
    from_sources = [step for step in written if step.section == _SOURCES]
    for step in written:
        if step.section == _SOURCES or step.section in _FOR_LATER:
            continue
        if step.section != _PACKAGES or by_packages:
            yield step
        elif from_sources:
            yield from from_sources
            from_sources = []


def _written(chapter: Path) -> Iterator[Step]:
    """Every command of the chapter, where it stands."""
    lines = chapter.read_text().split("\n")
    section = ""
    for number, (line, below) in enumerate(zip(lines, [*lines[1:], ""], strict=True)):
        if re.fullmatch(r"-{3,}", below):
            section = line
        if line.startswith(".. tested: "):
            yield Step(section, "", line.removeprefix(".. tested: "))
        elif (match := _PROMPT.fullmatch(line)) and not match[3].startswith(_OTHER_WAYS):
            yield Step(section, match[2], match[3], match[1] or "root", tuple(_shown(lines[number + 1 :])))


def _shown(lines: Sequence[str]) -> Iterator[str]:
    """The lines below a command, up to the next one or the end of the block."""
    for line in lines:
        if not line.startswith("    ") or _ANY_PROMPT.match(line):
            return
        yield line[4:]


class Reader:
    """An administrator who installs OAR on the machines of a site, and knows nothing but the chapter."""

    def __init__(self, site: Site, directory: str, chapter: Path = _CHAPTER) -> None:
        """``directory``: the sources, on each machine."""
        self._site = site
        self._directory = directory
        self._chapter = chapter
        self._blocks = named_blocks(chapter)

    def install(self, *, by_packages: bool = True) -> None:
        """Do all of it."""
        for step in steps(by_packages=by_packages, chapter=self._chapter):
            if step.where:
                for machine in self._machines(step.where):
                    # Asked whether to install more than was named, the reader says yes.
                    typed = "y\n" if step.command.startswith("apt-get") else ""
                    place = "" if step.user != "root" else f"cd {self._directory} && "
                    printed = machine.run(f"exec 2>&1; {place}{step.command}", user=step.user, stdin=typed)
                    assert step.prints(printed), f"{machine.name}: {step.command}\n{printed}"
            else:
                getattr(self, f"_{step.command.replace(' ', '_')}")(self._blocks[step.command])

    def _machines(self, role: str) -> list[Machine]:
        """The machines of this role; the server, where none has it."""
        machines = self._site.machines
        return [machine for name, machine in machines.items() if name.startswith(role)] or [machines["server"]]

    def open_database(self) -> None:
        """Give the frontends access to a new PostgreSQL."""
        self._access_to_the_database(self._blocks["access to the database"])

    # -- what the chapter has its reader fill in, by the names of its blocks -------------------------------------

    def _local_accounts_need_no_directory(self, block: str) -> None:
        for machine in self._site.machines.values():
            machine.run("cat >> /etc/nslcd.conf && systemctl restart nslcd", stdin=block)

    def _keys_of_a_node(self, block: str) -> None:
        """The public halves of both keys, on each node; the oarsh key, where users are."""
        server = self._site["server"]
        home = "/var/lib/oar/.ssh"
        for name in ("id_ed25519", "oarsh_key"):
            public = server.run(f"cat {home}/{name}.pub").split()
            block = re.sub(r"ssh-ed25519 AAAA\S+ .+", f"{public[0]} {public[1]}", block, count=1)
        for machine in [*self._machines("node"), *self._machines("frontend")]:
            machine.run(f"install -d -o oar -g oar -m 700 {home}")
            for name in ("oarsh_key", "oarsh_key.pub"):
                self._copy(machine, f"{home}/{name}")
        for machine in self._machines("node"):
            self._give(machine, f"{home}/authorized_keys", block)

    def _known_hosts(self, _: str) -> None:
        for machine in [*self._machines("node"), *self._machines("frontend")]:
            self._copy(machine, "/var/lib/oar/.ssh/known_hosts")

    def _configuration_of_a_node(self, block: str) -> None:
        for machine in self._machines("node"):
            machine.write("/etc/oar/oar.conf", block)
            machine.run("chmod 644 /etc/oar/oar.conf")

    def _configuration_of_the_server(self, block: str) -> None:
        conf = self._site["server"].run("cat /etc/oar/oar.conf")
        for line in block.splitlines():
            name, value = line.split("=")
            conf = re.sub(rf"(?m)^#?\s*{name}=.*$", f"{name}={value.replace('...', 'chosen by the reader')}", conf)
        self._site["server"].write("/etc/oar/oar.conf", conf)

    def _access_to_the_database(self, block: str) -> None:
        """The database answers on the network of the site."""
        server = self._site["server"]
        top = server.run("ls -d /etc/postgresql/*/main").strip()
        server.run(f"echo \"listen_addresses = '*'\" >> {top}/postgresql.conf")
        server.run(f"cat >> {top}/pg_hba.conf", stdin=block.replace("192.0.2.0/24", "10.101.0.0/16"))
        server.run("systemctl restart postgresql")
        conf = server.run("cat /etc/oar/oar.conf")
        for machine in self._machines("frontend"):
            machine.write("/etc/oar/oar.conf", conf)
            machine.run("chown root:oar /etc/oar/oar.conf; chmod 640 /etc/oar/oar.conf")

    def _names_of_the_nodes(self, block: str) -> None:
        self._site["server"].write(f"{self._directory}/nodes.txt", block)

    def _key_with_which_nodes_report(self, block: str) -> None:
        """The line of the server, and the private half on each node."""
        server, key = self._site["server"], "/var/lib/oar/.ssh/oarnodesetting_ssh.key"
        public = server.run(f"cat {key}.pub").split()
        line = re.sub(r"ssh-ed25519 AAAA.+", f"{public[0]} {public[1]}", block)
        self._give(server, "/var/lib/oar/.ssh/authorized_keys", line)
        for machine in self._machines("node"):
            self._copy(machine, key)

    def _where_nodes_report(self, block: str) -> None:
        for machine in self._machines("node"):
            machine.write("/etc/default/oar-node", block)

    def _copy(self, machine: Machine, path: str) -> None:
        self._give(machine, path, self._site["server"].run(f"cat {path}"))

    def _give(self, machine: Machine, path: str, text: str) -> None:
        machine.write(path, text)
        machine.run(f"chown oar:oar {path}; chmod 600 {path}")
