"""Completion as shells do it: bash and zsh on a terminal, somebody presses TAB; fish is asked what it would offer."""

import contextlib
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from oar.cli import completion, oarsub
from oar.lib.access.records import User
from oar.lib.db.database import Database
from oar.lib.jobs.states import JobState, JobTypeName
from oar.lib.submission.resource_request import parse_type
from tests.builders import add_job, add_resources
from tests.db.reservation_rows import add_reservation
from tests.frontend import Frontend, add_rules

REPOSITORY = Path(__file__).parents[2]
PROMPT = "ready$ "
ALICE, BOB, ROOT = User("alice", 1001), User("bob", 1002), User("root", 0)


class Terminal:
    """A shell on a terminal of its own, in which the completion is installed."""

    def __init__(self, shell: list[str], environment: dict[str, str], setting: str) -> None:
        self._ours, theirs = pty.openpty()
        self._lines = 0
        self._shell = subprocess.Popen(
            shell, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
        )
        os.close(theirs)
        # The prompt is not yet there where its setting is echoed.
        self._type(f"{setting}\nPS1={PROMPT[:2]}'''{PROMPT[2:]}'\n")

    def wait(self) -> None:
        """Wait for the first prompt."""
        self._until(PROMPT)

    def complete(self, line: str, last: str) -> str:
        """Type a line and TAB, then look until ``last`` is there; return what the shell shows behind the line."""
        self._type(f"{line}\t")
        seen = self._until(last, behind=line)
        # Throw the line away.  A redrawn line shows the prompt, too: it is the one behind an answer that counts.
        self._lines += 1
        self._type(f"\x15\x0becho over''-{self._lines}-\n")
        self._until(PROMPT, behind=f"over-{self._lines}-")
        return seen

    def close(self) -> None:
        """End the shell."""
        os.close(self._ours)
        self._shell.kill()
        self._shell.wait()

    def _type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def _until(self, text: str, behind: str = "") -> str:
        seen, limit = "", time.monotonic() + 120
        while text not in (seen.partition(behind)[2] if behind else seen):
            assert time.monotonic() < limit, seen
            if select.select([self._ours], [], [], 1)[0]:
                with contextlib.suppress(OSError):
                    seen += os.read(self._ours, 65536).decode(errors="replace")
                seen = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[=>]|\x07", "", seen)
        return seen.partition(behind)[2] if behind else seen


@pytest.fixture
def site(database: Database) -> Frontend:
    add_resources(database, nodes=2, cores=1)
    add_rules(database)
    return Frontend(database)


@pytest.fixture
def environment(database: Database, tmp_path: Path) -> dict[str, str]:
    """A search path on which oarsub is the real one, for this database."""
    (tmp_path / "oar.conf").write_text(f'DB_HOSTNAME="{database.settings.host}"\n')
    program = tmp_path / "bin" / "oarsub"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable} -I\nimport sys\nsys.path.insert(0, {str(REPOSITORY)!r})\n"
        "from oar.cli.oarsub import main\nmain()\n"
    )
    program.chmod(0o755)
    return {
        "PATH": f"{program.parent}:/usr/bin:/bin",
        "OARCONFFILE": str(tmp_path / "oar.conf"),
        "TERM": "vt100",
        "HOME": str(tmp_path),
        "COLUMNS": "200",
    }


_SECOND_SHELL = pytest.mark.slow(
    reason="a second shell: bash shows the same lists, the test of the scripts the options"
)


@pytest.fixture(params=["bash", pytest.param("zsh", marks=_SECOND_SHELL)])
def terminal(request: pytest.FixtureRequest, environment: dict[str, str], tmp_path: Path) -> Iterator[Terminal]:
    """Both shells, one after the other."""
    name: str = request.param
    script = subprocess.run(
        ["oarsub", "--completion", name], env=environment, check=True, capture_output=True, text=True
    ).stdout
    if name == "bash":
        (tmp_path / "completion").write_text(script)
        shell = ["bash", "--norc", "--noprofile", "-i"]
        setting = f"bind 'set enable-bracketed-paste off'; source {tmp_path}/completion"
    else:
        (tmp_path / "_oar").write_text(script)
        shell = ["zsh", "-f", "-i"]
        setting = f"unsetopt prompt_cr prompt_sp zle_bracketed_paste 2>/dev/null; fpath=({tmp_path} $fpath)"
        setting += f"; autoload -Uz compinit; compinit -u -d {tmp_path}/dump"
    assert shutil.which(name), f"{name} is missing: setup/test installs it"
    opened = Terminal(shell, environment, setting)
    try:
        opened.wait()
        yield opened
    finally:
        opened.close()


def test_what_somebody_begins_is_completed(terminal: Terminal, site: Frontend) -> None:
    mine = add_job(site.database, user="root")
    add_job(site.database, user="bob")
    add_job(site.database, JobState.TERMINATED, user="root")
    add_reservations(site)
    for typed, completed in (
        ("oarsub --reso", "urce"),
        ("oarsub -q defa", "ult"),
        ("oarsub --queue=defa", "ult"),
        ("oarsub -t besteff", "ort"),
        ("oarsub -t postp", "one="),
        ("oarsub -l netw", "ork_address="),
        ("oarsub -l cpuset=1/netw", "ork_address="),
        ("oarsub -p cpus", "et"),
        ("oarstat --expl", "ain"),
        ("oarstat -j ", str(mine)),
        ("oardel ", str(mine)),
        ("oarnodes node-1 --summ", "ary"),
        ("oarnodes nod", "e-"),
        ("qrsub -earl", "iest"),
        ("qrsub -ignore", "_jobs"),
        ("qrsub -conflict sk", "ip"),
        ("qrsub -q defa", "ult"),
        ("qralter -repl", "ace"),
        ("qralter cour", "se"),
        ("qralter -he yes 1", "2"),
        ("qrdel -ser", "ies"),
        ("qrdel cour", "se"),
        ("qrstat -ar thei", "rs"),
        ("qrstat -iso -expl", "ain"),
        ("oarsub --ar thei", "rs"),
        ("oarsub --ar=cour", "se"),
        ("oaralter --ar thei", "rs"),
        ("oaruserset -s arus", "ers"),
        ("oar-launch spa", "rk"),
        ("oar-launch --outp", "ut"),
        ("oar-launch ray fish_ind", "ent"),
    ):
        assert terminal.complete(typed, completed).startswith(completed), typed


def add_reservations(site: Frontend) -> None:
    """Add one of root's, one of somebody else's, and what nobody can use any more."""
    add_reservation(site.database, 12, owner="root", ar_name="course")
    add_reservation(site.database, 30, owner="bob", ar_name="theirs")
    add_reservation(site.database, 31, owner="bob")
    add_reservation(site.database, 40, owner="root", ar_name="over", state="x")


def test_reservations_are_offered_to_who_can_do_something_with_them(site: Frontend) -> None:
    add_reservations(site)

    def words(kind: str, user: User) -> list[str]:
        return site.type(oarsub.main, "--completion", kind, user=user).out.split()

    for user, own in ((BOB, ["30", "theirs", "31"]), (ALICE, []), (ROOT, ["12", "course", "30", "theirs", "31"])):
        assert words("reservations", user) == ["12", "course", "30", "theirs", "31"]
        assert words("own-reservations", user) == own


@_SECOND_SHELL
def test_fish_offers_what_fits(site: Frontend, environment: dict[str, str], tmp_path: Path) -> None:
    mine = add_job(site.database, user="root")
    add_job(site.database, user="bob")
    add_reservations(site)
    script = subprocess.run(
        ["oarsub", "--completion", "fish"], env=environment, check=True, capture_output=True, text=True
    ).stdout
    (tmp_path / "oar.fish").write_text(script)
    (tmp_path / "data").mkdir()
    offers = {
        "oarsub --reso": ["--resource"],
        "oarsub -q defa": ["default"],
        "oarsub --queue=defa": ["--queue=default"],
        "oarsub -t besteff": ["besteffort"],
        "oarsub -t postp": ["postpone="],
        "oarsub -l netw": ["network_address="],
        "oarsub -l cpuset=1/netw": ["cpuset=1/network_address="],
        "oarsub --resource=walltime=1,/netw": ["--resource=walltime=1,/network_address="],
        "oarsub -p cpus": ["cpuset"],
        "oarsub --nodelist nod": ["node-1", "node-2"],
        f"oarsub -d {tmp_path}/da": [f"{tmp_path}/data/"],
        f"oarsub -O {tmp_path}/oar.f": [f"{tmp_path}/oar.fish"],
        "oarsub fish_ind": ["fish_indent"],
        "oarstat --expl": ["--explain"],
        "oarstat --color=al": ["--color=always"],
        "oarstat -j ": [str(mine)],
        "oarstat -fj ": [str(mine)],
        "oarstat -u roo": ["root"],
        "oardel ": [str(mine)],
        "oardel -s TER": ["TERM"],
        "oarnodes node-1 --summ": ["--summary"],
        "oarnodes nod": ["node-1", "node-2"],
        "oaralter --nam": ["--name"],
        "oarhold ": [str(mine)],
        "qrsub -earl": ["-earliest"],
        "qrsub -ignore": ["-ignore_jobs"],
        "qrsub -he ": ["no", "yes"],
        "qrsub -q defa": ["default"],
        "qrsub -h nod": ["node-1", "node-2"],
        "qralter -repl": ["-replace"],
        "qralter cour": ["course"],
        "qrdel -ser": ["-series"],
        "qrdel 1": ["12"],
        "qrstat -ar thei": ["theirs"],
        "oarsub --ar thei": ["theirs"],
        "oaralter --ar cour": ["course"],
        "oaruserset -D arus": ["arusers"],
        "oar-launch spa": ["spark"],
        "oar-launch --outp": ["--output"],
    }
    asked = "; ".join(f"complete -C '{typed}'; echo" for typed in offers)
    done = subprocess.run(
        ["fish", "--no-config", "-c", f"source {tmp_path}/oar.fish; source {tmp_path}/oar.fish; {asked}"],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    found = [[line.partition("\t")[0] for line in each.splitlines()] for each in done.stdout.split("\n\n")]
    assert dict(zip(offers, found, strict=False)) == offers


@pytest.mark.parametrize(("shell", "dashes"), [("bash", "--"), ("zsh", "--"), ("fish", "-l ")])
def test_every_option_is_in_the_scripts(site: Frontend, shell: str, dashes: str) -> None:
    script = site.type(oarsub.main, "--completion", shell).out
    for name in completion.COMMANDS:
        for option in completion.options_of(name):
            names = [each.removeprefix("--") for each in option.names if each.startswith("--")]
            assert all(f"{dashes}{each}" in script for each in names)
            words = [each for each in option.names if len(each) > 2 and each[1] != "-"]
            assert all((f"-o {each[1:]}" if shell == "fish" else each) in script for each in words)
        every = [each for option in completion.options_of(name) for each in option.names]
        assert ({"-help"} if name in completion.RESERVATION_COMMANDS else {"-h", "--help"}) < set(every)
        assert len(every) == len(set(every))


def test_types_that_are_offered_are_accepted(site: Frontend) -> None:
    arguments = {"inner=": "7", "token:": "x=1", "container_users=": "bob"}
    for kind in completion.TYPES:
        text = kind + arguments.get(kind, "2031-01-01" if kind in ("expire=", "deadline=", "postpone=") else "x")
        wish = text if kind.endswith(("=", ":")) else kind
        assert "unknown job type" not in site.type(oarsub.main, "-t", wish, "x").err, wish
        assert parse_type(kind).name in set(JobTypeName)


def test_what_nobody_can_complete_is_refused(site: Frontend) -> None:
    result = site.type(oarsub.main, "--completion", "tcsh")
    assert (result.exit, result.out) == (1, "")
    assert result.err.startswith("# Error: --completion takes bash, zsh, fish or queues, ")
