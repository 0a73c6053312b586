"""``python -m heaptide``: the command, with this interpreter for Python programs.

``python -m heaptide run app.py``, ``run -m module`` and ``run -c 'code'`` start the program with
the current interpreter. All other arguments are passed to the command unchanged.
"""

import re
import sys
from typing import List, Optional

from ._command import HeaptideError, replace_process

# Options of `heaptide run` that take the next argument as their value.
_WITH_VALUE = {
    "-o",
    "--output",
    "--mode",
    "--python-memory",
    "--report",
    "--snapshot-every",
    "--snapshot-on",
    "--monitor",
    "--color",
    "--stacks-from",
    "--stacks-below",
    "--max-trace-size",
    "--max-size",
    "--max-profile",
    "--max-recording",
    "--snapshot-when",
    "--keep-snapshots",
    "--keep-snapshots-for",
    "--keep-snapshots-size",
    "--keep-trace-for",
    "--keep-trace-size",
    "--symbols",
    "--sysroot",
}
# Options of the interpreter that start a program.
_PYTHON = ("-m", "-c")


def _program(words: List[str]) -> Optional[int]:
    """Returns the index of the program in the arguments of ``run``."""
    place = 0
    while place < len(words):
        word = words[place]
        if word == "--":
            return place + 1
        if word.startswith(_PYTHON) and not word.startswith("--") or not word.startswith("-"):
            return place
        takes_next = word in _WITH_VALUE or re.fullmatch("-q+o", word)
        place += 2 if takes_next else 1
    return None


def _is_python(word: str) -> bool:
    """Returns whether to run it with Python: ``-m``, ``-c``, a ``.py`` file, or a script with a
    Python shebang.
    """
    if word.startswith(_PYTHON) or word.endswith((".py", ".pyz", ".pyw")):
        return True
    if "/" not in word:
        # Let the command search PATH.
        return False
    try:
        with open(word, "rb") as file:
            line = file.readline(256)
    except OSError:
        return False
    return line.startswith(b"#!") and b"python" in line


def arguments(words: List[str]) -> List[str]:
    """Returns the arguments of the command, with this interpreter inserted before a Python program.
    """
    if words[:1] != ["run"]:
        return words
    options = words[1:]
    place = _program(options)
    if place is None or place >= len(options) or not _is_python(options[place]):
        return words
    before = [word for word in options[:place] if word != "--"]
    return ["run", *before, "--", sys.executable, *options[place:]]


def main() -> None:
    """Replaces this process with the command."""
    try:
        replace_process(arguments(sys.argv[1:]))
    except HeaptideError as error:
        sys.exit("heaptide: {}".format(error))


if __name__ == "__main__":
    main()
