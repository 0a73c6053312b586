"""Runs a program under cachegrind, valgrind's simulator of a processor with caches, and reads what
it counted.

The simulated caches are the same everywhere, and so is the size of arguments and environment: it
decides where the stack begins, and with that which data share a line.
"""
import os
import re
import shutil
import subprocess
from typing import NamedTuple

CACHES = ["--cache-sim=yes", "--I1=32768,8,64", "--D1=32768,8,64", "--LL=524288,8,64"]
STACK_TOP_BYTES = 4096  # of arguments and environment


class Counts(NamedTuple):
    """Instructions, and misses: of the first caches of instructions and data, of the second."""

    instructions: float
    i1: float
    d1: float
    l2: float

    def minus(self, other):
        return Counts(*(a - b for a, b in zip(self, other)))

    def times(self, factor):
        return Counts(*(a * factor for a in self))


LABELS = Counts(r"I +refs", r"I1 +misses", r"D1 +misses", r"LL misses")


class Failed(Exception):
    """A run that was not counted."""


def count(argv, variables):
    """What all of a run counts. `variables`: the environment, beside a PATH."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        raise Failed("valgrind: not found; `cargo xtask setup` installs it")
    command = [valgrind, "--tool=cachegrind", "--vgdb=no", "--cachegrind-out-file=/dev/null",
               *CACHES, *argv]
    done = subprocess.run(command, env=environment(argv, variables), stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failed(f"{' '.join(argv)}: status {done.returncode}: {done.stderr[-300:].strip()}")
    return parse(done.stderr)


def parse(text):
    """The counts in what cachegrind prints at the end."""
    return Counts(*(number(text, label) for label in LABELS))


def number(text, label):
    found = re.search(label + r": +([\d,]+)", text)
    if found is None:
        raise Failed(f"cachegrind printed no `{label}`, but: {text[-300:].strip()}")
    return int(found.group(1).replace(",", ""))


def environment(argv, variables):
    """The variables and a PATH, and one more that makes up for the lengths of all paths."""
    named = {"PATH": os.defpath, **variables}
    size = sum(len(text) + 1 for text in [*argv, *named, *named.values()])
    return {**named, "FILLER": "x" * max(0, STACK_TOP_BYTES - size)}
