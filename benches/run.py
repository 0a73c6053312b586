#!/usr/bin/env python3
"""Measures Heaptide against its goals and prints the tables; `cargo xtask bench` calls it.

    benches/run.py --heaptide FILE [--rounds N] [--only NAME[,NAME…]] [--quick] [--store] [--list]

Bare runs, Heaptide and heaptrack alternate on the same machine; a run is compared with the mean of
the bare runs before and after it, and the median of the rounds counts. --store replaces the results
in benches/results of each kind whose rows were all measured, and the tables generated from them.
Each run appends a line of JSON to a file in target/benches/runs. Exit status 0: all goals met; 1:
some missed; 2: something could not be run.
"""
import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass

import applications
import build
import cachegrind
import counts
import goals
import interface
import python_programs
import queries
import recordings
import results
import rivals
import scale
import startup
import tables
import traces
from goals import Suite
from measure import Failed, Runner

LEAST_ROUNDS = 5  # for results that are stored


@dataclass
class Tools:
    """Paths of tools and results."""

    heaptide: str
    recorder: str
    bin: str = build.BIN
    rusage: str = build.path("rusage")


def kinds(suite):
    """Returns the kinds of benchmarks, in the order of the tables, each with its groups of rows by
    the names that --only accepts.
    """
    programs = applications.programs()
    return {
        "rivals": {
            "shallow": lambda: rivals.shallow(suite),
            "deep": lambda: rivals.deep(suite),
            "two-threads": lambda: rivals.two_threads(suite),
            "tree": lambda: rivals.tree(suite),
            "turns": lambda: rivals.turns(suite),
            "ring": lambda: rivals.ring(suite),
        },
        "programs": {name: lambda name=name: applications.cpu(suite, name) for name in programs},
        "python": {name: lambda name=name: python_programs.compare(suite, name)
                   for name in python_programs.programs()},
        "interface": {
            "inside-scope": lambda: interface.inside_scope(suite),
            "begin-and-end": lambda: interface.begin_and_end(suite),
            "monitored": lambda: interface.monitored(suite),
            "changing": lambda: interface.changing(suite),
        },
        "recordings": {
            "start": lambda: startup.start(suite),
            **{f"recording-{name}": lambda name=name: recordings.recording(suite, name)
               for name in programs},
            "trace-cost": lambda: traces.cost(suite),
            **{f"trace-{name}": lambda name=name: traces.real(suite, programs[name])
               for name in ("cc1plus", "python3")},
        },
        "reading": {
            "scale-report": lambda: scale.report(suite),
            "scale-diff": lambda: scale.diff(suite),
            "scale-folded": lambda: scale.folded(suite),
            "query-cali": lambda: queries.cali(suite),
            "query-events": lambda: queries.events(suite),
        },
    }


@dataclass
class Table:
    """The rows of a kind, as dicts of `cells`, `met` and `figures`."""

    kind: str
    columns: list
    rows: list
    method: str
    is_whole: bool


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--heaptide", required=True, help="the command to measure")
    parser.add_argument("--rounds", type=int, default=LEAST_ROUNDS, help="interleaved rounds (5)")
    parser.add_argument("--only", default="", help="kinds or groups of rows, with commas between")
    parser.add_argument("--quick", action="store_true", help="a tenth of the operations")
    parser.add_argument("--store", action="store_true", help="replace results and tables")
    parser.add_argument("--list", action="store_true", help="print the names for --only")
    o = parser.parse_args()
    if o.store and (o.quick or o.rounds < LEAST_ROUNDS):
        parser.error(f"--store needs {LEAST_ROUNDS} rounds or more, and no --quick")
    return o


def counted(o, log):
    """Returns the table of instructions, which needs no rounds and no quiet machine."""
    print("  counting instructions", file=sys.stderr, flush=True)
    rows, _ = counts.measure(o.heaptide, counts.workloads())
    dicts = [{"cells": counts.cells(row), "met": row.met, "figures": row.counts._asdict()}
             for row in rows]
    for row in rows:
        log.write(json.dumps({"workload": row.name, **row.counts._asdict()}) + "\n")
    return Table("counts", counts.COLUMNS, dicts, counts.METHOD, is_whole=True)


def timed(o, others, kind, groups, chosen):
    others.reset()
    rows = [row for name in chosen for row in groups[name]()]
    dicts = [{"cells": row.cells(), "met": row.met, "figures": row.figures} for row in rows]
    method = f"median of {o.rounds} interleaved rounds, {others.said()} meanwhile"
    columns = python_programs.COLUMNS if kind == "python" else goals.COLUMNS
    return Table(kind, columns, dicts, method, is_whole=len(chosen) == len(groups))


def choose(o, by_kind):
    """Returns, for each kind, the groups that --only names, or all groups."""
    asked = o.only.split(",") if o.only else ["counts", *by_kind]
    known = ["counts", *by_kind, *(name for groups in by_kind.values() for name in groups)]
    unknown = [name for name in asked if name not in known]
    if unknown:
        raise Failed(f"{unknown[0]}: no such group; one of {', '.join(known)}")
    chosen = {kind: [name for name in groups if kind in asked or name in asked]
              for kind, groups in by_kind.items()}
    return "counts" in asked, {kind: names for kind, names in chosen.items() if names}


def measure(o, log, scratch):
    """Yields a table for each kind as soon as it is measured."""
    library = subprocess.run([o.heaptide, "library"], capture_output=True, text=True, check=True)
    tools = Tools(os.path.abspath(o.heaptide), library.stdout.strip())
    runner = Runner(tools.rusage, scratch, log)
    if o.quick:
        runner.others.patience = 0
    by_kind = kinds(Suite(runner, tools, o.rounds, o.quick))
    if o.list:
        for kind, groups in {"counts": [], **by_kind}.items():
            print(f"{kind}: {', '.join(groups)}".rstrip(": "))
        return
    with_counts, chosen = choose(o, by_kind)
    if with_counts:
        yield counted(o, log)
    for kind, names in chosen.items():
        yield timed(o, runner.others, kind, by_kind[kind], names)


def main():
    o = options()
    build.compile_programs()
    build.generate_inputs()
    os.makedirs(build.RUNS, exist_ok=True)
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    met = True
    with tempfile.TemporaryDirectory(prefix="heaptide-bench-") as scratch:
        with open(os.path.join(build.RUNS, stamp + ".jsonl"), "w") as log:
            for table in measure(o, log, scratch):
                print("\n".join(tables.markdown(table.columns, table.rows)) + "\n", flush=True)
                met = met and not any(row["met"] is False for row in table.rows)
                if o.store and table.is_whole:
                    results.store(table.kind, table.method, table.columns, table.rows)
    if o.store:
        tables.write()
    return 0 if met else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (Failed, cachegrind.Failed, subprocess.CalledProcessError, OSError) as e:
        print(f"bench: {e}", file=sys.stderr)
        sys.exit(2)
