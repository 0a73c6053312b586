#!/usr/bin/env python3
"""Compares which blocks are lost with LeakSanitizer and memcheck, for many ways to keep a block.

    benches/lost.py --heaptide FILE [--write FILE]

Runs each way of `programs/lost_kinds.cpp` under `heaptide run --retain`, LeakSanitizer and
memcheck, and prints a table: the number of blocks that the source loses, and that each tool reports
as lost, directly or indirectly. A difference from the source must have a reason in `WHY`. Exit
status 1: one has none, or a tool's answer for which there is a reason equals the source. Status 2:
something could not be run.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

import build

SOURCE = os.path.join(build.PROGRAMS, "lost_kinds.cpp")
FLAGS = ["-g", "-O1", "-w", "-pthread"]
WAY = re.compile(r"^static void (\w+)\(\).*?// (none|\d+)$", re.MULTILINE | re.DOTALL)
OF_SANITIZER = re.compile(r"(?:Direct|Indirect) leak of \d+ byte\(s\) in (\d+) object\(s\)")
OF_MEMCHECK = re.compile(r"(definitely|indirectly) lost: [\d,]+ bytes in ([\d,]+) blocks")
TOOLS = ["Heaptide", "LeakSanitizer", "memcheck"]
# Why tools differ from the source.
FORM = "the pointers are stored in another form"
MAPPED = "LeakSanitizer does not search memory that the program mapped"
WHY = {
    "high_tags": (FORM, TOOLS),
    "complement": (FORM, TOOLS),
    "xor_list": (FORM, TOOLS),
    "unaligned": ("only aligned words are searched", TOOLS),
    "local_of_ended_thread": (
        "glibc keeps the stack of the thread; Heaptide reports `only_from_dead_stack`", TOOLS[:1]),
    "mapping": (MAPPED, TOOLS[1:2]),
    "mapping_without_pointer": (MAPPED, TOOLS[1:2]),
    "read_only_mapping": (MAPPED + ", memcheck only what is writable", TOOLS[1:]),
    "shared_memory": (MAPPED, TOOLS[1:2]),
    "environment": ("memcheck has glibc free its list of variables before", TOOLS[2:]),
}


def output(words, **options):
    """Runs a command, and returns its output and its messages."""
    done = subprocess.run(words, capture_output=True, text=True, check=False, **options)
    return done.stdout, done.stderr


def by_heaptide(heaptide, program, way, place):
    recording = os.path.join(place, f"{way}.heaptide")
    subprocess.run([heaptide, "run", "-q", "--retain", "-o", recording, program, way], check=True)
    answer = json.loads(output([heaptide, "retain", "--format", "json", recording])[0])
    states = answer["processes"][0]["states"]
    return sum(state["blocks"] for state in states if state["state"].startswith("lost"))


def by_sanitizer(program, way):
    # Blocks that glibc allocates are not the subject.
    messages = output([program, way], env={**os.environ, "LSAN_OPTIONS": "exitcode=0"})[1]
    return sum(int(blocks) for blocks in OF_SANITIZER.findall(messages))


def by_memcheck(program, way):
    messages = output(["valgrind", "--leak-check=full", program, way])[1]
    return sum(int(blocks.replace(",", "")) for _, blocks in OF_MEMCHECK.findall(messages))


def ways():
    """Returns the names of the ways, and how many blocks each loses."""
    with open(SOURCE) as file:
        text = file.read()
    return {name: 0 if lost == "none" else int(lost) for name, lost in WAY.findall(text)}


def compiled(place, name, flags):
    program = os.path.join(place, name)
    subprocess.run(["g++", *FLAGS, *flags, "-o", program, SOURCE], check=True)
    return program


def table(rows):
    """Formats rows: the name, the number in the source, and those of the tools."""
    lines = [f"| way | source | {' | '.join(TOOLS)} | why they differ |", "|---|---|---|---|---|---|"]
    for name, lost, found in rows:
        why = WHY.get(name, ("", []))[0]
        lines.append(f"| `{name}` | {lost} | {' | '.join(map(str, found))} | {why} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--heaptide", required=True, help="the command to compare")
    parser.add_argument("--write", help="also write the table to this file")
    options = parser.parse_args()
    rows, failed = [], False
    with tempfile.TemporaryDirectory() as place:
        program = compiled(place, "lost_kinds", [])
        sanitized = compiled(place, "sanitized", ["-fsanitize=leak"])
        for name, lost in ways().items():
            found = [by_heaptide(options.heaptide, program, name, place),
                     by_sanitizer(sanitized, name), by_memcheck(program, name)]
            rows.append((name, lost, found))
            differ = [tool for tool, blocks in zip(TOOLS, found) if blocks != lost]
            if differ != WHY.get(name, ("", []))[1]:
                print(f"{name}: {differ} differ", file=sys.stderr)
                failed = True
    text = table(rows)
    print(text, end="")
    if options.write:
        with open(options.write, "w") as file:
            file.write(text)
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OSError, subprocess.CalledProcessError) as error:
        print(error, file=sys.stderr)
        sys.exit(2)
