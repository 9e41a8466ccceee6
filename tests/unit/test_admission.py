"""How admission rules run: one namespace, each rule compiled by itself, and closed whatever goes wrong."""

import os
import resource
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from oar.lib.base.errors import ConfigError
from oar.lib.config.files import Config
from oar.lib.submission import admission_rules
from oar.lib.submission.admission_rules import Namespace, RuleFailed, RuleOutput, RuleRefused, RuleSet
from oar.lib.submission.sql_admission import AdmissionRule


def run(
    *texts: str,
    timeout: int = 120,
    names: Mapping[str, Any] | None = None,
    makers: Mapping[str, Callable[[], Any]] | None = None,
) -> tuple[Namespace, RuleOutput]:
    rules = tuple(AdmissionRule(number, number, True, text) for number, text in enumerate(texts, start=1))
    return admission_rules.run(RuleSet(rules, timeout), {"properties": None, **(names or {})}, makers or {})


def refusal(*texts: str) -> RuleRefused:
    with pytest.raises(RuleRefused) as refused:
        run(*texts)
    return refused.value


def failure(*texts: str, timeout: int = 120) -> RuleFailed:
    with pytest.raises(RuleFailed) as failed:
        run(*texts, timeout=timeout)
    return failed.value


class TestNamespace:
    def test_functions_and_comprehensions_see_the_variables_of_their_rule(self) -> None:
        left, _ = run("limit = 3\ndef f():\n    return [n for n in range(9) if n < limit]\nfound = f()")
        assert left["found"] == [0, 1, 2]

    def test_a_rule_sees_the_names_of_earlier_ones(self) -> None:
        assert run("a = 1", "b = a + 1")[0]["b"] == 2

    def test_texts_without_final_newline_are_not_glued_together(self) -> None:
        assert run("a = 1", "b = 2")[0]["a"] == 1

    def test_costly_names_are_made_when_a_rule_asks_for_them(self) -> None:
        made: list[str] = []

        def make(name: str) -> int:
            made.append(name)
            return 7

        makers = {name: lambda name=name: make(name) for name in ("session", "Job")}
        left, _ = run("def ask():\n    return session\nfound = ask(), session", makers=makers)
        assert left["found"] == (7, 7)
        assert made == ["session"]

    def test_conditions_are_added_in_parentheses(self) -> None:
        assert run("add_property('b')", "add_property('c = 1')", names={"properties": "a OR x"})[0]["properties"] == (
            "((a OR x) AND b) AND c = 1"
        )
        added = run("add_property('b = 1 or c = 1')", names={"properties": "a"})[0]["properties"]
        assert added == "(a) AND (b = 1 or c = 1)"

    def test_passwords_are_not_in_the_configuration(self) -> None:
        config = admission_rules.ConfigView(Config(db_base_passwd="secret"))
        assert config["SERVER_PORT"] == 6666
        assert "DB_BASE_PASSWD" not in config
        assert "secret" not in str(dict(config))

    def test_durations_are_read_and_written_as_in_older_rules(self) -> None:
        left, _ = run("a = sql_to_duration('30:0:1'), duration_to_sql(3909)")
        assert left["a"] == (108001, "1:05:09")

    def test_groups_are_those_of_the_machine(self) -> None:
        assert admission_rules.in_group("root", "root")
        assert not admission_rules.in_group("root", "no-such-group")
        assert not admission_rules.in_group("no-such-user", "root")


class TestOutput:
    def test_what_rules_print_is_kept_with_the_rule(self) -> None:
        _, output = run("print('a')", "pass", "warn('b')")
        assert output == RuleOutput("a\n", "b\n", ((1, "a\n"), (3, "b\n")))

    def test_what_was_printed_before_a_refusal_is_kept(self) -> None:
        assert refusal("print('a')", "reject('no')").output.out == "a\n"


class TestRefusal:
    @pytest.mark.parametrize(
        "text",
        ["reject('[ADMISSION RULE] no')", "raise Exception('[ADMISSION RULE] no')", "exit('[ADMISSION RULE] no')"],
    )
    def test_a_rule_refuses_in_its_own_words(self, text: str) -> None:
        refused = refusal(text)
        assert str(refused) == "[ADMISSION RULE] no"
        assert refused.exit_code == 254

    def test_an_exit_without_words_is_a_refusal(self) -> None:
        assert str(refusal("exit(1)")) == "[ADMISSION RULE] Refused by rule 1."
        assert str(refusal("exit()")) == "[ADMISSION RULE] Refused by rule 1."

    def test_the_rules_behind_a_refusal_do_not_run(self) -> None:
        assert refusal("reject('no')", "print('ran')").output.out == ""

    @pytest.mark.parametrize("text", ["1 / 0", "nobody", "def", "raise KeyError('x')", "raise ValueError('x')"])
    def test_a_broken_rule_refuses_and_names_itself_only(self, text: str) -> None:
        failed = failure("pass", text)
        assert str(failed) == "# Error: an admission rule failed, please tell your administrator (rule 2)."
        assert "rule #2" in failed.trace

    def test_the_administrator_is_told_the_line(self) -> None:
        trace = failure("a = 1\ndef f():\n    return a / 0\nf()\n").trace
        assert trace.splitlines() == [
            "admission rule #1: ZeroDivisionError: division by zero",
            "  <admission rule #1> line 4: f()",
            "  <admission rule #1> line 3: return a / 0",
        ]

    def test_rules_that_take_too_long_are_stopped_whatever_they_catch(self) -> None:
        failed = failure("while True:\n    try:\n        pass\n    except Exception:\n        pass", timeout=1)
        assert "ADMISSION_RULES_TIMEOUT" in failed.trace

    def test_rules_that_take_too_much_memory_are_stopped(self) -> None:
        assert "MemoryError" in failure("x = bytearray(2 << 30)").trace
        assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY

    def test_ctrl_c_is_not_a_refusal(self) -> None:
        with pytest.raises(KeyboardInterrupt):
            run("raise KeyboardInterrupt")


def test_rules_run_in_clean_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    left, _ = run("found = os.getcwd(), os.environ['PATH'], sorted(n for n in os.environ if not n.startswith('OAR'))")
    directory, path, names = left["found"]
    assert directory == "/"
    assert path.startswith("/usr/local/sbin:")
    assert set(names) <= {"HOME", "LANG", "PATH"}
    assert os.getcwd() == str(tmp_path)


class TestText:
    def test_what_does_not_compile_is_explained_with_its_line(self) -> None:
        assert admission_rules.explain_bad_text(7, "a = 1\nif a\n    b") == (
            """line 2: if a (the compiler reports: "expected ':'")"""
        )
        assert admission_rules.explain_bad_text(7, "a\0") == "line 1: it has the character NUL"
        assert admission_rules.explain_bad_text(7, "a = 1") is None


class TestFiles:
    def directory(self, tmp_path: Path) -> Path:
        for name, text in {"10_b": "b", "2_a": "a", "OFF_3_c": "c", "README": "no", "x4_d": "no"}.items():
            (tmp_path / name).write_text(text)
        tmp_path.chmod(0o755)
        return tmp_path

    def test_files_run_in_the_order_of_their_numbers(self, tmp_path: Path) -> None:
        rules = admission_rules.read_rules(str(self.directory(tmp_path)))
        assert [(rule.id, rule.enabled, rule.text) for rule in rules] == [
            (2, True, "a"),
            (3, False, "c"),
            (10, True, "b"),
        ]

    def test_a_directory_that_others_may_write_is_refused(self, tmp_path: Path) -> None:
        self.directory(tmp_path).chmod(0o775)
        with pytest.raises(ConfigError, match="others than root and oar can write there"):
            admission_rules.read_rules(str(tmp_path))

    def test_a_directory_that_is_not_there_is_named(self) -> None:
        with pytest.raises(ConfigError, match="cannot read the admission rules of /no/where"):
            admission_rules.read_rules("/no/where")
