"""The goals of traces: the cost of an event compared with mode stacks, its size on disk, and the
memory of the program.

All runs are under the command, which moves events out of the profile while the program runs.
"""
import glob
import json
import os
import shutil
import subprocess

from goals import MB, Row, bare_ns, bare_time, in_pairs
from measure import Setup, median

EVENT = 4.5  # as a multiple of a malloc/free pair of the bare program in the same run


def under(suite, mode):
    run = [suite.tools.heaptide, "run", "--quiet", "-o", "{run}/x.heaptide", "--mode", mode, "--"]
    return Setup(mode, prefix=tuple(run))


def cost(suite):
    """The cost of an event over mode stacks; a pair is two events."""
    rows = []
    for title, arguments, n in (
        ("one thread", ["pairs", "1", "5"], 20_000_000),
        ("two threads", ["pairs", "2", "5"], 10_000_000),
    ):
        work = suite.micro("-".join(["trace", *arguments]), arguments, n, 1)
        pairs = suite.runner.compare(work, [under(suite, "stacks"), under(suite, "trace")],
                                     suite.rounds)
        over = zip(pairs["trace"], pairs["stacks"])
        event = median([(traced[0], plain[0]) for traced, plain in over], half_the_difference)
        pair = bare_time(pairs)
        rows.append(Row(f"trace: an event of malloc/free pairs, {title}, over mode stacks",
                        bare_ns(pairs), in_pairs(event, pair), "", f"≤ {EVENT} pairs",
                        event <= EVENT * pair, {"bare_ns": pair, "event_ns": event}))
    return rows


def half_the_difference(use, other):
    return (use.ns - other.ns) / 2


def real(suite, work):
    """Bytes per event of a sealed trace, and memory compared with a run without one."""
    if not work.command:
        return [Row(f"trace: {work.name}", "", "", "", "the program is not installed", False)]
    recording = suite.runner.path(f"{work.name}.trace.heaptide")
    peaks = {}
    for mode in ("stacks", "trace"):
        shutil.rmtree(recording, ignore_errors=True)
        stat = suite.runner.path("inner")
        argv = [suite.tools.heaptide, "run", "--quiet", "-o", recording, "--mode", mode, "--",
                suite.tools.rusage, stat, *work.argv(0)]
        with open(work.stdin or os.devnull) as stdin:
            subprocess.run(argv, env=dict(os.environ, **work.env), stdin=stdin, check=True,
                           stdout=subprocess.DEVNULL)
        with open(stat) as said:
            peaks[mode] = float(said.read().split()[2]) / 1024
    size = sum(os.stat(f).st_blocks * 512 for f in glob.glob(recording + "/*.trace"))
    events = count_events(suite, recording)
    shutil.rmtree(recording, ignore_errors=True)
    each, more = size / max(1, events), peaks["trace"] - peaks["stacks"]
    return [
        Row(f"trace: {work.name}, {size / MB:.1f} MB for {events} events", "",
            f"{each:.1f} B an event", "", "≤ 8 B an event", each <= 8),
        Row(f"trace: {work.name}, peak memory over mode stacks", f"{peaks['stacks']:.0f} MB",
            f"{more:+.1f} MB", "", "≤ 8 MB", more <= 8),
    ]


def count_events(suite, recording):
    question = "SELECT count() FROM events GROUP BY none FORMAT json"
    argv = [suite.tools.heaptide, "query", question, recording]
    said = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    return json.loads(said)[0]["count"]
