"""What every command does with its database: the version it needs, and that an interrupt leaves nothing behind."""

import sys
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from oar.cli import (
    oar2trace,
    oar_database,
    oar_phoenix,
    oar_resources_add,
    oar_resources_init,
    oaraccounting,
    oaradmissionrules,
    oaralter,
    oardel,
    oarhold,
    oarnodes,
    oarnodesetting,
    oarnotify,
    oarproperty,
    oarqueue,
    oarremoveresource,
    oarresume,
    oarstat,
    oarwalltime,
)
from oar.cli.common.command import Command, CommandResult, Context, invoke, oar_command
from oar.lib.access.records import User
from oar.lib.base.version import SCHEMA, VERSION
from oar.lib.bus.messages import Tag, Wake
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.jobs.records import Queue
from oar.lib.jobs.states import QueueState
from oar.lib.runtime import Runtime
from tests.builders import add_job, execute_sql

EVE = User("eve", 1001)
REPOSITORY = Path(__file__).parent.parent.parent


@oar_command("changing", summary="Changes something and is interrupted.")
def changing(context: Context) -> None:
    """Add a queue."""
    with context.database.begin() as tx:
        tx.queues.insert(Queue("new", 1, "kamelot", QueueState.ACTIVE))
        tx.outbox.append(Wake(Tag.TERM))
        raise KeyboardInterrupt


def test_an_interrupt_leaves_nothing_behind(database: Database) -> None:
    told: list[object] = []
    database.deliver = told.extend
    assert invoke(changing, [], runtime=Runtime(Config(), database), user=EVE) == CommandResult(130, "", "")
    with database.snapshot() as tx:
        assert not tx.queues.exists("new")
    assert told == []


def test_a_database_of_another_version_is_refused(database: Database) -> None:
    runtime = Runtime(Config(), database)
    execute_sql(database, "UPDATE schema SET version = '2.5.10', revision = ''")
    assert invoke(oarstat.main, [], runtime=runtime, user=EVE) == CommandResult(
        1,
        "",
        f"[ERROR] OAR database version mismatch: the database has schema 2.5.10, this program ({VERSION}) needs"
        f" schema {SCHEMA}. Run on the server: oar-database --setup\n",
    )
    execute_sql(database, "DELETE FROM schema")
    assert invoke(oarstat.main, [], runtime=runtime, user=EVE) == CommandResult(
        1, "", "[ERROR] No OAR database schema version found. Run on the server: oar-database --setup\n"
    )


@pytest.mark.parametrize("arguments", [["-u", "\udcff"], ["--sql", "job_name = '\udcff'"]])
def test_bytes_that_are_no_text_are_refused_in_one_line(database: Database, arguments: list[str]) -> None:
    result = invoke(oarstat.main, arguments, runtime=Runtime(Config(), database), user=EVE)
    assert (result.exit, result.out) == (1, "")
    assert "UTF-8 text" in result.err
    assert result.err.count("\n") == 1


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (oarstat.main, []),
        (oarnodes.main, []),
        (oardel.main, []),
        (oarhold.main, []),
        (oarresume.main, []),
        (oaralter.main, ["-n", "x"]),
        (oarwalltime.main, []),
        (oaraccounting.main, []),
        (oaradmissionrules.main, ["-S"]),
        (oaradmissionrules.main, ["--check"]),
        (oarnodesetting.main, []),
        (oarnotify.main, []),
        (oarproperty.main, ["-l"]),
        (oarqueue.main, []),
        (oarremoveresource.main, []),
    ],
    ids=lambda each: getattr(each, "name", ""),
)
def test_no_command_passes_over_a_word_that_it_does_not_understand(
    database: Database, command: Command, words: list[str]
) -> None:
    result = invoke(command, [*words, "bob"], runtime=Runtime(Config(), database), user=User("root", 0))
    assert result.exit != 0 or "bob" in result.err


@pytest.mark.parametrize(
    ("command", "words", "code"),
    [
        (oaraccounting.main, [], 77),
        (oaraccounting.main, ["--reporting"], 77),
        (oar_database.main, ["--check"], 77),
        (oarnodesetting.main, ["-s", "Dead", "-r", "1"], 77),
        (oarnotify.main, ["Term"], 77),
        (oar_phoenix.main, [], 77),
        (oarproperty.main, ["-a", "gpu"], 77),
        (oarqueue.main, ["-e", "default"], 8),
        (oarremoveresource.main, ["1"], 4),
        (oar_resources_add.main, ["-H", "1"], 77),
        (oar_resources_init.main, ["-"], 77),
        (oar2trace.main, ["-f", "-"], 77),
    ],
    ids=lambda each: getattr(each, "name", ""),
)
def test_users_run_no_command_of_administrators(
    database: Database, command: Command, words: list[str], code: int
) -> None:
    result = invoke(command, words, runtime=Runtime(Config(), database), user=EVE)
    assert result == CommandResult(code, "", "You must be oar or root.\n")


@pytest.fixture
def environment(database: Database, tmp_path: Path) -> dict[str, str]:
    """The environment of a program that uses the database, with what a user might add to it."""
    conf = tmp_path / "oar.conf"
    conf.write_text(f'DB_HOSTNAME="{database.settings.host}"\n')
    return {"OARCONFFILE": str(conf), "PGHOST": "nowhere", "PGOPTIONS": "-c work_mem=x", "LC_ALL": "POSIX"}


def test_a_command_as_a_program(database: Database, environment: dict[str, str]) -> None:
    job = add_job(database, name="é")
    program = f"import sys; sys.path.insert(0, {str(REPOSITORY)!r}); from oar.cli.oarstat import main; main()"
    with Popen([sys.executable, "-I", "-c", program], env=environment, stdout=PIPE, stderr=PIPE) as running:
        out, err = running.communicate(timeout=60)
    assert (running.returncode, err) == (0, b"")
    assert f"\n{job:<10} é              alice ".encode() in out
