"""A frontend uses the values of the server, not those of its own copy of oar.conf."""

from pathlib import Path

import pytest

from oar.cli import oar_conf, oarsub
from oar.cli.common.command import Context, invoke
from oar.kao.rounds.reading.policy_watch import keys
from oar.lib.access.records import User
from oar.lib.config.deciding import OF_SERVER
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.history import policy_log
from oar.lib.jobs import server_keys
from oar.lib.runtime import DEFAULT_OARDIR, Runtime, is_frontend
from tests.db.console import EVE, ROOT
from tests.db.test_replay import configured


def store(database: Database, config: Config) -> None:
    """Do what a round of the server does."""
    with database.begin() as tx:
        policy_log.note_stored(tx, keys(config))


@pytest.fixture
def frontend(tmp_path: Path) -> str:
    """The directory of OAR's programs on a frontend."""
    directory = tmp_path / "lib"
    directory.mkdir()
    (directory / "oarsh").write_text("")
    return str(directory)


def config_of(database: Database, oardir: str, user: User = EVE) -> Config:
    """Return the configuration that a user's command works with; its file is a copy from another day."""
    runtime = Runtime(Config(default_job_walltime=7200, mail_smtp_server=None), database, oardir=oardir)
    return Context(oarsub.main, {}, user, runtime).runtime.config


def test_a_frontend_uses_the_values_of_the_server(database: Database, frontend: str) -> None:
    server = Config(default_job_walltime=3600, mail_smtp_server="mail", mail_sender="oar@site", quotas=True)
    store(database, server)
    config = config_of(database, frontend)
    assert (config.default_job_walltime, config.mail_smtp_server, config.quotas) == (3600, "mail", True)
    assert config_of(database, DEFAULT_OARDIR).default_job_walltime == 7200


def test_all_stored_values_come_back_as_they_were(database: Database) -> None:
    server = Config(hierarchy_labels=("resource_id", "core"), walltime_max_increase={"default": 7200.0, "_": 0.0})
    store(database, server)
    with database.snapshot() as tx:
        texts = server_keys.stored_texts(tx)
    config = server_keys.with_server_values(Config(), texts)
    assert texts.keys() == OF_SERVER
    assert {name: getattr(config, name) for name in OF_SERVER} == {name: getattr(server, name) for name in OF_SERVER}


def test_before_the_first_round_and_for_values_of_another_version_the_copy_holds(
    database: Database, frontend: str
) -> None:
    assert config_of(database, frontend).default_job_walltime == 7200
    assert server_keys.with_server_values(Config(), {"default_job_walltime": "a day"}) == Config()


def test_the_check_on_a_frontend_names_what_the_server_has_otherwise(
    database: Database, frontend: str, tmp_path: Path
) -> None:
    file = configured(database.settings, tmp_path)
    file.chmod(0o640)
    file.write_text(f"{file.read_text()}DEFAULT_JOB_WALLTIME=7200\nSERVER_HOSTNAME=192.0.2.1\n")
    store(database, Config(default_job_walltime=3600))
    environment = {"OARCONFFILE": str(file), "OARDIR": frontend}
    result = invoke(oar_conf.main, ["--check", "--connect"], environment=environment, user=ROOT)
    assert 'DEFAULT_JOB_WALLTIME: "7200": the server has "3600", which is used. Correct this file.' in result.err
    assert is_frontend(frontend)
