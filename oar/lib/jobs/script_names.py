"""The name of the script or program that a command runs, for jobs without a name."""

import re
import shlex

#: Programs that run a script which is their first argument.
_INTERPRETER = re.compile(r"(ba|da|k|z|c|tc)?sh|python[0-9.]*|perl|source|\.|Rscript|julia|exec|time")
_VARIABLE = re.compile(r"[A-Za-z_]\w*=")
#: A job name has at most so many characters, none of them a control character.
_LONGEST = 100


def script_name(command: str) -> str:
    """Return the name of the script or program at the beginning of a command; '' if there is none.

    >>> script_name("/home/anna/sim.sh -n 3"), script_name("OMP=2 python3 -u train.py"), script_name("bash -c 'a; b'")
    ('sim.sh', 'train.py', 'bash')
    """
    try:
        words = shlex.split(command, comments=False)
    except ValueError:
        words = command.split()
    words = [word for word in words if not _VARIABLE.match(word)]
    if not words:
        return ""
    name = words[0].rpartition("/")[2]
    scripts = [word for word in words[1:] if not word.startswith("-")]
    if _INTERPRETER.fullmatch(name) and scripts and "-c" not in words:
        name = scripts[0].rpartition("/")[2]
    return name[:_LONGEST] if name.isprintable() else ""
