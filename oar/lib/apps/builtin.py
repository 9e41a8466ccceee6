"""The definitions that OAR has, as a file of APPS_DIRECTORY would contain them.  The programs are the site's."""

from collections.abc import Mapping

#: RStudio Server asks this program whether a password is right; it is in the environment of the server only.
_PASSWORD_CHECK = """#!/bin/sh
IFS= read -r given
[ "$1" = "$USER" ] && [ "$given" = "$OAR_APP_TOKEN" ]
"""

BUILTIN: Mapping[str, Mapping[str, object]] = {
    "jupyter": {
        "title": "JupyterLab",
        "description": "Notebooks, editor and terminals.",
        "command": [
            *("jupyter", "lab", "--no-browser", "--ServerApp.ip={address}", "--ServerApp.port={port}"),
            *("--ServerApp.port_retries=0", "--ServerApp.base_url={prefix}/"),
        ],
        "environment": {"JUPYTER_TOKEN": "{token}", "JUPYTER_RUNTIME_DIR": "{directory}"},
        "path": "{prefix}/lab?token={token}",
    },
    "code-server": {
        "title": "Visual Studio Code",
        "description": "Editor, debugger and terminals (code-server).",
        "command": [
            *("code-server", "--bind-addr", "{address}:{port}", "--auth", "password"),
            *("--config", "{directory}/config.yaml", "--disable-telemetry", "--disable-update-check"),
        ],
        "environment": {"PASSWORD": "{token}"},
        "files": {"config.yaml": "cert: false\n"},
    },
    "rstudio": {
        "title": "RStudio Server",
        "description": "R with editor and plots.",
        "command": [
            *("rserver", "--server-user={user}", "--server-daemonize=0", "--www-address={address}"),
            *("--www-port={port}", "--auth-none=0", "--auth-encrypt-password=0", "--auth-stay-signed-in-days=1"),
            *("--auth-pam-helper-path={directory}/check-password", "--server-data-dir={directory}"),
            *("--secure-cookie-key-file={directory}/cookie-key", "--database-config-file={directory}/database.conf"),
        ],
        "environment": {"OAR_APP_TOKEN": "{token}", "USER": "{user}"},
        "files": {
            "check-password": _PASSWORD_CHECK,
            "cookie-key": "{token}",
            "database.conf": "provider=sqlite\ndirectory={directory}\n",
        },
    },
}
