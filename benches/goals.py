"""Shared by the benchmarks: a row of a table, and the suite with tools and settings."""
import os
import shutil
import statistics
from dataclasses import dataclass, field

from measure import Setup, Workload

MB = 1024 * 1024


@dataclass
class Row:
    """A line of the table. `met` is None if there is no goal. `figures` holds the numbers."""

    workload: str
    bare: str
    heaptide: str
    heaptrack: str
    goal: str
    met: object
    figures: dict = field(default_factory=dict)

    def cells(self):
        return [self.workload, self.bare, self.heaptide, self.heaptrack, self.goal]


COLUMNS = ["workload", "bare", "Heaptide", "heaptrack", "goal", "met"]
NOT_INSTALLED = "not installed"


class Suite:
    """The tools, the runner, and the lengths of runs."""

    def __init__(self, runner, tools, rounds, quick):
        self.runner, self.tools, self.rounds, self.quick = runner, tools, rounds, quick
        self.stacks = self.preload("stacks")
        heaptrack = shutil.which("heaptrack")
        self.heaptrack = heaptrack and Setup(
            "heaptrack", prefix=(heaptrack, "-o", "{run}/heaptrack"), heavy=True
        )

    def preload(self, mode):
        env = {"HEAPTIDE_OUTPUT": "{run}/x.heaptide", "HEAPTIDE_MODE": mode}
        return Setup(f"heaptide {mode}", preload=self.tools.recorder, env=env)

    def rivals(self):
        return [self.heaptrack] if self.heaptrack else []

    def operations(self, n):
        return max(1, n // 10) if self.quick else n

    def micro(self, name, arguments, n, n_heaptrack):
        """Returns a workload that times itself."""
        command = [os.path.join(self.tools.bin, "micro"), *arguments, "{n}"]
        return Workload(name, command, self.operations(n), self.operations(n_heaptrack))


def bare_time(pairs):
    """Returns the median of bare runs of the first setup, in ns."""
    first = next(iter(pairs.values()))
    return statistics.median(bare.ns for _, bare in first)


def bare_ns(pairs):
    return f"{bare_time(pairs):.1f} ns"


def ns(extra):
    return "" if extra is None else f"{extra:+.1f} ns"


def in_pairs(took, pair):
    """Returns a time and its ratio to that of a bare pair."""
    return f"{took:.1f} ns, {took / pair:.2f} pairs"
