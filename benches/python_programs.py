"""Typical Python programs with mixed stacks: Heaptide, heaptrack and memray compared with bare.

All run with PYTHONMALLOC=malloc, so that every object is a block for every tool. The work of a tool
after the program counts, because its user waits for it.
"""
import importlib.util
import os
import shutil
import statistics
import sys
from dataclasses import dataclass, field

import build
from goals import MB, Row
from measure import Setup, Workload, cpu_ratio, median, wall_ratio

WALL_LIMIT = 1.5
TOOLS = ["heaptide", "heaptrack", "memray", "memray --native"]
COLUMNS = ["workload", "bare", "Heaptide", *TOOLS[1:], "goal", "met"]
ABSENT = "not installed"


@dataclass
class PythonRow(Row):
    """A row with a column for each tool."""

    by_tool: dict = field(default_factory=dict)

    def cells(self):
        return [self.workload, self.bare, *(self.by_tool.get(t, ABSENT) for t in TOOLS), self.goal]


def programs():
    """Returns, by name, the arguments of the interpreter, and the packages that they need."""
    own = {name: [os.path.join(build.PROGRAMS, name + ".py")]
           for name in ("pydicts", "pandas_job", "flask_service", "scipy_script")}
    text = os.path.join(build.DATA, "jq.json")
    return {
        "pydicts": ([*own["pydicts"], "60000"], []),
        "json.tool": (["-m", "json.tool", text, os.devnull], []),
        "pandas": (own["pandas_job"], ["pandas"]),
        "flask": (own["flask_service"], ["flask"]),
        "scipy": (own["scipy_script"], ["scipy"]),
    }


def setups(suite):
    """Returns the installed tools. memray replaces the interpreter, the first word."""
    heaptide = suite.tools.heaptide
    found = [Setup("heaptide", prefix=(heaptide, "run", "-o", "{run}/x.heaptide"))]
    if suite.heaptrack:
        found.append(Setup("heaptrack", prefix=suite.heaptrack.prefix))
    beside = os.path.join(os.path.dirname(sys.executable), "memray")
    memray = beside if os.path.exists(beside) else shutil.which("memray")
    for options in ([], ["--native"]) if memray else ():
        words = [memray, "run", *options, "--quiet", "--force", "--output", "{run}/memray.bin"]
        found.append(Setup(" ".join(["memray", *options]), prefix=tuple(words), replaces=1))
    return found


def compare(suite, name):
    """Returns rows of wall time, CPU time, peak memory and the recording's size."""
    arguments, packages = programs()[name]
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        return [PythonRow(name, "", "", "", f"{missing[0]} is not installed", False)]
    work = Workload(name, [sys.executable, *arguments], env={"PYTHONMALLOC": "malloc"})
    pairs = suite.runner.compare(work, setups(suite), suite.rounds)
    return [
        ratio_row(name, "wall time", pairs, wall_ratio, "wall", WALL_LIMIT),
        ratio_row(name, "CPU time", pairs, cpu_ratio, "cpu", None),
        memory_row(name, pairs),
        size_row(name, pairs),
    ]


def ratio_row(name, title, pairs, ratio, field_name, limit):
    bare = bare_median(pairs, field_name)
    ratios = {tool: median(uses, ratio) for tool, uses in pairs.items()}
    goal = "" if limit is None else f"≤ {limit} ×"
    met = None if limit is None else ratios["heaptide"] <= limit
    shown = {tool: f"{value:.2f} ×" for tool, value in ratios.items()}
    figures = {f"bare_{field_name}_s": bare, **ratios}
    return PythonRow(f"{name}: {title}", f"{bare:.2f} s", "", "", goal, met, figures, shown)


def memory_row(name, pairs):
    added = {tool: statistics.median(use.rss_kb - bare.rss_kb for use, bare in uses) / 1024
             for tool, uses in pairs.items()}
    shown = {tool: f"{value:+.0f} MB" for tool, value in added.items()}
    bare = f"{bare_median(pairs, 'rss_kb') / 1024:.0f} MB"
    return PythonRow(f"{name}: peak memory", bare, "", "", "", None, added, shown)


def size_row(name, pairs):
    sizes = {tool: statistics.median(use.written / MB for use, _ in uses)
             for tool, uses in pairs.items()}
    shown = {tool: f"{value:.1f} MB" for tool, value in sizes.items()}
    return PythonRow(f"{name}: recording", "", "", "", "", None, sizes, shown)


def bare_median(pairs, name):
    return statistics.median(getattr(bare, name) for _, bare in pairs["heaptide"])
