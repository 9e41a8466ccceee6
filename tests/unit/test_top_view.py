"""The screen of oarstat --top at several sizes of a terminal."""

import io

import pytest
from rich.console import Console

from oar.cli.oarstat_parts.top_view import HELP, Board, Screen, TopJob, TopQueue, View, draw
from oar.lib.jobs.states import JobState

NOW = 1_800_000_000


def job(number: int, state: JobState = JobState.RUNNING, **fields: object) -> TopJob:
    values = {"user": "alice", "name": "fem", "queue": "default", "start": NOW, "left": 3720, "note": "node-1"}
    return TopJob(number, state=state, **{**values, **fields})  # type: ignore[arg-type]


def view(*jobs: TopJob, **fields: object) -> View:
    queues = tuple(TopQueue(f"q{number}", "Active" if number else "notActive", number, 2) for number in range(6))
    board = Board(NOW, {"free": 3, "used": 1, "dead": 0}, {"free": 6, "used": 2}, queues, jobs, 0)
    return View(board, "alice", **fields)  # type: ignore[arg-type]


def shown(what: View, width: int = 80, height: int = 24) -> list[str]:
    """Return the lines on a terminal of a size."""
    console = Console(file=io.StringIO(), width=width, height=height, color_system=None, legacy_windows=False)
    with console.capture() as capture:
        console.print(draw(what, width, height))
    return capture.get().splitlines()


@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 8), (200, 60), (60, 12), (80, 20), (80, 19)])
@pytest.mark.parametrize("count", [0, 1, 5, 500])
def test_the_screen_fits_the_terminal(width: int, height: int, count: int) -> None:
    lines = shown(view(*(job(number) for number in range(1, count + 1))), width, height)
    assert len(lines) == height
    assert max(map(len, lines)) <= width
    assert lines[-1].startswith("e explain")


def test_cluster_queues_and_jobs_are_on_a_screen_of_80_by_24() -> None:
    waiting = job(12, JobState.WAITING, start=0, left=None, note="not enough free resources")
    lines = shown(view(job(11), waiting))
    assert lines[1] == "nodes     3 free  1 used"
    assert lines[3].startswith("q0 ")
    assert lines[3].endswith("     0 running      2 waiting  notActive")
    text = "\n".join(lines)
    assert "2 more queues" in text
    assert "      11 R fem            default " in text
    assert "1:02:00 node-1" in text
    assert "      12 W fem            default  -                  - not enough free resource" in text


def test_the_selected_job_stays_in_sight() -> None:
    all_jobs = [job(number) for number in range(1, 101)]
    for number in (1, 50, 100):
        assert any(line.startswith(f"{number:>8} R") for line in shown(view(*all_jobs, selected=number)))
    assert "99 more jobs" not in "\n".join(shown(view(*all_jobs)))


def test_the_selection_moves_and_stops_at_the_ends() -> None:
    first = view(job(1), job(2), job(3))
    assert first.job == job(1)
    assert first.moved(-1, 24).selected == 1
    assert first.moved(1, 24).moved(1, 24).moved(1, 24).selected == 3
    assert view(job(1), job(3), selected=2).job == job(1)  # job 2 has ended
    assert view().moved(1, 24).job is None


def test_a_long_text_is_scrolled() -> None:
    text = view(screen=Screen.TEXT, title="t", lines=tuple(f"line {number}" for number in range(100)))
    assert shown(text)[0] == "t  1-21 of 100"
    assert "line 20" in shown(text)
    end = text.moved(1000, 24)
    assert "line 99" in shown(end)
    assert end.moved(-1000, 24).offset == 0
    assert len(shown(view(screen=Screen.TEXT, title="Help", lines=tuple(HELP.splitlines())))) == 24


def test_texts_of_other_users_change_nothing_on_the_terminal() -> None:
    hostile = "[red]\x1b[2J\n\x07漢字漢字漢字漢字"
    lines = shown(view(job(1, name=hostile, note=hostile, queue=hostile), message=hostile))
    assert len(lines) == 24
    assert "\x1b" not in "".join(lines)
    assert "[red]\\x1b[2J" in lines[-1]


def test_a_question_is_the_last_line() -> None:
    assert shown(view(job(7), question=7, message="x"))[-1] == "Delete job 7? [y/N]"
