"""Reading at scale: synthetic recordings of millions of stacks, each 40 frames deep with names of
200 characters; measures seconds and peak memory of commands that read them.
"""
import os
import shutil
import subprocess

from goals import Row

SECONDS = 10
GIB = 1024 * 1024  # in KiB
STACKS = 2_000_000
# The number of stacks in MallocProfiler's largest published profile: 3.28 GB of text.
PUBLISHED = 1_080_000


def report(suite):
    recording = synthetic(suite, STACKS)
    return [row(suite, "`report`", STACKS, ["report", recording])]


def diff(suite):
    recording = synthetic(suite, STACKS)
    return [row(suite, "`diff`, each of two", STACKS, ["diff", recording, recording])]


def folded(suite):
    """Every stack has allocations, so each becomes a line."""
    recording = synthetic(suite, STACKS)
    export = ["export", recording, "--format", "folded", "--measure", "allocations"]
    text = size_of(suite, export)
    rows = [row(suite, f"folded, {text}", STACKS, [*export, "-o", "/dev/null", "--force"])]
    pipe = [*export, "|", "wc", "-c"]
    rows.append(row(suite, f"folded through a pipe, {text}", STACKS, pipe))
    export[1] = synthetic(suite, PUBLISHED)
    text = size_of(suite, export)
    published = row(suite, f"folded, {text}", PUBLISHED, [*export, "-o", "/dev/null", "--force"])
    published.goal += "; MallocProfiler's slides report several minutes for as many stacks, 3.28 GB"
    return [*rows, published]


def row(suite, what, stacks, arguments):
    if suite.quick:
        stacks //= 10
    argv = [suite.tools.heaptide, *arguments]
    if "|" in arguments:
        argv = ["sh", "-c", " ".join(argv)]
    uses = []
    for _ in range(1 if suite.quick else min(3, suite.rounds)):
        use, _ = suite.runner.time(argv)
        suite.runner.note(f"{what.split(',')[0]}", "heaptide", stacks, use)
        uses.append(use)
    use = sorted(uses, key=lambda use: use.wall)[len(uses) // 2]
    met = use.wall <= SECONDS and use.rss_kb <= 2 * GIB
    return Row(f"{stacks / 1e6:.2f} M stacks: {what}", "",
               f"{use.wall:.1f} s, {use.rss_kb / GIB:.2f} GiB", "",
               f"≤ {SECONDS} s, ≤ 2 GiB", None if suite.quick else met)


def size_of(suite, export):
    """Returns the size of an export in bytes."""
    with subprocess.Popen([suite.tools.heaptide, *export], stdout=subprocess.PIPE) as child:
        counted = subprocess.run(["wc", "-c"], stdin=child.stdout, capture_output=True, check=True)
    return f"{int(counted.stdout) / 1e9:.1f} GB of text"


def synthetic(suite, stacks):
    """Returns the recording, created with a command built here unless it exists."""
    return made(suite.tools.heaptide, stacks // 10 if suite.quick else stacks)


def made(heaptide, stacks):
    """Returns the recording, created next to a command unless it exists."""
    built = os.path.dirname(heaptide)
    generator = os.path.join(built, "heaptide-synthetic")
    recording = os.path.join(built, f"synthetic-{stacks}.heaptide")
    names = os.path.join(recording, "symbols.json")
    if not os.path.exists(names) or os.path.getmtime(names) < os.path.getmtime(generator):
        shutil.rmtree(recording, ignore_errors=True)
        subprocess.run([generator, str(stacks), recording], check=True)
    return recording
