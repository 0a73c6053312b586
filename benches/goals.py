"""The goals: one function a group of rows, each comparing what was measured with what is asked."""
import glob
import os
import re
import shutil
import statistics
import subprocess
from dataclasses import dataclass

from measure import (
    Setup, Workload, cpu_ratio, extra_ns, median, read_stat, wall_clock, wall_ratio,
)

MB = 1024 * 1024


@dataclass
class Row:
    """A line of the table. `met` is None where nothing could be compared."""

    workload: str
    bare: str
    heaptide: str
    heaptrack: str
    goal: str
    met: object


class Suite:
    """What the rows share: the tools, the runner, and the one-thread extra others refer to."""

    def __init__(self, runner, tools, rounds, quick):
        self.runner, self.tools, self.rounds, self.quick = runner, tools, rounds, quick
        self.one_thread = None
        self.forward = Setup("forward", preload=os.path.join(tools.bin, "libforward.so"))
        self.counters = self.preload("counters")
        self.stacks = self.preload("stacks")
        heaptrack = shutil.which("heaptrack")
        self.heaptrack = heaptrack and Setup(
            "heaptrack", prefix=(heaptrack, "-o", "{run}/heaptrack"), heavy=True
        )

    def preload(self, mode):
        env = {"HEAPTIDE_OUTPUT": "{run}/x.heaptide", "HEAPTIDE_MODE": mode}
        return Setup(f"heaptide {mode}", preload=self.tools.library, env=env)

    def rivals(self):
        return [self.heaptrack] if self.heaptrack else []

    def operations(self, n):
        return max(1, n // 10) if self.quick else n

    # ---- programs that time themselves

    def micro(self, name, arguments, n, n_heaptrack):
        command = [os.path.join(self.tools.bin, "micro"), *arguments, "{n}"]
        return Workload(name, command, self.operations(n), self.operations(n_heaptrack))

    def one_thread_pairs(self, depth, frames, limit):
        """Rows of one thread: counters once, stacks at a depth. Frames of the start of the
        program come on top of `depth`, hence `frames`."""
        work = self.micro(f"m1-d{depth}", ["pairs", "1", str(depth)], 20_000_000, 2_000_000)
        first = depth == 5
        light = [self.forward, self.counters] if first else []
        pairs = self.runner.compare(work, [*light, self.stacks, *self.rivals()], self.rounds)
        rows = []
        if first:
            floor = median(pairs[self.forward.name], extra_ns)
            rows.append(Row("(yardstick: a library that only forwards)", bare_ns(pairs),
                            ns(floor), "", "", None))
            extra = median(pairs[self.counters.name], extra_ns)
            rows.append(Row("malloc/free pairs, one thread, counters", bare_ns(pairs),
                            ns(extra), "", "≤ 6 ns", extra <= 6))
        extra = median(pairs[self.stacks.name], extra_ns)
        rival = median(pairs.get("heaptrack", []), extra_ns)
        if first:
            self.one_thread = extra
        met = extra <= limit and (rival is None or extra <= rival / 15)
        rows.append(Row(f"malloc/free pairs, one thread, stacks, depth {frames}", bare_ns(pairs),
                        ns(extra), ns(rival), f"≤ {limit} ns and ≤ 1/15 of heaptrack", met))
        return rows

    def shallow_pairs(self):
        return self.one_thread_pairs(5, 10, 22)

    def deep_pairs(self):
        return self.one_thread_pairs(40, 45, 45)

    def two_threads(self, title, arguments, n, times):
        if self.one_thread is None:
            self.shallow_pairs()
        work = self.micro("-".join(arguments[:1]) + "-2", arguments, n, 1_000_000)
        pairs = self.runner.compare(work, [self.stacks, *self.rivals()], self.rounds)
        extra = median(pairs[self.stacks.name], extra_ns)
        rival = median(pairs.get("heaptrack", []), extra_ns)
        goal = f"≤ {times} × one thread ({times * self.one_thread:.1f} ns)"
        met = extra <= times * self.one_thread
        return [Row(title, bare_ns(pairs), ns(extra), ns(rival), goal, met)]

    def disjoint(self):
        return self.two_threads("two threads, disjoint, stacks", ["pairs", "2", "5"],
                                10_000_000, 1.15)

    def crossing_ring(self):
        return self.two_threads("one thread allocates, one frees (ring), stacks",
                                ["xfree", "5"], 4_000_000, 1.5)

    def crossing_turns(self):
        return self.two_threads("one thread allocates, one frees (in turns), stacks",
                                ["xpass", "5"], 4_000_000, 1.5)

    def tree_builder(self):
        command = [os.path.join(self.tools.bin, "deeptree"), "{n}"]
        work = Workload("deeptree", command, self.operations(200), self.operations(20))
        pairs = self.runner.compare(work, [self.stacks, *self.rivals()], self.rounds)
        extra = median(pairs[self.stacks.name], extra_ns)
        rival = median(pairs.get("heaptrack", []), extra_ns)
        met = None if rival is None else extra <= rival / 8
        return [Row("tree builder, depth 20 to 60, an allocation", bare_ns(pairs), ns(extra),
                    ns(rival), "≤ 1/8 of heaptrack", met)]

    # ---- real programs

    def real(self, work):
        if not work.command:
            return [Row(work.name, "", "", "", "the program is not installed", None)]
        rivals = [Setup(s.name, prefix=s.prefix, heavy=False) for s in self.rivals()]
        pairs = self.runner.compare(work, [self.stacks, *rivals], self.rounds)
        ours = pairs[self.stacks.name]
        ratio = median(ours, cpu_ratio)
        rival = median(pairs.get("heaptrack", []), wall_ratio)
        bare = statistics.median(b.cpu for _, b in ours)
        rows = [Row(f"{work.name}: the program's own CPU time", f"{bare:.2f} s", f"{ratio:.2f} ×",
                    f"{rival:.2f} × (wall)" if rival else "", "≤ 1.20 ×", ratio <= 1.20)]
        rows.append(memory_row(work, ours))
        rows += self.recorded(work)
        return rows

    def recorded(self, work):
        """Rows about a recording made by the command: sealing, size, and for cc1plus reading."""
        recording = self.runner.path(f"{work.name}.heaptide")
        stat = self.runner.path("inner")
        sealing = []
        for _ in range(1 if self.quick else 3):
            shutil.rmtree(recording, ignore_errors=True)
            argv = [self.tools.heaptide, "run", "--quiet", "-o", recording, "--",
                    self.tools.rusage, stat, *work.argv(0)]
            total = wall_clock(argv, env=dict(os.environ, **work.env), stdin=work.stdin)
            sealing.append(total - read_stat(stat, argv, os.devnull).wall)
        after = statistics.median(sealing)
        rows = [Row(f"{work.name}: sealing", "", f"{after:.2f} s", "", "≤ 3 s", after <= 3)]
        if work.name == "cc1plus":
            rows.append(self.report_row(recording))
        sites = self.count_sites(recording)
        size = sum(os.stat(f).st_blocks * 512 for f in glob.glob(recording + "/*.profile"))
        each = size / max(1, sites)
        rows.append(Row(f"{work.name}: profile, {size / 1e6:.1f} MB for {sites} sites", "",
                        f"{each:.0f} B a site", "", "≤ 200 B a site", each <= 200))
        shutil.rmtree(recording, ignore_errors=True)
        return rows

    def report_row(self, recording):
        """The first report of a recording that is not in the page cache."""
        for path in glob.glob(recording + "/*"):
            drop_from_cache(path)
        use, _ = self.runner.time([self.tools.heaptide, "report", recording])
        self.runner.note("report", "heaptide", 0, use)
        met = use.wall <= 5 and use.rss_kb <= MB
        return Row("cc1plus: `report`, cold", "", f"{use.wall:.1f} s, {use.rss_kb / 1024:.0f} MB",
                   "", "≤ 5 s, ≤ 1 GB", met)

    def count_sites(self, recording):
        """Sites in the JSON report, counted as it streams by: it can be larger than memory."""
        argv = [self.tools.heaptide, "report", recording, "--format", "json"]
        count, tail = 0, b""
        with subprocess.Popen(argv, stdout=subprocess.PIPE) as child:
            while block := child.stdout.read(1 << 20):
                text = tail + block
                found = list(re.finditer(rb'"stack":\s*\[', text))
                count += len(found)
                tail = text[max(found[-1].end() if found else 0, len(text) - 32):]
        return count

    # ---- starting

    def start(self):
        """What it costs to record a program that does nothing."""
        true = shutil.which("true")
        out = self.runner.path("true.heaptide")
        preload = dict(os.environ, BENCH_PRELOAD=self.tools.library, HEAPTIDE_OUTPUT=out)
        run = [self.tools.heaptide, "run", "--quiet", "-o", out, "--", true]
        times = {"bare": [], "preload": [], "run": []}
        for _ in range(10 if self.quick else 60):
            for name, argv, env in (("bare", [true], None), ("preload", [true], preload),
                                    ("run", run, None)):
                shutil.rmtree(out, ignore_errors=True)
                times[name].append(self.runner.time(argv, env=env)[0].wall * 1000)
        bare, preloaded, whole = (statistics.median(times[k]) for k in ("bare", "preload", "run"))
        rows = []
        for title, taken, limit in (("`heaptide run --quiet true`", whole, 15),
                                    ("the preload part of it", preloaded, 1)):
            extra = taken - bare
            rows.append(Row(title, f"{bare:.2f} ms", f"{extra:+.2f} ms", "", f"≤ {limit} ms",
                            extra <= limit))
        return rows


def memory_row(work, pairs):
    allowed = [0.25 * bare.rss_kb + 8 * 1024 for _, bare in pairs]
    added = [use.rss_kb - bare.rss_kb for use, bare in pairs]
    bare = statistics.median(b.rss_kb for _, b in pairs) / 1024
    mine, most = statistics.median(added) / 1024, statistics.median(allowed) / 1024
    return Row(f"{work.name}: peak memory", f"{bare:.0f} MB", f"{mine:+.1f} MB", "",
               f"≤ 25 % + 8 MB ({most:.1f} MB)", mine <= most)


def bare_ns(pairs):
    first = next(iter(pairs.values()))
    return f"{statistics.median(bare.ns for _, bare in first):.1f} ns"


def ns(extra):
    return "" if extra is None else f"{extra:+.1f} ns"


def drop_from_cache(path):
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
