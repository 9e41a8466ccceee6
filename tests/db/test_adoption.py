"""oar-database --adopt: databases of OAR 2.5, made of Debian's own files, are taken over."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from oar.cli import oar_database, oaraccounting, oarstat
from oar.cli.common.command import Command, CommandResult, invoke
from oar.lib.access.records import User
from oar.lib.config.files import parse
from oar.lib.db.connections import DatabaseSettings
from oar.lib.jobs.states import ProjectMode
from tests.conftest import secure
from tests.db.catalog import catalog
from tests.db.old_oar import NOW, OldSite
from tests.documents import SOURCE, matches, named_blocks
from tests.postgres import PostgreSQL

pytestmark = pytest.mark.slow

Adopt = Callable[..., CommandResult]
Type = Callable[..., CommandResult]


@pytest.fixture(scope="module")
def old_template(postgres: PostgreSQL) -> Iterator[str]:
    """A database of OAR 2.5 that was just installed; tests get copies."""
    name = "old_template"
    postgres.execute("CREATE ROLE old LOGIN")
    postgres.execute(f"CREATE DATABASE {name} OWNER old ENCODING 'UTF8' TEMPLATE template0")
    site = OldSite(postgres, name)
    site.install()
    site.close()
    yield name
    postgres.execute(f"DROP DATABASE {name}")
    postgres.execute("DROP ROLE old")


@pytest.fixture
def old(postgres: PostgreSQL, old_template: str) -> Iterator[OldSite]:
    """A site under OAR 2.5 that was just installed."""
    postgres.execute(f"CREATE DATABASE old OWNER old TEMPLATE {old_template}")
    site = OldSite(postgres, "old")
    yield site
    site.close()
    postgres.execute("DROP DATABASE old WITH (FORCE)")


def write_conf(directory: Path, postgres: PostgreSQL, name: str) -> Path:
    """Write a configuration of the new site."""
    path = directory / "oar.conf"
    path.write_text(
        f'DB_HOSTNAME="{postgres.socket}"\nDB_BASE_NAME="{name}"\nDB_BASE_LOGIN="fresh_rw"\nDB_BASE_PASSWD="x"\n'
        'DB_BASE_LOGIN_RO="fresh_ro"\nDB_BASE_PASSWD_RO="y"\n'
    )
    return path


@pytest.fixture(scope="module")
def new_template(postgres: PostgreSQL, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A database that was just created; tests get copies."""
    name = "fresh_template"
    path = write_conf(tmp_path_factory.mktemp("conf"), postgres, name)
    typed = ["--conf", str(path), "--db-admin-user=postgres", "--create"]
    assert invoke(oar_database.main, typed, user=User("root", 0)).exit == 0
    yield name
    postgres.execute(f"DROP DATABASE {name} WITH (FORCE)")
    for login in ("fresh_rw", "fresh_ro"):
        postgres.execute(f"DROP ROLE {login}")


@pytest.fixture
def conf(postgres: PostgreSQL, new_template: str, tmp_path: Path) -> Iterator[Path]:
    """A configuration of the new site, whose database was just created."""
    postgres.execute(f"CREATE DATABASE fresh OWNER fresh_rw TEMPLATE {new_template}")
    secure(postgres, DatabaseSettings(host=postgres.socket, name="fresh", user="fresh_rw", ro_user="fresh_ro"))
    yield write_conf(tmp_path, postgres, "fresh")
    postgres.execute("DROP DATABASE IF EXISTS fresh WITH (FORCE)")


@pytest.fixture
def adopt(conf: Path, old: OldSite) -> Adopt:
    """Run oar-database --adopt, from the old site unless another address is given."""

    def run(*arguments: str, origin: str = old.address) -> CommandResult:
        words = ["--conf", str(conf), "--adopt", "--from", origin, *arguments]
        return invoke(oar_database.main, words, user=User("root", 0))

    return run


@pytest.fixture
def new(conf: Path, postgres: PostgreSQL) -> Iterator[Callable[[str], list[tuple[Any, ...]]]]:
    """Ask the new database."""
    connection = postgres.connect("fresh", "fresh_rw")

    def rows(question: str) -> list[tuple[Any, ...]]:
        with connection.cursor() as cursor:
            cursor.execute(question)
            return cursor.fetchall()

    yield rows
    connection.close()


@pytest.fixture
def type_(conf: Path) -> Type:
    """Type a command on the new site."""

    def run(command: Command, *words: object) -> CommandResult:
        typed = [str(word) for word in words]
        return invoke(command, typed, user=User("root", 0), environment={"OARCONFFILE": str(conf)})

    return run


def test_a_week_of_work_is_taken_over(old: OldSite, adopt: Adopt, new: Any, conf: Path) -> None:
    old.live()
    result = adopt()
    assert (result.err, result.exit) == ("", 0), result
    assert result.out.endswith("\nIt is taken over: each table here has as many rows as are to be taken there.\n")
    columns = "job_id, array_id, job_user, job_name, queue_name, state, submission_time, start_time, exit_code, command"
    question = f"SELECT {columns} FROM jobs ORDER BY job_id"
    assert new(question) == old.rows(question)
    projects = [(name, "open") for (name,) in old.rows("SELECT DISTINCT project FROM jobs ORDER BY project")]
    assert new("SELECT project_name, state FROM projects ORDER BY project_name") == projects
    assert new("SELECT count(*) FROM project_members") == [(0,)]
    assert parse(conf.read_text()).config.projects is ProjectMode.FREE
    check = invoke(oar_database.main, ["--conf", str(conf), "--check", "--deep"], user=User("root", 0))
    assert check == CommandResult(0, "[Success] The OAR database is accessible and ready.\n", "")


def test_ended_jobs_have_causes_and_closed_rows(old: OldSite, adopt: Adopt, new: Any) -> None:
    old.live()
    adopt()
    causes = ["SUCCESS", "EXIT_STATUS", "SIGNAL", "WALLTIME", "DELETED", "NOT_FOUND", "UNKNOWN"]
    assert [row[0] for row in new("SELECT code FROM job_ends ORDER BY job_id")] == causes
    assert new("SELECT job_id, stop_time FROM jobs WHERE job_id = 7") == [(7, NOW)]
    assert new("SELECT DISTINCT job_id FROM job_state_logs WHERE date_stop = 0 ORDER BY 1") == [(8,), (9,)]
    assert new("SELECT DISTINCT moldable_job_id FROM moldable_job_descriptions WHERE moldable_index = 'CURRENT'") == [
        (8,),
        (9,),
    ]
    assert new("SELECT frag_state FROM frag_jobs") == [("FRAGGED",)]
    assert new("SELECT job_id FROM challenges ORDER BY 1") == [(8,), (9,)]
    assert new("SELECT DISTINCT to_check FROM event_logs") == [("NO",)]
    assert new("SELECT hostname FROM event_log_hostnames") == [("node-2",)]


def test_properties_come_with_their_types(old: OldSite, adopt: Adopt, new: Any) -> None:
    old.live()
    out = adopt().out
    assert "  gpu (a number)\n" in out
    assert "  serial (a text)\n" in out
    assert "  the column resources.Rack\n" in out
    found = new("SELECT host, cpu, core, gpu, disk, serial, state, state_num FROM resources ORDER BY resource_id")
    assert found[0] == ("node-1", 1, 1, 0, "nvme", "9000000000", "Alive", 1)
    assert found[3] == ("node-2", 2, 4, 3, "nvme", "9000000000", "Suspected", 3)


def test_numbers_go_on(old: OldSite, adopt: Adopt, new: Any) -> None:
    old.live()
    old.run("SELECT setval('jobs_job_id_seq', 4711)")
    adopt()
    assert new("SELECT nextval('jobs_job_id_seq')") == [(4712,)]
    assert new("SELECT nextval('moldable_job_descriptions_moldable_id_seq')") == [(10,)]
    assert new("SELECT nextval('resources_resource_id_seq'), nextval('admission_rules_id_seq')") == [(5, 19)]


def test_arrays_copies_and_alternatives_are_what_they_were(old: OldSite, adopt: Adopt, type_: Type) -> None:
    old.add_nodes()
    array = old.submit_array(3)
    for job in array[:2]:
        old.start(job)
        old.end(job)
    moldable = old.submit()
    taken = old.add_alternative(moldable, 7200, 2)
    old.start(moldable)
    old.run("UPDATE jobs SET assigned_moldable_job = %s WHERE job_id = %s", taken, moldable)
    old.run("INSERT INTO assigned_resources (moldable_job_id, resource_id) VALUES (%s, 1), (%s, 2)", taken, taken)
    old.end(moldable)
    waiting, copy = old.submit(), old.submit()
    old.add_alternative(waiting, 600, 3)
    old.run("UPDATE jobs SET resubmit_job_id = %s WHERE job_id = %s", array[1], copy)
    assert adopt().exit == 0
    shown = type_(oarstat.main, "--array", array[0]).out.splitlines()[2:]
    assert [(line.split()[:3], line.split()[-2]) for line in shown] == [
        ([str(job), str(array[0]), str(index)], "W" if index == 3 else "T") for index, job in enumerate(array, 1)
    ]
    records = json.loads(type_(oarstat.main, "-J", "-f", *("-j", f"{moldable},{waiting},{copy},{array[1]}")).out)
    assert (records[str(moldable)]["walltime"], records[str(moldable)]["assigned_resources"]) == (7200, [1, 2])
    assert records[str(waiting)]["wanted_resources"].split() == [
        *("-l", '"/resource_id=1,walltime=1:0:0"', "-l", '"/core=3,walltime=0:10:0"'),
    ]
    assert (records[str(copy)]["resubmit_job_id"], records[str(array[1])]["resubmitted_as"]) == (array[1], copy)


def test_a_reservation_and_its_past_are_seen_as_agreed(old: OldSite, adopt: Adopt, type_: Type) -> None:
    old.add_nodes()
    agreed, past = old.submit("bob", reservation="Scheduled"), old.submit("bob", reservation="Scheduled")
    old.start(past)
    old.end(past)
    moldable = old.value("SELECT moldable_id FROM moldable_job_descriptions WHERE moldable_job_id = %s", agreed)
    old.run("UPDATE jobs SET start_time = 2000000000 WHERE job_id = %s", agreed)
    for suffix in ("", "_visu"):
        old.run(f"INSERT INTO gantt_jobs_predictions{suffix} VALUES (%s, 2000000000)", moldable)
        old.run(f"INSERT INTO gantt_jobs_resources{suffix} VALUES (%s, 1)", moldable)
    assert adopt().exit == 0
    assert "Why: It is a reservation, and its date is 2033-05-18 " in type_(oarstat.main, "--explain", agreed).out
    assert "on node-1, as agreed\n" in type_(oarstat.main, "--explain", agreed).out
    drawn = type_(oarstat.main, "--ascii", "-g", "2023-11-14 00:00:00,2033-06-01 00:00:00").out
    assert [line.split()[1] for line in drawn.splitlines() if " bob " in line] == [str(agreed), str(past)]


def test_what_was_counted_is_not_counted_again_and_inner_jobs_never(old: OldSite, adopt: Adopt, type_: Type) -> None:
    old.live()
    old.run("UPDATE jobs SET accounted = 'YES'")
    container, inner = old.submit(), old.submit()
    for job, name in ((container, "container"), (inner, f"inner={container}")):
        old.run("INSERT INTO job_types (job_id, type) VALUES (%s, %s)", job, name)
        old.start(job)
        old.end(job)
    assert adopt().exit == 0
    counted = type_(oaraccounting.main).out.splitlines()
    assert counted[:2] == [
        f"[ACCOUNTING] Treating job {container}",
        f"[ACCOUNTING] Not applicable for job {inner}",
    ]
    window = type_(oarstat.main, "--accounting", "2023-11-14,2023-11-17").out.splitlines()[-1].split()
    assert (window[0], window[-1]) == ("alice", str(360 + 60))
    assert type_(oaraccounting.main) == CommandResult(0, "", "")


def test_the_schema_stays_what_it_was(old: OldSite, adopt: Adopt, postgres: PostgreSQL) -> None:
    connection = postgres.connect("fresh", "fresh_rw")
    before = catalog(connection)
    assert adopt().exit == 0
    assert catalog(connection) == before
    connection.close()


def test_a_dry_run_changes_nothing_and_tells_the_same(old: OldSite, adopt: Adopt, new: Any) -> None:
    old.live()
    dry = adopt("--dry-run")
    assert (dry.exit, dry.err) == (0, "")
    assert new("SELECT count(*) FROM jobs") == [(0,)]
    real = adopt()
    assert dry.out.partition("\n\nNothing is changed.")[0] == real.out.partition("\n\nIt is taken over")[0]
    assert "jobs                                      9            9\n" in dry.out
    assert "challenges                                9            2  secrets of jobs that have ended\n" in dry.out


def test_what_is_taken_over_is_not_taken_twice(old: OldSite, adopt: Adopt) -> None:
    old.live()
    adopt()
    again = adopt()
    assert (again.exit, again.out) == (1, "")
    assert again.err.startswith("[ERROR] The new database is not empty (accounting has rows): take over into a new one")


@pytest.mark.parametrize("is_running", [True, False])
def test_running_jobs_and_unanswered_reservations_are_refused_and_named(
    old: OldSite, adopt: Adopt, new: Any, *, is_running: bool
) -> None:
    old.live()
    job = old.submit("bob", reservation="None" if is_running else "toSchedule")
    if is_running:
        old.start(job)
    result = adopt()
    assert (result.exit, result.out) == (1, "")
    assert result.err.startswith(f"[ERROR] 1 jobs run or wait for an answer under the old server ({job}), which alone")
    dry = adopt("--dry-run")
    assert dry.exit == 1
    assert "To decide:\n  1 jobs run" in dry.out
    assert new("SELECT count(*) FROM resources") == [(0,)]


def test_running_jobs_are_waited_for(old: OldSite, adopt: Adopt, new: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    old.live()
    old.start(job := old.submit())
    old.run("UPDATE jobs SET start_time = extract(epoch FROM now())::integer WHERE job_id = %s", job)
    monkeypatch.setattr("time.sleep", lambda seconds: old.end(job))
    result = adopt("--running")
    assert (result.exit, result.err) == (0, "")
    assert result.out.startswith("Waiting for 1 jobs of the old server; their walltimes end 20")
    assert new(f"SELECT state FROM jobs WHERE job_id = {job}") == [("Terminated",)]


def test_jobs_that_ran_in_a_dump_are_ended_as_the_chapter_says(
    old: OldSite, adopt: Adopt, new: Any, conf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old.live()
    old.start(job := old.submit())
    waiting = old.submit(job_type="INTERACTIVE")
    first, *statement, _ = named_blocks(SOURCE / "docs" / "adoption.rst")["end what ran"].splitlines()
    assert first == "$ psql oar_copy <<END"
    monkeypatch.setattr("time.sleep", lambda seconds: old.run("\n".join(statement)))
    result = adopt("--running")
    assert (result.exit, result.err) == (0, "")
    assert "As in the old database" not in result.out
    assert 'if this is a copy, no server ends them (docs/adoption.rst, "From a dump").' in result.out
    assert (
        new(f"SELECT state, message FROM jobs WHERE job_id IN ({job}, {waiting})")
        == [("Error", "lost with the old server")] * 2
    )
    assert new("SELECT count(*) FROM assigned_resources WHERE assigned_resource_index = 'CURRENT'") == [(0,)]
    check = invoke(oar_database.main, ["--conf", str(conf), "--check", "--deep"], user=User("root", 0))
    assert (check.exit, check.err) == (0, "")


@pytest.mark.parametrize(
    ("origin", "told"),
    [
        ("mysql://oar@old/oar", "MySQL cannot be read: convert the database first"),
        ("postgresql://old:very-secret@[bad", "The value of --from must be the address of a database"),
        (
            "postgresql://old:very-secret@127.0.0.1:1/oar",
            "Cannot open the old database: no server listens at this address. ",
        ),
        ("postgresql:///nothing?host={socket}&user=old", "Cannot open the old database: it has no such database. "),
        ("postgresql:///old?host={socket}&user=nobody", "Cannot open the old database: it has no such login. "),
        ("postgresql:///postgres?host={socket}&user=old", "is not a database of OAR"),
        ("postgresql:///fresh?host={socket}&user=fresh_rw", "is a database of this generation of OAR"),
    ],
)
def test_a_wrong_address_gives_a_one_line_error(adopt: Adopt, postgres: PostgreSQL, origin: str, told: str) -> None:
    result = adopt(origin=origin.format(socket=postgres.socket))
    assert (result.exit, result.out) == (1, "")
    assert told in result.err
    assert result.err.startswith("[ERROR] ")
    assert result.err.count("\n") == 1
    assert "secret" not in result.err


def test_a_login_that_may_not_read_is_one_line(adopt: Adopt, old: OldSite, postgres: PostgreSQL) -> None:
    result = adopt(origin=f"postgresql:///old?host={postgres.socket}&user=fresh_ro")
    assert (result.exit, result.out) == (1, "")
    told = 'PostgreSQL rejected a statement: "permission denied for table schema".'
    assert result.err == f"[ERROR] Cannot read the old database: {told}\n"


def test_a_row_that_cannot_be_taken_leaves_nothing_behind(old: OldSite, adopt: Adopt, new: Any) -> None:
    old.live()
    old.run("ALTER TABLE jobs DROP CONSTRAINT jobs_state_check")
    old.run("ALTER TABLE job_state_logs DROP CONSTRAINT job_state_logs_job_state_check")
    old.run("UPDATE job_state_logs SET job_state = 'Dreaming' WHERE job_state_log_id = 3")
    old.run(
        "INSERT INTO job_state_logs (job_id, job_state, date_start, date_stop)"
        " SELECT 1, 'Waiting', 1, 1 FROM generate_series(1, 100000)"
    )
    result = adopt()
    assert (result.exit, result.out) == (1, "")
    assert result.err.startswith("[ERROR] A row of job_state_logs cannot be taken over: new row for relation")
    assert result.err.count("\n") == 1
    assert new("SELECT count(*) FROM jobs") == [(0,)]


def test_queues_keep_their_policies_or_stop(old: OldSite, adopt: Adopt, new: Any) -> None:
    old.run("INSERT INTO queues VALUES ('gpu', 5, '/usr/lib/oar/schedulers/oar_sched_gantt_with_timesharing')")
    old.run(
        "INSERT INTO queues VALUES ('odd', 3, '/opt/our_scheduler.pl'); DELETE FROM queues WHERE queue_name = 'admin'"
    )
    out = adopt().out
    assert "The queue odd has the policy /opt/our_scheduler.pl, which this scheduler does not have" in out
    assert "  admin: new here\n" in out
    assert new("SELECT queue_name, priority, scheduler_policy, state FROM queues ORDER BY 1") == [
        ("admin", 10, "kamelot", "Active"),
        ("besteffort", 0, "oar_sched_gantt_with_timesharing_and_fairsharing_and_quotas", "Active"),
        ("default", 2, "oar_sched_gantt_with_timesharing_and_fairsharing_and_quotas", "Active"),
        ("gpu", 5, "oar_sched_gantt_with_timesharing", "Active"),
        ("odd", 3, "/opt/our_scheduler.pl", "notActive"),
    ]


def test_standard_rules_become_ours_and_others_are_kept_disabled(old: OldSite, adopt: Adopt, new: Any) -> None:
    old.run("UPDATE admission_rules SET rule = replace(rule, '2:00:00', '1:30:00') WHERE priority = 15")
    old.run("UPDATE admission_rules SET enabled = 'NO' WHERE priority = 7")
    own = '# Ours\nif ($user eq "eve") { die("no"); }'
    old.run("INSERT INTO admission_rules (priority, rule) VALUES (30, %s)", own)
    out = adopt().out
    assert "  15: the standard rule 15_default_walltime, with the changes of the site\n" in out
    assert "  18: kept as a text, disabled (Ours)\n" in out
    assert "  19: added: 18_longest_walltime, which the old database does not have, disabled\n" in out
    assert "Rule 18 is Perl, and none of the standard ones" in out
    rules = {row[0]: row[1:] for row in new("SELECT id, enabled, rule FROM admission_rules")}
    assert "DEFAULT_WALLTIME = 5400\n" in rules[15][1]
    assert rules[7][0] == "NO"
    assert rules[18] == ("NO", own)
    assert {number for number, rule in rules.items() if rule[0] == "NO"} == {7, 13, 18, 19}
    assert "sql_to_duration" in new("SELECT rule FROM admission_rules_log WHERE id = 15")[0][0]


# -- other ages and other ways ----------------------------------------------------------------------------------------

#: What the files of OAR 2.5 that upgrade a database of 2.4 add, taken away.
OF_2_4 = """
    ALTER TABLE resources RENAME available_upto TO cm_availability;
    ALTER TABLE resources DROP last_available_upto, DROP drain;
    ALTER TABLE jobs DROP array_index;
    ALTER TABLE admission_rules DROP priority, DROP enabled;
    ALTER TABLE accounting ALTER consumption TYPE integer;
    DROP TABLE walltime_change, scheduler;
    UPDATE jobs SET array_id = 0;
    UPDATE resources SET cm_availability = -1 WHERE resource_id = 1;
    UPDATE schema SET version = '2.4.0';
"""
#: What pgloader makes of a database of MySQL: a schema of its own, types for enumerations.
OF_MYSQL = """
    CREATE SCHEMA oar;
    ALTER TABLE jobs DROP CONSTRAINT jobs_state_check;
    ALTER TABLE resources DROP CONSTRAINT resources_state_check;
    CREATE TYPE oar.jobs_state AS ENUM ('Waiting', 'Hold', 'toLaunch', 'toError', 'toAckReservation', 'Launching',
        'Running', 'Suspended', 'Resuming', 'Finishing', 'Terminated', 'Error');
    CREATE TYPE oar.resources_state AS ENUM ('Alive', 'Dead', 'Suspected', 'Absent');
    ALTER TABLE jobs ALTER state DROP DEFAULT, ALTER state TYPE oar.jobs_state USING state::oar.jobs_state;
    ALTER TABLE resources ALTER state DROP DEFAULT,
        ALTER state TYPE oar.resources_state USING state::oar.resources_state;
    ALTER TABLE files RENAME file_id TO idfile;
    ALTER TABLE job_types RENAME types_index TO type_index;
    INSERT INTO files (idfile, md5sum) VALUES (12, 'sum');
"""
#: What OAR 3 has besides.
OF_3 = """
    ALTER TABLE gantt_jobs_resources ADD span integer DEFAULT 1;
    ALTER TABLE gantt_jobs_resources_visu ADD span integer DEFAULT 1;
    ALTER TABLE event_logs ALTER type TYPE varchar(100);
    ALTER TABLE accounting ALTER window_start TYPE bigint;
    UPDATE queues SET scheduler_policy = 'kamelot';
    DELETE FROM admission_rules;
    INSERT INTO admission_rules (id, priority, rule) VALUES (1, 4, E'if user == "eve":\\n    raise Exception("no")\\n');
    UPDATE schema SET version = '3.0.0';
"""

#: What each release before the one of the shipped files did not have yet, the newest one first; each lacks what the
#: ones above it lack, too.
BEFORE = {
    "2.5.5": "DROP TABLE walltime_change",
    "2.5.4": "ALTER TABLE accounting ALTER consumption TYPE integer",
    "2.5.2": """
        ALTER TABLE resources DROP drain, ALTER cpuset DROP DEFAULT, ALTER cpuset TYPE integer USING cpuset::integer,
            ALTER cpuset SET DEFAULT 0;
        ALTER TABLE admission_rules DROP priority, DROP enabled""",
    "2.5.0": "ALTER TABLE jobs DROP array_index",
    "2.4.4": "DROP INDEX date_start; DROP INDEX date_stop",
}
#: What releases behind it have besides, the oldest one first; each has what the ones above it have, too.
SINCE = {
    "2.5.10": """
        ALTER TABLE walltime_change ADD whole varchar(3) NOT NULL DEFAULT 'NO',
            ADD granted_with_whole integer NOT NULL DEFAULT 0, ADD timeout integer NOT NULL DEFAULT 0;
        INSERT INTO walltime_change (job_id, granted, whole, timeout) VALUES (1, 60, 'YES', 5)""",
    "2.6.0": """
        ALTER TABLE job_dependencies ADD min_start_shift varchar(12) NOT NULL DEFAULT '',
            ADD max_start_shift varchar(12) NOT NULL DEFAULT '';
        INSERT INTO job_dependencies (job_id, job_id_required, min_start_shift) VALUES (8, 1, '+60')""",
    "3.0.0": """
        ALTER TABLE jobs ADD last_karma real;
        UPDATE jobs SET last_karma = 0.5;
        ALTER TABLE jobs DROP CONSTRAINT jobs_state_check, ALTER state DROP DEFAULT;
        CREATE TYPE job_state AS ENUM ('Waiting', 'Hold', 'toLaunch', 'toError', 'toAckReservation', 'Launching',
            'Running', 'Suspended', 'Resuming', 'Finishing', 'Terminated', 'Error');
        ALTER TABLE jobs ALTER state TYPE job_state USING state::job_state, ALTER state SET DEFAULT 'Waiting';
        ALTER TABLE assigned_resources DROP CONSTRAINT assigned_resources_assigned_resource_index_check,
            ALTER assigned_resource_index DROP DEFAULT;
        CREATE TYPE resource_index AS ENUM ('CURRENT', 'LOG');
        ALTER TABLE assigned_resources
            ALTER assigned_resource_index TYPE resource_index USING assigned_resource_index::resource_index,
            ALTER assigned_resource_index SET DEFAULT 'CURRENT'""",
}

#: What else the database of a large site of many years looked like, whose dump is public: no constraints, columns of
#: releases that never were, a table that is missing, columns in another order, properties by the dozen.
OF_A_LARGE_SITE = """
    DO $$ DECLARE c record; BEGIN
        FOR c IN SELECT conrelid::regclass AS place, conname FROM pg_constraint
            WHERE connamespace = 'public'::regnamespace LOOP
            EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', c.place, c.conname);
        END LOOP;
    END $$;
    DROP TABLE walltime_change;
    ALTER TABLE jobs ADD cpuset_name varchar(255);
    UPDATE jobs SET cpuset_name = 'alice_of_job' WHERE job_id = 1;
    ALTER TABLE accounting ALTER window_start TYPE bigint, ALTER window_stop TYPE bigint;
    ALTER TABLE admission_rules RENAME rule TO former;
    ALTER TABLE admission_rules ADD rule text;
    UPDATE admission_rules SET rule = former;
    ALTER TABLE admission_rules DROP former;
    ALTER TABLE resources ADD comment varchar(255), ADD virtual varchar(255), ADD maintenance varchar(255),
        ADD production varchar(255), ADD ip varchar(255), ADD cluster_priority integer, ADD memnode integer,
        ADD ib10gmodel varchar(255), ADD slash_16 varchar(255), ADD disk_reservation_count integer,
        ADD subnet_prefix integer, ADD vlan varchar(255), ALTER switch SET DEFAULT '0';
    UPDATE resources SET comment = 'it''s old; "quoted"', virtual = 'ivt', maintenance = 'NO', memnode = 2048, ip = '1';
    UPDATE assigned_resources SET assigned_resource_index = 'CURRENT' WHERE moldable_job_id = 1;
    UPDATE schema SET version = '2.5.4';
"""


def _up_to(age: str, steps: Mapping[str, str]) -> str:
    """The statements that make a database of an age, of those of all ages on the way."""
    ages = list(steps)
    way = [steps[each] for each in ages[: ages.index(age) + 1]]
    return "; ".join([*way, f"UPDATE schema SET version = '{age}'"])


@pytest.mark.parametrize("age", [*BEFORE, *SINCE])
def test_a_database_of_each_age(old: OldSite, adopt: Adopt, new: Any, age: str) -> None:
    old.live()
    old.run(_up_to(age, BEFORE if age in BEFORE else SINCE))
    dry, done = adopt("--dry-run"), adopt()
    assert (done.err, done.exit) == ("", 0)
    assert f"the schema of OAR {age}:" in done.out
    assert [line for line in dry.out.splitlines() if line in done.out.splitlines()]
    states = {"Terminated": 5, "Error": 2, "Waiting": 1, "Hold": 1}
    assert dict(new("SELECT state, count(*) FROM jobs GROUP BY 1")) == states
    assert new("SELECT cpuset, drain FROM resources ORDER BY resource_id") == [(each, "NO") for each in "0101"]
    assert new("SELECT DISTINCT array_index FROM jobs") == [(1,)]
    assert new("SELECT consumption FROM accounting") == [(360,)]
    assert len(new("SELECT 1 FROM assigned_resources WHERE assigned_resource_index = 'LOG'")) == 6
    assert new("SELECT count(*) FROM admission_rules WHERE enabled = 'YES'")[0][0] > 10
    if age in SINCE:
        assert new("SELECT granted, whole FROM walltime_change WHERE job_id = 1") == [(60, "YES")]
    if age in ("2.6.0", "3.0.0"):
        assert new("SELECT min_start_shift FROM job_dependencies WHERE job_id = 8") == [("+60",)]
    if age == "3.0.0":
        assert new("SELECT DISTINCT last_karma FROM jobs") == [(0.5,)]


def test_a_database_of_a_large_site(old: OldSite, adopt: Adopt, new: Any) -> None:
    old.live()
    old.run(OF_A_LARGE_SITE)
    result = adopt()
    assert (result.err, result.exit) == ("", 0)
    columns = "comment, virtual, maintenance, memnode, ip, production, subnet_prefix"
    values = ('it\'s old; "quoted"', "ivt", "NO", 2048, "1", None, None)
    assert new(f"SELECT DISTINCT {columns} FROM resources") == [values]
    assert new("SELECT cpuset_name FROM jobs WHERE job_id IN (1, 2) ORDER BY job_id")[0] == ("alice_of_job",)
    assert new("SELECT DISTINCT assigned_resource_index FROM assigned_resources") == [("LOG",)]
    assert new("SELECT count(*) FROM admission_rules WHERE enabled = 'YES'")[0][0] > 10
    assert new("SELECT count(*) FROM jobs") == [(9,)]


def test_a_database_of_2_4(old: OldSite, adopt: Adopt, new: Any) -> None:
    old.live()
    old.run(OF_2_4)
    result = adopt()
    assert (result.err, result.exit) == ("", 0)
    assert "the schema of OAR 2.4.0:" in result.out
    assert new("SELECT job_id, array_index FROM jobs WHERE array_id <> job_id OR array_index <> 1") == []
    assert new("SELECT available_upto FROM resources ORDER BY resource_id") == [(0,), *[(2147483647,)] * 3]
    assert new("SELECT priority, enabled FROM admission_rules WHERE id = 12") == [(12, "YES")]


def test_a_database_that_was_converted_from_mysql(old: OldSite, adopt: Adopt, new: Any) -> None:
    old.live()
    old.run(OF_MYSQL)
    for (table,) in old.rows("SELECT tablename::text FROM pg_tables WHERE schemaname = 'public'"):
        old.run(f"ALTER TABLE {table} SET SCHEMA oar")
    result = adopt()
    assert (result.err, result.exit) == ("", 0)
    states = {"Terminated": 5, "Error": 2, "Waiting": 1, "Hold": 1}
    assert dict(new("SELECT state, count(*) FROM jobs GROUP BY 1")) == states
    assert new("SELECT file_id, md5sum FROM files") == [(12, "sum")]
    assert new("SELECT DISTINCT types_index FROM job_types WHERE job_id = 8") == [("CURRENT",)]


def test_a_database_of_oar_3_and_its_accepted_reservation(old: OldSite, adopt: Adopt, new: Any) -> None:
    old.live()
    old.run(OF_3)
    job = old.submit("bob", reservation="Scheduled")
    moldable = old.value(f"SELECT moldable_id FROM moldable_job_descriptions WHERE moldable_job_id = {job}")
    for table in ("gantt_jobs_predictions", "gantt_jobs_predictions_visu"):
        old.run(f"INSERT INTO {table} VALUES (%s, %s)", moldable, NOW + 5000)
    for table in ("gantt_jobs_resources", "gantt_jobs_resources_visu"):
        old.run(f"INSERT INTO {table} VALUES (%s, 1), (%s, 2)", moldable, moldable)
    result = adopt()
    assert (result.err, result.exit) == ("", 0)
    assert "  1: Python, kept as it is (if user ==" in result.out
    assert "  the column gantt_jobs_resources.span\n" in result.out
    for table in ("gantt_jobs_resources", "gantt_jobs_resources_visu"):
        assert new(f"SELECT * FROM {table} ORDER BY 2") == [(moldable, 1), (moldable, 2)]
    assert new(f"SELECT start_time FROM gantt_jobs_predictions WHERE moldable_job_id = {moldable}") == [(NOW + 5000,)]
    assert new("SELECT enabled, priority FROM admission_rules WHERE id = 1") == [("YES", 4)]


def test_two_open_rows_of_the_log_become_one(old: OldSite, adopt: Adopt, new: Any) -> None:
    old.live()
    old.run("INSERT INTO job_state_logs (job_id, job_state, date_start) VALUES (8, 'Waiting', %s)", NOW + 1)
    old.run(
        "INSERT INTO resource_logs (resource_id, attribute, value, date_start) VALUES (1, 'state', 'Alive', %s)", NOW
    )
    assert adopt().exit == 0
    assert new("SELECT date_start FROM job_state_logs WHERE job_id = 8 AND date_stop = 0") == [(NOW + 1,)]
    open_rows = "SELECT date_start FROM resource_logs WHERE resource_id = 1 AND attribute = 'state' AND date_stop = 0"
    assert new(open_rows) == [(NOW,)]


def test_options_that_need_each_other_are_rejected_alone(adopt: Adopt, conf: Path) -> None:
    for words in (["--adopt"], ["--check", "--from", "postgresql:///old"]):
        result = invoke(oar_database.main, ["--conf", str(conf), *words], user=User("root", 0))
        assert (result.exit, "must be used together" in result.err) == (1, True)


def test_the_report_of_the_chapter_is_what_is_printed(old: OldSite, adopt: Adopt) -> None:
    old.live()
    old.run("UPDATE admission_rules SET rule = replace(rule, '2:00:00', '1:30:00') WHERE priority = 15")
    old.run("INSERT INTO admission_rules (priority, rule) VALUES (30, %s)", "# No jobs at night\ndie('...') if (...);")
    command, *shown = named_blocks(SOURCE / "docs" / "adoption.rst")["report"].removesuffix("\n").split("\n")
    assert command == "server# oar-database --adopt --from postgresql://oar@old-server/oar --dry-run"
    printed = adopt("--dry-run").out.replace(old.host, "somewhere")
    assert matches(("From old at <host>, " + shown[0].partition(", ")[2], *shown[1:]), printed, {}) is not None


# -- interruptions ----------------------------------------------------------------------------------------------------


def test_an_old_database_that_goes_away_leaves_nothing_behind(
    old: OldSite, adopt: Adopt, new: Any, postgres: PostgreSQL, monkeypatch: pytest.MonkeyPatch
) -> None:
    old.live()

    def cut(line: object, table: str, rows: int, total: int) -> None:
        if table == "jobs":
            ours = "application_name = 'oar:adopt'"
            postgres.execute(f"SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity WHERE {ours}")

    monkeypatch.setattr("oar.cli.common.adoption._ProgressLine.show", cut)
    result = adopt()
    assert (result.exit, result.out) == (1, "")
    assert result.err.startswith("[ERROR] Cannot read ")
    assert result.err.count("\n") == 1
    assert new("SELECT (SELECT count(*) FROM resources), (SELECT count(*) FROM jobs)") == [(0, 0)]
    monkeypatch.undo()
    assert adopt().exit == 0


def test_an_interrupted_adoption_can_be_begun_anew(
    old: OldSite, adopt: Adopt, new: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    old.live()
    old.run(
        "INSERT INTO job_state_logs (job_id, job_state, date_start, date_stop)"
        " SELECT 1, 'Waiting', 1, 1 FROM generate_series(1, 100000)"
    )

    def interrupt(line: object, table: str, rows: int, total: int) -> None:
        if table == "job_state_logs" and rows > 1000:
            raise KeyboardInterrupt

    monkeypatch.setattr("oar.cli.common.adoption._ProgressLine.show", interrupt)
    result = adopt()
    assert result.exit != 0
    assert new("SELECT count(*) FROM resources") == [(0,)]
    monkeypatch.undo()
    assert adopt().exit == 0
    assert new("SELECT count(*) > 100000 FROM job_state_logs") == [(True,)]
