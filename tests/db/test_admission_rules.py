"""The default admission rules, what sites add to them, and the command that keeps them."""

import os
import pwd
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from oar.cli import oaradmissionrules, oarsub
from oar.cli.common.command import CommandResult
from oar.lib.access.records import User
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.jobs.states import JobState, Reservation
from tests.builders import add_job, add_resources, execute_sql
from tests.frontend import ALICE, RULES, Frontend, add_rules

ROOT = User("root", 0)
OAR = User("oar", 0)
USAGE = "Usage: oaradmissionrules [OPTIONS] [-- OARSUB ARGUMENTS]\n"
BOB = User("bob", 0)


class Site(Frontend):
    """Two nodes of two cores; the second node takes every kind of job."""

    def submit(self, *words: object, user: User = ALICE) -> CommandResult:
        """Submit without waiting for anything."""
        return self.type(oarsub.main, *words, user=user)

    def rule(self, *words: object, user: User = ROOT, editor: str = "") -> CommandResult:
        """Type oaradmissionrules."""
        return self.type(oaradmissionrules.main, *words, user=user, environment={"EDITOR": editor} if editor else {})

    def try_reservation(self, *words: object, user: User = ALICE) -> CommandResult:
        """Run the rules on a reservation, without waiting for the scheduler."""
        words = ("--test", "--as", user.name, "--", "-r", "2031-03-04 10:00:00", *words, "true")
        return self.rule(*words)


@pytest.fixture
def site(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A site with the default rules."""
    monkeypatch.setattr(pwd, "getpwnam", account)
    add_resources(database, nodes=1, cores=2)
    add_resources(database, nodes=1, cores=2, network_address="node-2", deploy="YES", besteffort="YES")
    add_rules(database)
    execute_sql(database, "UPDATE resources SET besteffort = 'NO' WHERE network_address = 'node-1'")
    return Site(database, Config(log_file=str(tmp_path / "oar.log"), scheduler_token_scripts={"matlab": "echo 9"}))


def account(name: str) -> pwd.struct_passwd:
    """The accounts of the site."""
    if name not in ("alice", "bob", "oar"):
        raise KeyError(name)
    return pwd.struct_passwd((name, "x", 1000, 1000, "", f"/home/{name}", "/bin/sh"))


class TestDefaultRules:
    def test_the_longest_walltime_holds_once_its_rule_is_turned_on(self, site: Site) -> None:
        with site.database.begin() as tx:
            (rule,) = [rule for rule in tx.admission_rules.all() if rule.priority == 18]
        week, more = ("-l", "nodes=1,walltime=168:0"), ("-l", "nodes=1,walltime=168:0:1")
        assert site.submit(*more, "x").exit == 0
        assert site.rule("--modify", rule.id, "--enabled").exit == 0
        assert site.submit(*week, "x").exit == 0
        refused = site.submit(*week, *more, "x")
        assert (refused.exit, refused.err) == (
            254,
            "[ADMISSION RULE] Error: the walltime of a job is at most 168 hours.\n",
        )

    @pytest.mark.parametrize("user", [ROOT, OAR])
    def test_administrators_do_not_submit(self, site: Site, user: User) -> None:
        result = site.submit("x", user=user)
        assert (result.exit, result.err) == (
            254,
            "[ADMISSION RULE] root and oar users are not allowed to submit jobs.\n",
        )

    @pytest.mark.parametrize(
        "name",
        [
            *("type", "state", "next_state", "finaud_decision", "next_finaud_decision", "state_num", "suspended_jobs"),
            *("scheduler_priority", "cpuset", "besteffort", "deploy", "expiry_date", "desktop_computing"),
            *("last_job_date", "available_upto", "last_available_upto", "drain", "STATE"),
        ],
    )
    def test_no_request_by_what_is_oars_own(self, site: Site, name: str) -> None:
        result = site.submit("-l", f"/{name}=1", "x")
        assert (result.exit, result.err) == (254, f"[ADMISSION RULE] '{name}' resource is not allowed\n")

    def test_besteffort_jobs_go_to_their_queue_and_their_resources(self, site: Site) -> None:
        result = site.submit("-v", "-t", "besteffort", "-p", "cpuset='0' OR true", "x")
        assert result.out.splitlines()[:2] == [
            "[ADMISSION RULE] Automatically redirect in the besteffort queue",
            "[ADMISSION RULE] Automatically add the besteffort constraint on the resources",
        ]
        (job,) = site.jobs()
        assert job.queue == "besteffort"
        assert job.properties == (
            "(((cpuset='0' OR true) AND besteffort = 'YES') AND desktop_computing = 'NO') AND (drain='NO')"
        )
        assert site.submit("-t", "besteffort", "-l", "nodes=2", "x").exit == 8  # one node only takes them

    def test_jobs_in_the_besteffort_queue_are_besteffort(self, site: Site) -> None:
        result = site.submit("-q", "besteffort", "x")
        assert "[ADMISSION RULE] Automatically add the besteffort type\n" in result.out
        with site.database.begin() as tx:
            assert tx.jobs.types([site.jobs()[0].id]) == {site.jobs()[0].id: ("besteffort",)}

    def test_no_besteffort_reservation(self, site: Site) -> None:
        result = site.try_reservation("-t", "besteffort")
        assert result.err == ("[ADMISSION RULE] Error: a job cannot both be of type besteffort and be a reservation.\n")

    @pytest.mark.parametrize("kind", ["deploy", "deploy=standby"])
    def test_deploy_jobs_get_whole_nodes_that_can_be_deployed(self, site: Site, kind: str) -> None:
        assert site.submit("-t", kind, "-l", "nodes=1", "x").exit == 0
        assert "deploy = 'YES'" in (site.jobs()[0].properties or "")
        result = site.submit("-t", kind, "-l", "/nodes=1/resource_id=1", "x")
        assert result.err == "[ADMISSION RULE] 'resource_id' resource is not allowed with a deploy job\n"

    def test_drained_nodes_do_not_refuse_jobs(self, site: Site) -> None:
        execute_sql(site.database, "UPDATE resources SET drain = 'YES'")
        assert site.submit("-l", "nodes=2", "x").exit == 0

    def test_desktop_computing_jobs_have_their_own_resources(self, site: Site) -> None:
        execute_sql(site.database, "UPDATE resources SET desktop_computing = 'YES' WHERE network_address = 'node-2'")
        result = site.submit("-v", "-t", "desktop_computing", "-l", "nodes=1", "x")
        assert "[ADMISSION RULE] Added automatically desktop_computing resource constraints\n" in result.out
        assert site.submit("-l", "nodes=2", "x").exit == 8

    def test_two_reservations_may_wait(self, site: Site) -> None:
        for state, kind in (
            (JobState.WAITING, Reservation.TO_SCHEDULE),
            (JobState.TO_ACK_RESERVATION, Reservation.SCHEDULED),
        ):
            assert site.try_reservation().exit == 0
            add_job(site.database, state, reservation=kind)
        result = site.try_reservation()
        assert (result.exit, result.err) == (
            254,
            "[ADMISSION RULE] Error: you cannot have more than 2 waiting advance reservations.\n",
        )
        assert site.try_reservation(user=BOB).exit == 0
        assert site.submit("x").exit == 0

    def test_whom_the_site_names_may_have_more_reservations(
        self, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        home = pwd.struct_passwd(("oar", "x", 1000, 1000, "", str(tmp_path), "/bin/sh"))
        monkeypatch.setattr(pwd, "getpwuid", lambda uid: home)
        (tmp_path / "unlimited_reservation.users").write_text("bobby\n alice \n")
        for _ in range(2):
            for user in ("alice", "bob"):
                add_job(site.database, user=user, reservation=Reservation.TO_SCHEDULE)
        granted = "[ADMISSION RULE] alice is granted the privilege to do unlimited reservations\n"
        assert granted in site.try_reservation("-v").out
        assert site.try_reservation(user=BOB).exit == 254

    def test_interactive_jobs_are_short(self, site: Site) -> None:
        result = site.rule("--test", "--as", "alice", "--", "-I", "-l", "nodes=1,walltime=13")
        assert "[ADMISSION RULE] Walltime to big for an INTERACTIVE job so it is set to 43200.\n" in result.out
        assert "walltime=12:0:0\n" in result.out

    @pytest.mark.parametrize(
        "kind",
        [
            *("container", "container=a_1", "container_users=bob+eve.x", "ar=hard", "deploy", "deploy=standby"),
            *("cosystem", "cosystem=standby", "idempotent", "placeholder=a", "set_placeholder=a", "allowed=a"),
            *("use_placeholder=a", "allow=a", "timesharing", "timesharing=user,*", "timesharing=*,name"),
            *("timesharing=name,user", "timesharing=job_name,*", "token:matlab=2", "noop", "noop=standby"),
            *("postpone=2031-01-01", "deadline=2031-01-01 10:00", "expire=2031-01-01 10:00:00", "state=permissive"),
            *("nice=2", "checkpoint", "origin=execo"),
        ],
    )
    def test_known_types(self, site: Site, kind: str) -> None:
        assert site.submit("-t", kind, "-l", "nodes=1", "x").exit == 0

    @pytest.mark.parametrize(
        ("kind", "hint"),
        [
            *((kind, "") for kind in ("xyz", "qos=1", "no_quotas", "besteffort=1", "")),
            ("container=a b", "# Write container=NAME\n"),
            ("postpone=some-day", "# Write postpone=YYYY-MM-DD hh:mm:ss\n"),
            ("timesharing=me,*", "# Write timesharing=user,name with * for any of them\n"),
            ("token=a", "# Write token:NAME=NUMBER\n"),
        ],
    )
    def test_unknown_types(self, site: Site, kind: str, hint: str) -> None:
        result = site.submit("-t", kind, "x")
        assert (result.exit, result.err) == (254, f"[ADMISSION RULE] Error: unknown job type: {kind}\n{hint}")

    def test_a_site_adds_types(self, site: Site) -> None:
        site.config = site.config.replace(job_types_extra=(r"devel", r"monitor=\w+"))
        assert site.submit("-t", "devel", "-t", "monitor=power", "x").exit == 0
        assert site.submit("-t", "origin=execo", "x").exit == 254

    @pytest.mark.parametrize(
        ("condition", "stored"),
        [
            ("", "type = 'default'"),
            ("cpuset='1'", "(cpuset='1') AND type = 'default'"),
            ("deploy='YES' or type='default'", "deploy='YES' or type='default'"),
            ("TYPE in ('default')", "TYPE in ('default')"),
            ("cpuset='mytype'", None),
        ],
    )
    def test_default_resources_are_meant_unless_a_type_is_named(
        self, site: Site, condition: str, stored: str | None
    ) -> None:
        result = site.submit("-v", "-l", (f"{{{condition}}}" if condition else "") + "/nodes=1", "x")
        says = "[ADMISSION RULE] Modify resource description with type constraints\n"
        if stored is None:
            assert result.exit == 8  # the word in a text is no column: the constraint is added, and nothing fits
            return
        assert (says in result.out) == (stored != condition)
        with site.database.begin() as tx:
            assert tx.new_jobs.moldables_of_jobs([site.jobs()[0].id])[site.jobs()[0].id][0].groups[0].filter == stored

    @pytest.mark.parametrize(
        ("words", "told"),
        [
            (("-l", "nodes=1,walltime=1"), []),
            (("-l", "nodes=1"), ["Set default walltime to 7200."]),
            (("-t", "desktop_computing", "-l", "nodes=1,walltime=1"), []),
            (("-q", "besteffort", "-t", "besteffort", "-l", "nodes=1,walltime=1"), []),
            (
                ("-t", "besteffort", "-l", "nodes=1,walltime=1"),
                ["Automatically redirect in the besteffort queue"],
            ),
        ],
    )
    def test_the_rules_tell_what_they_changed_and_which_default_they_took(
        self, site: Site, words: tuple[str, ...], told: list[str]
    ) -> None:
        execute_sql(site.database, "UPDATE resources SET desktop_computing = 'YES' WHERE network_address = 'node-1'")
        result = site.submit(*words, "x")
        assert [line for line in result.out.splitlines() if not line.startswith("OAR_JOB_ID=")] == [
            f"[ADMISSION RULE] {line}" for line in told
        ]

    def test_licences_are_asked_as_a_group_of_their_own(self, site: Site) -> None:
        add_resources(site.database, nodes=1, cores=3, network_address="", type="licence")
        assert site.submit("-l", "/nodes=2+{type='licence'}/resource_id=3", "x").exit == 0
        assert site.submit("-l", "/nodes=2+{type='licence'}/resource_id=4", "x").exit == 8


class TestInnerJobs:
    def inner(self, site: Site, reference: object, user: User = ALICE) -> str:
        return site.submit("-t", f"inner={reference}", "x", user=user).err

    def test_inside_a_live_container_by_number_or_name(self, site: Site) -> None:
        container = add_job(site.database, JobState.RUNNING, types=["container=box"])
        assert self.inner(site, container) == ""
        assert self.inner(site, "box") == ""
        execute_sql(site.database, "UPDATE jobs SET state = 'Finishing' WHERE job_id = %s", container)
        no_container = add_job(site.database, JobState.RUNNING)
        for reference in (container, "box", 999, "nobox", no_container):
            assert self.inner(site, reference) == (
                "[ADMISSION RULE] Error: inner job is requesting an invalid container id.\n"
            )

    def test_others_only_where_the_owner_names_them(self, site: Site) -> None:
        closed = add_job(site.database, JobState.RUNNING, types=["container"])
        opened = add_job(site.database, JobState.RUNNING, types=["container", "container_users=bob+eve"])
        assert self.inner(site, closed, BOB) == (
            f"[ADMISSION RULE] Error: you are not allowed to use the container {closed}.\n"
        )
        assert self.inner(site, opened, BOB) == ""

    def test_reservations_only_inside_reservations(self, site: Site) -> None:
        plain = add_job(site.database, JobState.RUNNING, types=["container"])
        reserved = add_job(site.database, JobState.RUNNING, types=["container"], reservation=Reservation.SCHEDULED)
        assert site.try_reservation("-t", f"inner={plain}").err == (
            "[ADMISSION RULE] Error: an advance-reservation inner job requires the container"
            " to be an advance reservation as well.\n"
        )
        assert site.try_reservation("-t", f"inner={reserved}").exit == 0

    def test_a_container_that_is_too_small_is_told(self, site: Site) -> None:
        with site.database.begin() as tx:
            resources = [resource.id for resource in tx.resources.of_nodes(["node-1"])]
        container = add_job(site.database, JobState.RUNNING, types=["container"], on=resources)
        result = site.submit("-t", f"inner={container}", "-l", "nodes=2", "x")
        assert (result.exit, result.err) == (0, f"# Warning: container job {container} holds only 1 network_address\n")
        assert site.submit("-t", f"inner={container}", "-l", "nodes=1", "x").err == ""


class TestRulesOfSites:
    def test_an_estimate_finds_big_jobs(self, site: Site) -> None:
        add_rules(
            site.database,
            "if any(e.nbresources * e.walltime > 20000 for e in estimate(resource_request, properties)):\n"
            "    print(\"[ADMISSION RULE] Your job is of the 'big' type\")\n    types.append('big')",
            defaults=False,
        )
        assert "'big'" not in site.submit("-l", "nodes=1", "x").out
        assert "'big'" in site.submit("-l", "nodes=2", "x").out

    @pytest.mark.parametrize(
        "rule",
        ["estimate(resource_request, properties)", "estimate_job_nb_resources(0, 0, resource_request, properties)"],
    )
    @pytest.mark.parametrize("words", [("-l", "nodez=2"), ("-l", "nodes=2,walltime=x"), ("-p", "corre = 1")])
    def test_an_estimate_of_a_typo_is_the_user_s_fault_not_the_rule_s(
        self, site: Site, rule: str, words: tuple[str, ...]
    ) -> None:
        add_rules(site.database, rule, defaults=False)
        result = site.submit(*words, "x")
        assert result.exit != 0
        assert "admission rule failed" not in result.err
        assert words[1].partition("=")[0].split()[0] in result.err or "walltime" in result.err

    def test_a_rule_of_oar_3_asks_its_session(self, site: Site) -> None:
        add_rules(
            site.database,
            "n = session.query(Job).filter(Job.user == user, Job.state == 'Waiting').count()\n"
            "if n >= 1:\n    raise Exception(f'[ADMISSION RULE] {n} jobs are enough')",
            "names = [r.network_address for r in session_ro.query(Resource).order_by(Resource.id)]\n"
            "chosen = select(Queue.name).where(or_(Queue.priority > 5, text('false')))\n"
            "queues = session.execute(chosen).scalars().all()\n"
            "print(names[0], queues)\nsession.commit()",
            defaults=False,
        )
        assert "node-1 ['admin']\n" in site.submit("x").out
        assert site.submit("x").err == "[ADMISSION RULE] 1 jobs are enough\n"

    def test_a_rule_that_commits_and_refuses_leaves_nothing(self, site: Site) -> None:
        add_rules(
            site.database,
            "session.execute(text(\"UPDATE queues SET priority = 99\"))\nsession.commit()\nreject('no')",
            defaults=False,
        )
        assert site.submit("x").exit == 254
        with site.database.begin() as tx:
            assert max(queue.priority for queue in tx.queues.all()) == 10

    def test_rules_know_how_much_the_user_wants_to_be_told(self, site: Site) -> None:
        add_rules(site.database, "print(f'verbosity={verbosity}')", defaults=False)
        said = [site.submit(*words, "x").out for words in ((), ("-v",), ("-v", "-vv"))]
        assert all(f"verbosity={level}\n" in text for level, text in enumerate(said))

    def test_rules_may_change_what_is_stored(self, site: Site) -> None:
        add_rules(
            site.database,
            "name = 'n'; project = 'p'; command = 'c'; checkpoint = 5; signal = 10; hold = True; notify = 'mail:a@b'\n"
            "stdout = 'o'; stderr = 'e'; launching_directory = '/d'; env['A'] = 'b'; use_job_key = True\n"
            "resource_request = [[[{'property': '', 'resources': [{'resource': 'nodes', 'value': 'ALL'}]}], 60]]\n"
            "user = 'eve'",
            defaults=False,
        )
        result = site.submit("x")
        assert result.err == "# Warning: an admission rule changed 'user', which is ignored.\n"
        (job,) = site.jobs()
        assert (job.user, job.name, job.project, job.command) == ("alice", "n", "p", "c")
        assert (job.checkpoint, job.checkpoint_signal, job.state) == (5, 10, JobState.HOLD)
        assert (job.notify, job.stdout_file, job.stderr_file) == ("mail:a@b", "o", "e")
        assert (job.launching_directory, job.env) == ("/d", '{"A": "b"}')
        assert job.message == "R=4,W=0:1:0,J=B,N=n,P=p"

    @pytest.mark.parametrize(
        ("text", "name"),
        [
            ("types = 'besteffort'", "types"),
            ("resource_request = []", "resource_request"),
            ("resource_request[0][1] = 0", "resource_request"),
            ("resource_request[0][0][0]['resources'] = []", "resource_request"),
            ("checkpoint = 'soon'", "checkpoint"),
            ("del command", "command"),
            ("env = None", "env"),
        ],
    )
    def test_nonsense_is_refused(self, site: Site, text: str, name: str) -> None:
        add_rules(site.database, text, defaults=False)
        result = site.submit("x")
        assert result.exit == 254
        assert result.err.startswith(f"[ADMISSION RULE] bad value left in '{name}': ")
        assert result.err.endswith(": an admission rule set it. Inform an administrator.\n")
        assert site.jobs() == []

    def test_an_unknown_queue_of_a_rule_is_refused_as_that_of_a_user(self, site: Site) -> None:
        add_rules(site.database, "queue = 'x'", defaults=False)
        assert site.submit("x").err == "# Error: queue 'x' does not exist\n# There are: admin, besteffort, default\n"

    def test_rules_may_be_files(self, site: Site, tmp_path: Path) -> None:
        (tmp_path / "rules").mkdir(mode=0o755)
        (tmp_path / "rules" / "1_no").write_text("reject('[ADMISSION RULE] closed')")
        site.config = site.config.replace(admission_rules_in_files=True, admission_rules_path=str(tmp_path / "rules"))
        assert site.submit("x").err == "[ADMISSION RULE] closed\n"
        (tmp_path / "rules" / "1_no").rename(tmp_path / "rules" / "OFF_1_no")
        assert site.submit("x").out.startswith("OAR_JOB_ID=")

    def test_the_shipped_files_are_such_rules(self, site: Site) -> None:
        site.config = site.config.replace(admission_rules_in_files=True, admission_rules_path=str(RULES))
        assert "[ADMISSION RULE] Set default walltime to 7200.\n" in site.submit("x").out


class TestCommand:
    def created(self, site: Site, *words: object) -> int:
        result = site.rule("-n", *words)
        assert result.exit == 0, result.err
        match = re.fullmatch(r"New admission rule created: #(\d+)\n", result.out)
        assert match
        return int(match[1])

    def file(self, tmp_path: Path, text: str) -> Path:
        path = tmp_path / "rule"
        path.write_text(text)
        return path

    def ids(self, site: Site, *words: str) -> Sequence[str]:
        return site.rule("-S", "-I", *words).out.split()

    def test_rules_are_shown_to_everybody_in_their_order(self, site: Site) -> None:
        out = site.rule("-S", user=ALICE).out
        assert re.search(r"^--- \(15\) RULE #\d+\n# Set the default walltime\n---\n", out, re.MULTILINE)
        assert re.search(r"^--- \(DISABLED/13\) RULE #\d+\n# Example: ", out, re.MULTILINE)
        assert len(self.ids(site)) == 18
        assert len(self.ids(site, "-Y")) == 16
        assert len(self.ids(site, "-N")) == 2

    def test_one_rule_in_full_or_without_head(self, site: Site) -> None:
        first = self.ids(site)[0]
        text = '# Put a job that names no queue in the default queue\nif not queue:\n    queue = "default"\n'
        assert site.rule("-s", first, "-f").out == f"--- (1) RULE #{first}\n{text}---\n"
        assert site.rule("-s", first, "-H").out == text
        text = "Unknown rule: 9999. List the rules with -S.\n"
        assert site.rule("-s", 9999) == CommandResult(2, "", text)

    def test_a_priority_that_no_column_holds_is_refused(self, site: Site) -> None:
        before = self.ids(site)
        for number in ("2147483648", "-2147483648"):
            said = site.rule("-m", before[0], "-P", number)
            text = f'Value "{number}" invalid for option priority (at most 2147483647)\n'
            assert (said.exit, said.out, said.err.partition("Usage")[0]) == (1, "", text)
        assert site.rule("-m", before[0], "-P", "2147483647").exit == 0

    def test_a_rule_is_written_to_a_file_that_does_not_exist(self, site: Site, tmp_path: Path) -> None:
        first = self.ids(site)[0]
        assert (
            site.rule("-s", first, "-w", f"{tmp_path}/r%%").out
            == f"Admission rule #{first} written to {tmp_path}/r{first}\n"
        )
        assert (tmp_path / f"r{first}").read_text().startswith("# Put a job")
        assert site.rule("-s", first, "-w", f"{tmp_path}/r%%") == CommandResult(
            1, "", f"Error: cannot write rule #{first} to file {tmp_path}/r{first}, file already exists\n"
        )

    def test_a_rule_lives(self, site: Site, tmp_path: Path) -> None:
        rule = self.created(site, "-r", self.file(tmp_path, "# one\nprint('one')\n"), "-P", 60)
        assert "one\n" in site.submit("x").out
        assert site.rule("-m", rule, "-N").out == f"Admission rule modified: #{rule}\n"
        assert "one\n" not in site.submit("x").out
        assert site.rule("-m", rule, "-Y", "-r", self.file(tmp_path, "print('two')")).exit == 0
        assert "two\n" in site.submit("x").out
        assert site.rule("-d", rule).out == f"Admission rule deleted: #{rule}\n"
        assert "two\n" not in site.submit("x").out
        history = site.rule("--history", rule).out
        assert re.findall(r"--- \S+ \S+ root (\w+) RULE", history) == ["create", "modify", "modify", "delete"]
        assert "# one\nprint('one')" in history

    def test_a_rule_that_was_never_changed_has_no_history(self, site: Site) -> None:
        with site.database.begin() as tx:
            tx.execute("DELETE FROM admission_rules_log")  # as it is after an installation
            first = tx.admission_rules.all()[0].id
        assert site.rule("--history", first).out == (
            f"Admission rule #{first} has not been changed since the database was made.\n"
        )
        assert site.rule("--history", 999999).exit == 2

    def test_a_rule_is_edited(self, site: Site, tmp_path: Path) -> None:
        editor = self.file(tmp_path, "#!/bin/sh\necho 'print(3)' >> \"$1\"\n")
        editor.chmod(0o755)
        rule = self.created(site, "-e", str(editor))
        assert site.rule("-m", rule, "-e", editor=str(editor)).exit == 0
        assert site.rule("-s", rule, "-H").out == "print(3)\nprint(3)\n"
        assert site.rule("-n", editor="true") == CommandResult(1, "", "Aborted, empty rule.\n")

    def test_what_an_editor_leaves_is_kept_only_if_it_says_something_new(
        self, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        editor = self.file(tmp_path, '#!/bin/sh\necho "print(3)" >> "$1"\nexit 2\n')
        editor.chmod(0o755)
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "edited"))
        (tmp_path / "edited").mkdir()
        assert site.rule("-n", "-e", "false") == CommandResult(1, "", "Editor process exited with value 1\n")
        assert site.rule("-n", "-e", "/no/where").exit == 1
        assert os.listdir(tmp_path / "edited") == []
        result = site.rule("-n", "-e", str(editor))
        (kept,) = (tmp_path / "edited").iterdir()
        assert result.err == f"Editor process exited with value 2; the text is in {kept}\n"

    def test_a_rule_is_taken_from_standard_input(
        self, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with self.file(tmp_path, "print(4)\n").open() as given:
            monkeypatch.setattr(sys, "stdin", given)
            rule = self.created(site, "-r", "-")
        assert site.rule("-s", rule, "-H").out == "print(4)\n"

    def test_a_text_that_is_not_python_is_stored_by_force_only_and_disabled(self, site: Site, tmp_path: Path) -> None:
        path = self.file(tmp_path, "a = 1\nif a\n")
        fault = """line 2: if a (the compiler reports: "expected ':'")"""
        text = f"Error: {path}: {fault}. Admission rules are written in Python.\n"
        assert site.rule("-n", "-r", path) == CommandResult(3, "", text)
        assert site.rule("--check") == CommandResult(0, "", "")
        rule = self.created(site, "-r", path, "--force")
        assert str(rule) in self.ids(site, "-N")
        assert site.rule("--check") == CommandResult(1, f"#{rule}: {fault}\n", "")
        assert site.rule("--check", rule).exit == 1

    @pytest.mark.parametrize(
        ("words", "text"),
        [
            (("-m", "1"), "Error: no modification was requested\n"),
            (("-n", "-r", "/no/where"), "Error: could not open /no/where: No such file or directory\n"),
            (("-n", "-r", "/x", "-e", "vi"), "Error: you cannot use both --edit and --from-file at a same time\n"),
            (("-n", "-e", "vi '"), "Error: --edit vi ': write a command line: a quote is not closed\n"),
            (("-s", "1", "-d", "2"), f"Only one action at a time: --show or --delete.\n{USAGE}"),
            (
                ("-S", "--as", "alice"),
                f"--as needs --test. Write: oaradmissionrules --test --as USER -- OARSUB ARGUMENTS\n{USAGE}",
            ),
        ],
    )
    def test_what_cannot_be_done(self, site: Site, words: tuple[str, ...], text: str) -> None:
        assert site.rule(*words) == CommandResult(1, "", text)

    def test_a_submission_is_tried_and_not_made(self, site: Site) -> None:
        result = site.rule(
            "--test", "--as", "alice", "--", "-l", "nodes=2", "-t", "besteffort", "-p", "true", "sleep 1"
        )
        assert result.exit == 8
        result = site.rule("--test", "--as", "alice", "--", "-l", "nodes=2", "sleep 1")
        assert re.search(r"^#\d+: \[ADMISSION RULE\] Set default walltime to 7200\.$", result.out, re.MULTILINE)
        assert "properties = desktop_computing = 'NO'\n" in result.out
        assert "resource_request = {type = 'default'}/network_address=2,walltime=2:0:0\n" in result.out
        assert "resources = 4\n" in result.out
        assert site.jobs() == []

    def test_what_a_trial_leaves_reads_as_users_write_it(self, site: Site) -> None:
        words = ("-l", "nodes=1,walltime=1", "-r", "2031-03-04 10:00:00", "-t", "idempotent", "--array", "3", "--hold")
        result = site.rule("--test", "--as", "alice", "--", *words, "--checkpoint", "60", "x")
        assert result.exit == 0, result.err
        shown = dict(line.split(" = ", 1) for line in result.out.splitlines() if not line.startswith("#"))
        assert shown["job_type"] == "PASSIVE"
        assert shown["reservation_date"] == "2031-03-04 10:00:00"
        assert (shown["types"], shown["array_nb"], shown["hold"]) == ("idempotent", "3", "True")
        assert (shown["checkpoint"], shown["signal"]) == ("60", "12")
        assert not [value for value in shown.values() if value in ("None", "()", "") or "<" in value]

    def test_who_submits_in_a_trial_must_exist(self, site: Site) -> None:
        result = site.rule("--test", "--as", "nobody_here", "--", "x")
        assert result == CommandResult(1, "", "Error: --as nobody_here: this machine has no user with this name\n")
        result = site.rule("--test", "--as", "oar", "--", "x")
        assert (result.exit, result.err) == (
            254,
            "[ADMISSION RULE] root and oar users are not allowed to submit jobs.\n",
        )


def test_users_may_read_rules_and_nothing_else(site: Site, tmp_path: Path) -> None:
    shown = site.rule("-S", "-f", user=BOB)
    assert (shown.exit, shown.out.startswith("--- (")) == (0, True)
    assert site.rule("-s", shown.out.partition("#")[2].split()[0], user=BOB).exit == 0
    for words in (
        *(["-S", "-w", tmp_path / "%%"], ["-n", "-r", tmp_path / "x"], ["-d", 1], ["-m", 1, "-P", 2]),
        *(["--test", "--as", "alice"], ["--check"], ["--history", 1]),
    ):
        assert site.rule(*words, user=BOB) == CommandResult(77, "", "You must be oar or root.\n")
    assert not list(tmp_path.iterdir())


PERL = """# No jobs at night
my $hour = (localtime)[2];
if ($hour < 6) { die("no jobs at night"); }
"""


class TestRulesThatAreNotPython:
    """A rule that does not compile refuses every submission: no command enables one."""

    @pytest.fixture
    def rule_id(self, site: Site, tmp_path: Path) -> str:
        """A rule in Perl that was stored by force, as adoption stores such rules."""
        (tmp_path / "perl").write_text(PERL)
        made = site.rule("-n", "-r", tmp_path / "perl", "--force")
        assert made.exit == 0
        number = made.out.partition("#")[2].strip()
        assert f"rule #{number} is disabled: its text is not valid Python." in made.err
        return number

    @pytest.mark.parametrize("words", [["-Y"], ["-Y", "--force"], ["-Y", "-P", "3"]])
    def test_it_is_not_enabled(self, site: Site, rule_id: str, words: Sequence[str]) -> None:
        result = site.rule("-m", rule_id, *words)
        assert (result.exit, result.out) == (3, "")
        assert f"Error: rule #{rule_id}: line 2: " in result.err
        assert 'The text looks like Perl. To rewrite it, see docs/adoption.rst, "Rules in Perl"' in result.err
        assert site.submit("x").exit == 0

    def test_its_priority_can_change(self, site: Site, rule_id: str) -> None:
        assert site.rule("-m", rule_id, "-P", 3).exit == 0

    def test_it_is_enabled_once_it_is_python(self, site: Site, rule_id: str, tmp_path: Path) -> None:
        (tmp_path / "python").write_text("pass\n")
        assert site.rule("-m", rule_id, "-r", tmp_path / "python", "-Y").exit == 0

    @pytest.mark.parametrize(
        ("text", "is_perl"),
        [(PERL, True), ("foreach my $r (@{$ref}) {\n", True), ("if (name == 'x'):\nprint(1)", False), ("x = {", False)],
    )
    def test_a_new_rule_in_perl_names_the_chapter(self, site: Site, tmp_path: Path, text: str, is_perl: bool) -> None:
        (tmp_path / "rule").write_text(text)
        result = site.rule("-n", "-r", tmp_path / "rule")
        assert (result.exit, result.out) == (3, "")
        assert "Admission rules are written in Python." in result.err
        assert ('docs/adoption.rst, "Rules in Perl"' in result.err) is is_perl

    def test_rules_in_files_are_checked_where_they_are(self, site: Site, tmp_path: Path) -> None:
        (tmp_path / "7_perl").write_text(PERL)
        site.config = site.config.replace(admission_rules_in_files=True, admission_rules_path=str(tmp_path))
        result = site.rule("--check")
        assert (result.exit, result.out.startswith("#7: line 2: ")) == (1, True)
