#!/usr/bin/env python3
"""Measures how long `heaptide attach` and `heaptide detach` stop a program.

    benches/attach.py --heaptide FILE [--threads N] [--libraries N] [--rounds N]

The program has threads that allocate in libraries. Prints, for the first attachment of a process
and for the second one, the median and the largest of: the total time for which the command reports
that threads were stopped, and the longest time for which the program's own clock stood still, which
includes the time for which other processes took its processor. Exit status 2: something could not
be run.
"""
import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile

import build

LIBRARY = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
void *make(size_t bytes) { void *block = malloc(bytes); return memset(block, 1, bytes); }
void give(void *block) { free(block); }
void *more(void *block, size_t bytes) { return realloc(block, bytes); }
char *copy(const char *text) { return strdup(text); }
void *zeros(size_t count) { return calloc(count, 8); }
"""
STOPPED = re.compile(r"stopped for ([0-9.]+) (ms|s|µs)")
MS = {"µs": 0.001, "ms": 1, "s": 1000}


def compiled(place, libraries):
    """Compiles the program and its libraries, and returns the path of the program."""
    source, target = os.path.join(place, "library.c"), os.path.join(place, "target")
    with open(source, "w") as file:
        file.write(LIBRARY)
    first = os.path.join(place, "lib1.so")
    flags = ["-O1", "-shared", "-fPIC", "-Wl,-z,relro,-z,now"]
    subprocess.run(["cc", *flags, "-o", first, source], check=True)
    with open(first, "rb") as file:
        content = file.read()
    for number in range(2, libraries + 1):
        with open(os.path.join(place, f"lib{number}.so"), "wb") as file:
            file.write(content)
    program = os.path.join(build.PROGRAMS, "attach_target.c")
    subprocess.run(["cc", "-O1", "-pthread", "-o", target, program, "-ldl"], check=True)
    return target


class Target:
    """A running program."""

    def __init__(self, place, program, options):
        words = [program, place, str(options.libraries), str(options.threads)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(words, **pipes)
        assert self.process.stdout.readline() == "ready\n"

    def longest_ms(self):
        """Returns the longest time for which the program's clock stood still since the last call."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline()) / 1000

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def run(target, place, words):
    """Runs a command, and returns two times in milliseconds: what it reports, what the program saw.
    """
    target.longest_ms()
    done = subprocess.run([*words, str(target.process.pid)], cwd=place, capture_output=True,
                          text=True, check=True)
    seen = target.longest_ms()
    number, unit = STOPPED.search(done.stderr).groups()
    return float(number) * MS[unit], seen


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--heaptide", required=True, help="the command to measure")
    parser.add_argument("--threads", type=int, default=8, help="threads of the program (8)")
    parser.add_argument("--libraries", type=int, default=100, help="its libraries (100)")
    parser.add_argument("--rounds", type=int, default=5, help="processes to attach to (5)")
    options = parser.parse_args()
    heaptide = os.path.abspath(options.heaptide)
    times = {"attach, first": [], "detach, first": [], "attach, second": [], "detach, second": []}
    with tempfile.TemporaryDirectory() as place:
        program = compiled(place, options.libraries)
        for number in range(options.rounds):
            target = Target(place, program, options)
            for turn in ("first", "second"):
                recording = f"{turn}{number}.heaptide"
                attach = [heaptide, "attach", "--background", "-o", recording]
                times[f"attach, {turn}"].append(run(target, place, attach))
                times[f"detach, {turn}"].append(run(target, place, [heaptide, "detach"]))
            target.end()
    print(f"{options.threads} threads, {options.libraries} libraries, {options.rounds} processes")
    for what, pairs in times.items():
        reported, seen = zip(*pairs)
        print(f"{what}: stopped for {statistics.median(reported):.1f} ms, at most"
              f" {max(reported):.1f} ms; the clock stood still for {statistics.median(seen):.1f} ms,"
              f" at most {max(seen):.1f} ms")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OSError, subprocess.CalledProcessError, AttributeError) as error:
        print(f"attach.py: {error}", file=sys.stderr)
        sys.exit(2)
