"""What a site adds to its pages is read from a file, and what is wrong there is named."""

import logging
from pathlib import Path

import pytest

from oar.web.site_file import SiteFile, choices_of


def test_values_are_texts_as_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "web.yaml"
    path.write_text("templates:\n- label: short\n  walltime: 1:30\n  nodes: 4\n")
    assert SiteFile().choices(str(path)).templates == [{"label": "short", "walltime": "1:30", "nodes": "4"}]


def test_the_property_of_the_first_page_is_the_sites_choice(tmp_path: Path) -> None:
    path = tmp_path / "web.yaml"
    path.write_text("group_by: cluster\n")
    assert SiteFile().choices(str(path)) == ([], "cluster", {})


def test_a_queue_has_a_text_about_who_may_use_it(tmp_path: Path) -> None:
    path = tmp_path / "web.yaml"
    path.write_text("queues:\n  admin: members of the group admin\n")
    assert SiteFile().choices(str(path)).queues == {"admin": "members of the group admin"}


def test_without_a_file_there_are_none(tmp_path: Path) -> None:
    assert SiteFile().choices(str(tmp_path / "none")) == ((), "", {})


@pytest.mark.parametrize(
    ("content", "trouble"),
    [
        (["short"], "each line must begin with one of templates:, group_by:"),
        ({"templates": "short"}, "below templates: is a list"),
        ({"templates": [], "colours": []}, "each line must begin with one of templates:"),
        ({"group_by": ["rack"]}, "group_by: is the name of a property"),
        ({"queues": {"admin": ["root"]}}, "below queues: each line is the name of a queue and a text"),
        ({"templates": ["short"]}, "template 1: each line is a field"),
        ({"templates": [{"label": "short", "walltime": ["1:00"]}]}, "template 1: each line is a field"),
        (
            {"templates": [{"label": "short", "time": "1:00"}]},
            "template 1: unknown field 'time': use label, command",
        ),
        ({"templates": [{"walltime": "1:00"}]}, "template 1: label is missing"),
    ],
)
def test_what_is_wrong_is_named(content: object, trouble: str) -> None:
    with pytest.raises(ValueError, match=trouble):
        choices_of(content)


def test_a_broken_file_changes_nothing_and_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, site = tmp_path / "web.yaml", SiteFile()
    path.write_text("templates:\n- label: short\n")
    before = site.choices(str(path))
    path.write_text("templates: [")
    with caplog.at_level(logging.ERROR):
        assert [site.choices(str(path)) for _ in range(2)] == [before, before]
    assert len(caplog.records) == 1
    assert f"cannot read the site file: {path}: " in caplog.text
