"""The start of a user command: few modules are loaded, because the start is most of the time of a short command."""

import gc
import sys
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from threading import RLock
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from oar.cli.common.command import Command


def run(module: str) -> NoReturn:
    """Run the command that a module declares, as this process."""
    gc.disable()  # there will be no garbage worth looking for
    load(module)()


def load(module: str) -> "Command":
    """Return the command that a module declares."""
    load_late("inspect")  # click imports it for its help; it brings four more modules, a tenth of the time to start
    command: Command = import_module(module).main
    return command


def load_late(name: str) -> None:
    """Make ``import NAME`` return a module that is loaded when one of its attributes is first used."""
    spec = None if name in sys.modules else PathFinder.find_spec(name)
    if spec is None or spec.loader is None:
        return
    module, loader, lock, begun = module_from_spec(spec), spec.loader, RLock(), False

    def attribute(attribute_name: str) -> object:
        nonlocal begun
        with lock:  # another thread waits until all of it is there
            if not begun:
                begun = True
                loader.exec_module(module)
        try:
            return vars(module)[attribute_name]
        except KeyError:
            raise AttributeError(f"module {name!r} has no attribute {attribute_name!r}") from None

    vars(module)["__getattr__"] = attribute
    sys.modules[name] = module
