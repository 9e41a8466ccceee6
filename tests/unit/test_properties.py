"""Values of properties of resources: oar/lib/nodes/properties.py."""

import pytest

from oar.lib.nodes.properties import PropertyProblem, SettingError, parse_setting

COLUMNS = {"cpu": "integer", "cpuset": "character varying", "deploy": "character varying", "available_upto": "bigint"}


@pytest.mark.parametrize(
    ("text", "kind", "name", "problem"),
    [
        ("xyz", SettingError.SYNTAX, "xyz", ""),
        ("=3", SettingError.SYNTAX, "=3", ""),
        ("state=Dead", SettingError.SYSTEM, "state", ""),
        ("STATE_NUM=1", SettingError.SYSTEM, "state_num", ""),
        ("nothing=1", SettingError.VALUE, "nothing", "there is no such property (add it with oarproperty -a)"),
        ("cpu=many", SettingError.VALUE, "cpu", "'many' is not an integer"),
        ("cpu=", SettingError.VALUE, "cpu", "'' is not an integer"),
        ("cpu=99999999999", SettingError.VALUE, "cpu", "99999999999 is not between -2147483647 and 2147483647"),
        ("cpuset=a", SettingError.VALUE, "cpuset", "'a' must be a list of processors, such as 0, 0,16 or 0-3"),
        ("deploy=perhaps", SettingError.VALUE, "deploy", "write YES or NO"),
        ("available_upto=-1", SettingError.VALUE, "available_upto", "-1 is not between 0 and 2147483647"),
        ("cpuset!", SettingError.VALUE, "cpuset", "it always has a value"),
    ],
)
def test_settings_that_are_rejected(text: str, kind: SettingError, name: str, problem: str) -> None:
    assert parse_setting(text, COLUMNS) == PropertyProblem(kind, name, problem)
