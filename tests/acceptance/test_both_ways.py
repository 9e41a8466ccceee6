"""Commands answered by the server of the frontend do exactly what they do by sudo."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.acceptance.harness import Cluster, Person, Result, wait_until

#: A sudo that only says that it was called, so that it is seen which way a command went.
CALLED = "sudo was called"
#: The commands, told not to ask the server.
_WRAPPERS = (
    "mkdir -p ~/wrappers; for name in oarsub oarstat oarnodes oardel oarhold oarresume oarwalltime oaralter oarnotify"
    " qrsub qrstat qrdel qralter oaruserset oar-token; do"
    r" printf '#!/bin/sh\nOAR_BY_SUDO=yes exec /usr/bin/%s \"$@\"\n' $name >~/wrappers/$name"
    "; chmod +x ~/wrappers/$name; done"
)
_FALSE_SUDO = f"mkdir -p ~/bin; printf '#!/bin/sh\\necho {CALLED} >&2; exit 99\\n' >~/bin/sudo; chmod +x ~/bin/sudo"

#: Tests of each kind: they run beside each other.
PARTS = 3
NAMES = (
    *("oarsub", "oarstat", "oarnodes", "oardel", "oarhold", "oarresume", "oarwalltime", "oaralter", "oarnotify"),
    *("qrsub", "qrstat", "qrdel", "qralter", "oaruserset", "oar-token"),
)
#: What each command is asked that changes nothing; J is a job on hold.
QUESTIONS = (
    *(f"{name} --help" for name in NAMES),
    *(f"{name} -help; {name} --no-such-option; {name} 'a b' $'\\xff\\xe9'" for name in NAMES if name != "oarsub"),
    "oarstat; oarstat -j J; oarstat -s -j J; oarstat -f -j J; oarstat -p -j J; oarstat -e -j J; oarstat 999999999",
    "for format in -J -Y -X -D; do oarstat $format -j J; oarnodes $format; oarstat $format -s -j J; done",
    "oarstat -u; oarstat -c; oarstat --format 3; oarstat --no-header; oarstat -r; oarstat --explain 999999999",
    "oarstat -S \"state = 'Hold' AND job_user = 'alice'\"; oarstat -S 'no such thing'; oarstat --fields id,name,state",
    "oarstat -A '2020-01-01, 2020-02-01' -u; oarstat -g '2020-01-01, 2020-02-01'; oarstat -j; OAR_JOB_ID=J oarstat -j",
    "oarnodes; oarnodes -s; oarnodes -l; oarnodes -e now; oarnodes --summary; oarnodes node-1; oarnodes -S 'core = 1'",
    "oarwalltime J; oarwalltime J +1; qrstat; qrstat -xml; qrdel 999999; oaruserset",
    "TZ=Asia/Tokyo oarstat; TZ=/etc/localtime oarstat; TZ=:UTC oarstat; LC_ALL=C oarstat; LANG=xx_YY.UTF-8 oarstat",
    "OAR_OARSTAT_OUTPUT_FORMAT=3 oarstat; OARDO_USER=root OAR_DEBUG=1 SUDO_UID=0 oarstat -u; COLUMNS=40 oarstat --help",
    'script -qec "stty cols 50; oarstat --help; oarstat --color=auto; NO_COLOR=1 oarstat --color=auto" /dev/null',
    "script -qec 'oardel --help; oarstat -s -j J' /dev/null </dev/null; echo y | oardel --help",
    "oarstat >/dev/full; oarstat -x 2>/dev/full; echo $?; oarstat >/dev/null; oarstat 0<>/dev/zero",
    "oarstat --help | head -n 1; echo ${PIPESTATUS[@]}; oarstat | true; (exec 3<&0; oarstat <&3)",
    "cd /; oarsub --estimate -l core=1 true >/dev/null; oarsub --completion bash | head -n 3",
    "oarsub; oarsub -l core=99999 true; oarsub -l '{' true; oarsub -q nowhere true; oarsub -p 'x = ' true; oarsub a b",
    "oarsub -S ./absent; oarsub -S /root/secret; oarsub --array-param-file /etc/shadow true; oarsub -t no_such true",
    "oarsub -i /absent -k true; oarsub --resubmit 999999999; oarsub --resubmit J; umask 777; oarsub -S ./absent",
    "oarhold 999999999; oarresume 999999999; oaralter -n x 999999999; oardel 999999999; oardel -c J; oardel -s INT J",
    "cat /dev/zero | head -c 300000 | tr '\\0' x >~/long; oarstat -j $(head -c 90000 ~/long)",
)
#: What each command changes, and how it is seen; N stands for every number.
CHANGES = (
    "oarsub --hold -l core=1 -n both true; oarstat -f -u | grep -v date",
    "oarsub --hold -l core=1 --array 3 -J true; oarsub --hold -v -l core=1 true; oarsub --hold --parsable true",
    "mkdir -p ~/there; cd ~/there; oarsub --hold -d sub true; oarsub --hold true; oarstat -J -u | grep irectory",
    "printf '#!/bin/sh\\n#OAR -n scripted\\n#OAR -l core=1\\n' >~/job; chmod 700 ~/job; oarsub --hold -S ~/job"
    "; cd ~; oarsub --hold -S ./job; oarsub --hold -S - <~/job; oarstat --fields name,command,launching_directory",
    "printf -- '-n by_default\\n' >~/.oarsubrc; oarsub --hold true; oarstat --fields name; rm ~/.oarsubrc",
    "TOKEN=x oarsub --hold --env TOKEN --env A=b true; X=y oarsub --hold --env ALL true",
    "printf '1\\n2\\n' >~/list; chmod 600 ~/list; oarsub --hold --array-param-file ~/list true",
    "umask 0; oarsub --hold -k -e ~/key.%jobid% true; stat -c %a ~/key.*; oarsub --hold -k -e /root/x true; rm ~/key.*",
    "oarsub --hold $'caf\\xc3\\xa9' ; oarsub --hold $'\\xff'; oarsub --hold -n $'a\\tb' true; oarstat --fields name",
    "job=$(oarsub --hold --parsable true); oaralter -n new $job; oaralter -l core=1 $job; oarhold $job; oardel -c $job",
    "oarsub --hold --notify exec:/bin/true --project p -t besteffort true; oardel -u",
)


def by_sudo(person: Person, command: str) -> Result:
    """Run commands whose wrappers do not ask the server."""
    person.run(f"rm -rf ~/* ~/.oarsubrc; {_FALSE_SUDO}; {_WRAPPERS}")
    return person.attempt(f"PATH=~/wrappers:$PATH; {command}")


def by_server(person: Person, command: str, before: Callable[[], None] = lambda: None) -> Result:
    """Run commands where there is no sudo; again if the server was late for one of them."""

    def answer() -> Result | None:
        before()
        person.run(f"rm -rf ~/* ~/.oarsubrc; {_FALSE_SUDO}; {_WRAPPERS}")
        result = person.attempt(f"PATH=~/bin:$PATH; {command}")
        return None if CALLED in result.out + result.err else result

    answered = wait_until(answer, f"an answer of the server to {command}")
    assert answered
    return answered


def without_numbers(result: Result) -> tuple[int, str, str]:
    return result.code, re.sub(r"\d+", "N", result.out), re.sub(r"\d+", "N", result.err)


@pytest.mark.parametrize("part", range(PARTS))
def test_what_is_shown_is_the_same(alice: Person, part: int) -> None:
    job = alice.submit("--hold -n held -l core=1 true")
    for command in QUESTIONS[part::PARTS]:
        asked = re.sub(r"\bJ\b", str(job), command)
        one, other = by_sudo(alice, asked), by_server(alice, asked)
        assert (asked, other.code, other.out, other.err) == (asked, one.code, one.out, one.err)


@pytest.mark.parametrize("part", range(PARTS))
def test_what_is_done_is_the_same(cluster: Cluster, alice: Person, part: int) -> None:
    """Jobs are deleted before each command, which sees its own ones alone."""
    living = "SELECT job_id FROM jobs WHERE job_user = 'alice' AND state NOT IN ('Terminated', 'Error')"

    def forget() -> None:
        alice.attempt("oardel -u")
        wait_until(lambda: not cluster.sql(living), lambda: cluster.sql(living))

    for command in CHANGES[part::PARTS]:
        forget()
        one = without_numbers(by_sudo(alice, command))
        other = without_numbers(by_server(alice, command, forget))
        assert (command, other) == (command, one)
