"""Standard admission rules of OAR 2.5, from Debian's own files, are recognised; what sites changed in them is kept."""

import re
from pathlib import Path

import pytest

from oar.lib.adoption.rules import AdoptedRule, Fate, OldRule, adopt_rules
from oar.lib.db.migrations import read_rules
from oar.lib.submission.admission_rules import explain_bad_text
from tests.db.old_oar import rules, shipped

pytestmark = pytest.mark.slow

OURS = {
    rule.name: OldRule(rule.priority, rule.priority, rule.enabled, rule.text)
    for rule in read_rules(Path(__file__).parents[2] / "setup/database/admission_rules")
}


def adopted(text: str, *, enabled: bool = True) -> AdoptedRule:
    """What becomes of one rule."""
    return adopt_rules([OldRule(1, 5, enabled, text)], OURS, lambda text: explain_bad_text(0, text) is None)[0]


def standard(word: str) -> str:
    """The standard rule of OAR 2.5 in which a word stands."""
    return next(text for text in rules(shipped() / "pg_default_admission_rules.sql") if word in text)


@pytest.mark.parametrize("file", ["pg_default_admission_rules.sql", "mysql_default_admission_rules.sql"])
def test_every_standard_rule_is_recognised(file: str) -> None:
    found = [adopted(text) for text in rules(shipped() / file)]
    assert [each.name[3:] for each in found if each.fate is Fate.KEPT] == []
    assert len({each.name for each in found}) == len(found) >= 16
    assert all(explain_bad_text(1, each.rule.text) is None for each in found)


@pytest.mark.parametrize(
    ("word", "old", "new", "line"),
    [
        ("max_walltime", "12:00:00", "8:30:00", "LONGEST_INTERACTIVE = 30600\n"),
        ("default_wall", "2:00:00", "0:10:00", "DEFAULT_WALLTIME = 600\n"),
        ("admin_group", '"admin";', '"wheel";', 'in_group(user, "wheel")'),
        ("max_nb_resa", "$max_nb_resa = 2", "$max_nb_resa = 7", "MOST_WAITING_RESERVATIONS = 7\n"),
        ("finaud_decision", '"deploy",', '"deploy","rack",', '    "rack",\n}'),
        ('"thread"', '"thread",', "", 'PARTS_OF_NODES = {"cpu", "core", "gpu", "resource_id"}'),
        ("unknown job type", "qr/^deploy", "qr/^exotic(?:=\\w+)?$/, qr/^deploy", '    r"exotic(?:=\\w+)?",\n'),
        ("/tmp/users.txt", "/tmp/users.txt", "/etc/oar/elders", 'path = "/etc/oar/elders"\n'),
    ],
)
def test_what_a_site_has_changed_is_kept(word: str, old: str, new: str, line: str) -> None:
    text = standard(word)
    assert old in text
    found = adopted(text.replace(old, new, 1))
    assert found.fate is Fate.TRANSLATED
    assert line in found.rule.text
    assert found.former != found.rule.text
    assert explain_bad_text(1, found.rule.text) is None


@pytest.mark.parametrize(
    ("word", "old", "new"),
    [
        ("root and oar", '"root"', '"alice"'),
        ("max_walltime", "12:00:00", "long"),
        ("admin_group", '"admin";', '"a b";'),
        ("unlimited_reservation", "unlimited_reservation.users", "elders"),
        ("unknown job type", "qr/^deploy", "qr/^(?{ evil })$/, qr/^deploy"),
        ("default_wall", "if (!defined($mold->[1]))", "if ($user eq 'bob')"),
    ],
)
def test_what_means_something_else_is_kept_as_it_is_and_disabled(word: str, old: str, new: str) -> None:
    text = standard(word)
    assert old in text
    found = adopted(text.replace(old, new, 1))
    assert (found.fate, found.rule.enabled, found.was_enabled) == (Fate.KEPT, False, True)
    assert found.rule.text == text.replace(old, new, 1)


def test_a_disabled_rule_stays_disabled_and_keeps_its_place() -> None:
    found = adopted(standard("max_walltime"), enabled=False)
    assert (found.fate, found.rule.enabled, found.rule.priority, found.rule.id) == (Fate.SHIPPED, False, 5, 1)


def test_shipped_rules_that_are_missing_come_behind() -> None:
    found = adopt_rules([OldRule(40, 1, True, standard("max_walltime"))], OURS, lambda text: True)
    assert [each.rule.id for each in found] == list(range(40, 40 + len(OURS)))
    assert {each.fate for each in found[1:]} == {Fate.ADDED}
    assert not any(each.rule.enabled for each in found[1:])  # the site deleted them
    assert adopt_rules([], {}, lambda text: True) == []


#: How OAR 2.2 to 2.5.4 wrote what 2.5.9 writes.
BEFORE_2_5_5 = (
    ("OAR::IO::", "iolib::"),
    ("$#{$r->{resources}}", "$#{@{$r->{resources}}}"),
    (r"split(/\s+/", r"split(/\s/"),
    ("/i, @bad_resources", "/, @bad_resources"),
    ("/^deploy$/, @{$type_list})){\n    foreach", "/^(deploy|allow_classic_ssh)$/, @{$type_list})){\n    foreach"),
)
OLD_TYPES = """
my @types = ("container","inner","deploy","besteffort","cosystem","idempotent","timesharing","allow_classic_ssh");
foreach my $t (@{$type_list}) {
    my $i = 0;
    while (($types[$i] ne $t) and ($i <= $#types)) { $i++; }
    if (($i > $#types) and ($t !~ /^(timesharing|inner)/)) { die("[ADMISSION RULE] $t is unknown: @types\\n"); }
}
"""


def test_standard_rules_before_2_5_5_are_recognised() -> None:
    for text in rules(shipped() / "pg_default_admission_rules.sql"):
        old = re.sub("(?m)^#.*\n", "", text)
        for present, former in BEFORE_2_5_5:
            old = old.replace(present, former)
        assert adopted(old).name == adopted(text).name != ""
    found = adopted(OLD_TYPES)
    assert (found.fate, found.name, found.rule.text) == (Fate.SHIPPED, "16_job_types", OURS["16_job_types"].text)


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ('"deploy",', '"deploy","night",', '    r"night",\n'),
        ("(timesharing|inner)", r"(timesharing|inner|licence=\d+)", '    r"licence=\\d+.*",\n'),
    ],
)
def test_job_types_that_a_site_had_added_before_2_5_5_are_kept(old: str, new: str, line: str) -> None:
    found = adopted(OLD_TYPES.replace(old, new, 1))
    assert found.fate is Fate.TRANSLATED
    assert line in found.rule.text
    assert explain_bad_text(1, found.rule.text) is None


def test_a_walltime_that_a_site_had_set_before_2_5_5_is_kept() -> None:
    text = standard("default_wall").replace("OAR::IO::", "iolib::").replace("2:00:00", "0:10:00")
    assert "DEFAULT_WALLTIME = 600\n" in adopted(text).rule.text


def test_a_standard_rule_that_the_site_had_rewritten_is_enabled_in_its_place() -> None:
    text = standard("max_nb_resa").replace("if ($nb_resa", "if ($user ne 'bob' and $nb_resa")
    found = adopt_rules([OldRule(1, 1, True, text)], OURS, lambda text: False)
    assert found[0].fate is Fate.KEPT
    assert [each.name for each in found if each.fate is Fate.ADDED and each.rule.enabled] == ["12_waiting_reservations"]


def test_rules_that_the_old_version_did_not_have_are_enabled() -> None:
    found = adopt_rules([OldRule(1, 1, True, OLD_TYPES)], OURS, lambda text: False, is_before_2_5_5=True)
    enabled = [each.name for each in found if each.fate is Fate.ADDED and each.rule.enabled]
    assert enabled == ["03_drained_nodes", "08_inner_jobs"]
