"""Arrays as oarsub makes them: how many of their jobs run at a time, and dependencies from index to index."""

from pathlib import Path

import pytest

from oar.cli.common.command import CommandResult
from oar.lib.db.database import Database
from oar.lib.jobs.records import Dependency
from oar.lib.jobs.states import JobState
from oar.lib.submission import dependencies
from tests.builders import add_job, add_resources
from tests.frontend import LoginNode, add_rules

VERIFY = "# Error: please verify your job submission syntax.\n"


class Site(LoginNode):
    """A small site with the default rules."""

    def array(self, size: int, *words: object) -> list[int]:
        """Submit an array; return its jobs."""
        result = self.oarsub("--array", size, *words, "true")
        assert result.exit == 0, result.err
        return [job.id for job in self.jobs()][-size:]

    def needs(self, *jobs: int) -> list[list[Dependency]]:
        """Return the dependencies of jobs."""
        with self.database.snapshot() as tx:
            found = tx.jobs.dependencies(jobs)
        return [found.get(job, []) for job in jobs]


@pytest.fixture
def site(database: Database) -> Site:
    add_resources(database)
    add_rules(database)
    return Site(database)


# -- so many at a time ------------------------------------------------------------------------------------------------


def test_an_array_says_how_many_of_its_jobs_run_at_a_time(site: Site) -> None:
    assert site.oarsub("--array", "4%2", "-n", "part", "true").exit == 0
    assert [(job.array_index, job.array_limit) for job in site.jobs()] == [(1, 2), (2, 2), (3, 2), (4, 2)]
    assert {job.message for job in site.jobs()} == {"R=1,W=2:0:0,J=B,N=part,A=2"}


def test_the_lines_of_a_file_may_be_limited_too(site: Site, tmp_path: Path) -> None:
    path = tmp_path / "parameters"
    path.write_text("1\n2\n3\n")
    result = site.oarsub("--array", "%2", "--array-param-file", path, "run")
    assert (result.exit, result.err) == (0, "")
    assert [(job.command, job.array_limit) for job in site.jobs()] == [("run 1", 2), ("run 2", 2), ("run 3", 2)]


def test_a_size_beside_a_file_is_ignored_with_a_warning(site: Site, tmp_path: Path) -> None:
    path = tmp_path / "parameters"
    path.write_text("1\n2\n")
    result = site.oarsub("--array", 5, "--array-param-file", path, "run")
    assert (result.exit, len(site.jobs())) == (0, 2)
    assert result.err == "# Warning: --array 5 is ignored: the parameter file has 2 lines.\n"
    assert site.oarsub("--array", 2, "--array-param-file", path, "run").err == ""


@pytest.mark.parametrize("size", ["4%0", "4%-1", "0%1"])
def test_limits_that_cannot_be(site: Site, size: str) -> None:
    assert site.oarsub("--array", size, "true").exit == 6
    assert site.jobs() == []


@pytest.mark.parametrize("size", ["4%", "%", "a%1", "1%a", "4%%2", "4 2"])
def test_sizes_that_are_none(site: Site, size: str) -> None:
    result = site.oarsub("--array", size, "true")
    assert (result.exit, site.jobs()) == (1, [])
    assert result.err.endswith("invalid for option array (number expected)\n")


def test_a_script_may_say_it(site: Site, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n#OAR --array 3%1\n")
    script.chmod(0o755)
    assert site.oarsub("-S", script).exit == 0
    assert [job.array_limit for job in site.jobs()] == [1, 1, 1]
    result = site.oarsub("--array", "2%2", "-S", script)
    assert "ignore script value for array parameter: 3%1;" in result.err


# -- from index to index ----------------------------------------------------------------------------------------------


def test_each_job_of_an_array_waits_for_its_like(site: Site) -> None:
    first = site.array(3)
    second = site.array(2, "-a", f"{first[0]}[]:any,60,]600")
    assert site.needs(*second) == [
        [Dependency(second[0], first[0], "any", "60", "]600")],
        [Dependency(second[1], first[1], "any", "60", "]600")],
    ]


def test_both_kinds_of_dependencies_add_up(site: Site) -> None:
    first, other = site.array(2), add_job(site.database)
    second = site.array(2, "-a", f"{first[0]}[]", "-a", other)
    assert [{need.required for need in needs} for needs in site.needs(*second)] == [
        {first[0], other},
        {first[1], other},
    ]


def test_what_is_said_of_one_job_counts_before_what_is_said_of_its_array(site: Site) -> None:
    first = site.array(2)
    second = site.array(2, "-a", f"{first[0]}[]", "-a", f"{first[0]}:any")
    assert site.needs(*second) == [
        [Dependency(second[0], first[0], "any")],
        [Dependency(second[1], first[0], "any"), Dependency(second[1], first[1])],
    ]


@pytest.mark.parametrize("form", ["[]", "[*]"])
def test_a_single_job_waits_for_all_jobs_of_an_array(site: Site, form: str) -> None:
    first = site.array(3)
    (last,) = site.array(1, "-a", f"{first[0]}{form}:any")
    assert site.needs(last) == [[Dependency(last, job, "any") for job in first]]


def test_each_job_of_an_array_may_wait_for_all_jobs_of_another(site: Site) -> None:
    first = site.array(2)
    second = site.array(2, "-a", f"{first[0]}[*]", "-a", f"{first[1]}:any")
    assert site.needs(*second) == [[Dependency(job, first[0]), Dependency(job, first[1], "any")] for job in second]


def test_a_job_that_depends_on_the_first_job_of_an_array_is_warned(site: Site) -> None:
    first = site.array(3)
    result = site.oarsub("-a", first[0], "true")
    assert result.exit == 0
    assert result.err == (
        f"# Warning: -a {first[0]} waits for job {first[0]} only, which is one of the 3 jobs of array {first[0]};"
        f" for all of them write -a '{first[0]}[*]'.\n"
    )
    assert site.oarsub("-a", first[1], "true").err == ""
    assert site.oarsub("-a", add_job(site.database), "true").err == ""


def test_more_dependencies_than_there_may_be_are_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    first = site.array(3)
    monkeypatch.setattr(dependencies, "MOST_DEPENDENCIES", 8)
    result = site.oarsub("--array", 3, "-a", f"{first[0]}[*]", "true")
    assert result.exit == 8
    assert "too many dependencies: 9 (3 jobs on 3 jobs each): the limit is 8. " in result.err
    assert len(site.array(2, "-a", f"{first[0]}[*]")) == 2


def test_of_jobs_that_were_submitted_again_the_last_one_counts(site: Site) -> None:
    first = site.array(2)
    copy = add_job(site.database, JobState.WAITING, array_id=first[0], array_index=2)
    second = site.array(2, "-a", f"{first[0]}[]")
    assert [needs[0].required for needs in site.needs(*second)] == [first[0], copy]


def test_arrays_that_do_not_fit_together(site: Site) -> None:
    first = site.array(2)
    for words, reason in [
        (("--array", "3", "-a", f"{first[0]}[]"), f"array {first[0]} has no job with index 3."),
        (("-a", "4711[]"), "dependency on unknown array 4711."),
        (("-a", f"{first[1]}[]"), f"dependency on unknown array {first[1]}."),
    ]:
        assert site.oarsub(*words, "true") == CommandResult(8, "", f"# Error: {reason}\n{VERIFY}")
    assert site.oarsub("-a", f"{first[0]}[", "true").exit == 8
    assert len(site.jobs()) == 2
