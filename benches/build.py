"""Compiles the programs of the benchmarks and generates their inputs, if sources are newer."""
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
PROGRAMS = os.path.join(HERE, "programs")
INCLUDE = os.path.join(ROOT, "include")
BUILT = os.path.join(os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target")), "benches")
BIN = os.path.join(BUILT, "bin")
DATA = os.path.join(BUILT, "data")
RUNS = os.path.join(BUILT, "runs")
HEADERS = [os.path.join(INCLUDE, name) for name in os.listdir(INCLUDE)]

COMPILE = {
    "micro": ["g++", "-O2", "-g", "-std=c++20", "-fomit-frame-pointer", "-pthread", "micro.cpp"],
    "deeptree": ["g++", "-O2", "-g", "-std=c++20", "-fomit-frame-pointer", "deeptree.cpp"],
    "annotated": ["gcc", "-O2", "-g", "-fomit-frame-pointer", "-pthread", "-I", INCLUDE,
                  "annotated.c"],
    "events": ["gcc", "-O2", "-g", "-fomit-frame-pointer", "-I", INCLUDE, "events.c"],
    "owners": ["g++", "-O2", "-std=c++20", "-pthread", "-I", INCLUDE, "owners.cpp"],
    "rusage": ["gcc", "-O2", "-static", "rusage.c"],
    "libforward.so": ["gcc", "-O2", "-fPIC", "-shared", "-fno-builtin", "forward.c"],
}


def path(name):
    """Returns the path of a compiled program."""
    return os.path.join(BIN, name)


def compile_programs(names=tuple(COMPILE)):
    os.makedirs(BIN, exist_ok=True)
    for name in names:
        command = COMPILE[name]
        source = os.path.join(PROGRAMS, command[-1])
        used = [source, *(HEADERS if INCLUDE in command else [])]
        if not all(is_newer(path(name), file) for file in used):
            subprocess.run([*command[:-1], source, "-o", path(name)], check=True)


def generate_inputs():
    os.makedirs(DATA, exist_ok=True)
    generator = os.path.join(PROGRAMS, "gen_data.py")
    if not is_newer(os.path.join(DATA, "jq.json"), generator):
        subprocess.run([sys.executable, generator, DATA], check=True)


def is_newer(target, source):
    return os.path.exists(target) and os.path.getmtime(target) >= os.path.getmtime(source)
