"""Typing mistakes of users of Slurm, PBS and OAR 2: each message names the value and the way out."""

import re
import shlex
from pathlib import Path

import pytest

from oar.cli import (
    oar2trace,
    oar_conf,
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
    oarsub,
    oarwalltime,
    qralter,
    qrdel,
    qrstat,
    qrsub,
)
from oar.lib.access.records import User
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.jobs.states import JobState
from tests.builders import add_job, add_resources
from tests.frontend import ALICE, LoginNode, add_rules

ROOT = User("root", 0)
OF_USERS = (oaralter, oardel, oarhold, oarnodes, oarresume, oarstat, oarsub, oarwalltime, qralter, qrdel, qrstat, qrsub)
OF_ADMINS = (oar2trace, oar_conf, oaraccounting, oaradmissionrules, oarnodesetting, oarnotify, oarproperty, oarqueue)
COMMANDS = {
    module.main.name: (module.main, user)
    for user, modules in ((ALICE, OF_USERS), (ROOT, (*OF_ADMINS, oarremoveresource)))
    for module in modules
}

#: Command line, and pieces of its message. The job WAIT waits, RUN runs, END has ended; array 100 has two jobs.
REFUSED = """
oarsub                                              | a command is needed | oarsub -S ./job.sh
oarsub ''                                           | a command is needed | oarsub 'sleep 60'
oarsub -N 2 ./job.sh                                | Unknown option: N | -l nodes=NUMBER
oarsub --nodes=2 --time=1:00:00 job.sh              | option: nodes | -l nodes= | option: time | walltime=
oarsub --ntasks-per-node=4 job.sh                   | -l nodes=2/core=4
oarsub --job-name=x --gres=gpu:1 x                  | -n NAME | -l gpu=NUMBER
oarsub --mem=4G x                                   | MEMORY_PROPERTY
oarsub --foo --bra -z x                             | option: foo | option: bra | option: z
oarsub -J name 'sleep 60'                           | only one command | -J prints JSON | -n NAME
oarsub sleep 60                                     | only one command | oarsub 'sleep 60'
oarsub -l nodes=2 walltime=1 'sleep 60'             | walltime=1 is part of -l | -l nodes=2,walltime=
oarsub bash -c 'sleep 60'                           | Unknown option: c | Quote a command | 'bash ...'
oarsub -S missing.sh                                | missing.sh
oarsub -l nodes=2:ppn=4 x                           | nodes=2:ppn=4 | nodes=2/core=1
oarsub -l select=2:ncpus=4 x                        | select=2:ncpus=4 | nodes=2/core=1
oarsub -l 'nodes=1;walltime=1' x                    | nodes=1;walltime=1 | nodes=2/core=1,walltime=1:30
oarsub -l 'nodes=1 walltime=1' x                    | nodes=1 walltime=1 | nodes=2/core=1,walltime=1:30
oarsub -l walltime=1-12:00:00 x                     | "1-12:00:00" is not a walltime | 1d12h
oarsub -l walltime=2hours x                         | "2hours" is not a walltime | 90m
oarsub -l nodes=1,walltime=1.5 x                    | "1.5" is not a walltime | h[:m[:s]]
oarsub -l nodes=1,wall=1 x                          | property "wall" | There are: cpu, switch, nodes
oarsub -l cores=4 x                                 | property "cores" | There are: cpu, switch, nodes
oarsub -l gpu=1 x                                   | property "gpu" | There are:
oarsub -l cpu=1/nodes=2 x                           | from the outside in | write nodes=2/cpu=1
oarsub -l resource_id=1/nodes=2 x                   | from the outside in | write nodes=2/resource_id=1
oarsub -l nodes=100 x                               | 4 nodes can be used, 100 asked
oarsub -l nodes=0 x                                 | nodes=0 | numbers from 1 on
oarsub -l nodes=-1 x                                | nodes=-1 | numbers from 1 on
oarsub -l nodes=two x                               | nodes=two | ALL or BEST
oarsub -l nodes x                                   | description: nodes | nodes=2/core=1
oarsub -l mem=4G x                                  | mem=4G | nodes=2/core=1
oarsub -l                                           | Option l requires an argument
oarsub -p cluster=x x                               | unknown column "cluster" | oarnodes
oarsub -p "network_address=node-1" x                | use single quotes for a text
oarsub -p short x                                   | unknown column "short" | -q | --nodelist
oarsub -q short x                                   | queue 'short' does not exist | There are: admin, besteffort
oarsub -q 'sleep 60'                                | a command is needed | -q used 'sleep 60' as its value
oarsub --name ./run.sh                              | --name used ./run.sh as its value
oarsub -t best-effort x                             | unknown job type: best-effort | Did you mean besteffort?
oarsub -t deadline=soon x                           | deadline=soon | deadline=YYYY-MM-DD
oarsub -r 2025-01-01 x                              | 2025-01-01 00:00:00 is in the past | year
oarsub -r 'tomorow 8:00' x                          | "tomorow 8:00" is none | tomorrow 8:00
oarsub -r 2h x                                      | 2h is in the past | +2h
oarsub -r 32/12/2031 x                              | "32/12/2031" is none | YYYY-MM-DD
oarsub -r 'now,2031-02-30' x                        | "2031-02-30" is none | YYYY-MM-DD
oarsub -o out x                                     | Unknown option: o | -O FILE
oarsub -e err x                                     | -E FILE
oarsub -a afterok:12 x                              | "afterok:12" | id[:ok|notok|any|start]
oarsub -a 999 x                                     | unknown job 999
oarsub --array 1-10 x                               | "1-10" | --array NUMBER
oarsub --array=0-9%2 x                              | "0-9%2" | --array NUMBER
oarsub --array x x                                  | "x" | number expected
oarsub --array-param-file missing.txt x             | missing.txt | No such file
oarsub --notify bob@x.org x                         | mail:address
oarsub -m bob x                                     | Unknown option: m | --notify mail:ADDRESS
oarsub --checkpoint 10m x                           | "10m" | number expected
oarsub --wait=yes x                                 | --wait takes no argument, or =kill
oarsub --ressource nodes=2 x                        | ressource | --resource
oarsub --walltime 1 x                               | -l walltime=
oarsub --nodelist n1,n2 x                           | no node 'n1'
oarsub --exclude node-9 x                           | 'node-9', did you mean 'node-
oarsub --sql "user='alice'" x                       | --resubmit
oarsub --resubmit --sql "user='alice'"              | did you mean "job_user"
oarsub --resubmit x                                 | "x" is not a valid job identifier | write ids
oarsub --resubmit 900-902                           | no job has an id from 900 to 902
oarsub --resubmit WAIT                               | Job WAIT is Waiting
oarsub -C x                                         | "x" is not the number of a job
oarsub --ar nosuch x                                | nosuch does not exist
oarstat -j x                                        | "x" is not a job id | oarstat -u x
oarstat running                                     | oarstat --states running
oarstat -j 9-3                                      | 9-3 | 3-9
oarstat -j 1-999999                                 | 1-999999 has more than 10000 numbers | smaller
oarstat -j 100[x]                                   | 100[x] | 100[3-7]
oarstat -j 12.server                                | "12.server" is not a list of jobs | ranges (22-25)
oarstat -t PD                                       | "PD" is not a state | one of W H L R
oarstat -s                                          | oarstat -s -j ID | --states R
oarstat -e                                          | No job specified | oarstat -e -j JOB_ID
oarstat --since soon                                | "soon" is not a date | 1d (a day ago)
oarstat -S 2026-01-01                               | --since 2026-01-01
oarstat --sql "user='alice'"                        | did you mean "job_user"
oarstat --sql "job_user=alice"                      | "alice" | single quotes
oarstat --fields jobid                              | "jobid" | "job_id"
oarstat -o %i                                       | Unknown option: o | --fields
oarstat --format long                               | "long" | number expected
oarstat --gantt 2026-01-01                          | two dates | yesterday,today
oarstat --accounting 1d                             | two dates | 7d,now
oarstat --watch=x                                   | not "x"
oarstat --color red                                 | not "red" | auto, always or never
oarstat --jsn                                       | jsn | --json
oarstat -l -n                                       | option: l | -f | option: n | -j JOB_ID
oarstat --ar nosuch                                 | nosuch does not exist
oarnodes -e soon                                    | "soon" is not a date | 1d (a day ago)
oarnodes -N -t                                      | option: N | --summary | option: t | --free
oarnodes --sql "state=Alive"                        | "alive" | single quotes
oardel x                                            | "x" | Write ids
oardel -s 1                                         | No job is given | write ids
oardel all                                          | --all
oardel --all x                                      | "x" | Nothing was done
oardel -j 12                                        | Unknown option: j | job ids
oardel -9 12                                        | Unknown option: 9 | -s SIGNAL
oardel -s XYZ 1                                     | "XYZ" | USR1
oardel --state PD                                   | "PD" | W,R,H
oardel --array 99                                   | "99" is not a valid array job
oardel 100[9]                                       | no job with index 9 | 1-2
oardel 900-950                                      | from 900 to 950
oardel --sql "user='alice'"                         | did you mean "job_user"
oarhold job.sh                                      | "job.sh" | Write ids
oarhold -t R                                        | Unknown option: t | --state
oarhold END                                         | it has ended
oarresume 99                                        | 99: this job does not exist
oarwalltime                                         | No job id is given
oarwalltime x                                       | "x" is not a job id
oarwalltime RUN 1.5h                                | '1.5h' is not a change | +1:30
oarwalltime RUN +1 h                                  | Write the change as one word
oarwalltime +1:00 2                                 | "+1:00" is not a job id | first argument
oarwalltime RUN TimeLimit=2:00:00                     | 'TimeLimit=2:00:00' is not a change | 5:00 means
oarwalltime WAIT +1                                  | job WAIT is not running | oaralter WAIT
oaralter 1                                          | No change is given | -l walltime=
oaralter -l 1                                       | No job is given
oaralter walltime=1 1                               | No change is given | -l walltime=
oaralter -q nosuch WAIT                              | 'nosuch' does not exist | There are:
oaralter -l walltime=x WAIT                          | "x" is not a walltime | 90m
qrsub -a                                            | requires an argument: DATE
qrsub -a 'tomorow 8:00' -d 60                       | "tomorow 8:00" | tomorrow 8:00
qrsub -d 2x                                         | "2x" | 90m
qrsub -d 60 extra                                   | extra | takes no arguments
qrsub -rrule daily -d 60                            | "daily" | FREQ
qrstat x                                            | x | takes no arguments
qrdel 99                                            | "99" does not exist
qrdel -f                                            | no advance reservation is given | numbers or names
qralter -d x 99                                     | "99" does not exist
oarnodesetting -h node-1 -s down                    | not down | Alive | Absent
oarnodesetting -h node-1 -m yes                     | not yes | on
oarnodesetting -h node-99 -s Absent                 | node-99 does not exist
oarnodesetting -h node-1 -p nosuch=1                | nosuch | oarproperty -a
oarnodesetting node-1 -s Absent                     | node-1 | takes no arguments
oarnodesetting -r x -s Absent                       | "x" is not a resource identifier
oarproperty -r nosuch                               | OLD,NEW, not "nosuch"
oarproperty -d nosuch                               | 'nosuch'
oarqueue -e nosuch                                  | 'nosuch' does not exist
oarqueue --add q,x,policy                           | 'x' is not a priority | whole number
oaradmissionrules 5                                 | argument: 5 | --test
oaradmissionrules -m 99 -Y                          | Unknown rule: 99 | -S
oaraccounting --since soon                          | "soon" is not a date | 1d (a day ago)
oar-conf --history --since soon                     | "soon" is not a date | 1d (a day ago)
oar-conf --since 1d                                 | need --history
oar2trace -f - --from soon                          | "soon" is not a date | 1d (a day ago)
oar2trace -f - -m json                              | json | swf or owf
oarremoveresource x                                 | The resource x does not exist
oarnotify Schedul                                   | 'Schedul' | Write one of: | Scheduling
"""
#: Command lines that do something else than was meant, and the warning.
ACCEPTED = """
oarsub -n 4 ./slurm.sh                              | -l core=4
oarsub ./missing.sh                                 | ./missing.sh: this file does not exist here | 127
oarsub missing.py                                   | missing.py: this file does not exist here
oarsub job.sh                                       | oarsub -S ./job.sh | chmod +x ./job.sh
oarsub ./job.sh                                     | oarsub -S ./job.sh | chmod +x ./job.sh
oarsub ./slurm.sh                                   | #SBATCH lines | #OAR lines
oarsub -S job.sh                                    | chmod +x job.sh
oarsub -l walltime=30 'sleep 60'                    | walltime=30 means 30 hours | walltime=30m
oarsub -O /nonexistent/out 'sleep 60'               | -O /nonexistent/out | mkdir -p /nonexistent
oarsub -E logs/err 'sleep 60'                       | -E logs/err | mkdir -p logs
oarsub -d /nonexistent 'sleep 60'                   | -d /nonexistent: this directory does not exist
oarsub -d afterok:12 'sleep 60'                     | -a JOB_ID
oarstat -j 900-905                                  | no job has an id from 900 to 905
oarstat -j 77[1]                                    | array 77 does not exist
oarstat -u nobodyhere                               | user nobodyhere does not exist
oarstat --queue defalt                              | queue defalt does not exist | "default"
oarnodes node-99                                    | node node-99 does not exist | Did you mean
oarnodes -r 99                                      | resource 99 does not exist
oardel -u nobodyhere                                | nobodyhere
"""


def cases(text: str) -> list[tuple[str, list[str]]]:
    lines = [line.partition(" | ") for line in text.strip().splitlines()]
    return [(line.strip(), [piece.strip() for piece in pieces.split(" | ")]) for line, _, pieces in lines]


@pytest.fixture
def site(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LoginNode:
    """Four nodes of two cores with the default rules, some jobs and scripts of alice."""
    add_resources(database, nodes=4, cores=2)
    add_rules(database)
    for state in (JobState.WAITING, JobState.RUNNING, JobState.ERROR):
        add_job(database, state, user="alice")
    for index in (1, 2):
        add_job(database, user="alice", array_id=100, array_index=index)
    with database.begin() as tx:
        tx.access.add_to_userset("arusers", ["alice"])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.sh").write_text("#!/bin/sh\n#OAR -l nodes=1\ntrue\n")
    (tmp_path / "slurm.sh").write_text("#!/bin/sh\n#SBATCH -N 2\ntrue\n")
    (tmp_path / "slurm.sh").chmod(0o755)
    return LoginNode(database, Config(walltime_change_enabled=True, log_file=str(tmp_path / "oar.log")))


@pytest.mark.parametrize(
    ("line", "pieces", "is_refused"),
    [(*case, True) for case in cases(REFUSED)] + [(*case, False) for case in cases(ACCEPTED)],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_mistake_is_told_with_its_value_and_the_way_out(
    site: LoginNode, line: str, pieces: list[str], is_refused: bool
) -> None:
    ids = dict(zip(("WAIT", "RUN", "END"), (job.id for job in site.jobs()), strict=False))
    name, *words = (re.sub("WAIT|RUN|END", lambda job: str(ids[job[0]]), word) for word in shlex.split(line))
    pieces = [re.sub("WAIT|RUN|END", lambda job: str(ids[job[0]]), piece) for piece in pieces]
    command, user = COMMANDS[name]
    result = site.type(command, *words, user=user)
    assert (result.exit != 0) is is_refused
    assert [piece for piece in pieces if piece not in result.out + result.err] == []
    if is_refused:
        assert [job.state for job in site.jobs()] == ["Waiting", "Running", "Error", "Waiting", "Waiting"]
        assert site.count("frag_jobs") == 0
