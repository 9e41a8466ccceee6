"""Programs of OAR 2.5 as Debian has them, on the database of a room: oarstat and oarnodes, Monika, DrawGantt."""

from __future__ import annotations

import gzip
import hashlib
import html
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from machines import roots
from room import cache

from tests.acceptance.harness import PATIENCE, Cluster, Result

#: The last release of Debian that has them.
_SUITE = "bookworm"
_PACKAGES = ("oar-user", "oar-user-pgsql", "oar-web-status", "php-cli", "php-pgsql")
#: They find the database of the room, in whose network they run.
_SETTINGS = r"""
sed -i 's/^\(DB_HOSTNAME\|SERVER_HOSTNAME\)=.*/\1="127.0.0.1"/; s/^DB_TYPE=.*/DB_TYPE="Pg"/;
    s/^#*DB_PORT=.*/DB_PORT="5432"/; s/^DB_BASE_PASSWD=.*/DB_BASE_PASSWD="room"/;
    s/^DB_BASE_PASSWD_RO=.*/DB_BASE_PASSWD_RO="room-ro"/' etc/oar/oar.conf
sed -i 's/^password = .*/password = room-ro/' etc/oar/monika.conf
sed -i "s/\['db_passwd'\]=.*/['db_passwd']='room-ro';/" etc/oar/drawgantt-config.inc.php
"""


def tree() -> Path:
    """The files of a machine that has them; they are made once.  Raises MachineError."""
    digest = hashlib.sha256(f"{_SUITE} {_PACKAGES} {_SETTINGS}".encode()).hexdigest()[:12]
    return cache.kept(f"oar-2.5-{digest}", lambda place: roots.bootstrap(_SUITE, _PACKAGES, place, _SETTINGS.strip()))


def _text(page: str) -> str:
    return html.unescape(re.sub(r"<[^>]*>", " ", page))


def _between(page: str, begin: str, end: str) -> str:
    return page.partition(begin)[2].partition(end)[0]


@dataclass(frozen=True)
class OldPrograms:
    """The programs, as somebody on the server of a room runs them."""

    root: Path
    server: int  #: the number of a process of the server

    @classmethod
    def of(cls, cluster: Cluster) -> OldPrograms:
        """Those of a room."""
        return cls(tree(), int(cluster.status()["machines"]["server"]["pid"]))

    def oar(self, command: str) -> Result:
        """Run oarstat or oarnodes, with arguments."""
        name, *arguments = command.split()
        return self._run("perl", f"/usr/lib/oar/{name}", *arguments)

    def monika(self) -> str:
        """The page of Monika, as one line of text without marks."""
        return " ".join(_text(self.monika_page()).split())

    def monika_grid(self) -> dict[str, list[str]]:
        """What Monika's boxes have in them, for each node."""
        words = _text(_between(self.monika_page(), "Reservations:", "suspected resources")).split()
        boxes: dict[str, list[str]] = {}
        for word in words[: words.index("*:")]:
            if word.startswith("node-"):
                boxes[word] = []
            else:
                boxes[next(reversed(boxes))].append(word)
        return boxes

    def monika_jobs(self) -> list[dict[str, str]]:
        """The rows of Monika's table of jobs, by the names of its columns."""
        rows = _between(self.monika_page(), "Job details:", "</table>").split("<tr")[1:]
        cells = [[_text(cell).strip() for cell in re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL)] for row in rows]
        return [dict(zip(cells[0], row, strict=True)) for row in cells[1:]]

    def monika_page(self) -> str:
        """The page of Monika, as it is sent."""
        page = self._run("perl", "/usr/lib/cgi-bin/monika.cgi")
        assert (page.code, page.err) == (0, ""), page
        return page.out

    def drawgantt(self, start: int, stop: int) -> dict[int, str]:
        """What DrawGantt tells about each job that it draws between two dates, by number."""
        wish = f'["start" => {start}, "stop" => {stop}, "width" => 1000, "timezone" => "UTC"]'
        program = "/usr/share/oar-web-status/drawgantt-svg/drawgantt-svg.php"
        script = f'$_GET = {wish}; $_SERVER["SCRIPT_NAME"] = "/x"; require "{program}";'
        drawn = self._run("php", "-r", script)
        assert drawn.code == 0, drawn
        assert "PHP" not in drawn.err, drawn
        return {int(job): told for job, told in re.findall(r"'Jobid: (\d+)\|([^']*)'", drawn.out)}

    def _run(self, *words: str) -> Result:
        environment = ("OARCONFFILE=/etc/oar/oar.conf", "OARDO_USER=root", "OARDIR=/usr/lib/oar", "PATH=/usr/bin:/bin")
        network = f"/proc/{self.server}/root/run/netns/database"
        done = subprocess.run(
            ["nsenter", f"--net={network}", "chroot", self.root, "env", "-i", *environment, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )
        out = gzip.decompress(done.stdout) if done.stdout[:2] == b"\x1f\x8b" else done.stdout
        return Result(" ".join(words), done.returncode, out.decode(errors="replace"), done.stderr.decode())
