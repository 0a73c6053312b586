"""The goals of the in-program interface: scopes, calls, monitors.

Times are compared with a malloc/free pair of the bare program in the same run.
"""
import os
import statistics

from goals import Row, bare_ns, bare_time, in_pairs
from measure import BARE, Workload, extra_ns, median

# As multiples of a bare pair.
IN_SCOPE = 0.55
BY_HANDLE, BY_NAME, NOT_LOADED = 0.75, 2.3, 0.15
MONITOR = 0.45
CHANGING = 7.5


def workload(suite, name, arguments, n):
    command = [os.path.join(suite.tools.bin, "annotated"), *arguments, "{n}"]
    return Workload(name, command, suite.operations(n))


def compared(title, pairs, extra, limit):
    """Returns a row with the time added over bare, as a multiple of a bare pair."""
    pair = bare_time(pairs)
    return Row(title, bare_ns(pairs), in_pairs(extra, pair), "", f"≤ {limit} pairs",
               extra <= limit * pair, {"bare_ns": pair, "extra_ns": extra})


def inside_scope(suite):
    """Pairs in mode scopes, with one thread and with two."""
    scopes = suite.preload("scopes")
    rows = []
    for threads, said in (("1", "one thread"), ("2", "two threads")):
        work = workload(suite, f"in-scope-{threads}", ["pairs", threads], 10_000_000)
        pairs = suite.runner.compare(work, [scopes], suite.rounds)
        rows.append(compared(f"malloc/free pairs inside a scope, {said}, mode scopes", pairs,
                             median(pairs[scopes.name], extra_ns), IN_SCOPE))
    return rows


def begin_and_end(suite):
    """Begin and end of a scope, by handle and by name, with and without the recorder."""
    scopes = suite.preload("scopes")
    plain = workload(suite, "bare-pair", ["pairs", "1"], 10_000_000)
    pair = statistics.median(
        suite.runner.run(plain, BARE, plain.n).ns for _ in range(suite.rounds))
    rows = []
    for how, limit in (("handle", BY_HANDLE), ("name", BY_NAME)):
        work = workload(suite, f"scope-by-{how}", [how], 50_000_000)
        pairs = suite.runner.compare(work, [scopes], suite.rounds)[scopes.name]
        bare = statistics.median(b.ns for _, b in pairs)
        took = statistics.median(use.ns for use, _ in pairs)
        met = took <= limit * pair and bare <= NOT_LOADED * pair
        rows.append(Row(f"begin and end of a scope by {how}", in_pairs(bare, pair),
                        in_pairs(took, pair), "",
                        f"≤ {limit} pairs; not loaded ≤ {NOT_LOADED}", met,
                        {"pair_ns": pair, "not_loaded_ns": bare, "loaded_ns": took}))
    return rows


def monitored(suite):
    """The cost of a monitor that does nothing, in addition to that of recording."""
    scopes = suite.preload("scopes")
    without = suite.runner.compare(
        workload(suite, "unmonitored", ["pairs", "1"], 10_000_000), [scopes], suite.rounds)
    watched = suite.runner.compare(
        workload(suite, "monitored", ["monitored", "1"], 10_000_000), [scopes], suite.rounds)
    extra = median(watched[scopes.name], extra_ns) - median(without[scopes.name], extra_ns)
    return [compared("a monitor that does nothing, on top of recording a pair", watched, extra,
                     MONITOR)]


def changing(suite):
    """Pairs in changing scopes, on deep stacks."""
    work = workload(suite, "changing", ["changing"], 5_000_000)
    pairs = suite.runner.compare(work, [suite.stacks], suite.rounds)
    return [compared("another scope each allocation, depth 45, stacks", pairs,
                     median(pairs[suite.stacks.name], extra_ns), CHANGING)]
