"""Changes of the admission rules by administrators, for the commands and the API."""

import re
from typing import TYPE_CHECKING

from oar.lib.access.records import User
from oar.lib.base.errors import UserError
from oar.lib.history import policy_log
from oar.lib.submission import admission_rules
from oar.lib.submission.sql_admission import AdmissionRule

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction


#: What rules in Perl have and rules in Python cannot have: sigils, ``my``, matches, blocks behind conditions.
_PERL = re.compile(r"(?m)^\s*(my|our|use|foreach|unless)\b.*[;{]|[$@%]\w+\s*(=|->|\{|\[)|=~|\b(if|elsif)\s*\(.*\)\s*\{")
_PERL_CHAPTER = ' The text looks like Perl. To rewrite it, see docs/adoption.rst, "Rules in Perl".'


class NoSuchRule(UserError):
    """The admission rule does not exist."""

    exit_code = 2


class BadRuleText(UserError):
    """The text of a rule is not Python."""

    exit_code = 3


def find(tx: "Transaction", rule_id: int) -> AdmissionRule:
    """Return a rule.  Raises NoSuchRule."""
    rule = tx.admission_rules.find(rule_id)
    if rule is None:
        raise NoSuchRule(f"there is no admission rule {rule_id}")
    return rule


def create(tx: "Transaction", user: User, text: str, *, priority: int, enabled: bool, force: bool = False) -> int:
    """Add a rule; return its id.  ``force``: store a text that does not compile as a disabled rule.

    Raises NotAllowed, BadRuleText.
    """
    user.check_administers()
    is_enabled = _compiles(text, force=force) and enabled
    with policy_log.changing(tx, user):
        return tx.admission_rules.insert(text, priority=priority, enabled=is_enabled, author=user.author)


def modify(
    tx: "Transaction",
    user: User,
    rule_id: int,
    *,
    text: str | None = None,
    priority: int | None = None,
    enabled: bool | None = None,
    force: bool = False,
) -> AdmissionRule:
    """Change a rule and return it; None means unchanged.  Raises NotAllowed, NoSuchRule, BadRuleText.

    ``force``: store a new text that does not compile as a disabled rule.  A stored text must compile to be enabled.
    """
    user.check_administers()
    former = find(tx, rule_id)
    is_enabled = former.enabled if enabled is None else enabled
    if text is not None:
        is_enabled = _compiles(text, force=force) and is_enabled
    elif enabled:
        _compiles(former.text, force=False)
    changed = former._replace(
        priority=former.priority if priority is None else priority,
        enabled=is_enabled,
        text=former.text if text is None else text,
    )
    with policy_log.changing(tx, user):
        tx.admission_rules.update(changed, user.author)
    return changed


def delete(tx: "Transaction", user: User, rule_id: int) -> None:
    """Remove a rule.  Raises NotAllowed, NoSuchRule."""
    user.check_administers()
    with policy_log.changing(tx, user):
        tx.admission_rules.delete(find(tx, rule_id), user.author)


def _compiles(text: str, *, force: bool) -> bool:
    """Return whether a text compiles.  Raises BadRuleText if it does not, unless forced."""
    error = admission_rules.explain_bad_text(0, text)
    if error is not None and not force:
        way_out = _PERL_CHAPTER if _PERL.search(text) else ""
        raise BadRuleText(f"{error}. Admission rules are written in Python.{way_out}")
    return error is None
