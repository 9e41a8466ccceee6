"""Files and functions stay small enough to be read.

See CONTRIBUTING.md, "Seven rules".
"""

import ast

from tests.unit.sources import Module, modules, others, tools

LONGEST_FILE = 700
LONGEST_FUNCTION = 80


def sources() -> list[Module]:
    return [*modules().values(), *tools().values()]


def everything() -> list[Module]:
    return [*sources(), *others().values()]


def test_no_file_is_longer_than_anybody_reads() -> None:
    lengths = {str(module.path): len(module.path.read_text(encoding="utf-8").splitlines()) for module in everything()}
    assert not {path: length for path, length in lengths.items() if length > LONGEST_FILE}


def test_no_function_is_longer_than_a_page() -> None:
    assert not [
        f"{module.path}:{function.lineno} {function.name}"
        for module in everything()
        for function in module.functions()
        if (function.end_lineno or 0) - function.lineno >= LONGEST_FUNCTION
    ]


def test_nine_functions_in_ten_are_under_forty_lines() -> None:
    lengths = sorted(
        (function.end_lineno or 0) - function.lineno + 1 for module in sources() for function in module.functions()
    )
    assert lengths[len(lengths) * 9 // 10] < 40


def test_packages_hold_nothing_but_their_description() -> None:
    assert not [
        str(module.path)
        for module in modules().values()
        if module.is_package and not all(isinstance(part, ast.Expr) for part in module.tree.body)
    ]
