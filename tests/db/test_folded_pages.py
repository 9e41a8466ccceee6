"""Pages on which similar jobs of an array are one row: complete, each job on one page, and read by indexes."""

import random
from collections import defaultdict
from collections.abc import Collection, Iterator

import pytest

from oar.lib.db.database import Database
from oar.lib.jobs import sql_listings
from oar.lib.jobs.records import JobPlace, JobQuery
from oar.lib.jobs.sql_listings import FoldedJobs
from oar.lib.jobs.states import FINAL, JobState
from tests.builders import execute_sql

ALL = JobQuery(states=None)
LIVE = JobQuery()
#: An array, a state and an exit code.
Key = tuple[int, str, int]

_INSERT = "INSERT INTO jobs (job_id, array_id, state, exit_code, job_user) VALUES %s"


def insert(database: Database, jobs: Collection[tuple[int, Key]], user: str = "alice") -> None:
    with database.begin() as tx:
        tx.insert_many(_INSERT, [(job_id, array, state, code, user) for job_id, (array, state, code) in jobs])


def pages(
    database: Database, query: JobQuery, limit: int, *, newest_first: bool = True
) -> Iterator[tuple[FoldedJobs, ...]]:
    """Yield the rows of each page; each page is read when it is taken."""
    after = None
    while True:
        with database.snapshot() as tx:
            page = tx.listings.folded(query, JobPlace(limit, after, newest_first))
        yield tuple(page.rows)
        if page.next is None:
            return
        assert after is None or (page.next < after) is newest_first
        after = page.next


def groups_of(jobs: Collection[tuple[int, Key]]) -> set[tuple[int, ...]]:
    groups = defaultdict(list)
    for job_id, (array, state, code) in jobs:
        groups[array or -job_id, state, code].append(job_id)
    return {tuple(sorted(ids)) for ids in groups.values()}


def ids_of(rows: Collection[FoldedJobs]) -> list[tuple[int, ...]]:
    return [tuple(row.ids) for row in rows]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("newest_first", [True, False])
def test_pages_show_each_group_once_and_arrays_in_one_piece(
    database: Database, monkeypatch: pytest.MonkeyPatch, seed: int, newest_first: bool
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(sql_listings, "MOST_READ", chance.choice([4, 10, 1000]))
    arrays = [0, *(chance.randrange(1, 60) for _ in range(chance.randrange(1, 6)))]
    jobs = []
    for job_id in range(1, 60):
        state = chance.choice([*JobState])
        code = chance.choice([0, 256]) if state in FINAL else 0
        array = chance.choice([job_id, chance.choice(arrays)])
        jobs.append((job_id, (array, str(state), code)))
    insert(database, jobs)
    array_of = {job_id: array or -job_id for job_id, (array, _, _) in jobs}
    for query in (ALL, LIVE, JobQuery(states=FINAL), JobQuery(states=frozenset({JobState.WAITING, JobState.HOLD}))):
        wanted = [job for job in jobs if query.states is None or job[1][1] in query.states]
        limit = chance.randrange(1, 12)
        shown = list(pages(database, query, limit, newest_first=newest_first))
        rows = [row for page in shown for row in ids_of(page)]
        assert len(rows) == len(set(rows))
        assert set(rows) == groups_of(wanted)
        on_page = [{array_of[ids[0]] for ids in ids_of(page)} for page in shown]
        assert sum(map(len, on_page)) == len(set().union(*on_page))
        assert all(len(page) <= limit or len(arrays) == 1 for page, arrays in zip(shown, on_page, strict=True))


def test_arrays_whose_ids_alternate_are_a_row_each(database: Database) -> None:
    insert(database, [(number, (1 + number % 2, "Waiting", 0)) for number in range(1, 1001)])
    (rows,) = pages(database, LIVE, 5)
    assert ids_of(rows) == [tuple(range(2, 1001, 2)), tuple(range(1, 1001, 2))]


def test_jobs_that_change_their_states_between_two_pages_are_neither_lost_nor_shown_twice(database: Database) -> None:
    """Between two pages the first array of the page gets new rows, and the rows of the next page change."""
    insert(database, [(job_id, ((job_id - 1) // 10 * 10 + 1, "Waiting", 0)) for job_id in range(1, 101)])
    shown: list[int] = []
    for page in pages(database, LIVE, 3):
        shown += [job_id for row in page for job_id in row.ids]
        last = min(shown)
        with database.begin() as tx:
            tx.execute("UPDATE jobs SET state = 'Running' WHERE job_id BETWEEN %s AND %s", (last - 12, last + 4))
            tx.execute("UPDATE jobs SET state = 'Hold' WHERE job_id % 3 = 0")
    assert sorted(shown) == list(range(1, 101))


def test_an_array_whose_first_jobs_have_ended_is_shown_again_and_no_job_is_lost(database: Database) -> None:
    insert(database, [(job_id, (1 + job_id % 2, "Waiting", 0)) for job_id in range(1, 101)])
    pages_read = pages(database, LIVE, 1)
    (first,) = next(pages_read)
    execute_sql(database, "UPDATE jobs SET state = 'Terminated' WHERE job_id > 90")
    others = [row for page in pages_read for row in page]
    assert set(first.ids).union(*(row.ids for row in others)) == set(range(1, 91)) | set(first.ids)


def test_exit_codes_make_rows_and_the_first_start_is_that_of_the_row(database: Database) -> None:
    insert(database, [(job_id, (1, "Terminated", 256 * (job_id % 2))) for job_id in range(1, 11)])
    insert(database, [(job_id, (1, "Waiting", 0)) for job_id in range(11, 14)])
    with database.begin() as tx:
        tx.execute("UPDATE jobs SET start_time = 100 + job_id, stop_time = 200, assigned_moldable_job = 1")
        tx.execute("UPDATE jobs SET start_time = 0 WHERE job_id = 2")
        tx.execute("UPDATE jobs SET start_time = 300 WHERE job_id = 4")  # what never started has its end in front of it
    (rows,) = pages(database, ALL, 5)
    assert [(tuple(row.ids), row.started) for row in rows] == [
        ((11, 12, 13), 0),
        ((2, 4, 6, 8, 10), 106),
        ((1, 3, 5, 7, 9), 101),
    ]


def test_a_page_of_ended_jobs_reads_on_while_arrays_leave_it_room(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert(database, [(job_id, (1, "Terminated", 0)) for job_id in range(1, 501)])
    insert(database, [(job_id, (job_id, "Terminated", 0)) for job_id in range(501, 504)], "bob")
    insert(database, [(job_id, (504, "Error", 0)) for job_id in range(504, 1004)])
    (rows,) = pages(database, ALL, 10)
    assert [len(row.ids) for row in rows] == [500, 1, 1, 1, 500]
    monkeypatch.setattr(sql_listings, "MOST_READ", 200)
    read = [[len(ids) for ids in ids_of(page)] for page in pages(database, ALL, 10)]
    assert read == [[500], [1, 1, 1, 500], []]  # only the last page can be empty


def test_a_page_inside_a_long_array_reads_a_bounded_part_of_it(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_listings, "MOST_READ", 4)
    insert(database, [(1, (1, "Error", 0)), *((job_id, (2, "Error", 0)) for job_id in range(2, 400))])
    looks = []
    one_page = sql_listings.Listings._folded_page

    def counted(self: sql_listings.Listings, query: JobQuery, place: JobPlace) -> sql_listings.FoldedPage:
        looks.append(place)
        return one_page(self, query, place)

    monkeypatch.setattr(sql_listings.Listings, "_folded_page", counted)
    shown = []
    for page in pages(database, ALL, 1):
        assert len(looks) <= 5
        looks.clear()
        shown += ids_of(page)
    assert shown == [tuple(range(2, 400)), (1,)]
