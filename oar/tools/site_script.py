"""Runs a site's own job resource manager or suspend manager on this node, as oar.

Data: ``file`` (its name), ``source`` (its text), ``data`` (what it is told).  The first line of the text chooses the
interpreter; it gets the action as its argument and the data as JSON on standard input.  A ``.pl`` file gets the form
of OAR 2 on standard input: its text, ``__END__``, the data as a Perl value.  Exit code: the script's.

See docs/design/nodes.rst, "Programs of the site".
"""

import json
import os
import sys

import node_base
from node_base import NodeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from node_base import Data

#: Exit code of shells for a program that cannot be executed.
NOT_EXECUTABLE = 127


def main(action: str, data: "Data") -> int:
    """Carry out one action; return its exit code."""
    try:
        node_base.require(data, {"file": (str,), "source": (str,), "data": dict})
    except NodeError as error:
        node_base.complain("[site_script] " + str(error))
        return error.code
    import subprocess  # noqa: F401 - now, since oar may not be able to read the libraries of root's Python
    import tempfile

    account = node_base.oar_account()
    if os.geteuid() == 0:
        os.initgroups(account.pw_name, account.pw_gid)
        os.setgid(account.pw_gid)
        os.setuid(account.pw_uid)
    os.environ.update(HOME=account.pw_dir, USER=account.pw_name, LOGNAME=account.pw_name)
    source = node_base.encode(data["source"])
    if data["file"].endswith(".pl"):
        text = source + b"\n__END__\n" + node_base.encode(perl(data["data"])) + b"\n"
        return call(["perl", "-", action], text)
    with tempfile.NamedTemporaryFile(prefix="oar_site_script_") as file:
        file.write(source)
        file.flush()
        return call([*interpreter(source), file.name, action], json.dumps(data["data"]).encode("ascii"))


def call(argv: "Sequence[str]", text: bytes) -> int:
    """Run a program with this standard input; return its exit code as a shell tells it."""
    import subprocess

    try:
        process = subprocess.Popen(argv, stdin=subprocess.PIPE)
    except OSError as error:
        node_base.complain("[site_script] cannot run %s: %s" % (argv[0], error.strerror))
        return NOT_EXECUTABLE
    process.communicate(text)
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def interpreter(source: bytes) -> "list[str]":
    """Return the words before the name of a script that its first line asks for."""
    first = source.split(b"\n", 1)[0]
    if not first.startswith(b"#!"):
        return ["/bin/sh"]
    return first[2:].decode("utf-8", "surrogateescape").split(None, 1)


def perl(value: object) -> str:
    """Return a value of JSON as Perl text; in strings both the backslash and the quote are escaped."""
    if value is None:
        return "undef"
    if isinstance(value, dict):
        return "{" + ",".join("%s => %s" % (perl(str(key)), perl(item)) for key, item in sorted(value.items())) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(perl(item) for item in value) + "]"
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, (int, float)):
        return str(value)
    return "'" + str(value).replace("\\", "\\\\").replace("'", "\\'") + "'"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], json.load(sys.stdin)))
