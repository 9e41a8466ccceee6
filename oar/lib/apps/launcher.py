"""The script of a job that runs a program with web pages: the launcher (oar/tools), with the definition at its end."""

import json
import os

import oar
from oar.lib.apps.definitions import App

_LAUNCHER = os.path.join(os.path.dirname(oar.__file__), "tools", "app_launcher.py")


def script_of(app: App, ports: tuple[int, int], instance: str) -> str:
    """Return the script.  ``instance``: the name of this cluster, in the path of the session file."""
    definition = {
        "name": app.name,
        "command": app.command,
        "before": app.before,
        "environment": app.environment,
        "files": app.files,
        "path": app.path,
        "seconds": app.seconds,
        "ports": ports,
        "instance": instance,
    }
    with open(_LAUNCHER, encoding="utf-8") as file:
        return f"{file.read()}\n\nsys.exit(main(json.loads({json.dumps(definition)!r})))\n"
