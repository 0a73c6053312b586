"""The stored ceilings of counts: the counts at the time of writing, plus 2 %.

Counts repeat within 1 % if the library and the programs were built with the same compilers and
libc; other compilers generate other instructions from the same source. So the file contains their
versions, and is compared only with counts made with the same ones.
"""
import json
import math
import os
import re
import subprocess

from cachegrind import Counts

ALLOWED = 1.02
# Misses depend on addresses; this much is allowed if there are almost none.
ALLOWED_MISSES = 0.1
# A count below this fraction of its ceiling shows that the ceiling is out of date.
STALE = 0.95


class Mismatch(Exception):
    """The ceilings are for other compilers or another libc."""


def toolchain(library):
    """Returns the versions of compilers and libc, which determine the instructions of a source."""
    comment = run(["readelf", "--string-dump=.comment", library])
    rustc = re.search(r"rustc version (\S+)", comment)
    return {
        "rustc": rustc.group(1) if rustc else "unknown",
        "gcc": run(["g++", "-dumpversion"]).split(".")[0].strip(),
        "glibc": os.confstr("CS_GNU_LIBC_VERSION").split()[-1],
    }


def run(argv):
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def ceiling(counts):
    """Returns the limit for later counts, rounded up to hundredths."""
    def up(value):
        return math.ceil(value * 100) / 100

    misses = [up(max(0, miss) * ALLOWED + ALLOWED_MISSES) for miss in counts[1:]]
    return Counts(up(counts.instructions * ALLOWED), *misses)


def write(path, measured, made_with):
    """Stores ceilings for all rows in `measured`, which maps names to `Counts`."""
    rows = [f'    "{name}": {json.dumps(ceiling(counts)._asdict())}'
            for name, counts in measured.items()]
    with open(path, "w") as out:
        out.write(f'{{\n  "made_with": {json.dumps(made_with)},\n  "ceilings": {{\n')
        out.write(",\n".join(rows) + "\n  }\n}\n")


def check(path, measured, made_with):
    """Returns a line for each row that exceeds its ceiling or has none; prints outdated ceilings.
    """
    with open(path) as stored:
        stored = json.load(stored)
    if stored["made_with"] != made_with:
        raise Mismatch(f"{path} holds for {listed(stored['made_with'])}, "
                       f"and this is {listed(made_with)}")
    problems = []
    for name, counts in measured.items():
        limit = stored["ceilings"].get(name)
        if limit is None:
            problems.append(f"counts: {name}: no ceiling in {path}")
            continue
        problems += exceeded(name, counts, limit)
        if counts.instructions < STALE * limit["instructions"]:
            print(f"{name}: {counts.instructions:.0f} instructions, far below the ceiling of "
                  f"{limit['instructions']:.0f}; `cargo xtask counts --write` lowers it")
    return problems


def exceeded(name, counts, limit):
    return [f"counts: {name}: {value:.2f} {what} over bare, the ceiling is {limit[what]}"
            for what, value in counts._asdict().items() if value > limit[what]]


def listed(versions):
    return ", ".join(f"{name} {version}" for name, version in versions.items())
