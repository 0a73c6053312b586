"""The goals of the in-program interface: scopes, calls, monitors."""
import os
import statistics

from goals import Row, bare_ns, ns
from measure import Workload, extra_ns, median


def workload(suite, name, arguments, n):
    command = [os.path.join(suite.tools.bin, "annotated"), *arguments, "{n}"]
    return Workload(name, command, suite.operations(n))


def inside_scope(suite):
    """Mode scopes, one thread and two."""
    scopes = suite.preload("scopes")
    rows = []
    for threads, said in (("1", "one thread"), ("2", "two threads")):
        work = workload(suite, f"in-scope-{threads}", ["pairs", threads], 10_000_000)
        pairs = suite.runner.compare(work, [scopes], suite.rounds)
        extra = median(pairs[scopes.name], extra_ns)
        rows.append(Row(f"malloc/free pairs inside a scope, {said}, mode scopes", bare_ns(pairs),
                        ns(extra), "", "≤ 7 ns", extra <= 7))
    return rows


def begin_and_end(suite):
    """A begin and an end, by handle and by name, with the recorder and without."""
    scopes = suite.preload("scopes")
    rows = []
    for how, limit in (("handle", 10), ("name", 30)):
        work = workload(suite, f"scope-by-{how}", [how], 50_000_000)
        pairs = suite.runner.compare(work, [scopes], suite.rounds)[scopes.name]
        bare = statistics.median(b.ns for _, b in pairs)
        took = statistics.median(use.ns for use, _ in pairs)
        rows.append(Row(f"begin and end of a scope by {how}", f"{bare:.2f} ns", f"{took:.1f} ns",
                        "", f"≤ {limit} ns; not loaded ≤ 1 ns a call",
                        took <= limit and bare <= 2))
    return rows


def monitored(suite):
    """A monitor that does nothing, on top of what recording costs."""
    scopes = suite.preload("scopes")
    without = suite.runner.compare(
        workload(suite, "unmonitored", ["pairs", "1"], 10_000_000), [scopes], suite.rounds)
    watched = suite.runner.compare(
        workload(suite, "monitored", ["monitored", "1"], 10_000_000), [scopes], suite.rounds)
    extra = median(watched[scopes.name], extra_ns) - median(without[scopes.name], extra_ns)
    return [Row("a monitor that does nothing, a pair on top", bare_ns(watched), ns(extra), "",
                "≤ 6 ns", extra <= 6)]


def changing(suite):
    """Every allocation in another scope than the last, deep down."""
    work = workload(suite, "changing", ["changing"], 5_000_000)
    pairs = suite.runner.compare(work, [suite.stacks], suite.rounds)
    extra = median(pairs[suite.stacks.name], extra_ns)
    return [Row("another scope each allocation, depth 45, stacks", bare_ns(pairs), ns(extra), "",
                "≤ 100 ns", extra <= 100)]
