"""Real programs: CPU time and memory with the recorder and with other profilers.

CPU time is user and system time of all processes of a run, including work in a second process.
"""
import os
import shlex
import shutil
import statistics
import subprocess
import sys

import build
from goals import NOT_INSTALLED, Row
from measure import Setup, Workload, cpu_ratio, median, wall_ratio

JQ = (
    "[.[] | {id, n: .user.name, s: (.vals | add), l: (.note | length)}]"
    " | group_by(.n) | map({n: .[0].n, t: (map(.s) | add)}) | length"
)

CPU_LIMIT = 1.12
CPU_LIMITS = {"python3": 1.15}
LEAST_CPU_S = 0.5  # of a bare run: ratios of shorter ones are noise


def programs():
    """Returns the workloads by name; one without a command is not installed."""
    dicts = os.path.join(build.PROGRAMS, "pydicts.py")
    python = [os.path.realpath(sys.executable), dicts, "60000"]
    return {
        "cc1plus": Workload("cc1plus", compiler()),
        "python3": Workload("python3", python, env={"PYTHONMALLOC": "malloc"}),
        "sqlite3": Workload("sqlite3", program("sqlite3", ":memory:"),
                            stdin=os.path.join(build.DATA, "sqlite.sql")),
        "jq": Workload("jq", program("jq", "-c", JQ, os.path.join(build.DATA, "jq.json"))),
    }


def compiler():
    """Returns the command with which g++ starts the compiler proper."""
    source = os.path.join(build.PROGRAMS, "cc_input.cpp")
    driver = ["g++", "-###", "-O0", "-std=gnu++20", "-S", source, "-o", os.devnull]
    said = subprocess.run(driver, capture_output=True, text=True, check=True).stderr
    lines = [line for line in said.splitlines() if "cc1plus" in line and source in line]
    return shlex.split(lines[0]) if lines else []


def program(name, *arguments):
    path = shutil.which(name)
    return [path, *arguments] if path else []


def cpu(suite, name):
    """Compares CPU time and memory with the bare program, and with heaptrack and memray if
    installed.
    """
    work = programs()[name]
    if not work.command:
        return [missing(name)]
    rivals = [Setup(s.name, prefix=s.prefix) for s in suite.rivals()]
    if name == "python3":
        rivals += memray()
    pairs = suite.runner.compare(work, [suite.stacks, *rivals], suite.rounds)
    return [cpu_row(suite, work, pairs), memory_row(work, pairs[suite.stacks.name])]


def memray():
    """memray runs the interpreter itself, so it replaces the first word of the workload."""
    path = shutil.which("memray")
    words = (path, "run", "--native", "--quiet", "--force", "--output", "{run}/memray.bin")
    return [Setup("memray", prefix=words, replaces=1)] if path else []


def cpu_row(suite, work, pairs):
    limit = CPU_LIMITS.get(work.name, CPU_LIMIT)
    ours = pairs[suite.stacks.name]
    bare = statistics.median(bare.cpu for _, bare in ours)
    figures = {"bare_cpu_s": bare, "bare_wall_s": statistics.median(b.wall for _, b in ours)}
    for setup, uses in pairs.items():
        short = setup.split()[0]
        figures[f"{short}_cpu"] = median(uses, cpu_ratio)
        figures[f"{short}_wall"] = median(uses, wall_ratio)
    rival = figures.get("heaptrack_cpu")
    said = NOT_INSTALLED if rival is None else f"{rival:.2f} ×"
    ratio = figures["heaptide_cpu"]
    long_enough = suite.quick or bare >= LEAST_CPU_S
    goal = f"≤ {limit} ×" if long_enough else f"≤ {limit} ×, bare ≥ {LEAST_CPU_S} s"
    return Row(f"{work.name}: CPU time", f"{bare:.2f} s", f"{ratio:.2f} ×", said, goal,
               ratio <= limit and long_enough, figures)


def missing(name):
    return Row(name, "", "", "", "the program is not installed", False)


def memory_row(work, pairs):
    allowed = [0.25 * bare.rss_kb + 8 * 1024 for _, bare in pairs]
    added = [use.rss_kb - bare.rss_kb for use, bare in pairs]
    bare = statistics.median(b.rss_kb for _, b in pairs) / 1024
    mine, most = statistics.median(added) / 1024, statistics.median(allowed) / 1024
    return Row(f"{work.name}: peak memory", f"{bare:.0f} MB", f"{mine:+.1f} MB", "",
               f"≤ 25 % + 8 MB ({most:.1f} MB)", mine <= most)
