"""Programs with known allocations, and their recordings."""

import os
import subprocess
import sys

# Blocks of 1,000,000 bytes that stay live, in a scope; then blocks of 2,000,000 bytes that are
# freed at once. A bytearray allocates a byte more than its length.
KEEP_AND_CHURN = """
import sys
import heaptide

def keep(count):
    kept = []
    for _ in range(count):
        kept.append(bytearray(1_000_000))
    return kept

def churn(count):
    for _ in range(count):
        bytearray(2_000_000)

def main(count):
    with heaptide.scope("load"):
        kept = keep(count)
    heaptide.snapshot("loaded")
    churn(5)
    return kept

heaptide.on()
kept = main(int(sys.argv[1]))
"""

# The size from which on these blocks are selected.
LARGE = 1_000_000


def heaptide(*arguments, directory, check=True):
    """Runs the command like a user."""
    return subprocess.run(
        ["heaptide", *map(str, arguments)],
        cwd=directory,
        check=check,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
    )


def record(directory, name, *options, count=3):
    """Records the program from its `on`; returns the path of the recording."""
    program = os.path.join(directory, "app.py")
    with open(program, "w") as file:
        file.write(KEEP_AND_CHURN)
    recording = os.path.join(directory, name)
    run = ["run", "--quiet", "--start-off", "-o", recording, *options, "--"]
    heaptide(*run, sys.executable, program, count, directory=directory)
    return recording
