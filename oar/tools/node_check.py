"""What this node can check by itself: whether what made launches fail works again.

Action ``check``.  Data: ``oar_tmp_directory``, ``cpuset_path``, ``options``, ``checks`` = list of {``kind``
(``CheckKind``), ``user``: whose account or home is checked}.  One line of JSON per check, in their order: ``kind``,
``user``, ``error``, '' if the check succeeds, null if an earlier check of the same user has not ended; ``is_of_node``:
whether no user could have made it fail.

Each check has a process and a time limit of its own: a file server that does not answer keeps it for ever, and delays
no other check.  As long as that lasts, no other check of the same user begins.
"""

import functools
import json
import os
import select
import signal
import stat
import sys
import time

import node_base
import node_cgroups
import node_faults
from node_base import NodeError
from node_protocol import CheckKind, ManagerExit, ProgramAction

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from node_base import Data, Kinds

CHECK: "Kinds" = {"kind": (str,), "user": (str,)}
#: Seconds that a check waits for another one of the same user, and its time limit, which includes them.
LOCK_SECONDS, CHECK_SECONDS = 2.0, 6.0
#: The error of a check that exceeds the limit.
HANGS = "%s hangs: no answer within %d s"
#: Bytes of an answer: a pipe takes so many at once.
LONGEST_ANSWER = 4096
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
        for check, (error, is_of_node) in zip(data["checks"], results_of(data, data["checks"])):
            answer = {"kind": check["kind"], "user": check["user"], "error": error, "is_of_node": is_of_node}
            node_base.say(json.dumps(answer))
    except NodeError as error:
        node_base.complain("[node_check] " + str(error))
        return error.code
    return ManagerExit.OK


def results_of(data: "Data", checks: "Sequence[Data]") -> "list[tuple[str | None, bool]]":
    """Return for each check what does not work, and whether no user could have caused that."""
    errors = answers_of([functools.partial(error_of, data, check) for check in checks])
    titles = [check["kind"] + (check["user"] and " of " + node_base.escaped(check["user"])) for check in checks]
    errors = [HANGS % (title, CHECK_SECONDS) if error is None else error for error, title in zip(errors, titles)]
    failed = [bool(error) and error != BUSY for error in errors]
    homes = {check["user"] for check, fails in zip(checks, failed) if fails and check["kind"] == CheckKind.HOME}
    causes = causes_of_missing_homes(sorted(homes))
    results: "list[tuple[str | None, bool]]" = []
    for check, error, fails in zip(checks, errors, failed):
        is_of_node = fails and (check["kind"] != CheckKind.HOME or bool(causes[check["user"]]))
        results.append((None if error == BUSY else error, is_of_node))
    return results


def causes_of_missing_homes(users: "Sequence[str]") -> "dict[str, str]":
    """Return for each user why the home is missing, '' if a user may have caused that."""
    answers = answers_of([functools.partial(cause_of_missing_home, user) for user in users])
    return dict(zip(users, ("hangs" if answer is None else answer for answer in answers)))


# -- processes with a time limit -------------------------------------------------------------------------------------


def answers_of(tasks: "Sequence[Callable[[], str]]") -> "list[str | None]":
    """Return what each function returns, or its error; None for those that take too long.

    Such a process cannot always be killed.  It is left behind, and keeps its lock until it ends.
    """
    children = [begin(task) for task in tasks]
    deadline = time.monotonic() + CHECK_SECONDS
    return [answer_of(pid, fd, deadline) for pid, fd in children]


def begin(task: "Callable[[], str]") -> "tuple[int, int]":
    """Let a process of its own call a function; return its pid, and the pipe from which the answer can be read."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    try:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for fd in range(3):  # the session waits until nobody has its pipes any more
            os.dup2(nowhere, fd)
        try:
            text = task()
        except (NodeError, OSError) as error:
            text = str(error)
        os.write(writing, b"=" + node_base.encode(text)[: LONGEST_ANSWER - 1])
    finally:
        os._exit(0)


def answer_of(pid: int, fd: int, deadline: float) -> "str | None":
    """Return the answer of a process, None if there is none before the deadline."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    is_ready = poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
    if is_ready:
        said = os.read(fd, LONGEST_ANSWER)
        os.waitpid(pid, 0)
    else:
        os.kill(pid, signal.SIGKILL)
    os.close(fd)
    if not is_ready:
        return None
    return os.fsdecode(said[1:]) if said else "the check broke off"


#: The answer of a check that has not begun: an earlier one of the same user has not ended.
BUSY = "an earlier check has not ended"


def is_alone(directory: str, check: "Data") -> bool:
    """Let no other process make this check of a user until this one ends; return whether none does.

    The account is not looked up: that may be what hangs.
    """
    if not check["user"]:
        return True
    path = node_base.runtime_directory(directory, ManagerExit.RUNTIME_DIRECTORY)
    name = "%s/check_%s.lock" % (path, node_base.encode(check["kind"] + " " + check["user"]).hex())
    with node_base.acting_as(node_base.oar_account()):
        return node_base.lock_within(node_base.open_lock(name, ManagerExit.USER_LOCK), LOCK_SECONDS)


# -- the checks ------------------------------------------------------------------------------------------------------


def error_of(data: "Data", check: "Data") -> str:
    """Return what does not work, '' if the check succeeds; raise NodeError or OSError."""
    if not is_alone(data["oar_tmp_directory"], check):
        return BUSY
    if check["kind"] == CheckKind.ACCOUNT:
        return "" if node_base.account_of(check["user"]) else node_base.why_no_account(check["user"])
    if check["kind"] == CheckKind.HOME:
        return error_of_home(check["user"])
    if check["kind"] == CheckKind.DISK:
        return error_of_disk(data["oar_tmp_directory"])
    if check["kind"] == CheckKind.CGROUP:
        try_group(data)
    return "" if check["kind"] in (CheckKind.CGROUP, CheckKind.REACH) else "unknown check"


def error_of_home(user: str) -> str:
    account = node_base.account_of(user)
    if account is None:
        return node_base.why_no_account(user)
    with node_base.acting_as(account):
        return "" if node_faults.is_home(account.pw_dir, account.pw_uid) else "%s is missing" % account.pw_dir


def cause_of_missing_home(user: str) -> str:
    """Return what is wrong with a home or the directories above it; '' if a user may have caused that.

    Nothing is looked at that a user could let hang: what is below a directory that others than root can change, and a
    file system that users can mount.  As ``oar``: root has no business there, and is nobody for many file servers.
    """
    account = node_base.account_of(user)
    home = node_base.encode(account.pw_dir).rstrip(b"/") if account else b""
    parent = os.path.dirname(home)
    if not parent or is_in_fuse(parent):
        return ""
    path = b""
    with node_base.acting_as(node_base.oar_account()):
        try:
            for name in parent.rstrip(b"/").split(b"/"):
                path = path.rstrip(b"/") + b"/" + name
                if not is_roots_alone(os.stat(path)):
                    return ""
                os.statvfs(path)
            path = home
            look_at_mount(home)
        except OSError as error:
            return "%s: %s" % (os.fsdecode(path), error.strerror) if error.errno in node_faults.ABSENT else ""
    return ""


def look_at_mount(path: bytes) -> None:
    """Raise OSError if a directory is not there or its file system fails, unless users can mount that.

    The mount is held meanwhile, so that no user can put another one in its place.
    """
    fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not is_mounted_by_users(fd):
            os.stat(fd)
    finally:
        os.close(fd)


def is_mounted_by_users(fd: int) -> bool:
    """Return whether an open file is in a file system that users can mount, or that is mounted no more."""
    with open("/proc/self/fdinfo/%d" % fd, "rb") as lines:
        number = next(line.split()[1] for line in lines if line.startswith(b"mnt_id:"))
    with open("/proc/self/mountinfo", "rb") as mounts:
        sources = [line.partition(b" - ")[2] for line in mounts if line.split(None, 1)[0] == number]
    return not sources or sources[0].startswith(b"fuse")


def is_in_fuse(path: bytes) -> bool:
    """Return whether a directory is in a file system that users can mount: it may hang as they like."""
    with open("/proc/self/mountinfo", "rb") as mounts:
        for line in mounts:
            words, _, source = line.partition(b" - ")
            point = words.split()[4].rstrip(b"/") + b"/"
            if source.startswith(b"fuse") and (path + b"/").startswith(point):
                return True
    return False


def is_roots_alone(status: os.stat_result) -> bool:
    """Return whether nobody but root can change a directory."""
    return status.st_uid == 0 and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def error_of_disk(directory: str) -> str:
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
