#!/usr/bin/env python3
"""Writes the tables of README.md and benches/README.md from the stored results.

    benches/tables.py [--check]     --check changes nothing; exit status 1: a table is out of date

A table stands between the lines `<!-- table NAME -->` and `<!-- end of table -->`.
"""
import json
import os
import re
import sys

import results

HERE = os.path.dirname(os.path.abspath(__file__))
PAGES = [os.path.join(HERE, "README.md"), os.path.join(HERE, "..", "README.md")]
PLACE = re.compile(r"(<!-- table ([a-z-]+) -->\n).*?(<!-- end of table -->)", re.S)
SAID = {True: "yes", False: "**no**", None: "–"}
# Results measured elsewhere, with versions and machine.
OTHERS = os.path.join(HERE, "others.json")
NONE = "–"


def markdown(columns, rows):
    """Returns the lines of a table. `rows`: dicts of `cells` and `met`."""
    lines = [line(columns), "|---" * len(columns) + "|"]
    return lines + [line([*row["cells"], SAID[row["met"]]]) for row in rows]


def line(cells):
    return "| " + " | ".join(cells) + " |"


def of_kind(kind):
    """Returns the table of a kind of benchmark, below the machine, the date and the versions."""
    if not os.path.exists(results.path(kind)):
        return [f"No results are stored: `cargo xtask bench --store --only {kind}` measures them."]
    stored = results.load(kind)
    versions = ", ".join(f"{name} {number}" for name, number in stored["versions"].items())
    head = f"{stored['machine']}; commit {stored['commit']}, {stored['date']}; {stored['method']}."
    return [head, f"{versions}.", "", *markdown(stored["columns"], stored["rows"])]


# For README.md: the row's title, its kind and workload, and the workload in `others.json`.
SLOWDOWNS = [
    ("C++ compiler (cc1plus)", "programs", "cc1plus: CPU time", "cc1plus"),
    ("Python, JSON and dicts", "programs", "python3: CPU time", "python3"),
    ("sqlite3, 300,000 rows", "programs", "sqlite3: CPU time", "sqlite3"),
    ("jq, 30 MB of JSON", "programs", "jq: CPU time", "jq"),
    ("parser in C++, stacks of 20 to 60 frames", "rivals",
     "tree builder, depth 20 to 60, an allocation", "tree"),
    ("malloc and free only, stacks of 10 frames", "rivals",
     "malloc/free pairs, one thread, depth 10", "pairs"),
]
BYTEHOUND = "bytehound 0.11"


def slowdown():
    """Returns the table of README.md: the time of the bare program, and the slowdown factors."""
    others = other_sets()
    columns = ["program", "bare", "Heaptide", "heaptrack", "memray", "bytehound"]
    lines = [line(columns), "|---" * len(columns) + "|"]
    for title, kind, workload, name in SLOWDOWNS:
        figures = figures_of(kind, workload)
        row = times(figures) if kind == "rivals" else walls(figures)
        ratio = others["wall"][BYTEHOUND].get(name)
        if name == "pairs":
            ratio = 1 + others["added_ns"][BYTEHOUND][name] / others["bare_pair_ns"]
        lines.append(line([title, *row, factor(ratio)]))
    kinds = sorted({kind for _, kind, _, _ in SLOWDOWNS})
    measured = sorted({"commit {commit}, {date}".format(**results.load(kind)) for kind in kinds})
    return [*lines, "", f"Measured at {' and '.join(measured)}."]


def others():
    """Returns the table of other profilers, from a set of runs without Heaptide."""
    stored = other_sets()
    works = stored["workloads"]
    lines = [f"{stored['set']}; a bare pair takes {stored['bare_pair_ns']} ns.", "",
             line(["tool", *works]), "|---" * (len(works) + 1) + "|"]
    for tool, added in stored["added_ns"].items():
        cells = {work: f"+{ns} ns" for work, ns in added.items()}
        cells.update({work: f"{ratio} ×" for work, ratio in stored["wall"][tool].items()})
        lines.append(line([tool, *(cells.get(work, NONE) for work in works)]))
    return lines


def other_sets():
    with open(OTHERS) as stored:
        return json.load(stored)


SPECIAL = {"slowdown": slowdown, "others": others}


def figures_of(kind, workload):
    rows = results.load(kind)["rows"]
    return next(row["figures"] for row in rows if row["cells"][0] == workload)


def walls(figures):
    """Returns the elapsed time of a program, which its user waits for."""
    tools = ("heaptide", "heaptrack", "memray")
    return [f"{figures['bare_wall_s']:.1f} s", *(factor(figures.get(t + "_wall")) for t in tools)]


def times(figures):
    """Returns the time of an allocation and its free."""
    bare = figures["bare_ns"]
    added = [figures["heaptide_ns"], figures["heaptrack_ns"]]
    return [f"{bare:.0f} ns", *(factor(ns and 1 + ns / bare) for ns in added), NONE]


def factor(ratio):
    if ratio is None:
        return NONE
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"


def filled(page):
    """Returns a page with updated tables."""
    def table(found):
        name = found.group(2)
        lines = SPECIAL[name]() if name in SPECIAL else of_kind(name)
        return found.group(1) + "\n" + "\n".join(lines) + "\n\n" + found.group(3)

    return PLACE.sub(table, page)


def write():
    """Updates the tables of all pages, or of none if one fails."""
    texts = {path: filled(read(path)) for path in PAGES}
    for path, text in texts.items():
        with open(path, "w") as page:
            page.write(text)


def check():
    """Returns the pages whose tables differ from the results."""
    outdated = [path for path in PAGES if filled(read(path)) != read(path)]
    return [os.path.relpath(path, os.path.join(HERE, "..")) for path in outdated]


def read(path):
    with open(path) as page:
        return page.read()


def main():
    if sys.argv[1:] == ["--check"]:
        outdated = check()
        for page in outdated:
            print(f"{page}: tables differ from benches/results; `cargo xtask tables` writes them")
        return 1 if outdated else 0
    if sys.argv[1:]:
        print(__doc__, file=sys.stderr)
        return 2
    write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
