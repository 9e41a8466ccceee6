"""Files of ``sacctmgr dump``: what becomes a project, what is counted as omitted, and hostile contents."""

import pytest

from oar.lib.accounts.records import Member, Project
from oar.lib.accounts.sacctmgr_file import SlurmAccounts, parse_sacctmgr
from oar.lib.accounts.states import MemberRole
from oar.lib.base.errors import BadRequest

#: As Slurm 20 to 24 write it; the first lines are its comment.
DUMP = """\
# To edit this file start with a cluster line for the new cluster
# Account - 'cs':MaxNodesPerJob=5:MaxJobs=4:MaxTRESMins=cpu=20:FairShare=399
QOS - 'standard':Description='default':Priority=100
Cluster - 'linux':Fairshare=1:QOS='normal'
Parent - 'root'
User - 'root':DefaultAccount='root':AdminLevel='Administrator':Fairshare=1
Account - 'physics':Description='Particles: o'brien's group':Organization='cas':Fairshare=10:GrpTRESMins=cpu=60000,mem=5
Account - 'biology':
Parent - 'physics'
Account - 'cms':Description='CMS':Organization='cas':Fairshare=parent:QOS='debug,normal'
User - 'anna':DefaultAccount='physics':Fairshare=5:AdminLevel='Operator':Coordinator='physics,cms,gone'
User - 'john':Partition='cpu':DefaultAccount='cms':Fairshare=1
User - 'john':Partition='gpu':DefaultAccount='cms':Fairshare=3:MaxSubmitJobs=10
Parent - 'cms'
User - 'john':DefaultAccount='cms':Fairshare=2147483647
"""


def test_accounts_users_coordinators_and_limits_of_cpu_minutes_are_read() -> None:
    assert parse_sacctmgr(DUMP) == SlurmAccounts(
        projects=(
            Project("physics", "Particles: o'brien's group", shares=10),
            Project("biology"),
            Project("cms", "CMS", "physics"),
        ),
        members=(
            Member("physics", "anna", MemberRole.MANAGER, 5),
            Member("physics", "john", shares=3),
            Member("cms", "john"),
            Member("cms", "anna", MemberRole.MANAGER),
        ),
        defaults={"anna": "physics", "john": "cms"},
        hours={"physics": 1000.0},
        omitted={
            "AdminLevel of users": 2,
            "Fairshare=parent of accounts (becomes 1 share)": 1,
            "Fairshare=parent of users (becomes 1 share)": 1,
            "GrpTRESMins of mem of accounts": 1,
            "MaxSubmitJobs of users": 1,
            "Organization of accounts": 2,
            "Partition of users": 2,
            "QOS of accounts": 1,
            "QOS of clusters": 1,
            "coordinators of accounts that are not in the file": 1,
            "lines of QOS": 1,
            "users of the account root": 1,
        },
    )


def test_limits_of_root_and_unknown_default_accounts_are_counted() -> None:
    content = parse_sacctmgr(
        "Parent - 'root'\nAccount - 'root':Description='all':Fairshare=1:GrpTRESMins=cpu=60:MaxJobs=4\nAccount - 'a'\n"
        "Parent - 'a'\nUser - 'anna':DefaultAccount='gone'\nUser - 'bob':DefaultAccount='root'\n"
        "User - 'eve':MaxJobs=1\n"
        "User - 'eve':DefaultAccount='a'\n"
    )
    assert content.defaults == {"eve": "a"}
    assert content.omitted == {
        "DefaultAccount of users that is not in the file": 2,
        "GrpTRESMins of the account root": 1,
        "MaxJobs of the account root": 1,
        "MaxJobs of users": 1,
    }


def test_keys_are_read_without_regard_to_case_and_lines_may_be_indented() -> None:
    content = parse_sacctmgr('Parent - "root"\r\n  account - "x":fairSHARE="7":DESCRIPTION="of \'x\'"\r\n')
    assert content.projects == (Project("x", "of 'x'", shares=7),)


def test_shares_that_are_too_large_are_capped_and_counted() -> None:
    content = parse_sacctmgr("Account - 'x':Fairshare=2000000000")
    assert content.projects[0].shares == 1_000_000
    assert content.omitted == {"Fairshare above 1,000,000 of accounts (becomes 1,000,000)": 1}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("rm -rf /", '"rm -rf /" is no line of sacctmgr dump'),
        ("Account - 'x", 'the quotation mark of "\'x" is not closed'),
        ("Account - 'x':Description='a':b", "is not closed"),
        ("Account - 'x':Fairshare=-1", 'Fairshare: "-1" is no number'),
        ("Account - 'x':Fairshare=9999999999999999999", "is no number"),
        ("Account - 'x':GrpTRESMins=cpu=1e9", 'GrpTRESMins: "1e9" is no number'),
        ("Account - x:y", '":y" is no option'),
        ("Account - '../x'", '"../x" is no name of a project'),
        ("Account - 'x\x1b[2J'", "is no name of a project"),
        ("Account - 'known'", 'the account "known" is in the file twice'),
        ("User - 'a b'", '"a b" is no user'),
        ("User - ''", '"" is no user'),
        ("Parent - 'a,b'", '"a,b" is no name of a project'),
        ("Cluster - 'a'\nCluster - 'b'", 'the cluster "b" is the second one'),
    ],
)
def test_a_bad_line_is_named(line: str, message: str) -> None:
    with pytest.raises(BadRequest) as raised:
        parse_sacctmgr(f"Account - 'known'\n{line}\n")
    assert str(raised.value).startswith(f"line {2 + line.count(chr(10))}: ")
    assert message in str(raised.value)


def test_accounts_cannot_be_below_themselves() -> None:
    with pytest.raises(BadRequest, match="is below itself"):
        parse_sacctmgr("Parent - 'b'\nAccount - 'a'\nParent - 'a'\nAccount - 'b'\n")
    with pytest.raises(BadRequest, match="zero byte"):
        parse_sacctmgr("Account - 'a\0'")
