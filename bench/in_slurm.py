"""Measures a Slurm from its controller's host, as ``bench/in_room.py`` measures OAR; ``bench/beside_slurm.py`` runs it.

The same questions with the same names of figures.  The end of jobs is seen by ``squeue``, which is asked the less often
the more jobs are left, since the measured controller answers it.
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
#: Asking for so many jobs that are left costs a second of patience.
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
    """The measurements, for one user."""

    def __init__(self, user: Person) -> None:
        self._user = user

    def submission(self) -> dict[str, float]:
        """Submit jobs on hold; CPU is that of sbatch, of the controller and of munged."""
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
        """Submit one array; count from the return key to the last end."""
        begun = time.time()
        self._user.run(*_SUBMIT, f"--array=1-{count}", _TRUE)
        seconds = self._wait_for_end() - begun
        self._forget_output(count)
        return {"jobs": count, "jobs_per_s": count / seconds}

    def loop(self, count: int = 200) -> dict[str, float]:
        """Submit jobs by a loop of a shell, one after the other; count from the first to the last end."""
        begun = time.time()
        self._user.run("sh", "-c", f"for i in $(seq {count}); do {' '.join((*_SUBMIT, _TRUE))}; done")
        seconds = self._wait_for_end() - begun
        self._forget_output(count)
        return {"jobs": count, "jobs_per_s": count / seconds}

    def big_array(self, count: int = 10_000, times: int = 5) -> dict[str, float]:
        """Submit a large array on hold: its acceptance, and lists of so many jobs.

        The controller keeps an untouched array as one record.  One that is not, as each that has begun to run or was
        changed, is what the lists are asked for: its tasks get records of their own first, by a change of all but one.
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
        """Wait until no job is left; the time at which that was seen."""
        deadline = time.monotonic() + LONGEST
        while time.monotonic() < deadline:
            left = len(self._user.run("squeue", "--noheader", "--array", "--format=%i").split())
            if not left:
                return time.time()
            time.sleep(min(1.0, left / _JOBS_OF_A_SECOND) if left > 1 else 0.002)
        raise TimeoutError(f"jobs have not ended within {LONGEST:.0f} s")

    def _forget_output(self, count: int) -> None:
        """Each job has left a file: as many as there are jobs, or some did not run."""
        files = list(self._user.home.glob("slurm-*.out"))
        if len(files) < count:
            raise AssertionError(f"{len(files)} of {count} jobs have run")
        for path in files:
            os.unlink(path)


if __name__ == "__main__":
    main()
