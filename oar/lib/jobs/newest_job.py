"""The largest job id that the server has seen, stored in OAR_RUN_DIR, outside the database."""

import os
from pathlib import Path

#: In OAR_RUN_DIR.
FILE = "newest_job"


def read(run_directory: str) -> int:
    """Return the stored job id; return 0 if there is none."""
    try:
        text = (Path(run_directory) / FILE).read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return 0
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0


def write(run_directory: str, number: int) -> None:
    """Store the job id. Raises OSError."""
    path = Path(run_directory) / FILE
    made = path.with_suffix(".new")
    try:
        made.write_text(f"{number}\n", encoding="ascii")
        os.replace(made, path)
    except OSError as error:  # an error about a full disk does not contain the file name
        raise OSError(error.errno, error.strerror, str(path)) from None
