"""oar-server without systemd, for the account that runs the tests: CONF_FILE HOME ACTION.

After the name of the action come its arguments, separated by blanks.
"""

import os
import pwd
import sys

from oar.cli.oar_server import Server
from oar.lib.access.records import User
from oar.lib.runtime import read_config


def main(conf_file: str, home: str, action: str) -> int:
    """Do it."""
    entry = pwd.getpwuid(os.getuid())
    account = pwd.struct_passwd((*entry[:5], home, entry.pw_shell))
    server = Server(read_config(conf_file), conf_file, os.environ, account)
    name, *arguments = action.split()
    options = {"as_json": True} if "--json" in arguments else {}
    caller = [User(entry.pw_name, entry.pw_uid, person="anna")] if name == "hand_over" else []
    code: int = getattr(server, name)(*caller, *(text for text in arguments if text != "--json"), **options)
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
