"""The ssh key of a job on this node: the private half for its user's programs, the public one for sshd.

The public keys of all jobs are lines of one file of oar, ``DEFAULT_KEYS_FILE`` unless the server names another one.
"""

import base64
import os
import re

import node_base
from node_base import JobFiles, NodeError
from node_protocol import ManagerExit

TYPE_CHECKING = False
if TYPE_CHECKING:
    import pwd
    from collections.abc import Callable, Collection, Iterable

    from node_base import Data

DEFAULT_KEYS_FILE = ".ssh/authorized_keys_jobs"
KEY_TYPE = re.compile(r"(ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(256|384|521)|sk-[A-Za-z0-9@.-]+)\Z")
KEY_BODY = re.compile(r"[A-Za-z0-9+/]+={0,3}\Z")
JOB_OF_KEY = re.compile(
    r'environment="OAR_CPUSET=[^"]*",environment="OAR_JOB_USER=([^"]*)",environment="OAR_JOB_ID=(\d+)"'
)
OARSH_SHELL = "oarsh_shell"


def add(data: "Data", files: JobFiles, oar: "pwd.struct_passwd") -> None:
    """Write both halves of the job's key, if it has one that may open anything.

    Raises NodeError if it cannot be used or written.
    """
    keys, account = data.get("ssh_keys"), node_base.known_account(data["user"])
    if not keys or not keys.get("public") or not keys["public"].get("key"):
        return
    if account is not None and node_base.is_privileged(account):  # oarexec refuses the job; the node is not to blame
        return
    public = clean_key(keys["public"]["key"])
    if is_key_of_oar(public, oar):
        raise NodeError(ManagerExit.RUNTIME_DIRECTORY, "the key of the job is the key of %s itself" % oar.pw_name)
    try:
        node_base.write_file(files.key(data["user"]), node_base.encode(keys["private"]["key"]), 0o600)
    except OSError as error:
        text = "cannot write the private key of the job: %s" % error.strerror
        raise NodeError(ManagerExit.PRIVATE_KEY, text) from None
    key_line = line_of(data, public, oar)
    change(data, oar, lambda lines: [line for line in lines_in_use(lines, files) if line != key_line] + [key_line])


def remove(data: "Data", files: JobFiles, oar: "pwd.struct_passwd") -> None:
    """Remove both halves of the job's key."""
    node_base.remove_file(files.key(data["user"]))
    if os.path.exists(path_of(data, oar)):
        change(data, oar, lambda lines: [line for line in lines_in_use(lines, files) if job_of(line) != files.job_id])


def keep_only(data: "Data", oar: "pwd.struct_passwd", job_ids: "Collection[int]") -> None:
    """Remove the public keys of all other jobs, and files that were not written to their end."""
    path = path_of(data, oar)
    if os.path.exists(path):
        change(data, oar, lambda lines: [line for line in lines if job_of(line) in {None, *job_ids}])
        node_base.drop_unfinished_files(os.path.dirname(path), {os.path.basename(path)})


def clean_key(text: str) -> str:
    """Return a public key as ``type base64``: what else its user wrote is thrown away.  Raises NodeError."""
    fields = text.split()
    if len(fields) >= 2 and KEY_TYPE.match(fields[0]) and KEY_BODY.match(fields[1]):
        try:
            base64.b64decode(fields[1], validate=True)
        except ValueError:
            pass
        else:
            return fields[0] + " " + fields[1]
    raise NodeError(ManagerExit.PUBLIC_KEY, "the public key of the job is not one that OpenSSH takes")


def is_key_of_oar(public: str, oar: "pwd.struct_passwd") -> bool:
    content = (node_base.read_file(oar.pw_dir + "/.ssh/authorized_keys") or b"").decode("utf-8", "surrogateescape")
    lines = [line for line in content.splitlines() if not JOB_OF_KEY.search(line)]
    return public.split()[1] in " ".join(lines).split()


def line_of(data: "Data", public: str, oar: "pwd.struct_passwd") -> str:
    """Return the line for sshd: who comes with this key gets into this job and nowhere else."""
    environment = (
        ("OAR_CPUSET", "%s/%s" % (data["cpuset_path"] or "", data["name"])),
        ("OAR_JOB_USER", data["user"]),
        ("OAR_JOB_ID", str(data["job_id"])),
    )
    fields = ['environment="%s=%s"' % variable for variable in environment]
    oardir = node_base.options_of(data).get("oardir")
    login_shell = oar.pw_shell if os.path.basename(oar.pw_shell) == OARSH_SHELL else "/usr/lib/oar/" + OARSH_SHELL
    shell = "%s/%s" % (oardir, OARSH_SHELL) if oardir else login_shell
    fields += ['command="%s --oarsh"' % shell, "restrict", "pty", "X11-forwarding"]
    return ",".join(fields) + " " + public


def lines_in_use(lines: "Iterable[str]", files: JobFiles) -> "list[str]":
    """Return the lines whose job still has its environment file here, and those of no job, which are the site's."""
    return [line for line in lines if is_in_use(line, files.directory)]


def is_in_use(line: str, directory: str) -> bool:
    """Return whether a line is that of a job with an environment file in the runtime directory, or of no job."""
    match = JOB_OF_KEY.search(line)
    return match is None or os.path.exists(JobFiles(directory, int(match.group(2))).environment(match.group(1)))


def job_of(line: str) -> "int | None":
    """Return the job whose public key a line holds; None if it is that of no job."""
    match = JOB_OF_KEY.search(line)
    return int(match.group(2)) if match else None


def path_of(data: "Data", oar: "pwd.struct_passwd") -> str:
    """Return the path of the file of public keys; raise NodeError if it is the one with oar's own keys."""
    keys = data.get("ssh_keys") or {}
    name = (keys.get("public") or {}).get("file_name") or DEFAULT_KEYS_FILE
    path = os.path.normpath(os.path.join(oar.pw_dir, name))
    if path == os.path.join(oar.pw_dir, ".ssh/authorized_keys") and not keys.get("public"):
        raise NodeError(ManagerExit.KEYS_FILE, "job keys need a file of their own")
    return path


def change(data: "Data", oar: "pwd.struct_passwd", edit: "Callable[[list[str]], list[str]]") -> None:
    """Replace the file of public keys by what ``edit`` makes of its lines, under its lock, never in place."""
    path = path_of(data, oar)
    with node_base.locked(data["oar_tmp_directory"] + "/authorized_keys.lock", ManagerExit.KEYS_LOCK):
        lines = (node_base.read_file(path) or b"").decode("utf-8", "surrogateescape").splitlines()
        edited = edit(lines)
        if edited == lines:
            return
        try:
            os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
            text = "".join(line + "\n" for line in edited)
            node_base.write_file(path, node_base.encode(text), 0o600, node_base.DURABLE)
        except OSError as error:
            text = "cannot replace %s: %s" % (path, error.strerror)
            raise NodeError(ManagerExit.KEYS_FILE_WRITE, text) from None
