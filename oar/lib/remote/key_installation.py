"""Install keys on nodes, for the server and the sessions of users: lines of files, and the installation script.

See docs/design/nodes.rst, "Keys".
"""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

#: The account of OAR on every machine.
ACCOUNT = "oar"
#: The mark of a line of ours in ``authorized_keys``; an older one is replaced.
_OURS = 'environment="OAR_KEY='
#: Where the script puts the path of the login shell of oar on the node.
_SHELL = "@SHELL@"
_HOST_KEY = re.compile(r"(ssh-[\w-]+|ecdsa-[\w-]+) ([A-Za-z0-9+/=]+)(?: .*)?", re.ASCII)
_END = "END_OF_A_FILE_OF_OAR"

#: Becomes the account and installs the files; what it says first are the host keys of the node.
_SCRIPT = """set -eu
cat /etc/oar/oar_ssh_host_*_key.pub 2>/dev/null || :
program=$(cat <<'END_OF_THE_PROGRAM_OF_OAR'
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
{{ grep -v '{ours}' authorized_keys 2>/dev/null || :; sed "s|{mark}|$shell|" <<'{end}'
{lines}
{end}
}} > authorized_keys.new
{files}
for name in authorized_keys {names}; do
    chmod 600 "$name.new"
    mv "$name.new" "$name"
done
END_OF_THE_PROGRAM_OF_OAR
)
if ! getent passwd {account} >/dev/null; then
    echo "there is no account {account}: install {package} first" >&2
    exit 1
fi
if [ "$(id -un)" = {account} ]; then
    exec sh -c "$program"
fi
exec runuser -u {account} -- sh -c "$program"
"""
_FILE = """cat > {name}.new <<'{end}'
{text}
{end}"""


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


def node_script(files: KeyFiles) -> str:
    """Return the script that root or oar runs on a node or on another server. It can be run repeatedly."""
    contents = {"oarsh_key": files.oarsh_private, "oarsh_key.pub": files.oarsh_public}
    if files.server_private:
        contents |= {files.server_key: files.server_private, f"{files.server_key}.pub": files.server_public}
    if files.known_hosts.strip():
        contents["known_hosts"] = files.known_hosts
    return _SCRIPT.format(
        account=ACCOUNT,
        ours=_OURS,
        package="oar-server" if files.server_private else "oar-node",
        mark=_SHELL,
        end=_END,
        lines="\n".join(authorized_lines(files)),
        files="\n".join(_FILE.format(name=name, text=text.strip("\n"), end=_END) for name, text in contents.items()),
        names=" ".join(contents),
    )


def host_keys(said: str, host: str, port: int) -> Iterator[str]:
    """Yield the lines of ``known_hosts`` for the public host keys in the output of a node."""
    name = host if port == 22 else f"[{host}]:{port}"
    for line in said.splitlines():
        if match := _HOST_KEY.fullmatch(line.strip()):
            yield f"{name} {match[1]} {match[2]}"


def merged(known_hosts: str, lines: Iterable[str]) -> str:
    """Return a ``known_hosts`` in which these lines replace all former keys of their hosts.

    Other hosts are not changed.
    """
    new = list(dict.fromkeys(lines))
    renewed = {line.split()[0] for line in new}
    kept = [line for line in known_hosts.splitlines() if line and line.split()[0] not in renewed]
    return "".join(f"{line}\n" for line in [*kept, *new])


def port_of(command: Iterable[str]) -> int:
    """Return the port of an ssh command (OPENSSH_CMD).

    >>> port_of(["/usr/bin/ssh", "-p", "6667", "-e", "none"]), port_of(["ssh", "-oPort=24"]), port_of(["ssh"])
    (6667, 24, 22)
    """
    match = re.search(r"(?:^| )-(?:p|o ?Port[= ]) ?(\d{1,5})(?= |$)", " ".join(command))
    return int(match[1]) if match else 22
