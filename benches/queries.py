"""Queries: a Caliper trace as large as that of LULESH in Caliper's document on memory, and a trace
with many events.
"""
import os
import shutil
import subprocess

from goals import Row
from scale import GIB

SNAPSHOTS = 1_331_076
EVENTS = 50_000_000

# The queries in that document, unchanged.
OF_CALI = [
    ("by function", "SELECT function,count() GROUP BY function WHERE mem.alloc FORMAT tree"),
    ("by label", "SELECT mem.alloc,count() GROUP BY mem.alloc WHERE mem.alloc FORMAT table"),
    ("by label and size", "SELECT mem.alloc,alloc.total_size,count() "
     "GROUP BY mem.alloc,alloc.total_size WHERE mem.alloc FORMAT table"),
]


def cali(suite):
    snapshots = suite.operations(SNAPSHOTS)
    trace = os.path.join(os.path.dirname(suite.tools.heaptide), f"trace-{snapshots}.cali")
    if not os.path.exists(trace):
        write_trace(trace, snapshots)
    size = f"{os.path.getsize(trace) / 1e6:.0f} MB"
    return [asked(suite, f"CalQL, {snapshots / 1e6:.1f} M snapshots in {size}: {name}",
                  [query, trace], 1, 2) for name, query in OF_CALI]


OF_EVENTS = [
    ("by operation and label", "SELECT operation,label,count(),sum(size) FROM events "
     "GROUP BY operation,label"),
    ("by frame", "SELECT frame,count(),sum(size) FROM events GROUP BY frame"),
    ("by stack", "SELECT function,count(),sum(size) FROM events GROUP BY function"),
]


def events(suite):
    """Returns the trace, recorded again if the program or the command is newer."""
    count = suite.operations(EVENTS)
    program = os.path.join(suite.tools.bin, "events")
    recording = os.path.join(os.path.dirname(suite.tools.heaptide), f"events-{count}.heaptide")
    made = os.path.join(recording, "recording.json")
    newest = max(map(os.path.getmtime, [program, suite.tools.heaptide]))
    if not os.path.exists(made) or os.path.getmtime(made) < newest:
        shutil.rmtree(recording, ignore_errors=True)
        run = [suite.tools.heaptide, "run", "--quiet", "--mode", "trace", "-o", recording]
        subprocess.run([*run, program, str(count // 2)], check=True)
    return [asked(suite, f"CalQL, {count / 1e6:.0f} M events: {name}", [query, recording], 5, 2)
            for name, query in OF_EVENTS]


def asked(suite, what, arguments, seconds, gib):
    """Returns a row for a query, the median of some runs."""
    uses = []
    for _ in range(1 if suite.quick else min(3, suite.rounds)):
        use, _ = suite.runner.time([suite.tools.heaptide, "query", *arguments])
        suite.runner.note(what, "heaptide", 1, use)
        uses.append(use)
    use = sorted(uses, key=lambda use: use.wall)[len(uses) // 2]
    met = use.wall <= seconds and use.rss_kb <= gib * GIB
    return Row(what, "", f"{use.wall:.2f} s, {use.rss_kb / GIB:.2f} GiB", "",
               f"≤ {seconds} s, ≤ {gib} GiB", None if suite.quick else met)


FUNCTIONS = ["main", "LagrangeLeapFrog", "LagrangeNodal", "CalcForceForNodes",
             "CalcVolumeForceForElems", "IntegrateStressForElems", "CalcHourglassControlForElems",
             "LagrangeElements", "CalcLagrangeElements", "CalcQForElems", "ApplyMaterialProperties",
             "EvalEOSForElems", "CalcTimeConstraintsForElems"]
LABELS = ["malloc", "dxx", "dyy", "dzz", "delx_xi", "delx_eta", "delx_zeta", "delv_xi"]
SIZES = [216000, 238328, 259200, 1728000, 864000, 88, 4096]


def write_trace(path, snapshots):
    """Writes allocations and frees inside nested functions, like Caliper's services alloc, sysalloc
    and trace.
    """
    unfinished = path + ".part"
    with open(unfinished, "w") as out:
        def node(id, attribute, data, parent=None):
            above = "" if parent is None else f",parent={parent}"
            out.write(f"__rec=node,id={id},attr={attribute},data={data}{above}\n")

        attributes = {"function": (276, 3), "mem.alloc": (20, 3), "mem.free": (20, 3),
                      "alloc.uid": (21, 2), "alloc.address": (21, 4), "alloc.total_size": (21, 1),
                      "time.offset.ns": (21, 2)}
        ids, next_id = {}, 12
        for name, (properties, kind) in attributes.items():
            node(next_id, 10, properties, kind)
            node(next_id + 1, 8, name, next_id)
            ids[name], next_id = next_id + 1, next_id + 2
        paths, parent = [], None
        for depth, name in enumerate(FUNCTIONS):
            node(next_id, ids["function"], name, parent)
            paths.append(next_id)
            # Some are inside the last region, the others next to it.
            parent, next_id = (next_id if depth % 4 else paths[0]), next_id + 1
        events = {}
        for of in ("mem.alloc", "mem.free"):
            for label in LABELS:
                node(next_id, ids[of], label)
                events[of, label], next_id = next_id, next_id + 1
        columns = [ids[of] for of in ("alloc.uid", "alloc.address", "alloc.total_size",
                                      "time.offset.ns")]
        columns = "=".join(map(str, columns))
        for number in range(snapshots):
            uid = number // 2
            what = events["mem.free" if number % 2 else "mem.alloc", LABELS[uid * 7 % 11 % 8]]
            where = paths[uid // 3 * 5 % len(paths)]
            data = f"{uid}={0x7f3a1c000000 + uid % 4096 * 64:x}={SIZES[uid % 7]}={number * 731}"
            out.write(f"__rec=ctx,ref={where}={what},attr={columns},data={data}\n")
    os.rename(unfinished, path)
