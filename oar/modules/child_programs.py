"""The child processes of Almighty: the Runner and the modules of the automaton, and their start commands."""

import os
import shlex
import sys
from collections.abc import Mapping

from oar.lib.base.programs import DEFAULT_PATH
from oar.lib.config.files import Config
from oar.lib.runtime import DEFAULT_OARDIR
from oar.modules.automaton import Module
from oar.modules.supervisor import ChildProgram

RUNNER = "bipbip_commander"
RUNNER_MODULE = "oar.modules.runner.bipbip_commander"
#: The Runner is started again and again for so long, in seconds, until it reaches the database.
DATABASE_PATIENCE = 300.0


def programs(config: Config, endpoint: str, oardir: str) -> list[ChildProgram]:
    """Return the programs of the children. ``oardir``: directory of a site's own meta-scheduler."""

    def worker_argv(module: str) -> tuple[str, ...]:
        return (sys.executable, "-I", "-m", module, "--worker", endpoint)

    longest = float(config.module_max_duration)
    runner = ChildProgram(RUNNER, worker_argv(RUNNER_MODULE), hello=DATABASE_PATIENCE + 60, missed_pings=12)
    modules = [
        ChildProgram(module, worker_argv(f"oar.modules.{module}"), longest_pass=longest)
        for module in Module
        if module is not Module.META_SCHED
    ]
    longest = max(longest, 10.0 * config.scheduler_timeout)
    if config.meta_sched_cmd == "kao":
        kao = ChildProgram(Module.META_SCHED, worker_argv("oar.modules.meta_sched"), longest_pass=longest)
        return [runner, *modules, kao]
    command, *arguments = shlex.split(config.meta_sched_cmd)
    one_shot = (os.path.join(oardir, command), *arguments)
    argv = (*one_shot, "--worker", endpoint)
    scheduler = ChildProgram(Module.META_SCHED, argv, hello=10.0, longest_pass=longest, one_shot=one_shot)
    return [runner, *modules, scheduler]


def child_environment(environment: Mapping[str, str], conf_file: str) -> dict[str, str]:
    """Return the environment variables of the children (docs/design/bus.rst, "Processes")."""
    result = {
        "OARDIR": environment.get("OARDIR", DEFAULT_OARDIR),
        "OARCONFFILE": conf_file,
        "OARDO_USER": "oar",
        "OARDO_UID": str(os.getuid()),
        "PATH": environment.get("PATH", DEFAULT_PATH),
        "LANG": "C.UTF-8",
    }
    return result | {name: environment[name] for name in ("HOME", "TZ") if name in environment}
