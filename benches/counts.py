#!/usr/bin/env python3
"""Counts the instructions and simulated cache misses that the recorder adds to a program.

    benches/counts.py --heaptide FILE [--only NAME[,NAME…]]            the table, with goals
    benches/counts.py --heaptide FILE --check FILE | --write FILE      ceilings: compare, store

Each workload runs at two lengths, bare and recorded. The difference of the differences, divided by
the additional allocations, excludes start-up and the program's own work. It repeats within 1 % on
any machine, regardless of load. Exit status 1: a goal is missed, or a ceiling exceeded; 2:
something could not be run.
"""
import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field

import build
import ceilings
from cachegrind import Counts, Failed, count

PAIRS = (100_000, 200_000)
TREE_ALLOCATIONS = 82_635  # per round of the tree builder
DOCUMENTS = (1500, 3000)
STARTUP = "python start-up"


@dataclass(frozen=True)
class Workload:
    """A program that takes its length as last argument, the library to load into it, and its goals.
    """

    name: str
    title: str
    command: tuple
    lengths: tuple
    mode: str = ""  # of the recorder; empty: load the yardstick instead
    allocations: int = 0  # between the lengths; 0: read it from the recordings
    environment: tuple = ()
    goals: dict = field(default_factory=dict)

    @property
    def has_ceiling(self):
        """Python has no ceiling, because interpreters of other versions and builds have other
        counts; the yardstick needs none.
        """
        return bool(self.mode and self.allocations)


def workloads():
    micro, tree = build.path("micro"), build.path("deeptree")
    dicts = (os.path.realpath(sys.executable), os.path.join(build.PROGRAMS, "pydicts.py"))

    def pairs(name, title, depth, mode, goal=None):
        goals = {"instructions": goal} if goal else {}
        return Workload(name, title, (micro, "pairs", "1", depth), PAIRS, mode,
                        PAIRS[1] - PAIRS[0], goals=goals)

    return [
        pairs("forward", "(yardstick: a library that only forwards)", "5", ""),
        pairs("counters", "malloc/free pair, counters", "5", "counters", 100),
        pairs("sampled", "malloc/free pair, sampled", "5", "sampled", 96),
        pairs("scopes", "malloc/free pair, scopes", "5", "scopes", 130),
        pairs("stacks-5", "malloc/free pair, stacks, 5 frames below the loop", "5", "stacks", 280),
        pairs("stacks-40", "malloc/free pair, stacks, 40 frames below", "40", "stacks", 420),
        Workload("tree", "tree builder, an allocation and its free", (tree,), (2, 4), "stacks",
                 2 * TREE_ALLOCATIONS, goals={"instructions": 800, "d1": 5, "l2": 1}),
        Workload("python", "Python, an allocation and its free", dicts, DOCUMENTS, "stacks",
                 environment=(("PYTHONHASHSEED", "0"),),
                 goals={"instructions": 480, "i1": 4, "d1": 5}),
    ]


STARTUP_TITLE = f"Python, start-up: until {DOCUMENTS[0]} documents are done, over the steady rate"
STARTUP_GOALS = {"instructions": 67_500_000}


@dataclass
class Row:
    """The counts beyond bare, and the limits by the names of `Counts`."""

    name: str
    title: str
    counts: Counts
    goals: dict

    @property
    def met(self):
        """Whether the goal is met; None without a goal."""
        if not self.goals:
            return None
        return all(getattr(self.counts, what) <= limit for what, limit in self.goals.items())


class Counter:
    """Counts each run once; a run shared by several rows is counted for the first of them."""

    def __init__(self, heaptide, scratch):
        self.heaptide, self.scratch, self.done = heaptide, scratch, {}
        said = subprocess.run([heaptide, "library"], capture_output=True, text=True, check=True)
        self.recorder = said.stdout.strip()

    def count_all(self, chosen):
        """Fills `done`, using all processors, because counts do not depend on load."""
        runs = {self.key(work, length, loaded): (work, length, loaded)
                for work in chosen for length in work.lengths for loaded in (False, True)}
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            counted = {key: pool.submit(self.run, *run) for key, run in runs.items()}
            self.done.update({key: future.result() for key, future in counted.items()})

    def over_bare(self, work, length):
        return self.done[self.key(work, length, True)].minus(
            self.done[self.key(work, length, False)])

    def key(self, work, length, loaded):
        return (work.command, work.environment, length, loaded and (work.mode or "forward"))

    def run(self, work, length, loaded):
        variables = dict(work.environment)
        if loaded and work.mode:
            # Accounts are taken at intervals of time, so their number would depend on load.
            # Which blocks are sampled is the same in each run. A program that allocates fast
            # publishes its live bytes in full batches; here it would be fast or slow by chance.
            variables.update(LD_PRELOAD=self.recorder, HEAPTIDE_MODE=work.mode,
                             HEAPTIDE_SAMPLE_SEED="1",
                             HEAPTIDE_ACCOUNTS="off", HEAPTIDE_FULL_BATCHES="on",
                             HEAPTIDE_OUTPUT=self.recording(work, length))
        elif loaded:
            variables.update(LD_PRELOAD=build.path("libforward.so"))
        return count([*work.command, str(length)], variables)

    def recording(self, work, length):
        return os.path.join(self.scratch, f"{work.name}-{length}.heaptide")

    def allocations(self, work, length):
        """Returns the number of allocations in a recording."""
        argv = [self.heaptide, "report", "--format", "json", self.recording(work, length)]
        said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
        return sum(process["totals"]["allocations"] for process in json.loads(said)["processes"])

    def rows(self, work):
        """Returns the steady rate; for the interpreter also the cost of start-up."""
        low, high = work.lengths
        added = work.allocations or self.allocations(work, high) - self.allocations(work, low)
        steady = self.over_bare(work, high).minus(self.over_bare(work, low)).times(1 / added)
        rows = [Row(work.name, work.title, steady, work.goals)]
        if work.name == "python":
            before = self.over_bare(work, low).minus(steady.times(self.allocations(work, low)))
            rows.append(Row(STARTUP, STARTUP_TITLE, before, STARTUP_GOALS))
        return rows


def measure(heaptide, chosen):
    """Returns the rows of these workloads."""
    build.compile_programs(("micro", "deeptree", "libforward.so"))
    with tempfile.TemporaryDirectory(prefix="heaptide-counts-") as scratch:
        counter = Counter(os.path.abspath(heaptide), scratch)
        counter.count_all(chosen)
        return [row for work in chosen for row in counter.rows(work)], counter.recorder


def shown(value):
    """Formats a count for people: millions, whole instructions, hundredths of a miss."""
    if abs(value) >= 1e6:
        return f"{value / 1e6:.1f} M"
    return f"{value:.0f}" if abs(value) >= 20 else f"{round(value, 2) + 0.0:.2f}"


METHOD = "cachegrind, over bare; caches of 32 KB (I1, D1) and 512 KB (L2)"
NAMES = Counts("instructions", "I1", "D1", "L2")


def goal(row):
    """Formats a goal, as in `≤ 800, D1 ≤ 5`."""
    limits = []
    for what, limit in row.goals.items():
        name = "" if what == "instructions" else getattr(NAMES, what) + " "
        size = shown(limit) if limit >= 1e6 else str(limit)
        limits.append(f"{name}≤ {size}")
    return ", ".join(limits)


COLUMNS = ["workload", *NAMES, "goal", "met"]


def cells(row):
    return [row.title, *(shown(count) for count in row.counts), goal(row)]


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--heaptide", required=True, help="the command with the library to count")
    parser.add_argument("--only", default="", help="names of rows, separated by commas")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", metavar="FILE", help="compare with the ceilings in FILE")
    what.add_argument("--write", metavar="FILE", help="store ceilings in FILE")
    return parser.parse_args()


def choose(o):
    known = {work.name: work for work in workloads()}
    names = o.only.split(",") if o.only else list(known)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise Failed(f"{unknown[0]}: no such row; one of {', '.join(known)}")
    with_ceiling = bool(o.check or o.write)
    return [known[name] for name in names if known[name].has_ceiling or not with_ceiling]


def main():
    o = options()
    rows, library = measure(o.heaptide, choose(o))
    for row in rows:
        counted = "  ".join(f"{shown(n):>8} {name}" for n, name in zip(row.counts, NAMES))
        print(f"{row.name:<16} {counted}  {goal(row)}", flush=True)
    measured = {row.name: row.counts for row in rows}
    if o.write:
        ceilings.write(o.write, measured, ceilings.toolchain(library))
        return 0
    if o.check:
        problems = ceilings.check(o.check, measured, ceilings.toolchain(library))
        print("\n".join(problems) or "counts: no ceiling exceeded")
        return 1 if problems else 0
    return 1 if any(row.met is False for row in rows) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (Failed, ceilings.Mismatch, subprocess.CalledProcessError, OSError) as e:
        print(f"counts: {e}", file=sys.stderr)
        sys.exit(2)
