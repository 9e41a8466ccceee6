"""Dependencies of a job that is submitted or altered: read, and looked up in the database."""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from oar.lib.db.submission.new_jobs import IndexedDependency
from oar.lib.facts.records import Dependency, JobSpec
from oar.lib.facts.states import DependencyCondition
from oar.lib.submission.checks import BadSubmission, Code, quote

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction

_CONDITIONS = "|".join(DependencyCondition)
_SHIFT = r"[\[\]]?[+-]?[0-9]{1,9}"
_DEPENDENCY = rf"([0-9]{{1,18}})(\[\])?(?::({_CONDITIONS}))?(?:\s*,\s*({_SHIFT})?\s*(?:,\s*({_SHIFT})?)?)?\s*\Z"
_FORMS = "write id[:ok|notok|any|start][,min[,max]], or id[] for an array."


def parse(texts: Iterable[str]) -> tuple[Dependency, ...]:
    """Read all ``-a`` but those on arrays, of several on one job the last; ``job_id`` is 0.  Raises BadSubmission.

    >>> parse(["12:ok,60,]600", "501[]"])
    (Dependency(job_id=0, required=12, condition='ok', min_shift='60', max_shift=']600'),)
    """
    return tuple(dependency for (_, by_index), dependency in _parse(texts).items() if not by_index)


def parse_indexed(texts: Iterable[str]) -> tuple[Dependency, ...]:
    """Read all ``-a ARRAY[]``: each job needs the job of its index; ``required`` is the array.

    Raises BadSubmission.
    """
    return tuple(dependency for (_, by_index), dependency in _parse(texts).items() if by_index)


def _parse(texts: Iterable[str]) -> dict[tuple[int, bool], Dependency]:
    """Return dependencies by the required job or array, and by whether it is an array whose index counts."""
    dependencies: dict[tuple[int, bool], Dependency] = {}
    for text in texts:
        match = re.match(_DEPENDENCY, text.strip())
        if not match:
            raise BadSubmission(Code.REQUEST, f"bad dependency {quote(text)}: {_FORMS}")
        condition, least, most = (part or "" for part in match.groups()[2:])
        dependencies[int(match[1]), bool(match[2])] = Dependency(0, int(match[1]), condition, least, most)
    return dependencies


def find(tx: "Transaction", spec: JobSpec) -> tuple[Dependency, ...]:
    """Return the dependencies that all jobs of a submission have.  Raises BadSubmission for a job that is unknown."""
    dependencies = parse(spec.dependencies)
    if dependencies:
        from oar.lib.jobs import control

        states = tx.jobs.states([dependency.required for dependency in dependencies])
        for dependency in dependencies:
            if dependency.required not in states:
                raise BadSubmission(Code.REQUEST, f"dependency on unknown job {dependency.required}.")
        for job_id, text in control.frame_texts(tx, list(states)).items():
            raise BadSubmission(Code.REQUEST, f"Cannot depend on {job_id} ; {text}")
    return dependencies


def warnings(tx: "Transaction", spec: JobSpec) -> list[str]:
    """Return what to tell a user who wrote a window where the number stands of another job of his."""
    seconds = {each: int(each.min_shift) for each in parse(spec.dependencies) if each.min_shift.isdecimal()}
    owners = tx.jobs.owners(seconds.values()) if seconds else {}
    return [
        f"-a {each.required},{job} means {job} seconds after the start of job {each.required};"
        f" for both jobs write -a {each.required} -a {job}."
        for each, job in seconds.items()
        if owners.get(job) == spec.user and not each.max_shift
    ]


def find_indexed(tx: "Transaction", spec: JobSpec) -> list[IndexedDependency]:
    """Return the dependencies of each job on the job of its index in another array.

    Raises BadSubmission for an array that is unknown or has no job with such an index.
    """
    indexes = range(1, spec.array_size + 1)
    dependencies = []
    for dependency in parse_indexed(spec.dependencies):
        array = dependency.required
        members = tx.submission_checks.members_of_array(array)
        if not members:
            raise BadSubmission(Code.REQUEST, f"dependency on unknown array {array}.")
        for index in indexes:
            if index not in members:
                raise BadSubmission(Code.REQUEST, f"array {array} has no job with index {index}.")
        required = [members[index] for index in indexes]
        dependencies.append(
            IndexedDependency(required, dependency.condition, dependency.min_shift, dependency.max_shift)
        )
    return dependencies


def find_for_each_job(tx: "Transaction", spec: JobSpec) -> list[tuple[Dependency, ...]]:
    """Return the dependencies of each job of a submission; ``job_id`` is 0.  Raises BadSubmission."""
    common, indexed = find(tx, spec), find_indexed(tx, spec)
    return [
        (
            *common,
            *(
                Dependency(
                    0, dependency.required[index], dependency.condition, dependency.min_shift, dependency.max_shift
                )
                for dependency in indexed
            ),
        )
        for index in range(spec.array_size)
    ]
