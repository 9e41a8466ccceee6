"""A module that is loaded late is a module like any other, once something of it is asked for."""

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent.parent
_START = f"""
import sys
sys.path.insert(0, {str(REPOSITORY)!r})
from oar.cli.common.start_up import load_late
"""


def said(code: str) -> str:
    """Return what a bare Python says that knows ``load_late``."""
    done = subprocess.run([sys.executable, "-I", "-c", _START + code], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr.strip().rpartition("\n")[2]


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        ("import tokenize\nprint('token' in sys.modules)", "False\n"),
        ("import tokenize\ntokenize.EXACT_TOKEN_TYPES\nprint('token' in sys.modules)", "True\n"),
        ("import tokenize\nprint(tokenize.__spec__.name)", "tokenize\n"),
        ("from tokenize import TokenError\nprint(TokenError)", "<class 'tokenize.TokenError'>\n"),
        ("import tokenize\ntokenize.no", "AttributeError: module 'tokenize' has no attribute 'no'"),
        ("from tokenize import no", "ImportError: cannot import name 'no' from 'tokenize' (unknown location)"),
    ],
)
def test_it_loads_itself_when_something_of_it_is_asked_for(code: str, answer: str) -> None:
    assert said(f"load_late('tokenize')\n{code}").replace(f"({_file()})", "(unknown location)") == answer


def _file() -> str:
    import tokenize

    return tokenize.__file__


def test_what_is_loaded_stays_and_what_is_not_there_is_missed_by_its_import() -> None:
    assert said("import token\nload_late('token')\nprint(sys.modules['token'] is token)") == "True\n"
    assert said("load_late('no_such')\nimport no_such") == "ModuleNotFoundError: No module named 'no_such'"


def test_threads_find_all_of_it() -> None:
    code = """
load_late('inspect')
import inspect
from threading import Barrier, Thread
found, barrier = [], Barrier(8)
def ask():
    barrier.wait()
    found.append(inspect.cleandoc)
threads = [Thread(target=ask) for _ in range(8)]
for each in threads: each.start()
for each in threads: each.join()
print(len(found), len(set(found)))
"""
    assert said(code) == "8 1\n"
