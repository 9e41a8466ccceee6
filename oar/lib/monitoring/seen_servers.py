"""The file ``servers`` in OAR_RUN_DIR: what the warden of this host has read of the servers."""

import json
from collections.abc import Sequence
from pathlib import Path

from oar.lib.config.files import Config
from oar.lib.db.servers import ServerRow
from oar.lib.jobs.states import ServerRole

_NAME = "servers"


def write_seen(config: Config, rows: Sequence[ServerRow], date: int) -> None:
    """Replace the file. Raises OSError."""
    path = Path(config.oar_run_dir, _NAME)
    new = path.with_suffix(".new")
    new.write_text(json.dumps({"date": date, "servers": [row._asdict() for row in rows]}))
    new.chmod(0o644)
    new.replace(path)


def read_seen(config: Config) -> tuple[list[ServerRow], int]:
    """Return the servers and the date of the file: nothing and 0 if there is no readable file."""
    try:
        record = json.loads(Path(config.oar_run_dir, _NAME).read_text())
        rows = [ServerRow(**row)._replace(role=ServerRole(row["role"])) for row in record["servers"]]
        return rows, int(record["date"])
    except (OSError, ValueError, KeyError, TypeError):
        return [], 0
