"""Stores the results: one JSON file for each kind of benchmark in `results/`.

A file has the machine, the date, versions of programs, the method in a few words, and the rows as
the tables show them, with their numbers under `figures`.
"""
import datetime
import json
import os
import platform
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
DIRECTORY = os.path.join(HERE, "results")

VERSIONS = {
    "heaptrack": ["heaptrack", "--version"],
    "memray": ["memray", "--version"],
    "valgrind": ["valgrind", "--version"],
    "gcc": ["g++", "-dumpfullversion"],
    "rustc": ["rustc", "--version"],
    "python": [sys.executable, "--version"],
    "sqlite3": ["sqlite3", "--version"],
    "jq": ["jq", "--version"],
}


def path(kind):
    return os.path.join(DIRECTORY, kind + ".json")


def store(kind, method, columns, rows):
    """Replaces the results of a kind. `rows`: dicts of `cells`, `met` and `figures`."""
    kept = {
        "kind": kind,
        "date": datetime.date.today().isoformat(),
        "machine": machine(),
        "commit": commit(),
        "versions": versions(),
        "method": method,
        "columns": columns,
        "rows": rows,
    }
    os.makedirs(DIRECTORY, exist_ok=True)
    with open(path(kind), "w") as out:
        out.write(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")


def load(kind):
    with open(path(kind)) as stored:
        return json.load(stored)


def machine():
    cpu = "unknown CPU"
    with open("/proc/cpuinfo") as info:
        for line in info:
            if line.startswith("model name"):
                cpu = line.split(":", 1)[1].strip()
                break
    release = platform.release().split("-")[0]
    return f"{os.cpu_count()} × {cpu}, Linux {release}, {' '.join(platform.libc_ver())}"


def commit():
    """Returns the measured commit, if git is available."""
    ask = ["git", "rev-parse", "--short=10", "HEAD"]
    done = subprocess.run(ask, cwd=HERE, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def versions():
    """Returns the versions of the installed programs."""
    found = {name: version(argv) for name, argv in VERSIONS.items()}
    return {name: number for name, number in found.items() if number}


def version(argv):
    """Returns the first number with dots in a program's output; None if it is not installed."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    number = re.search(r"\d+(\.\d+)+", done.stdout + done.stderr)
    return number.group() if number else None
