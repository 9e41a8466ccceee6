"""The person who acts as root or oar: what counts of what a process and its environment say."""

from collections.abc import Mapping

import pytest

from oar.cli.common.command import caller, with_person
from oar.lib.access.acting import Origin, find_person
from oar.lib.access.records import User, is_named

NAMES = {0: "root", 999: "oar", 1001: "anna", 1002: "bob"}
OAR, ANNA, BOB = 999, 1001, 1002


@pytest.mark.parametrize(
    ("uid", "login", "environment", "account", "person"),
    [
        (0, None, {}, "root", ""),
        (0, 0, {}, "root", ""),
        (0, ANNA, {}, "root", "anna"),
        (0, None, {"SUDO_USER": "anna"}, "root", "anna"),
        (0, ANNA, {"SUDO_USER": "anna"}, "root", "anna"),
        (0, 54321, {}, "root", "uid 54321"),
        # anna becomes bob by su, and root by sudo; or bob has set the login user of a process that had none
        (0, ANNA, {"SUDO_USER": "bob"}, "root", "anna, sudo: bob"),
        # a wrapper that root runs becomes oar by sudo, which sets SUDO_USER to root
        (OAR, None, {"SUDO_USER": "root", "SUDO_UID": "0", "OAR_SUDO_USER": "anna"}, "root", "anna"),
        (OAR, ANNA, {"SUDO_USER": "root", "SUDO_UID": "0"}, "root", "anna"),
        (OAR, ANNA, {}, "oar", "anna"),
        # what root has not set
        (OAR, None, {"SUDO_USER": "bob"}, "oar", ""),
        (OAR, None, {"OAR_SUDO_USER": "bob"}, "oar", ""),
        (OAR, None, {"SUDO_USER": "eve", "SUDO_UID": "1002", "OAR_SUDO_USER": "bob"}, "oar", ""),
        (0, None, {"OAR_SUDO_USER": "bob"}, "root", ""),
        # no name of an account
        (0, None, {"SUDO_USER": "bob)\n[admin] user=root (anna"}, "root", ""),
        (0, None, {"SUDO_USER": "bob, sudo: anna"}, "root", ""),
        (0, None, {"SUDO_USER": "x" * 1000}, "root", ""),
    ],
)
def test_a_variable_counts_only_if_root_has_set_it(
    uid: int, login: int | None, environment: Mapping[str, str], account: str, person: str
) -> None:
    assert find_person(Origin(uid, login, environment), account, NAMES.__getitem__) == person


@pytest.mark.parametrize("variables", [{"SUDO_USER": "bob"}, {"SUDO_UID": "0", "SUDO_USER": "bob"}])
def test_a_user_who_sets_the_variables_of_sudo_stays_himself(variables: Mapping[str, str]) -> None:
    user = with_person(caller(variables, ANNA, ANNA, NAMES.__getitem__), variables)
    assert (user, user.author) == (User("anna", ANNA), "anna")


@pytest.mark.parametrize("name", ["anna", "root", "bob", "root (anna, sudo: bob)"])
def test_an_author_is_found_by_each_of_its_names(name: str) -> None:
    assert is_named(name, "root (anna, sudo: bob)")
    assert not is_named(name[:2], "root (anna, sudo: bob)")
