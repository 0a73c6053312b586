#!/usr/bin/env python3
"""Measures the processor time of writing the statistics of 200 scopes by malloc-tag's interface.

    benches/malloc_tag.py --heaptide FILE [--malloc-tag CHECKOUT]

With a checkout of malloc-tag in which its library is built (`make -C CHECKOUT
src/libmalloc_tag.so`), prints the times of malloc-tag beside those of Heaptide, and the time of
malloc-tag's unit tests with both (needs googletest). Exit status 1: a call that writes takes 1 ms
or more, or the unit tests take more than 1.1 times as long as with malloc-tag. Exit status 2:
something could not be run.
"""
import argparse
import glob
import os
import subprocess
import sys
import tempfile
import time

import build

LIMIT_US = 1000
LIMIT_RATIO = 1.1
ROUNDS = 3


class Tool:
    """A library with malloc-tag's interface: its header and its flags for the linker."""

    def __init__(self, name, include, libraries):
        self.name = name
        self.compile = ["-I", include]
        self.link = [flag for path in libraries for flag in ("-L", path, f"-Wl,-rpath,{path}")]

    def build(self, target, sources, *flags):
        """Compiles and links a program."""
        command = ["c++", "-std=c++14", "-O2", "-pthread", "-w", *self.compile, "-o", target]
        subprocess.run([*command, *sources, *flags, *self.link, "-lmalloc_tag"], check=True)
        return target


def environment(place):
    """Returns the environment without PATH and HOME, in which no command can be found."""
    return {"MTAG_STATS_OUTPUT_JSON": os.path.join(place, "out.json"), "TMPDIR": place}


def times(tool, place):
    """Returns the printed times by name."""
    source = os.path.join(build.PROGRAMS, "tags.cpp")
    program = tool.build(os.path.join(place, f"tags-{tool.name}"), [source])
    done = subprocess.run(
        [program, os.path.join(place, f"stats-{tool.name}")],
        env=environment(place),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return {name: float(us) for name, us in (line.split("=") for line in done.stdout.splitlines())}


def unit_tests(tool, place, checkout):
    """Returns the shortest time of malloc-tag's unit tests in seconds."""
    sources = sorted(glob.glob(os.path.join(checkout, "tests", "*.cpp")))
    # The tests expect this name, which is that of their thread, and calls of malloc that compilers
    # remove.
    directory = os.path.join(place, f"tests-{tool.name}")
    os.mkdir(directory)
    program = tool.build(os.path.join(directory, "unit_tests"), sources, "-O0", "-lgtest")
    shortest = None
    for _ in range(ROUNDS):
        start = time.monotonic()
        subprocess.run(
            [program], env=environment(place), stdout=subprocess.DEVNULL, check=True, cwd=place
        )
        seconds = time.monotonic() - start
        shortest = min(seconds, shortest or seconds)
    return shortest


def compare(options, place):
    """Measures and prints. Returns whether all limits are met."""
    sdk = os.path.join(place, "sdk")
    subprocess.run([options.heaptide, "sdk", sdk], check=True, stdout=subprocess.DEVNULL)
    libraries = [os.path.join(sdk, "lib/compat"), os.path.join(sdk, "lib")]
    tools = [Tool("heaptide", os.path.join(sdk, "include/compat"), libraries)]
    if options.malloc_tag:
        checkout = os.path.abspath(options.malloc_tag)
        tools.append(Tool("malloc-tag", f"{checkout}/include", [f"{checkout}/src"]))
    measured = [times(tool, place) for tool in tools]
    print(" | ".join(["processor time, µs per call", *(tool.name for tool in tools)]))
    for name in measured[0]:
        print(" | ".join([name, *(f"{of[name]:.1f}" for of in measured)]))
    is_met = all(us < LIMIT_US for name, us in measured[0].items() if name.startswith("write"))
    if options.malloc_tag:
        own, other = (unit_tests(tool, place, checkout) for tool in tools)
        print(f"unit tests, seconds | {own:.3f} | {other:.3f}")
        is_met &= own <= other * LIMIT_RATIO
    return is_met


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--heaptide", required=True, help="the command to measure")
    parser.add_argument("--malloc-tag", metavar="CHECKOUT", help="a built checkout of malloc-tag")
    options = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory() as place:
            return 0 if compare(options, place) else 1
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"malloc_tag.py: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
