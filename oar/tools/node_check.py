"""What this node can check by itself: whether what made launches fail works again.

Action ``check``.  Data: ``oar_tmp_directory``, ``cpuset_path``, ``options``, ``checks`` = list of {``kind``
(``CheckKind``), ``user``: whose account or home is checked}.  One line of JSON per check, in their order: ``kind``,
``user``, ``error``, '' if the check succeeds.

A child of its own runs this (it is not ``SHORT``): a file server that does not answer keeps it for ever.  As long as
that lasts, no other check of the same user begins.
"""

import json
import sys

import node_base
import node_cgroups
import node_faults
from node_base import NodeError
from node_protocol import CheckKind, ManagerExit, ProgramAction

TYPE_CHECKING = False
if TYPE_CHECKING:
    from node_base import Data, Kinds

CHECK: "Kinds" = {"kind": (str,), "user": (str,)}
#: So long a check waits for another one of the same user.
LOCK_SECONDS = 2.0
#: The control group that is made and removed; the name of a job's group ends with its number.
GROUP = "check_of_oar"


def main(action: str, data: "Data") -> int:
    """Carry out one action; return its exit code."""
    try:
        if action != ProgramAction.CHECK:
            raise NodeError(ManagerExit.ACTION, "unknown action '%s'" % node_base.escaped(str(action)))
        node_base.require(data, {"oar_tmp_directory": (str,), "checks": list})
        for check in data["checks"]:
            node_base.require(check, CHECK)
        for user in sorted({check["user"] for check in data["checks"]} - {""}):
            keep_others_away(data["oar_tmp_directory"], user)
        for check in data["checks"]:
            node_base.say(json.dumps({"kind": check["kind"], "user": check["user"], "error": error_of(data, check)}))
    except NodeError as error:
        node_base.complain("[node_check] " + str(error))
        return error.code
    return ManagerExit.OK


def keep_others_away(directory: str, user: str) -> None:
    """Let no other process check the same user until this one ends; raise NodeError if one does.

    The account is not looked up: that may be what hangs.
    """
    path = node_base.runtime_directory(directory, ManagerExit.RUNTIME_DIRECTORY)
    with node_base.acting_as(node_base.oar_account()):
        node_base.take_lock(
            "%s/check_%s.lock" % (path, node_base.encode(user).hex()), ManagerExit.USER_LOCK, LOCK_SECONDS
        )


def error_of(data: "Data", check: "Data") -> str:
    """Return what does not work, '' if the check succeeds."""
    try:
        if check["kind"] == CheckKind.ACCOUNT:
            return "" if node_base.account_of(check["user"]) else node_base.why_no_account(check["user"])
        if check["kind"] == CheckKind.HOME:
            return error_of_home(check["user"])
        if check["kind"] == CheckKind.DISK:
            return error_of_disk(data["oar_tmp_directory"])
        if check["kind"] == CheckKind.CGROUP:
            try_group(data)
    except (NodeError, OSError) as error:
        return str(error)
    return "" if check["kind"] in (CheckKind.CGROUP, CheckKind.REACH) else "unknown check"


def error_of_home(user: str) -> str:
    """Return what is wrong with the home directory of a user."""
    account = node_base.account_of(user)
    if account is None:
        return node_base.why_no_account(user)
    with node_base.acting_as(account):
        return "" if node_faults.is_home(account.pw_dir, account.pw_uid) else "%s is missing" % account.pw_dir


def error_of_disk(directory: str) -> str:
    """Return what is wrong with the runtime directory."""
    path = node_base.runtime_directory(directory, ManagerExit.RUNTIME_DIRECTORY)
    with node_base.acting_as(node_base.oar_account()):
        return "" if node_faults.has_room(node_base.encode(path)) else "%s is full" % path


def try_group(data: "Data") -> None:
    """Make and remove a control group as a job has it; raise NodeError or OSError."""
    groups = node_cgroups.groups_of(data)
    if groups is None:
        return
    groups.prepare()
    groups.make_leaf(GROUP)
    groups.remove(GROUP)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], json.load(sys.stdin)))
