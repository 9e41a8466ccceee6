"""Install keys on nodes, for the server and the sessions of users: lines of files, and the installation script.

See docs/design/nodes.rst, "Keys".
"""

import re
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

#: The account of OAR on every machine.
ACCOUNT = "oar"
#: The mark of a line of ours in ``authorized_keys``; an older one is replaced.
_OURS = 'environment="OAR_KEY='
#: Where the script puts the path of the login shell of oar on the node.
_SHELL = "@SHELL@"
_HOST_KEY = re.compile(r"(ssh-[\w-]+|ecdsa-[\w-]+) ([A-Za-z0-9+/=]+)(?: .*)?", re.ASCII)
_END = "END_OF_A_FILE_OF_OAR"

#: Becomes the account and installs the files; what it says first are the host keys of the node. Keys are passed on
#: standard input only: all accounts of a machine can read the arguments of its processes, whose size is limited, too.
#: Nothing runs before the end of the braces was read: a part of a script changes nothing.
_SCRIPT = """set -eu
cat /etc/oar/oar_ssh_host_*_key.pub 2>/dev/null || :
if ! getent passwd {account} >/dev/null; then
    echo "there is no account {account}: install {package} first" >&2
    exit 1
fi
become="runuser -u {account} --"
if [ "$(id -un)" = {account} ]; then
    become=
fi
exec $become sh -s <<'END_OF_THE_PROGRAM_OF_OAR'
{{
set -eu
umask 077
cd ~{account}
shell=$(getent passwd {account} | cut -d: -f7)
case $shell in
    */oarsh_shell) ;;
    *) echo "the login shell of {account} is $shell and not oarsh_shell: install {package} first" >&2; exit 1 ;;
esac
mkdir -p .ssh
chmod 700 .ssh
cd .ssh
{check}
{{ grep -v '{ours}' authorized_keys 2>/dev/null || :; sed "s|{mark}|$shell|" <<'{end}'
{lines}
{end}
}} > authorized_keys.new
{files}
for name in authorized_keys {names}; do
    chmod 600 "$name.new"
    mv "$name.new" "$name"
done
{removal}
exit
}}
END_OF_THE_PROGRAM_OF_OAR
"""
_FILE = """cat > {name}.new <<'{end}'
{text}
{end}"""
#: Adds the lines of the ``known_hosts`` there without the hosts of the new one, as ``merged`` does.
_MERGE = """if [ -e known_hosts ]; then
    awk '
    FNR == NR { count = split($1, names, ","); for (i = 1; i <= count; i++) renewed[names[i]] = 1; next }
    /^[@#]/ { print; next }
    NF {
        count = split($1, names, ","); kept = ""
        for (i = 1; i <= count; i++) if (!(names[i] in renewed)) kept = kept (kept == "" ? "" : ",") names[i]
        if (kept != "") print kept substr($0, index($0, $1) + length($1))
    }' known_hosts.new known_hosts > known_hosts.kept
    cat known_hosts.new >> known_hosts.kept
    mv known_hosts.kept known_hosts.new
fi"""
#: Ends the script before it changes anything if the other server has another key of its own.
_CHECK_KEY = """for name in {names}; do
    [ -e "$name" ] || continue
    public=$(ssh-keygen -y -P '' -f "$name" 2>/dev/null </dev/null || cat "$name.pub" 2>/dev/null || :)
    case "$public " in
        '{public} '*) ;;
        *) echo "~{account}/.ssh/$name is another {kind} key: nothing was changed." \
            "To replace it, give --replace-keys, too" >&2; exit 1 ;;
    esac
done"""
#: Names of the file of the server's private key, the preferred one first.
SERVER_KEYS = ("id_ed25519", "id_rsa")


class KeyFiles(NamedTuple):
    """The key files of the server in ``~oar/.ssh``."""

    server_public: str
    oarsh_private: str
    oarsh_public: str
    known_hosts: str = ""
    server_private: str = ""  #: only for another server
    server_key: str = "id_ed25519"  #: file name of the key of the server


def authorized_lines(files: KeyFiles, shell: str = _SHELL) -> tuple[str, str]:
    """Return the two lines for ``authorized_keys`` of a node. ``shell``: the login shell of the account there."""
    session = f'command="{shell} --oarsh",environment="OAR_KEY=0",restrict,pty,X11-forwarding'
    return f'environment="OAR_KEY=1" {files.server_public.strip()}', f"{session} {files.oarsh_public.strip()}"


def node_script(files: KeyFiles, *, is_replacing: bool = False) -> str:
    """Return the script that root or oar runs on a node or on another server. It can be run repeatedly.

    Hosts that only the ``known_hosts`` there has stay. ``is_replacing``: another server's key may be replaced.
    """
    contents = {"oarsh_key": files.oarsh_private, "oarsh_key.pub": files.oarsh_public}
    check = removal = ""
    if files.server_private:
        contents |= {files.server_key: files.server_private, f"{files.server_key}.pub": files.server_public}
        check = "" if is_replacing else _checks_of_keys(files)
        removal = _removal_of_other_server_keys(files)
    if files.known_hosts.strip():
        contents["known_hosts"] = files.known_hosts
    texts = [_FILE.format(name=name, text=text.strip("\n"), end=_END) for name, text in contents.items()]
    if "known_hosts" in contents:
        texts.append(_MERGE)
    return _SCRIPT.format(
        account=ACCOUNT,
        ours=_OURS,
        package="oar-server" if files.server_private else "oar-node",
        mark=_SHELL,
        end=_END,
        check=check,
        lines="\n".join(authorized_lines(files)),
        files="\n".join(texts),
        names=" ".join(contents),
        removal=removal,
    )


def _checks_of_keys(files: KeyFiles) -> str:
    """Return shell text that ends the script if there is another key of the server, or of the sessions of users."""
    checks = ((SERVER_KEYS, files.server_public, "server"), (("oarsh_key",), files.oarsh_public, "oarsh"))
    return "\n".join(
        _CHECK_KEY.format(names=" ".join(names), public=" ".join(public.split()[:2]), account=ACCOUNT, kind=kind)
        for names, public, kind in checks
    )


def _removal_of_other_server_keys(files: KeyFiles) -> str:
    """Remove a key of another name: the server could use it instead."""
    others = [f"{name} {name}.pub" for name in SERVER_KEYS if name != files.server_key]
    return f"rm -f {' '.join(others)}"


def host_keys(said: str, host: str, port: int) -> Iterator[str]:
    """Yield the lines of ``known_hosts`` for the public host keys in the output of a node."""
    name = host if port == 22 else f"[{host}]:{port}"
    for line in said.splitlines():
        if match := _HOST_KEY.fullmatch(line.strip()):
            yield f"{name} {match[1]} {match[2]}"


def merged(known_hosts: str, lines: Iterable[str]) -> str:
    """Return a ``known_hosts`` in which these lines replace all former keys of their hosts.

    Other hosts, marked lines and comments are not changed.
    """
    new = list(dict.fromkeys(lines))
    renewed = {name for line in new for name in line.split()[0].split(",")}
    kept = [_without(line, renewed) for line in known_hosts.splitlines()]
    return "".join(f"{line}\n" for line in [*filter(None, kept), *new])


def _without(line: str, hosts: Collection[str]) -> str:
    """Return a line of ``known_hosts`` without these hosts, empty if none is left."""
    if line.startswith(("@", "#")):
        return line
    names, space, key = line.strip().partition(" ")
    kept = ",".join(name for name in names.split(",") if name not in hosts)
    return f"{kept}{space}{key}" if kept else ""


def port_of(command: Iterable[str]) -> int:
    """Return the port of an ssh command (OPENSSH_CMD).

    >>> port_of(["/usr/bin/ssh", "-p", "6667", "-e", "none"]), port_of(["ssh", "-oPort=24"]), port_of(["ssh"])
    (6667, 24, 22)
    """
    match = re.search(r"(?:^| )-(?:p|o ?Port[= ]) ?(\d{1,5})(?= |$)", " ".join(command))
    return int(match[1]) if match else 22
