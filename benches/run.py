#!/usr/bin/env python3
"""Measures Heaptide against its goals and prints the table; `cargo xtask bench` calls it.

    benches/run.py --heaptide FILE [--rounds N] [--only NAME[,NAME…]] [--quick] [--list]

Bare runs, Heaptide and heaptrack (where it is installed) take turns on the same machine; a run is
compared with the mean of the bare runs before and after it, and the median of the rounds counts.
Exit status 0: every goal met; 1: some not; 2: something could not be run.
"""
import argparse
import datetime
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass

import interface
import queries
import scale
import traces
from goals import Suite
from measure import Failed, Runner, Workload

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAMS = os.path.join(HERE, "programs")
BIN = os.path.join(HERE, "bin")
DATA = os.path.join(HERE, "data")
INCLUDE = os.path.join(HERE, "..", "include")
HEADERS = [os.path.join(INCLUDE, name) for name in os.listdir(INCLUDE)]
RESULTS = os.path.join(HERE, "results")

COMPILE = {
    "micro": ["g++", "-O2", "-g", "-std=c++20", "-fomit-frame-pointer", "-pthread", "micro.cpp"],
    "deeptree": ["g++", "-O2", "-g", "-std=c++20", "-fomit-frame-pointer", "deeptree.cpp"],
    "annotated": ["gcc", "-O2", "-g", "-fomit-frame-pointer", "-pthread", "-I", INCLUDE,
                  "annotated.c"],
    "events": ["gcc", "-O2", "-g", "-fomit-frame-pointer", "-I", INCLUDE, "events.c"],
    "rusage": ["gcc", "-O2", "-static", "rusage.c"],
    "libforward.so": ["gcc", "-O2", "-fPIC", "-shared", "-fno-builtin", "forward.c"],
}

JQ = (
    "[.[] | {id, n: .user.name, s: (.vals | add), l: (.note | length)}]"
    " | group_by(.n) | map({n: .[0].n, t: (map(.s) | add)}) | length"
)


@dataclass
class Tools:
    """Where things are."""

    heaptide: str
    library: str
    bin: str = BIN
    rusage: str = os.path.join(BIN, "rusage")


def build():
    os.makedirs(BIN, exist_ok=True)
    os.makedirs(DATA, exist_ok=True)
    os.makedirs(RESULTS, exist_ok=True)
    for name, command in COMPILE.items():
        source = os.path.join(PROGRAMS, command[-1])
        target = os.path.join(BIN, name)
        used = [source, *(HEADERS if INCLUDE in command else [])]
        if not all(newer(target, file) for file in used):
            subprocess.run([*command[:-1], source, "-o", target], check=True)
    generator = os.path.join(PROGRAMS, "gen_data.py")
    if not newer(os.path.join(DATA, "jq.json"), generator):
        subprocess.run([sys.executable, generator, DATA], check=True)


def newer(target, source):
    return os.path.exists(target) and os.path.getmtime(target) >= os.path.getmtime(source)


def compiler():
    """The command by which g++ starts the compiler proper."""
    source = os.path.join(PROGRAMS, "cc_input.cpp")
    driver = ["g++", "-###", "-O0", "-std=gnu++20", "-S", source, "-o", os.devnull]
    said = subprocess.run(driver, capture_output=True, text=True, check=True).stderr
    lines = [line for line in said.splitlines() if "cc1plus" in line and source in line]
    return shlex.split(lines[0]) if lines else []


def program(name, *arguments):
    path = shutil.which(name)
    return [path, *arguments] if path else []


def real_programs():
    """Without a command: not installed."""
    dicts = os.path.join(PROGRAMS, "pydicts.py")
    python = [os.path.realpath(sys.executable), dicts, "60000"]
    return {
        "cc1plus": Workload("cc1plus", compiler()),
        "python3": Workload("python3", python, env={"PYTHONMALLOC": "malloc"}),
        "sqlite3": Workload("sqlite3", program("sqlite3", ":memory:"),
                            stdin=os.path.join(DATA, "sqlite.sql")),
        "jq": Workload("jq", program("jq", "-c", JQ, os.path.join(DATA, "jq.json"))),
    }


def groups(suite):
    """The groups of rows by the name that --only takes, in order of the table."""
    named = {
        "shallow": suite.shallow_pairs,
        "deep": suite.deep_pairs,
        "disjoint": suite.disjoint,
        "turns": suite.crossing_turns,
        "ring": suite.crossing_ring,
        "tree": suite.tree_builder,
    }
    for name in ("inside_scope", "begin_and_end", "monitored", "changing"):
        named[name.replace("_", "-")] = lambda of=getattr(interface, name): of(suite)
    for name, work in real_programs().items():
        named[name] = lambda work=work: suite.real(work)
    named["trace-cost"] = lambda: traces.cost(suite)
    for name in ("cc1plus", "python3"):
        named[f"trace-{name}"] = lambda of=name: traces.real(suite, real_programs()[of])
    named["start"] = suite.start
    for of in (scale.report, scale.diff, scale.folded):
        named[f"scale-{of.__name__}"] = lambda of=of: of(suite)
    named["query-cali"] = lambda: queries.cali(suite)
    named["query-events"] = lambda: queries.events(suite)
    return named


def machine():
    cpu = "unknown CPU"
    with open("/proc/cpuinfo") as info:
        for line in info:
            if line.startswith("model name"):
                cpu = line.split(":", 1)[1].strip()
                break
    libc = " ".join(platform.libc_ver())
    return f"{os.cpu_count()} × {cpu}, Linux {platform.release()}, {libc}"


def table(rows, rounds):
    said = {True: "yes", False: "**no**", None: "–"}
    today = datetime.date.today().isoformat()
    lines = [
        f"{machine()}; {today}; median of {rounds} interleaved rounds.", "",
        "| workload | bare | heaptide | heaptrack | goal | met |",
        "|---|---|---|---|---|---|",
    ]
    for r in rows:
        cells = (r.workload, r.bare, r.heaptide, r.heaptrack, r.goal, said[r.met])
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--heaptide", required=True, help="the command to measure")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (5)")
    parser.add_argument("--only", default="", help="groups of rows, separated by commas")
    parser.add_argument("--quick", action="store_true", help="a tenth of the operations")
    parser.add_argument("--list", action="store_true", help="print the names for --only")
    return parser.parse_args()


def measure(o, log, scratch):
    library = subprocess.run([o.heaptide, "library"], capture_output=True, text=True, check=True)
    tools = Tools(os.path.abspath(o.heaptide), library.stdout.strip())
    suite = Suite(Runner(tools.rusage, scratch, log), tools, o.rounds, o.quick)
    named = groups(suite)
    if o.list:
        print("\n".join(named))
        return []
    chosen = o.only.split(",") if o.only else list(named)
    unknown = [name for name in chosen if name not in named]
    if unknown:
        raise Failed(f"{unknown[0]}: no such group; one of {', '.join(named)}")
    rows = []
    for name in chosen:
        rows += named[name]()
    return rows


def main():
    o = options()
    build()
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    result = os.path.join(RESULTS, stamp)
    with tempfile.TemporaryDirectory(prefix="heaptide-bench-") as scratch:
        with open(result + ".jsonl", "w") as log:
            rows = measure(o, log, scratch)
    if not rows:
        return 0
    text = table(rows, o.rounds)
    with open(result + ".md", "w") as out:
        out.write(text)
    print(text)
    return 1 if any(row.met is False for row in rows) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (Failed, subprocess.CalledProcessError, OSError) as e:
        print(f"bench: {e}", file=sys.stderr)
        sys.exit(2)
