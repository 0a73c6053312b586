"""The time that Heaptide and heaptrack add to the same loops, in the same interleaved run."""
import os

from goals import NOT_INSTALLED, Row, bare_ns, bare_time, ns
from measure import Workload, extra_ns, median

PAIRS = 25  # the required ratio of heaptrack's added time to ours
TREE = 12
# Limit for frees in turns, as a multiple of the time added with one thread.
TURNS = 1.5


def pairs_at(suite, depth, frames):
    """Pairs with one thread. Frames of the program's start add to `depth`, hence `frames`."""
    work = suite.micro(f"m1-d{depth}", ["pairs", "1", str(depth)], 20_000_000, 2_000_000)
    return [compared(suite, f"malloc/free pairs, one thread, depth {frames}", work, PAIRS)]


def shallow(suite):
    return pairs_at(suite, 5, 10)


def deep(suite):
    return pairs_at(suite, 40, 45)


def two_threads(suite):
    work = suite.micro("pairs-2", ["pairs", "2", "5"], 10_000_000, 1_000_000)
    return [compared(suite, "malloc/free pairs, two threads, depth 10", work, PAIRS)]


def tree(suite):
    command = [os.path.join(suite.tools.bin, "deeptree"), "{n}"]
    work = Workload("deeptree", command, suite.operations(200), suite.operations(20))
    return [compared(suite, "tree builder, depth 20 to 60, an allocation", work, TREE)]


def turns(suite):
    """Compares with heaptrack, and with one thread in the same run."""
    work = suite.micro("xpass-2", ["xpass", "5"], 4_000_000, 1_000_000)
    row = compared(suite, "one thread allocates, one frees (in turns)", work, None)
    alone = suite.micro("m1-d5", ["pairs", "1", "5"], 20_000_000, 1)
    pairs = suite.runner.compare(alone, [suite.stacks], suite.rounds)
    one_thread = median(pairs[suite.stacks.name], extra_ns)
    row.goal = f"≤ {TURNS} × one thread ({TURNS * one_thread:.1f} ns)"
    row.met = row.figures["heaptide_ns"] <= TURNS * one_thread
    row.figures["one_thread_ns"] = one_thread
    return [row]


def ring(suite):
    """Has no goal, because the bare program has two stable speeds here."""
    work = suite.micro("xfree-2", ["xfree", "5"], 4_000_000, 1_000_000)
    return [compared(suite, "one thread allocates, one frees (ring)", work, None)]


def compared(suite, title, work, times):
    """Returns a row of times added over bare. `times`: the required ratio to heaptrack's."""
    pairs = suite.runner.compare(work, [suite.stacks, *suite.rivals()], suite.rounds)
    extra = median(pairs[suite.stacks.name], extra_ns)
    rival = median(pairs.get("heaptrack", []), extra_ns)
    figures = {"bare_ns": bare_time(pairs), "heaptide_ns": extra, "heaptrack_ns": rival}
    said = NOT_INSTALLED if rival is None else ns(rival)
    if rival is not None and extra > 0:
        said += f", {rival / extra:.1f} ×"
    goal = "" if times is None else f"heaptrack ≥ {times} ×"
    met = None if times is None else rival is not None and rival >= times * extra
    return Row(title, bare_ns(pairs), ns(extra), said, goal, met, figures)
