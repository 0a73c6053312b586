"""Runs a program under cachegrind, valgrind's simulator of a processor with caches, and parses its
counts.

The simulated caches are the same on all machines, and so is the size of arguments and environment,
which determines the start of the stack, and with it which data share a line.
"""
import os
import re
import shutil
import subprocess
from typing import NamedTuple

CACHES = ["--cache-sim=yes", "--I1=32768,8,64", "--D1=32768,8,64", "--LL=524288,8,64"]
STACK_TOP_BYTES = 4096  # of arguments and environment


class Counts(NamedTuple):
    """Instructions, and misses of the first caches for instructions and data, and of the second
    cache.
    """

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
    """A run failed to produce counts."""


def count(argv, variables):
    """Returns the counts of a whole run, with these environment variables and a PATH."""
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
    """Parses the counts at the end of cachegrind's output."""
    return Counts(*(number(text, label) for label in LABELS))


def number(text, label):
    found = re.search(label + r": +([\d,]+)", text)
    if found is None:
        raise Failed(f"cachegrind printed no `{label}`, but: {text[-300:].strip()}")
    return int(found.group(1).replace(",", ""))


def environment(argv, variables):
    """Returns the variables and a PATH, plus padding so that arguments and environment have a fixed
    size.
    """
    named = {"PATH": os.defpath, **variables}
    size = sum(len(text) + 1 for text in [*argv, *named, *named.values()])
    return {**named, "FILLER": "x" * max(0, STACK_TOP_BYTES - size)}
