"""A real Almighty whose children are those of ``server_children``: CONF_FILE DIRECTORY LONGEST_PASS ORPHAN_PATIENCE."""

import os
import sys
from pathlib import Path

from oar.lib import logs, runtime
from oar.lib.base.errors import OarError
from oar.lib.bus import sockets
from oar.modules import almighty
from oar.modules.automaton import Module
from oar.modules.children import programs
from oar.modules.supervisor import ChildProgram

CHILDREN = Path(__file__).with_name("server_children.py")


def main(conf_file: str, directory: str, longest_pass: str, orphan_patience: str) -> int:
    """Serve."""
    config = runtime.read_config(conf_file).config
    endpoint = sockets.control_endpoint(config)

    def program(name: str) -> ChildProgram:
        argv = (sys.executable, str(CHILDREN), name, directory, "--worker", endpoint)
        return ChildProgram(name, argv, longest_pass=float(longest_pass))

    children = [program("bipbip_commander"), *(program(module) for module in Module)]
    if config.meta_sched_cmd != "kao":
        own = {child.name: child for child in programs(config, endpoint, directory)}
        children[1:] = [own[child.name] if child.name == Module.META_SCHED else child for child in children[1:]]
    with logs.logging_to(config, "Almighty"):
        try:
            warden = (sys.executable, str(CHILDREN), "warden", directory, "--worker", endpoint)
            return almighty.serve(
                config, conf_file, os.environ, children, orphan_patience=float(orphan_patience), warden=warden
            )
        except OarError as error:
            sys.stderr.write(f"{error}\n")
            return error.exit_code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
