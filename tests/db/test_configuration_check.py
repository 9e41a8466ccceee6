"""``oar-conf --check`` on wrong configurations of real life: each is one line that names the key and the way out."""

import socket
from pathlib import Path

import pytest
from machines import roots
from room import cache

from oar.cli import oar_conf
from oar.cli.common.command import CommandResult, invoke
from oar.lib.accounts.records import NO_END, Budget
from oar.lib.config.files import option_of, parse
from oar.lib.config.keys import Config
from oar.lib.config.kinds import Target
from oar.lib.db.database import Database
from oar.modules.runner.actions.launch_needs import find_fault
from tests.builders import add_resources, execute_sql
from tests.db.console import ROOT
from tests.db.test_replay import configured
from tests.delivered import OAR_2_4, OAR_2_5, OAR_3


class Check:
    """A configuration on the machine of a server, and its check."""

    def __init__(self, file: Path, oardir: Path) -> None:
        self.file = file
        self.oardir = oardir

    def __call__(self, *lines: str) -> CommandResult:
        """Check the good file with these lines behind it."""
        good = self.file.read_text()
        self.file.write_text("\n".join([good, *lines, ""]))
        try:
            environment = {"OARCONFFILE": str(self.file), "OARDIR": str(self.oardir)}
            return invoke(oar_conf.main, ["--check", "--connect"], environment=environment, user=ROOT)
        finally:
            self.file.write_text(good)


@pytest.fixture
def check(database: Database, tmp_path: Path) -> Check:
    """A site with two nodes; nothing is wrong with its configuration."""
    add_resources(database)
    oardir = tmp_path / "lib"
    oardir.mkdir()
    (oardir / "oar-almighty").touch()
    file = configured(database.settings, tmp_path)
    file.write_text(f"{file.read_text()}SERVER_HOSTNAME=192.0.2.1\nOPENSSH_CMD=/bin/true\n")
    file.chmod(0o640)
    return Check(file, oardir)


def test_nothing_is_said_of_a_good_configuration(check: Check) -> None:
    assert check() == CommandResult(0, "", "")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("SERVER_HOSTNAME=sever.invalid", "SERVER_HOSTNAME: sever.invalid: this machine cannot resolve the name ("),
        ("SERVER_HOSTNAME=localhost", "SERVER_HOSTNAME: localhost is a loopback name: "),
        ("QUEUE=defualt", "QUEUE: there is no queue defualt; there are admin, besteffort, default"),
        ("WALLTIME_INCREMENT={ fast => 60 }", "WALLTIME_INCREMENT: there is no queue fast; there are admin, "),
        ("MEMORY_PROPERTY=network_address", "MEMORY_PROPERTY: property network_address has the type character varying"),
        ("OARSUB_NODES_RESOURCES=host_name", "OARSUB_NODES_RESOURCES: resources have no property host_name: oarprope"),
        ("OARSUB_DEFAULT_RESOURCES=/slot=1", "OARSUB_DEFAULT_RESOURCES: resources have no property slot: oarproperty"),
        ("JOB_RESOURCE_MANAGER_PROPERTY_DB_FIELD=cpusets", "JOB_RESOURCE_MANAGER_PROPERTY_DB_FIELD: resources have no"),
        (
            "SCHEDULER_RESOURCE_ORDER=speed DESC",
            'SCHEDULER_RESOURCE_ORDER: column "speed" does not exist: the scheduler sorts',
        ),
        ("PHOENIX_BROKEN_NODES=stat='Suspected'", "PHOENIX_BROKEN_NODES: stat='Suspected': "),
        ("DB_BASE_PASSWD_RO=x\nDB_BASE_LOGIN_RO=nobody_ro", "DB_BASE_LOGIN_RO: nobody_ro: it has no such login. "),
        (
            "BIPBIP_WORKERS=1\nOAR_SSH_POOL_MAX=2",
            "OAR_SSH_POOL_MAX: each bipbip has about 2 nodes, and records the curves of jobs on 1 at most. Set it to 3",
        ),
        ("API_THREADS=500", "API_THREADS: the API may hold 505 of the "),
        ("DB_HOSTNAME=/no/socket", "DB_HOSTNAME: /no/socket: no server listens at this socket. Queues, "),
    ],
)
def test_what_is_not_there_is_named_with_the_way_out(check: Check, line: str, told: str) -> None:
    result = check(*line.split("\n"))
    lines = [line for line in result.err.splitlines() if "set again" not in line]
    assert [each.startswith(f"/!\\ {told}") for each in lines] == [True], result.err
    assert (result.exit, result.out) == (0, "")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("OPENSSH_CMD=/usr/bin/shh -p 6667", "OPENSSH_CMD: /usr/bin/shh: no such program on this machine. Install"),
        (
            "SERVER_PROLOGUE_EXEC_FILE=/etc/passwd",
            "SERVER_PROLOGUE_EXEC_FILE: /etc/passwd: it is not executable. Run",
        ),
        ("PINGCHECKER_FPING_COMMAND=fpingg -q", "PINGCHECKER_FPING_COMMAND: fpingg: no such program on this"),
        ("SCHEDULER_TOKEN_SCRIPTS={ a => '/no/a' }", "SCHEDULER_TOKEN_SCRIPTS: a: /no/a: no such program on this"),
        ("META_SCHED_CMD=koa", "META_SCHED_CMD: {oardir}/koa: no such program on this machine. Install it"),
        (
            "COMPLETION_LOG=/var/logs/done.json",
            "COMPLETION_LOG: /var/logs: no such directory on this machine. Create",
        ),
        ("METRICS_FILE=/var/log", "METRICS_FILE: /var/log: must be a file, not a directory. Use the path of a file."),
        (
            "JOB_PRIORITY=MULTIFACTOR\nPRIORITY_CONF_FILE=/no/file",
            "PRIORITY_CONF_FILE: /no/file: no such file on this machine. ",
        ),
        (
            "JOB_RESOURCE_MANAGER_FILE=our_manager.pl",
            "JOB_RESOURCE_MANAGER_FILE: {oardir}/our_manager.pl: no such program",
        ),
        ("SUSPEND_RESUME_FILE=/etc/oar/freeze", "SUSPEND_RESUME_FILE: /etc/oar/freeze: no such program on this "),
        ("PHOENIX_SOFT_REBOOTCMD=/no/reboot {NODENAME}", "PHOENIX_SOFT_REBOOTCMD: /no/reboot: no such program on"),
        (
            "ADMISSION_RULES_IN_FILES=yes\nADMISSION_RULES_PATH=/no/rules",
            "ADMISSION_RULES_PATH: /no/rules: no such dire",
        ),
        (
            "WEB_CONF_FILE=/etc/oar/wep.yaml",
            "WEB_CONF_FILE: /etc/oar/wep.yaml: no such file on this machine. Create it",
        ),
        (
            "TAKTUK_CMD=/no/taktuk\nPINGCHECKER_TAKTUK_ARG_COMMAND=b i f [ /x ]",
            "TAKTUK_CMD: /no/taktuk: no such program",
        ),
    ],
)
def test_programs_and_files_that_are_not_there_are_errors(check: Check, line: str, told: str) -> None:
    result = check(*line.split("\n"))
    lines = [line for line in result.err.splitlines() if not line.startswith("/!\\")]
    assert [each.startswith(f"[ERROR] {told.format(oardir=check.oardir)}") for each in lines] == [True], result.err
    assert (result.exit, result.out) == (1, "")


def test_each_key_that_names_a_path_or_a_command_says_what_it_names() -> None:
    names_nothing = {
        key.key
        for key in Config.options()
        if key.kind.name in ("path", "command line") and key.kind.target is Target.NOTHING and not key.fixed
    }
    created_by_the_server = {"OAR_RUN_DIR", "STAGEIN_DIR", "STAGEOUT_DIR", "PHOENIX_LOGDIR"}
    assert names_nothing == created_by_the_server | {"APPS_DIRECTORY"}  # without it, the site has no own programs


def test_a_database_that_is_not_created_yet_is_no_alarm(check: Check) -> None:
    line = check("DB_BASE_NAME=not_yet").err.splitlines()[-1]
    assert line.startswith("/!\\ DB_BASE_NAME: not_yet: PostgreSQL on ")
    assert "Create both: oar-database --create." in line


def test_a_file_that_is_not_installed_opens_no_connection(check: Check) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0)
        check.file.write_text(f"{check.file.read_text()}DB_HOSTNAME=127.0.0.1\nDB_PORT={listener.getsockname()[1]}\n")
        environment = {"OARCONFFILE": str(check.file), "OARDIR": "/no/directory"}
        result = invoke(oar_conf.main, ["--check"], environment=environment, user=ROOT)
        with pytest.raises(BlockingIOError):
            listener.accept()
    assert f"{check.file} is not the installed file: add --connect to check" in result.err


@pytest.mark.parametrize(
    ("words", "needed"),
    [
        (["--connect"], "--check"),
        (["--since", "2030-01-01"], "need --history"),
        (["--history", "--connect"], "--check"),
    ],
)
def test_options_that_go_with_others_say_so(words: list[str], needed: str) -> None:
    assert needed in invoke(oar_conf.main, words, user=ROOT).err.splitlines()[0]


def test_nodes_that_are_never_halted_are_noticed_where_halts_are_wanted(check: Check, database: Database) -> None:
    times = ("SCHEDULER_NODE_MANAGER_IDLE_TIME=1200", "SCHEDULER_NODE_MANAGER_SLEEP_TIME=1800")
    lines = (*times, "SCHEDULER_NODE_MANAGER_SLEEP_CMD=/bin/true")
    assert check(*lines).err == (
        "/!\\ SCHEDULER_NODE_MANAGER_IDLE_TIME: no node may be halted:"
        " oarnodesetting -h node-1 -p available_upto=2147483646 lets one sleep and be woken\n"
    )
    execute_sql(database, "UPDATE resources SET available_upto = 2147483646 WHERE network_address = 'node-1'")
    assert check(*lines).err == ""


GPU_RULE = 'IDLE_GPU_RULES="GPU below 5 % for 2 h: mail"'
CPU_RULE = 'IDLE_CPU_RULES="CPU below 5 % for 2 h: mail, then end"'
MAIL = "MAIL_SMTP_SERVER=mail.example\nMAIL_SENDER=oar@example\nMAIL_RECIPIENT=root@example"


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([GPU_RULE, MAIL], []),
        ([MAIL, "JOB_CURVES=no"], []),
        ([GPU_RULE], ["IDLE_GPU_RULES: no mail server is configured: users get no mail. Set "]),
        ([CPU_RULE], ["IDLE_CPU_RULES: no mail server is configured: users get no mail before their jobs are ended."]),
        (
            [GPU_RULE, CPU_RULE, MAIL, "JOB_CURVES=no"],
            ["IDLE_GPU_RULES: JOB_CURVES is no: the usage", "IDLE_CPU_RULES: JOB_CURVES is no: the usage"],
        ),
    ],
)
def test_rules_about_idle_jobs_need_mail_and_curves(check: Check, lines: list[str], told: list[str]) -> None:
    result = check(*lines)
    found = [line for line in (result.out + result.err).splitlines() if "IDLE_" in line]
    assert len(found) == len(told), found
    for line, text in zip(found, told, strict=True):
        assert text in line


def test_passwords_that_every_user_can_read_are_named(check: Check) -> None:
    check.file.chmod(0o644)
    told = check("DB_BASE_PASSWD=x").err
    assert f"DB_BASE_PASSWD: {check.file}: every user can read it. Run: chown root:oar" in told


def test_a_file_of_quotas_that_is_none_is_named_with_its_line(check: Check, tmp_path: Path) -> None:
    quotas = tmp_path / "quotas.json"
    quotas.write_text('{"quotas": {"*,*,*,*": [1, -1, -1],}}')
    told = check("QUOTAS=yes", f"QUOTAS_CONF_FILE={quotas}").err
    assert f"/!\\ QUOTAS_CONF_FILE: {quotas}: " in told


def test_elsewhere_than_on_the_server_its_programs_are_not_missed(check: Check) -> None:
    (check.file.parent / "lib" / "oar-almighty").unlink()
    assert "no program" not in check("SERVER_PROLOGUE_EXEC_FILE=/no/program").err


class TestOldFiles:
    """Files in the form that older versions deliver."""

    @pytest.mark.parametrize("text", [OAR_2_4, OAR_2_5, OAR_3], ids=["2.4", "2.5", "3"])
    def test_nothing_in_them_keeps_jobs_from_starting(self, text: str, tmp_path: Path) -> None:
        parsed = parse(text)
        assert parsed.errors == ()
        assert [str(problem) for problem in parsed.warnings if option_of(problem.key) is None] == []
        assert find_fault(parsed.config, str(tmp_path)) == ""

    @pytest.mark.parametrize("text", [OAR_2_4, OAR_2_5, OAR_3], ids=["2.4", "2.5", "3"])
    def test_their_check_names_what_is_to_be_done(self, text: str, check: Check) -> None:
        lines = [line for line in text.splitlines() if not line.startswith(("DB_", "OPENSSH_CMD", "SERVER_"))]
        rules = ["ADMISSION_RULES_PATH=/no/rules"] if "ADMISSION_RULES_IN_FILES" in text else []
        result = check(*lines, *rules)
        errors = [line for line in result.err.splitlines() if line.startswith("[ERROR]")]
        assert [error.split(":")[0] for error in errors] == ["[ERROR] ADMISSION_RULES_PATH"] * len(rules)
        assert ("API_SECRET_KEY: the published default key of OAR 3" in result.err) is bool(rules)

    def test_the_file_of_the_package_is_read_like_the_form_of_it(self) -> None:
        package = cache.kept("oar-2.5-common", lambda place: roots.unpack("bookworm", "oar-common", place))
        text = (package / "unpacked/usr/share/oar/oar-common/oar.conf").read_text()
        parsed = parse(text)
        assert (parsed.errors, find_fault(parsed.config, "/no/directory")) == ((), "")
        given = {key for key in parse(OAR_2_5).origins if key != "META_SCHED_CMD"}
        assert given <= parsed.origins.keys()

    def test_the_key_that_everybody_knows_signs_no_token(self) -> None:
        assert parse(OAR_3).config.api_secret_key is None


def test_accounting_that_is_purged_before_a_budget_ends_is_noticed(check: Check, database: Database) -> None:
    with database.begin() as tx:
        tx.budgets.store(Budget("physics", 1_700_000_000, 1_900_000_000, 5))
        tx.budgets.store(Budget("biology", 1_700_000_000, NO_END, 5))
    told = check("RETENTION_ACCOUNTING=365").err
    assert "RETENTION_ACCOUNTING: the budget of the project biology (and 1 more) has no beginning or no end" in told
    assert "RETENTION_ACCOUNTING" not in check("RETENTION_ACCOUNTING=0").err


def test_a_window_that_is_longer_than_the_period_of_a_budget_is_noticed(check: Check, database: Database) -> None:
    with database.begin() as tx:
        tx.budgets.store(Budget("physics", 1_900_000_000, 1_900_086_400, 5))
    assert "ACCOUNTING_WINDOW: project physics: the period" in check("ACCOUNTING_WINDOW=604800").err
