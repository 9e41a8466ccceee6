"""oar.conf: what is read, what is refused, and the sample file."""

import os
import re
import socket
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oar.lib.base.errors import ConfigError
from oar.lib.bus.servers import config_digest, own_server
from oar.lib.config import files
from oar.lib.config.files import Config, option_of, parse, quoted, sample

SHIPPED = Path(__file__).parents[2] / "etc" / "oar.conf"


def errors(text: str) -> list[str]:
    return [str(problem) for problem in parse(text, "f").errors]


def warnings(text: str) -> list[str]:
    return [str(problem) for problem in parse(text, "f").warnings]


# -- syntax -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("DB_BASE_PASSWD=plain", "plain"),
        ('DB_BASE_PASSWD="two words"', "two words"),
        ("DB_BASE_PASSWD='it is \"so\"'", 'it is "so"'),
        ("  DB_BASE_PASSWD = spaced", "spaced"),
        ("export DB_BASE_PASSWD=exported", "exported"),
        ('DB_BASE_PASSWD="with # inside"  # and a comment', "with # inside"),
        ("DB_BASE_PASSWD=a#b # comment", "a#b"),
        ('DB_BASE_PASSWD="a \\"quoted\\" \\$word"', 'a "quoted" $word'),
        ("DB_BASE_PASSWD='no \\n escapes'", "no \\n escapes"),
        ('DB_BASE_PASSWD="kept \\w as it is"', "kept \\w as it is"),
        ("DB_BASE_PASSWD=$HOME", "$HOME"),
        ("DB_BASE_PASSWD=", ""),
        ("DB_BASE_PASSWD=windows\r", "windows"),
    ],
)
def test_an_assignment_is_read_as_a_shell_would_without_expansion(line: str, value: str) -> None:
    parsed = parse(line)
    assert parsed.errors == ()
    assert parsed.config.db_base_passwd == value


def test_the_last_assignment_wins_and_the_first_is_warned_about() -> None:
    assert parse("SERVER_PORT=1\nSERVER_PORT=2").config.server_port == 2
    assert warnings("SERVER_PORT=1\nSERVER_PORT=2") == ["f:2: SERVER_PORT: set again: line 1 is ignored"]


def test_all_errors_of_a_file_are_reported_at_once_with_their_lines() -> None:
    text = '# comment\nSERVER_PORT=high\nwhat is this\nFINAUD_FREQUENCY=-1\nDB_TYPE=mysql\nLOG_FILE="open\n'
    assert errors(text) == [
        "f:2: SERVER_PORT: write a whole number",
        'f:3: not an assignment: write KEY="value"',
        "f:4: FINAUD_FREQUENCY: write a number not below 0",
        "f:5: DB_TYPE: MySQL is not supported: move the data to PostgreSQL and write Pg",
        "f:6: LOG_FILE: the quote is not closed on this line",
    ]


def test_a_line_that_does_not_parse_is_not_shown_since_it_may_hold_a_password() -> None:
    assert "secret" not in " ".join(errors('DB_BASE_PASSWD="secret" secret\nDB_BASE_PASSWD secret'))


def test_a_bad_value_leaves_the_default_so_that_a_command_can_go_on() -> None:
    assert parse("SERVER_PORT=high").config == Config()


def test_an_unknown_key_is_a_warning_that_names_the_nearest_known_one() -> None:
    assert warnings("SEVER_PORT=1") == ["f:1: SEVER_PORT: unknown key, ignored; the nearest known key is SERVER_PORT"]
    assert errors("SEVER_PORT=1") == []


def test_a_key_of_another_version_is_told_apart_from_a_key_that_is_misspelt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "UNREAD", {"stageout_dir", "api_media_roots"})
    parsed = parse("STAGEOUT_DIR=/x\nSTAGE_OUT_DIR=/x\nAPI_MEDIA_ROOTS=x\nSERVER_PORT=1\n", "f")
    assert [str(problem) for problem in parsed.unread] == [
        "f:1: STAGEOUT_DIR: not in this version, it has no effect",
        "f:3: API_MEDIA_ROOTS: not in this version, it has no effect",
    ]
    assert [str(problem) for problem in parsed.warnings] == [
        "f:2: STAGE_OUT_DIR: unknown key, ignored; the nearest known key is STAGEOUT_DIR"
    ]


@given(st.text(max_size=200))
def test_no_text_at_all_makes_the_parser_fail(text: str) -> None:
    parse(text)


@given(st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]), max_size=60))
def test_what_is_written_quoted_is_read_back(text: str) -> None:
    assert parse(f"DB_BASE_PASSWD={quoted(text)}").config.db_base_passwd == text


# -- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "value"), [("yes", True), ("TRUE", True), ("1", True), ("No", False), ("0", False)])
def test_a_boolean_may_be_written_in_six_ways(text: str, value: bool) -> None:
    assert parse(f"QUOTAS={text}").config.quotas is value


@pytest.mark.parametrize("text", ["on", "", "2", "ja"])
def test_another_word_is_no_boolean(text: str) -> None:
    assert errors(f"QUOTAS={text}") == ["f:1: QUOTAS: write yes or no"]


@pytest.mark.parametrize(
    "line",
    [
        "SERVER_PORT=65536",
        "SERVER_HOSTNAME='a b a'",
        "SERVER_HOSTNAME='a b;x'",
        "SERVER_HOSTNAME=' , '",
        "SERVER_HOSTNAME=-oProxyCommand=x",
        "ALLOWED_NETWORKS=10.0.0.0/33",
        "JOB_TYPES_EXTRA='a('",
        'OPENSSH_CMD="ssh \'x"',
        "OPENSSH_CMD=",
        "OAR_RUN_DIR=run",
        "LOG_FORMAT=%s",
        "DEPENDENCY_CONDITION=maybe",
        "SCHEDULER_JOB_SECURITY_TIME=0",
        "SCHEDULER_FAIRSHARING_COEF_USER=nan",
        "SCHEDULER_FAIRSHARING_USER_TARGETS='{ a => b }'",
        "SCHEDULER_FAIRSHARING_USER_TARGETS='{ a => '",
        "SCHEDULER_FAIRSHARING_USER_TARGETS='{\"a\": [1]}'",
        "DEPLOY_COSYSTEM_JOB_EXEC_SYSTEM=docker",
        "BIPBIP_WORKERS=0",
    ],
)
def test_a_value_that_cannot_be_is_refused(line: str) -> None:
    assert len(errors(line)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "{ alice => 75, default => 25.5 }",
        '{"alice": 75, "default": 25.5}',
        "{'alice': 75, 'default': 25.5}",
        "alice=75, default=25.5",
    ],
)
def test_a_table_is_json_or_perl_or_plain_pairs(text: str) -> None:
    line = f"SCHEDULER_FAIRSHARING_USER_TARGETS={quoted(text)}"
    assert parse(line).config.scheduler_fairsharing_user_targets == {"alice": 75.0, "default": 25.5}


def test_commands_in_a_table_keep_their_blanks() -> None:
    parsed = parse("""SCHEDULER_TOKEN_SCRIPTS="{ fluent => '/usr/bin/count -a fluent', abaqus => /bin/n }" """)
    assert parsed.config.scheduler_token_scripts == {"fluent": "/usr/bin/count -a fluent", "abaqus": "/bin/n"}


def test_a_value_by_queue_may_be_one_value_for_all() -> None:
    assert parse("WALLTIME_MAX_INCREASE=0.5").config.walltime_max_increase == {"_": 0.5}
    assert parse("WALLTIME_MAX_INCREASE='{_ => 3600, admin => -1}'").config.walltime_max_increase == {
        "_": 3600.0,
        "admin": -1.0,
    }


def test_old_names_are_read_as_the_present_ones() -> None:
    assert parse("LEON_SOFT_WALLTIME=20").config.jobdel_softwalltime == 20
    assert parse("META_SCHED_CMD=oar_meta_sched").config.meta_sched_cmd == "kao"
    assert parse("DB_TYPE=psql").config.db_type == "Pg"
    option = option_of("taktuk_cmd")
    assert option is not None
    assert option.key == "TAKTUK_CMD"


def test_values_are_read_as_the_manual_of_oar_2_writes_them() -> None:
    config = parse(
        """
        ALLOWED_NETWORKS= 127.0.0.1/32 0.0.0.0/0
        ACCOUNTING_WINDOW= 3600
        SCHEDULER_RESOURCE_ORDER = switch ASC, network_address DESC, resource_id ASC
        SCHEDULER_AVAILABLE_SUSPENDED_RESOURCE_TYPE = default licence vlan
        SUSPEND_RESUME_FILE = suspend_resume_manager.pl
        CPUSET_FILE = cpuset_manager.pl
        CPUSET_RESOURCE_PROPERTY_DB_FIELD = cpu
        NMAP_COMMAND=/usr/bin/nmap -p 22 -n -T5
        DETACH_JOB_FROM_SERVER=0
        STAGEOUT_DIR=/srv/stageouts/
        """
    )
    assert config.errors == ()
    values = config.config
    assert values.allowed_networks == ("127.0.0.1/32", "0.0.0.0/0")
    assert values.accounting_window == 3600
    assert values.scheduler_resource_order == "switch ASC, network_address DESC, resource_id ASC"
    assert values.scheduler_available_suspended_resource_type == ("default", "licence", "vlan")
    assert (values.suspend_resume_file, values.job_resource_manager_file) == (
        "suspend_resume_manager.pl",
        "cpuset_manager.pl",
    )
    assert values.job_resource_manager_property_db_field == "cpu"
    assert values.pingchecker_nmap_command == "/usr/bin/nmap -p 22 -n -T5"
    assert values.detach_job_from_server is False


def test_the_host_of_deploy_jobs_is_the_server_unless_it_is_set() -> None:
    assert parse("SERVER_HOSTNAME=srv").config.deploy_hostname == "srv"
    assert parse("SERVER_HOSTNAME=srv\nDEPLOY_HOSTNAME=").config.deploy_hostname == "srv"
    assert parse("SERVER_HOSTNAME=srv\nDEPLOY_HOSTNAME=front").config.deploy_hostname == "front"


def test_several_servers_are_named_with_blanks_or_commas() -> None:
    config = parse('SERVER_HOSTNAME="srv1, srv2 10.0.0.3"').config
    assert config.server_hostnames == ("srv1", "srv2", "10.0.0.3")
    assert config.server_hostname == config.deploy_hostname == "srv1"


def test_a_server_finds_its_own_name() -> None:
    host = os.uname().nodename
    assert own_server(Config(server_hostnames=("elsewhere",))) == "elsewhere"
    assert own_server(Config(server_hostnames=("no.such.host.invalid", host.upper()))) == host.upper()
    assert own_server(Config(server_hostnames=("203.0.113.1", "127.0.0.1"))) == "127.0.0.1"
    assert own_server(Config(server_hostnames=("203.0.113.1", host), server_name="203.0.113.1")) == "203.0.113.1"


def test_a_name_server_is_asked_once_for_a_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name is needed in transactions that hold locks of jobs."""
    config = Config(server_hostnames=("203.0.113.7", "127.0.0.1"))
    assert own_server(config) == "127.0.0.1"
    monkeypatch.setattr(socket, "getaddrinfo", Mock(side_effect=AssertionError("a name server is asked")))
    assert own_server(config.replace(log_level=3)) == "127.0.0.1"


def test_a_name_server_that_knows_nothing_is_not_asked_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Mock(side_effect=OSError)
    monkeypatch.setattr(socket, "getaddrinfo", asked)
    for _ in range(3):
        with pytest.raises(ConfigError, match=r"is none of 203\.0\.113\.8 203\.0\.113\.9"):
            own_server(Config(server_hostnames=("203.0.113.8", "203.0.113.9")))
    assert asked.call_count == 2  # once for each name


def test_the_digest_covers_options_and_files_of_the_site_and_nothing_of_one_host(tmp_path: Path) -> None:
    quotas = tmp_path / "quotas"
    quotas.write_text("{}")
    config = Config(quotas_conf_file=str(quotas))
    digest = config_digest(config)
    assert config_digest(config.replace(server_name="srv1", log_file="/srv/log", db_base_passwd="x")) == digest
    assert config_digest(config.replace(server_port=7777)) != digest
    quotas.write_text("{ }")
    assert config_digest(config) != digest


def test_the_digest_ignores_files_that_cannot_be_read_and_those_of_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe")
    config = Config(quotas_conf_file=str(tmp_path))
    digest = config_digest(config)
    monkeypatch.setattr(Path, "iterdir", Mock(side_effect=PermissionError(13, "Permission denied")))
    assert config_digest(config) != digest
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    digest = config_digest(Config(quotas_conf_file=""))
    (tmp_path / "other").write_text("text")
    assert config_digest(Config(quotas_conf_file="")) == digest


@pytest.mark.parametrize(
    ("servers", "name", "text"),
    [
        (("203.0.113.1", "203.0.113.2"), None, "is none of 203.0.113.1 203.0.113.2; add its name, or set SERVER_NAME"),
        (("127.0.0.1", "127.0.0.2"), None, "127.0.0.1 and 127.0.0.2 are all this host; "),
        (("a", "b"), "c", "SERVER_NAME: c must be one of SERVER_HOSTNAME (a b)"),
    ],
)
def test_a_server_that_is_not_one_name_of_the_list_is_refused(
    servers: tuple[str, ...], name: str | None, text: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(text)):
        own_server(Config(server_hostnames=servers, server_name=name))


def test_an_empty_cpuset_path_means_no_cgroup() -> None:
    assert parse("CPUSET_PATH=").config.cpuset_path is None
    assert Config().cpuset_path == "/oar"


def test_values_that_contradict_each_other_are_named() -> None:
    assert errors("JOB_KILL_GRACE=60") == ["f:1: JOB_KILL_GRACE: must be below JOBDEL_SOFTWALLTIME"]
    assert len(errors("ENERGY_SAVING_WINDOW_TIME=120")) == 1
    assert warnings("JOBDEL_WALLTIME=30") == ["f:1: JOBDEL_WALLTIME: must be above JOBDEL_SOFTWALLTIME: 61 is used"]
    assert parse("JOBDEL_WALLTIME=30").config.jobdel_walltime == 61


def test_other_ways_to_prepare_jobs_are_refused_with_the_way_out() -> None:
    (error,) = errors("CGROUP_MANAGER=systemd")
    assert error.startswith("f:1: CGROUP_MANAGER: slices of systemd are not supported: use auto, ")
    (warning,) = warnings('TAKTUK_CMD="/usr/bin/taktuk -s"')
    assert warning.startswith("f:1: TAKTUK_CMD: checks nodes, if PINGCHECKER_TAKTUK_ARG_COMMAND is set; jobs are ")


def test_a_constant_that_is_set_otherwise_is_warned_about() -> None:
    assert warnings("NOTIFY_TCP_SOCKET_ENABLED=1") == []
    assert warnings("NOTIFY_TCP_SOCKET_ENABLED=0") == ["f:1: NOTIFY_TCP_SOCKET_ENABLED: has no effect: a constant"]


def test_the_configuration_is_frozen() -> None:
    config = Config()
    with pytest.raises(AttributeError):
        config.server_port = 1
    with pytest.raises(AttributeError):
        config.changed = {}
    with pytest.raises(TypeError, match="colour"):
        Config(colour="red")
    assert config.replace(server_port=1).server_port == 1
    assert config.server_port == 6666


def test_the_origin_of_each_value_is_known() -> None:
    assert parse("\nLEON_WALLTIME=400", "/etc/oar/oar.conf").origins == {"JOBDEL_WALLTIME": "/etc/oar/oar.conf:2"}


# -- the sample file --------------------------------------------------------------------------------------------------


def test_the_shipped_file_is_written_from_the_declarations() -> None:
    assert SHIPPED.read_text() == sample()


def test_the_shipped_file_sets_exactly_what_is_marked_as_shipped() -> None:
    parsed = parse(sample())
    assert (parsed.errors, parsed.warnings) == ((), ())
    assert parsed.unread == ()
    assert parsed.config == Config(
        job_resource_manager_property_db_field="cpuset",
        hierarchy_labels=("resource_id", "network_address", "cpu", "core"),
        scheduler_resource_order=f"deploy ASC, {Config().scheduler_resource_order}",
    )


def test_each_default_is_accepted_where_it_is_written_out() -> None:
    assignments = [line.removeprefix("#") for line in sample().split("\n") if line.startswith("#") and '="' in line]
    spoken = [line for line in assignments if not line.startswith(" ")]
    parsed = parse("\n".join(spoken))
    assert (parsed.errors, parsed.warnings) == ((), ())
    for option in Config.options():
        assert getattr(parsed.config, option.name) == getattr(Config(), option.name), option.key


# -- energy saving ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("type='default':0", (("type='default'", 0),)),
        ("type='default':2 & gpu > 0:1", (("type='default'", 2), ("gpu > 0", 1))),
        ("type='default':2, gpu > 0:1", (("type='default'", 2), ("gpu > 0", 1))),  # as OAR 3 writes it
        ("cpuset::int IN (1, 2):3 &", (("cpuset::int IN (1, 2)", 3),)),
        ("", ()),
    ],
)
def test_nodes_that_are_kept_awake_are_conditions_with_numbers(text: str, groups: object) -> None:
    parsed = parse(f'ENERGY_SAVING_NODES_KEEPALIVE="{text}"\n')
    assert (parsed.errors, parsed.config.energy_saving_nodes_keepalive) == ((), groups)


@pytest.mark.parametrize(
    ("text", "limits"),
    [("900", ((1, 900),)), ("1:500 11:1000", ((1, 500), (11, 1000))), ("11:1000 1:500", ((1, 500), (11, 1000)))],
)
def test_limits_of_boots_are_seconds_or_depend_on_how_many_boot(text: str, limits: object) -> None:
    parsed = parse(f'ENERGY_SAVING_NODE_MANAGER_WAKEUP_TIMEOUT="{text}"\n')
    assert (parsed.errors, parsed.config.energy_saving_node_manager_wakeup_timeout) == ((), limits)


@pytest.mark.parametrize(
    "line",
    [
        *(f'ENERGY_SAVING_NODES_KEEPALIVE="{text}"' for text in ("type='default'", "a:1 & b", ":3", "a:1 b:x")),
        *(f'ENERGY_SAVING_NODE_MANAGER_WAKEUP_TIMEOUT="{text}"' for text in ("soon", "1:", "0", "1:0", "1:5 x", "")),
    ],
)
def test_keys_of_energy_saving_that_say_nothing_are_refused(line: str) -> None:
    assert len(errors(line)) == 1


def test_keys_of_greta_without_effect_are_named() -> None:
    assert [str(problem) for problem in parse("GRETA_PORT=6672\n", "f").warnings] == [
        "f:1: GRETA_PORT: no effect without ENERGY_SAVING_INTERNAL"
    ]
    (warning,) = parse("ENERGY_SAVING_INTERNAL=yes\n", "f").warnings
    assert str(warning).startswith("f:1: ENERGY_SAVING_INTERNAL: no effect without ENERGY_SAVING_NODE_MANAGER_SLEEP")


def test_either_way_of_energy_saving_needs_a_command_and_rounds_that_decide() -> None:
    idle = "SCHEDULER_NODE_MANAGER_IDLE_TIME=9\nSCHEDULER_NODE_MANAGER_SLEEP_TIME=9\n"
    outer = "SCHEDULER_NODE_MANAGER_SLEEP_CMD=/a\nSCHEDULER_NODE_MANAGER_WAKE_UP_CMD=/b\n"
    inner = "ENERGY_SAVING_NODE_MANAGER_SLEEP_CMD=/c\nENERGY_SAVING_NODE_MANAGER_WAKE_UP_CMD=/d\n"
    greta, other = "ENERGY_SAVING_INTERNAL=yes\n", "ENERGY_SAVING_MODE=external\n"
    for text, is_on in (
        (idle + outer, True),
        (idle + inner, False),
        (idle + outer + greta, False),
        (idle + inner + greta, True),
        (idle + inner + greta + other, False),
    ):
        config = parse(text).config
        assert (config.may_halt, config.may_wake) == (is_on, is_on), text


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (
            "APPENDICE_SERVER_PORT=6666",
            "oar.conf:1: APPENDICE_SERVER_PORT: 6666 is also SERVER_PORT: use a different port",
        ),
        (
            "SERVER_PORT=6671",
            "oar.conf:1: BIPBIP_COMMANDER_PORT: 6671 is also SERVER_PORT: use a different port for each",
        ),
        ("OARSUB_DEFAULT_RESOURCES=/core=x", "oar.conf:1: OARSUB_DEFAULT_RESOURCES: write a request as of oarsub -l: "),
        (
            "OARSUB_DEFAULT_RESOURCES=walltime=1",
            "oar.conf:1: OARSUB_DEFAULT_RESOURCES: write a request as of oarsub -l",
        ),
    ],
)
def test_a_value_with_which_nothing_could_work_is_an_error(lines: str, told: str) -> None:
    (error,) = parse(lines).errors
    assert str(error).startswith(told)


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("MAIL_RECIPIENT=a@b", "the administrator gets no mail: MAIL_SMTP_SERVER and MAIL_SENDER must be set, too"),
        ("RETENTION_ACCOUNTING=7", "must be at least SCHEDULER_FAIRSHARING_WINDOW_SIZE, 2592000 s: the fair share"),
    ],
)
def test_keys_that_miss_each_other_are_named(lines: str, told: str) -> None:
    (warning,) = parse(lines).warnings
    assert warning.text.startswith(told)


def test_keys_that_agree_are_not_named() -> None:
    lines = "MAIL_RECIPIENT=a@b\nMAIL_SMTP_SERVER=c\nMAIL_SENDER=d@e\nRETENTION_ACCOUNTING=30\nGRETA_PORT=0\n"
    assert parse(lines + "BIPBIP_COMMANDER_PORT=0\n").warnings == ()


def test_callback_ports_are_a_range() -> None:
    assert parse("OARSUB_CALLBACK_PORTS=40000-40999").config.oarsub_callback_ports == (40000, 40999)
    assert parse("").config.oarsub_callback_ports is None
    for text in ("40000", "5-4", "0-10", "1-70000", "a-b"):
        (error,) = parse(f"OARSUB_CALLBACK_PORTS={text}").errors
        assert str(error).endswith("write the first and the last port, such as 40000-40999")
