"""The largest number of a job that the server has ever seen, kept in OAR_RUN_DIR beside the database."""

import os
from pathlib import Path

#: In OAR_RUN_DIR.
FILE = "newest_job"


def read(run_directory: str) -> int:
    """Return the number; 0 if there is none."""
    try:
        text = (Path(run_directory) / FILE).read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return 0
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0


def write(run_directory: str, number: int) -> None:
    """Replace the number.  Raises OSError."""
    path = Path(run_directory) / FILE
    made = path.with_suffix(".new")
    try:
        made.write_text(f"{number}\n", encoding="ascii")
        os.replace(made, path)
    except OSError as error:  # that of a full disk has no name
        raise OSError(error.errno, error.strerror, str(path)) from None
