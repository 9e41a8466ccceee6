"""Output of benchmarks: each figure with its limit."""

import sys


class Figures:
    """Prints figures as they are measured; missed limits set the exit code at the end."""

    def __init__(self) -> None:
        self._missed: list[str] = []

    def add(self, what: str, value: float, most: float, unit: str = "ms") -> None:
        """Print a figure with its limit."""
        is_missed = value > most
        self._missed += [what] if is_missed else []
        print(f"{what:62} {value:9.3f} {most:9.3f} {unit:3} {'MISSED' if is_missed else 'ok'}", flush=True)

    def note(self, what: str, value: float, unit: str = "ms") -> None:
        """Print a figure without limit that explains others."""
        print(f"  {what:60} {value:9.3f} {'':9} {unit}", flush=True)

    def end(self) -> None:
        """End the benchmark, with exit code 1 if a limit was missed."""
        sys.exit(1 if self._missed else 0)


def heading(text: str) -> None:
    """Print a heading for the following figures."""
    print(f"\n{text}\n{'':62} {'measured':>9} {'at most':>9}", flush=True)
