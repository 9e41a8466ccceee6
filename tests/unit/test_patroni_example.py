"""The example of Patroni in docs/installation.rst has the settings of the room in which tests run it."""

import re
from collections import defaultdict
from pathlib import Path
from textwrap import dedent
from typing import Any

import yaml

TOP = Path(__file__).parent.parent.parent
_EXAMPLE = r"cat /etc/patroni/config\.yml\n(?P<lines>.*?)\n    pg1# systemctl restart patroni"


def _documented() -> dict[str, Any]:
    match = re.search(_EXAMPLE, (TOP / "docs/installation.rst").read_text(), re.DOTALL)
    assert match
    settings: dict[str, Any] = yaml.safe_load(dedent(match["lines"]))
    return settings


def _of_room() -> dict[str, Any]:
    text = re.search(r'_SETTINGS = """\\\n(?P<lines>.*?)"""', (TOP / "setup/room/patroni.py").read_text(), re.DOTALL)
    assert text
    values = defaultdict(lambda: "x", dict.fromkeys(("parameters", "access", "names"), "    - x"))
    settings: dict[str, Any] = yaml.safe_load(text["lines"].format_map(values))
    return settings


def test_the_example_has_the_settings_that_tests_run() -> None:
    documented, tested = _documented(), _of_room()
    # Tests compare the order of commits; nobody else needs their dates.
    assert tested["bootstrap"]["dcs"]["postgresql"]["parameters"].pop("track_commit_timestamp")
    assert documented["bootstrap"] == tested["bootstrap"]
    assert documented.keys() == tested.keys()
    own = {"pg_ident", "pgpass"}  # names and paths of the room
    assert documented["postgresql"].keys() == tested["postgresql"].keys() - own
    same = ("use_unix_socket", "remove_data_directory_on_rewind_failure", "remove_data_directory_on_diverged_timelines")
    assert [documented["postgresql"][key] for key in same] == [tested["postgresql"][key] for key in same]
