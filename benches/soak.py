#!/usr/bin/env python3
"""Checks that the recorder's tables stay flat while a program makes and ends things all the time.

    benches/soak.py --heaptide FILE [--only KIND[,KIND…]] [--part N]

Runs `tests/programs/churn.c`, or `churn_lines.py` for lines of Python, with each kind: a million
threads, a million loads of a library, ten million mappings, and so on, divided into three parts.
After each part the program prints the size of its profile and its resident memory. The growth of
the last part, divided by what it made, is the slope. Exit status 1: a slope is above its limit; 2:
something could not be run. `--part N` makes one part in N of each, to try the script.
"""
import argparse
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass

ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
PROGRAMS = os.path.join(ROOT, "tests", "programs")
# Resident memory varies by this much, whatever the program makes. The timeline grows with the
# logarithm of the duration, in extents of at most this size.
SLACK = 1 << 20
MODES = ("stacks", "sampled")


@dataclass(frozen=True)
class Kind:
    """A kind of thing: how many in all, and the most bytes that each may add to the profile and to
    memory in the last third.
    """

    name: str
    title: str
    count: int
    file: float
    memory: float


KINDS = (
    Kind("threads", "threads", 1_000_000, 0.1, 0.1),
    Kind("modules", "dlopen and dlclose", 1_000_000, 0.1, 0.1),
    Kind("mappings", "mmap and munmap", 10_000_000, 0.1, 0.1),
    Kind("files", "mapped files", 100_000, 1.0, 1.0),
    # The first third fills the budget.
    Kind("scopes", "scopes with new names", 900_000, 0.1, 0.1),
    Kind("marks", "marks", 300_000, 0.1, 0.1),
    Kind("windows", "windows with new names", 450_000, 0.1, 0.1),
    Kind("labels", "labels with new names", 900_000, 0.1, 0.1),
    # Each is a file of its own; the profile has a mark of 32 bytes and the page that is its last.
    Kind("snapshots", "snapshots", 900, 64.0, 4096.0),
    # Half a minute per hundred thousand.
    Kind("lines", "lines of Python functions", 1_800_000, 0.1, 0.1),
)


def fail(message):
    """Ends with status 2."""
    print(f"soak.py: {message}", file=sys.stderr)
    sys.exit(2)


def built(place):
    """Returns the paths of the program and of the library that it loads."""
    program, library = os.path.join(place, "churn"), os.path.join(place, "churned.so")
    source = os.path.join(PROGRAMS, "churn.c")
    plugin = os.path.join(PROGRAMS, "plugin.c")
    commands = (
        ["cc", "-O1", "-g", source, "-o", program, "-pthread", "-ldl"],
        ["cc", "-O1", "-g", "-fPIC", "-shared", "-DWORK=churned_work", plugin, "-o", library],
    )
    for command in commands:
        if subprocess.run(command, check=False).returncode != 0:
            fail(f"cannot build: {' '.join(command)}")
    return program, library


def thirds(heaptide, place, built_files, kind, mode, count):
    """Runs the program. Returns the sizes of the profile and of memory after each third."""
    program, library = built_files
    recording = os.path.join(place, f"{kind.name}-{mode}.heaptide")
    script = os.path.join(PROGRAMS, "churn_lines.py")
    guest = [program, kind.name, str(count // 3), library]
    if kind.name == "lines":
        guest = [sys.executable, script, str(count // 3)]
    command = [heaptide, "run", "--quiet", "--mode", mode, "-o", recording, "--", *guest]
    outcome = subprocess.run(command, cwd=place, stdout=subprocess.PIPE, text=True, check=False)
    if outcome.returncode != 0:
        fail(f"{' '.join(command)}: status {outcome.returncode}")
    found = [tuple(map(int, line.split())) for line in outcome.stdout.splitlines()]
    if len(found) != 3 or not all(file for file, _ in found):
        fail(f"{' '.join(command)}: printed {outcome.stdout!r}, expected three sizes")
    return found


def check(heaptide, place, built_files, kind, mode, part):
    """Prints the slopes of a kind. Returns whether they are flat."""
    count = kind.count // part
    found = thirds(heaptide, place, built_files, kind, mode, count)
    file, memory = (max(0, found[2][which] - found[1][which] - SLACK) / (count // 3)
                    for which in (0, 1))
    is_flat = file <= kind.file and memory <= kind.memory
    print(f"{kind.title:24} {mode:8} {count:10,} {found[2][0] / 1e6:8.2f} MB of profile, "
          f"{file:7.3f} bytes each; {found[2][1] / 1e6:8.2f} MB resident, {memory:7.3f} bytes each"
          f"{'' if is_flat else '   NOT FLAT'}", flush=True)
    return is_flat


def main():
    """Checks the kinds that the options choose."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--heaptide", required=True)
    parser.add_argument("--only", help="kinds, separated by commas")
    parser.add_argument("--part", type=int, default=1, help="make one part in N of each")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else [kind.name for kind in KINDS]
    unknown = set(names) - {kind.name for kind in KINDS}
    if unknown:
        fail(f"unknown kinds: {', '.join(sorted(unknown))}")
    heaptide = os.path.realpath(options.heaptide)
    with tempfile.TemporaryDirectory(prefix="soak-") as place:
        files = built(place)
        flat = [check(heaptide, place, files, kind, mode, max(1, options.part))
                for kind in KINDS if kind.name in names for mode in MODES]
    sys.exit(0 if all(flat) else 1)


if __name__ == "__main__":
    main()
