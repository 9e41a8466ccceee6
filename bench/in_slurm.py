"""Measures Slurm from its controller host, like ``bench/in_room.py`` for OAR; ``bench/beside_slurm.py`` runs it.

The measurements and the names of the figures are the same.  ``squeue`` detects the end of jobs; it is called less often
while many jobs are left, because it uses CPU of the measured controller.
"""

import json
import os
import sys
import time
from collections.abc import Callable

from bench.people import LONGEST, Person, calibration, latency, submission

USER = "alice"
_ANSWERING = [b"slurmctld", b"munged"]
#: Like ``oarsub -l resource_id=1,walltime=0:10``.
_SUBMIT = ("sbatch", "--parsable", "--ntasks=1", "--time=0:10:00")
_HELD = (*_SUBMIT, "--hold")
_TRUE = "--wrap=true"
#: Number of remaining jobs for which the pause between two calls of squeue grows by one second.
_JOBS_OF_A_SECOND = 200


def main() -> None:
    """Run the measurements named on the command line."""
    bench = Bench(Person(USER, _ANSWERING))
    known: dict[str, Callable[[], dict[str, float]]] = {
        "submission": bench.submission,
        "latency": bench.latency,
        "array": bench.array,
        "loop": bench.loop,
        "big_array": bench.big_array,
        "calibration": calibration,
    }
    for name in sys.argv[1:]:
        print(json.dumps({"name": name, **known[name]()}), flush=True)


class Bench:
    """The measurements, as one user."""

    def __init__(self, user: Person) -> None:
        self._user = user

    def submission(self) -> dict[str, float]:
        """Submit held jobs; CPU includes sbatch, the controller and munged."""
        figures = submission(self._user, ["squeue"], [*_HELD, _TRUE])
        self._cancel_all()
        return figures

    def latency(self, times: int = 20) -> dict[str, float]:
        """Measure an idle cluster: from the return key to the first instruction, from the last to the end."""

        def submit(command: str) -> Callable[[], float]:
            self._user.run(*_SUBMIT, f"--wrap={command}")
            return self._wait_for_end

        return latency(self._user, submit, times)

    def array(self, count: int = 500) -> dict[str, float]:
        """Submit one array; measure from the return key to the last end."""
        begun = time.time()
        self._user.run(*_SUBMIT, f"--array=1-{count}", _TRUE)
        seconds = self._wait_for_end() - begun
        self._forget_output(count)
        return {"jobs": count, "jobs_per_s": count / seconds}

    def loop(self, count: int = 200) -> dict[str, float]:
        """Submit jobs one after another in a shell loop; measure from the first submission to the last end."""
        begun = time.time()
        self._user.run("sh", "-c", f"for i in $(seq {count}); do {' '.join((*_SUBMIT, _TRUE))}; done")
        seconds = self._wait_for_end() - begun
        self._forget_output(count)
        return {"jobs": count, "jobs_per_s": count / seconds}

    def big_array(self, count: int = 10_000, times: int = 5) -> dict[str, float]:
        """Submit a large held array; measure its acceptance and lists of all its jobs.

        The controller stores an unchanged array as one record.  The lists are measured on an array with one record per
        task, as after the start of a task or a change: a change of all tasks but one creates the records first.
        """
        begun = time.time()
        array = self._user.run(*_HELD, f"--array=1-{count}", _TRUE).strip()
        accepted = time.time() - begun
        self._user.run("scontrol", "hold", f"{array}_[1-{count - 1}]")
        text, _ = self._user.typed(["squeue", "--array"], times)
        machine, _ = self._user.typed(["squeue", "--json"], times)
        self._cancel_all()
        return {
            "jobs": count,
            "accepted_ms": 1000 * accepted,
            "list_text_ms": 1000 * text,
            "list_json_ms": 1000 * machine,
            "json_to_text": machine / text,
        }

    def _cancel_all(self) -> None:
        self._user.run("scancel", f"--user={USER}")
        self._wait_for_end()

    def _wait_for_end(self) -> float:
        """Wait until no job is left; return the time at which that was observed."""
        deadline = time.monotonic() + LONGEST
        while time.monotonic() < deadline:
            left = len(self._user.run("squeue", "--noheader", "--array", "--format=%i").split())
            if not left:
                return time.time()
            time.sleep(min(1.0, left / _JOBS_OF_A_SECOND) if left > 1 else 0.002)
        raise TimeoutError(f"jobs have not ended within {LONGEST:.0f} s")

    def _forget_output(self, count: int) -> None:
        """Check that each job has created its file."""
        files = list(self._user.home.glob("slurm-*.out"))
        if len(files) < count:
            raise AssertionError(f"{len(files)} of {count} jobs have run")
        for path in files:
            os.unlink(path)


if __name__ == "__main__":
    main()
