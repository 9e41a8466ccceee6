"""What oarsub refuses: the reason it names, its exit code, and that nothing is left behind."""

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oar.cli.common.command import CommandResult
from oar.cli.oarsub_parts import submission
from oar.lib.access.records import User
from oar.lib.db.database import Database
from oar.lib.history.event_types import EventType
from oar.lib.jobs.privacy import privacy_for
from oar.lib.jobs.states import JobState
from oar.lib.submission import submit
from oar.lib.submission.feasibility import ALL_DEAD, NONE_DECLARED
from oar.lib.submission.job_keys import BAD_KEY, NO_KEY_OPTION
from oar.lib.submission.resource_request import EXAMPLE
from tests.builders import add_job, add_resources
from tests.frontend import LoginNode, add_rules

NOT_STDERR = "# -e exports the key of the job; the file for standard error is -E FILE\n"
VERIFY = "# Error: please verify your job submission syntax.\n"
NOT_ENOUGH = "# There are not enough resources for your request\n"
WAYS = "# A command: oarsub 'sleep 60'; a script: oarsub -S ./job.sh, or oarsub -S - < job.sh; a shell: oarsub -I\n"
TOGETHER = "# each part of the request can be satisfied alone, but not all parts together\n"

#: What cannot be submitted: words, exit code, stderr.
REFUSED = [
    ((), 5, f"# Error: a command is needed.\n{WAYS}"),
    (
        ("a", "b"),
        5,
        f"# Error: only one command is accepted, quote it or put it after \"--\".\n# Write: oarsub 'a b'\n{WAYS}",
    ),
    (("-l", "nodes=2x", "x"), 18, f"# Error: cannot recognize the resource description: nodes=2x\n# {EXAMPLE}\n"),
    (
        ("-l", "walltime=1:xx", "x"),
        18,
        "# Error: cannot recognize walltime resource value\n"
        '# "1:xx" is not a walltime: write h[:m[:s]], 90m or 1d12h\n',
    ),
    (
        ("-l", "gpu=1", "x"),
        8,
        '# Bad resource request (unknown resource property "gpu")\n'
        "# There are: cpu, switch, nodes\n"
        "# Administrators add it with oarproperty --add gpu, and set it with oarnodesetting -p gpu=VALUE\n"
        f"{VERIFY}",
    ),
    (("-l", "nodes=5", "x"), 8, f"{NOT_ENOUGH}# 4 nodes can be used, 5 asked\n{VERIFY}"),
    (("-l", "nodes=1", "-l", "nodes=5", "x"), 8, f"{NOT_ENOUGH}# 4 nodes can be used, 5 asked\n{VERIFY}"),
    (("-l", "nodes=3+nodes=2", "x"), 8, f"{NOT_ENOUGH}{TOGETHER}{VERIFY}"),
    (("-l", "+".join(["nodes=1"] * 1000), "x"), 8, f"{NOT_ENOUGH}{TOGETHER}{VERIFY}"),
    (
        ("-l", "+".join(["nodes=1"] * 1001), "x"),
        18,
        '# Error: more than 1000 parts are joined with "+": use levels, or several jobs\n',
    ),
    (
        ("-l", "/".join(["nodes=5", *["resource_id=1"] * 15]), "x"),
        8,
        f"{NOT_ENOUGH}# 4 nodes with {'/'.join(['resource_id=1'] * 15)} can be used, 5 asked\n{VERIFY}",
    ),
    (
        ("-l", "/".join(["nodes=1"] * 5000), "x"),
        18,
        '# Error: more than 16 levels are joined with "/": name each property once\n',
    ),
    (
        ("-p", "cpuset='0'", "-l", "nodes=2/resource_id=2", "x"),
        8,
        f"{NOT_ENOUGH}# no node with 2 resources matches \"cpuset='0'\", 2 asked\n{VERIFY}",
    ),
    (
        ("-l", "{network_address='node-1'}/nodes=2", "x"),
        8,
        f"{NOT_ENOUGH}# 1 node matches \"network_address='node-1'\", 2 asked\n{VERIFY}",
    ),
    (
        ("-t", "deploy", "-l", "nodes=1", "x"),
        8,
        f"{NOT_ENOUGH}# no node matches \"(deploy = 'YES') AND desktop_computing = 'NO'\", 1 asked (with the conditions"
        f" of the admission rules)\n{VERIFY}",
    ),
    (
        ("-l", "netwrk_address=1", "x"),
        8,
        '# Bad resource request (unknown resource property "netwrk_address")\n'
        f'# Did you mean "network_address"?\n{VERIFY}',
    ),
    (
        ("-t", "besteffort, idempotent", "x"),
        254,
        "[ADMISSION RULE] Error: unknown job type: besteffort, idempotent\n# Write -t besteffort -t idempotent\n",
    ),
    (("-q", "defualt", "x"), 248, "# Error: queue 'defualt' does not exist\n# Did you mean 'default'?\n"),
    (("--recource", "nodes=1", "x"), 1, "Unknown option: recource\n# Did you mean --resource?\n"),
    (("-p", "1=1) OR (1=1", "x"), 8, f"# Error: invalid SQL condition: a ')' has no '(' at character 4\n{VERIFY}"),
    (
        ("-p", "1/(resource_id - resource_id) = 1", "x"),
        8,
        f"# Error: cannot evaluate the SQL condition: a number is divided by zero\n{VERIFY}",
    ),
    (
        ("-p", "long-jobs", "x"),
        8,
        '# Error: invalid SQL condition: unknown column "long" at character 1\n'
        f"# A queue is named with -q, nodes with --nodelist\n{VERIFY}",
    ),
    (
        ("-p", "network_adress = 'node-1'", "x"),
        8,
        '# Error: invalid SQL condition: unknown column "network_adress" at character 1,'
        f' did you mean "network_address"?\n{VERIFY}',
    ),
    (
        ("-t", "postpone=2031-13-01", "x"),
        8,
        '# Error: the type postpone needs a date: "2031-13-01" is not a date (no calendar has it)\n' + VERIFY,
    ),
    (
        ("-t", "deadline=2h", "x"),
        8,
        f"# Error: the date 2h of a type is in the past: 2h from now is +2h.\n{VERIFY}",
    ),
    (("--exclude", "elsewhere", "x"), 8, f"# Error: there is no node 'elsewhere'.\n{VERIFY}"),
    (("--nodelist", "noed-1,node-2", "x"), 8, f"# Error: there is no node 'noed-1', did you mean 'node-1'?\n{VERIFY}"),
    (("--nodelist", "a' OR 1=1 --", "x"), 8, f'# Error: bad node name "a\' OR 1=1 --".\n{VERIFY}'),
    (
        ("--nodelist", "node-1", "-p", "core=1) OR (core=2", "x"),
        8,
        f"# Error: invalid SQL condition: a ')' has no '(' at character 7\n{VERIFY}",
    ),
    (("--nodelist", ",", "x"), 8, f'# Error: bad node name "".\n{VERIFY}'),
    (("-l", "{1;2}/nodes=1", "x"), 8, f"# Error: invalid SQL condition: ';' is not allowed at character 2\n{VERIFY}"),
    (("-a", "77", "x"), 8, f"# Error: dependency on unknown job 77.\n{VERIFY}"),
    (("-n", "a" * 101, "x"), 8, f"# Error: the job name is longer than 100 characters.\n{VERIFY}"),
    (("-n", "a\nb", "x"), 8, f"# Error: the job name has a control character.\n{VERIFY}"),
    (("-q", "nope", "x"), 248, "# Error: queue 'nope' does not exist\n# There are: admin, besteffort, default\n"),
    (
        ("-q", "admin", "x"),
        254,
        "[ADMISSION RULE] Only member of the group admin can submit jobs in the admin queue\n",
    ),
    (
        ("-I", "-t", "noop", "sleep 1"),
        17,
        '# Warning: the command "sleep 1" is ignored: interactive jobs (-I) start a shell. '
        "Run a command with: oarsub 'sleep 1'\n"
        "# Error: a noop job cannot be interactive.\n",
    ),
    (("--nope", "x"), 1, "Unknown option: nope\n"),
    (("-l",), 1, "Option l requires an argument\n"),
    (
        ("--array", "1-10", "true"),
        1,
        'Value "1-10" invalid for option array (number expected)\n'
        "# Here: --array NUMBER; OAR_ARRAY_INDEX is from 1 to NUMBER in its jobs\n",
    ),
    (("-N", "2", "x"), 1, "Unknown option: N\n# Here: -l nodes=NUMBER; -n NAME\n"),
    (("--array", f"2%{2**31}", "true"), 6, "# Error: the limit of an array is at most 2147483647.\n"),
    (("--array", "x", "true"), 1, 'Value "x" invalid for option array (number expected)\n'),
    (("--signal", "²", "x"), 1, "# Error: unknown signal ².\n"),
    (("--signal", "1" * 5000, "x"), 1, f"# Error: unknown signal {'1' * 5000}.\n"),
    (("--checkpoint", 2**31, "x"), 8, f"# Error: the checkpoint delay is longer than 2147483647 s.\n{VERIFY}"),
    (
        ("-e", "/tmp/key", "x"),
        8,
        f"# Error: {NO_KEY_OPTION}\n{NOT_STDERR}{VERIFY}",
    ),
    (
        ("-k", "-i", "/no/where", "x"),
        8,
        f"# Error: {BAD_KEY}\n# The file /no/where cannot be read.\n{VERIFY}",
    ),
    (
        ("--ssh_public_key", "ssh-ed25519 A", "x"),
        8,
        f"# Error: --ssh_public_key needs --ssh_private_key.\n{VERIFY}",
    ),
    (("-k", "-i", "/f", "--import-job-key-inline", "k", "x"), 8, f"# Error: {submission.TWO_KEYS}\n{VERIFY}"),
    (
        ("--ssh_private_key", "nonsense", "x"),
        8,
        "# Error: fail to extract the public key. Please verify that the job key to import is valid.\n" + VERIFY,
    ),
]


@pytest.fixture
def site(database: Database) -> LoginNode:
    """Four nodes of two cores, on which nobody has worked yet, with the default admission rules."""
    add_resources(database, nodes=4, cores=2)
    add_rules(database)
    return LoginNode(database)


@pytest.mark.parametrize(("words", "code", "text"), REFUSED, ids=lambda value: str(value)[:40])
def test_what_is_refused_names_the_reason_and_leaves_no_row(
    site: LoginNode, words: tuple[str, ...], code: int, text: str
) -> None:
    result = site.oarsub(*words)
    assert result.exit == code
    assert (
        "".join(line for line in result.err.splitlines(keepends=True) if not line.startswith(("Usage", "\n"))) == text
    )
    assert "OAR_JOB_ID" not in result.out
    assert site.is_empty()
    assert site.told == []


@pytest.mark.parametrize(
    ("scripts", "there"), [({}, "it has none."), ({"matlab": "echo 1", "ansys": "x"}, "its tokens are ansys, matlab.")]
)
def test_a_token_that_nobody_counts_is_refused(site: LoginNode, scripts: dict[str, str], there: str) -> None:
    site.config = site.config.replace(scheduler_token_scripts=scripts)
    result = site.oarsub("-t", "token:x=3", "true")
    text = f'# Error: this site has no token "x" (SCHEDULER_TOKEN_SCRIPTS): {there}\n{VERIFY}'
    assert (result.exit, result.err) == (8, text)
    assert site.is_empty()


def test_a_token_that_is_counted_is_accepted(site: LoginNode) -> None:
    site.config = site.config.replace(scheduler_token_scripts={"matlab": "echo 1"})
    site.submit("-t", "token:matlab=3", "true")


def test_a_token_without_a_number_is_refused_whatever_the_rules_say(site: LoginNode) -> None:
    add_rules(site.database, "types.append('token:matlab')", defaults=False)
    site.config = site.config.replace(scheduler_token_scripts={"matlab": "echo 1"})
    result = site.oarsub("true")
    assert (result.exit, result.err) == (8, f"# Error: token:matlab is not token:<name>=<number>\n{VERIFY}")


def test_a_rule_that_is_broken_is_the_administrators_affair(site: LoginNode) -> None:
    """A frontend has no log of the server: the user sees one line, and the server logs where the rule failed."""
    add_rules(site.database, "boom", defaults=False)
    site.config = site.config.replace(log_file="/no/directory/oar.log")
    result = site.oarsub("x")
    assert result.exit == 254
    assert re.fullmatch(
        r"# Error: an admission rule failed, please tell your administrator \(rule \d+\)\.\n", result.err
    )
    with site.database.begin() as tx:
        (event,) = tx.events.latest(1, type_=EventType.ADMISSION_RULE_FAILED, before=None)
    assert "name 'boom' is not defined" in event.description
    other_user = privacy_for(site.config, User("bob", 1002))
    assert other_user.events([event])[0].description == ""
    assert privacy_for(site.config, User("root", 0)).events([event]) == (event,)
    assert site.is_empty()


def test_a_host_outside_the_allowed_networks_submits_nothing(site: LoginNode) -> None:
    ended = add_job(site.database, JobState.TERMINATED)
    site.config = site.config.replace(allowed_networks=("192.0.2.0/24",), server_hostnames=("127.0.0.1",))
    text = "# Error: jobs cannot be submitted from this host: 127.0.0.1 is not in ALLOWED_NETWORKS.\n"
    for words in (["x"], ["-I"], ["--resubmit", ended]):
        assert site.oarsub(*words) == CommandResult(1, "", text)
    assert len(site.jobs()) == 1
    assert site.oarsub("-C", ended).exit == 20
    site.config = site.config.replace(allowed_networks=("192.0.2.0/24", "127.0.0.0/8"))
    assert site.oarsub("x").exit == 0


def hostile_words() -> st.SearchStrategy[str]:
    pieces = st.sampled_from(
        ["'", '"', ";", "--", "\n", "$(id)", "%s", "\\", "é", "\udcff", "{", "}", "/", "=", ",", "a", "1"]
    )
    return st.lists(pieces, max_size=8).map("".join)


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(
    option=st.sampled_from(
        [
            "-l",
            "-p",
            "-q",
            "-n",
            "-t",
            "-d",
            "-a",
            "-O",
            "-E",
            "--project",
            "--notify",
            "--array",
            "--checkpoint",
            "--signal",
            "--force_cpuset_name",
        ]
    ),
    value=hostile_words(),
    command=hostile_words(),
)
def test_whatever_is_typed_is_data_or_refused_without_a_row(
    site: LoginNode, option: str, value: str, command: str
) -> None:
    before = site.count("jobs")
    result = site.oarsub(option, value, "--", command)
    assert result.exit in {0, 1, 5, 6, 7, 8, 16, 18, 243, 244, 248, 250, 254}
    assert "internal error" not in result.err
    assert site.count("jobs") == before + (result.exit == 0)
    if result.exit == 0 and option == "-n":
        assert (site.jobs()[-1].name or "") == value.strip()


def test_a_refusal_is_an_event_in_one_line(database: Database) -> None:
    login_node = LoginNode(database)
    add_rules(database, "reject('# no:\\n# not you')")
    add_resources(database)
    login_node.oarsub("true")
    login_node.oarsub("-l", "nodes=9", "true")
    with database.begin() as tx:
        events = tx.events.latest(9, type_=EventType.SUBMISSION_REFUSED, before=None)
    assert [(event.job_id, event.description) for event in reversed(events)] == [
        (0, "a submission of alice: no:; not you"),
        (0, "a submission of alice: no:; not you"),
    ]


@pytest.mark.parametrize(
    "words",
    [("-q", "nowhere"), ("-l", "nodes=9"), ("-p", "colour='red'"), ("-a", "4711"), ("-l", "nodes=1,walltime=1:xx")],
)
def test_an_error_of_the_user_is_no_refusal_by_the_site(database: Database, words: tuple[str, ...]) -> None:
    login_node = LoginNode(database)
    add_rules(database)
    add_resources(database)
    assert login_node.oarsub(*words, "true").exit != 0
    assert login_node.count("event_logs WHERE type = 'SUBMISSION_REFUSED'") == 0


def test_a_queue_that_a_rule_sets_and_that_does_not_exist_is_a_refusal_by_the_site(database: Database) -> None:
    login_node = LoginNode(database)
    add_rules(database, "queue = 'nowhere'")
    add_resources(database)
    assert login_node.oarsub("true").exit != 0
    assert login_node.count("event_logs WHERE type = 'SUBMISSION_REFUSED'") == 1


def test_a_program_that_is_refused_without_end_does_not_fill_the_database(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submit, "REFUSALS_OF_A_MINUTE", 2)
    database._clock = lambda: 1_900_000_000
    login_node = LoginNode(database)
    add_rules(database, "reject('no')")
    for _ in range(3):
        assert login_node.oarsub("true").exit != 0
    assert login_node.count("event_logs") == 2
    assert login_node.is_empty()


def test_a_rule_that_fails_is_noted_among_many_refusals_once_a_minute(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submit, "REFUSALS_OF_A_MINUTE", 1)
    now = [1_900_000_000]
    database._clock = lambda: now[0]
    login_node = LoginNode(database)
    add_rules(database, "boom", defaults=False)
    for _ in range(3):
        login_node.oarsub("true")
    assert login_node.count("event_logs WHERE type = 'ADMISSION_RULE_FAILED'") == 1
    now[0] += 60
    login_node.oarsub("true")
    assert login_node.count("event_logs WHERE type = 'ADMISSION_RULE_FAILED'") == 2


@pytest.mark.parametrize("login", ["al@site.org", "SITE\\al", "-rf", "..", "al ice", "élise", "al\nice", "", "$al"])
def test_whom_no_node_takes_submits_nothing_and_costs_no_node(site: LoginNode, login: str) -> None:
    result = site.oarsub("true", user=User(login, 0))
    assert (result.exit, result.err.count("\n")) == (8, 1)
    assert result.err.startswith('# Error: the login "')
    assert not site.jobs()


@pytest.mark.parametrize("login", ["al.ice-2", "a" * 32, "machine$", "_x", "0al"])
def test_whom_nodes_take_may_submit(site: LoginNode, login: str) -> None:
    assert site.oarsub("true", user=User(login, 0)).exit == 0


def test_a_site_without_resources_says_so_and_who_declares_them(database: Database) -> None:
    add_rules(database)
    login = LoginNode(database)
    refused = login.oarsub("x")
    assert (refused.exit, refused.err) == (8, f"{NOT_ENOUGH}# {NONE_DECLARED}\n")
    add_resources(database, state="Dead")
    assert login.oarsub("-l", "nodes=1", "x").err == f"{NOT_ENOUGH}# {ALL_DEAD}\n"


def test_a_job_with_too_many_alternatives_is_refused(site: LoginNode, tmp_path: Path) -> None:
    site.config = site.config.replace(max_alternatives=2)
    reason = "the job has 3 alternatives; at most 2 are allowed (MAX_ALTERNATIVES): use fewer -l."
    text = f"# Error: {reason}\n"
    refused = site.oarsub("-l", "nodes=1", "-l", "nodes=2", "-l", "nodes=3", "true")
    assert (refused.exit, refused.err) == (18, text)
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\n#OAR -l nodes=1\n#OAR -l nodes=2\n#OAR -l nodes=3\n")
    script.chmod(0o755)
    assert site.oarsub("-S", str(script)).err == text
    assert site.is_empty()
