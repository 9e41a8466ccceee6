"""The examples of the documents, run by alice or whom the prompt names: they print what the documents show."""

import re

import pytest

from tests.acceptance.harness import Cluster, Result, wait_until
from tests.documents import DOCUMENTS, Command, Section, filled, matches, sections

#: Commands that look at something: what they show may take a moment to be so.
_LOOKS = ("oarstat", "oarnodes", "cat", "qrstat")

SECTIONS = [section for path in DOCUMENTS for section in sections(path)]


class Reader:
    """Somebody who types the examples of a section, one after the other, in a directory of its own."""

    def __init__(self, cluster: Cluster, section: Section) -> None:
        self._cluster = cluster
        self._directory = "".join(letter if letter.isalnum() else "_" for letter in str(section))
        self._known: dict[str, str] = {}

    def type(self, command: Command) -> None:
        """Run a command and compare; look again for a while at what may still change."""
        line = filled(command.line, self._known)
        if command.line.startswith(_LOOKS):
            self._look_until_it_is_so(line, command)
            self._wait_for_what_is_shown_to_run(command)
            return
        result = self._run(line, command.user)
        assert self._agrees(result, command), f"the document shows\n{chr(10).join(command.output)}\n{result}"

    def _wait_for_what_is_shown_to_run(self, command: Command) -> None:
        """Wait for the commands of jobs that are Running: the reader, who types what follows, is not that fast."""
        for job in re.findall(r"^(\d+): Running$", filled("\n".join(command.output), self._known), re.MULTILINE):
            self._cluster.wait_for_start(int(job))

    def _run(self, line: str, user: str) -> Result:
        directory = self._directory
        return self._cluster.as_user(user).attempt(f"mkdir -p {directory} && cd {directory} && {{\n{line}\n}} 2>&1")

    def _agrees(self, result: Result, command: Command) -> bool:
        found = matches(command.output, result.out, self._known)
        self._known = self._known if found is None else found
        return found is not None

    def _look_until_it_is_so(self, line: str, command: Command) -> None:
        seen: list[Result] = []

        def look() -> bool:
            seen[:] = [self._run(line, command.user)]
            return self._agrees(seen[0], command)

        try:
            wait_until(look)
        except AssertionError:
            shown = filled("\n".join(command.output), self._known)
            raise AssertionError(f"the document shows\n{shown}\n{seen[0]}") from None


def test_there_are_examples() -> None:
    assert {section.document for section in SECTIONS} >= {"user-guide", "README"}


@pytest.mark.parametrize("section", SECTIONS, ids=str)
def test_examples_print_what_is_shown(cluster: Cluster, section: Section) -> None:
    reader = Reader(cluster, section)
    for command in section.commands:
        reader.type(command)
