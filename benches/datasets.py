#!/usr/bin/env python3
"""Cost of queries on a dataset with one recording for each of many ranks.

    cargo build --release -p heaptide-cli -p heaptide-sql
    python3 benches/datasets.py [--bin target/release] [--ranks 10000] [--rounds 3]

Records a small program once, exports it, and uses its files for each rank: they are links to one
file, but each rank has its own directories and lists, as after 10,000 exports. Counts the system
calls that open and list by strace, and measures CPU and elapsed time without it; before and after
`heaptide dataset index` writes the manifest. With --counts-only it measures no time.
"""
import argparse
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time

QUERIES = {
    "count of processes": "SELECT count(*) FROM processes",
    "owners of one rank": "SELECT owner, sum(live_bytes) AS b FROM sites WHERE rank = 777 GROUP BY 1 ORDER BY b DESC, 1",
    "processes by peak": "SELECT rank FROM processes WHERE peak_bytes > 1000000000000",
    "peaks of one run": "SELECT process, peak_bytes FROM processes WHERE run = 'rank777'",
    "peaks by rank": "SELECT rank, max(peak_bytes) AS p FROM processes GROUP BY 1 ORDER BY p DESC, 1 LIMIT 10",
    "owners of all ranks": "SELECT owner, sum(live_bytes) AS b FROM sites GROUP BY 1 ORDER BY b DESC, 1 LIMIT 10",
}
CALQL = "SELECT owner,sum(live_bytes) WHERE rank=777 GROUP BY owner FORMAT csv"
CALLS = ("openat", "getdents64", "statx", "newfstatat", "read", "pread64")


def run(*words):
    words = [str(word) for word in words]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def dataset(heaptide, place, ranks):
    """Creates a dataset of this many ranks, each with its own run."""
    recording, one, heap = (place / name for name in ("a.heaptide", "one", "heap"))
    run(heaptide, "run", "--quiet", "-o", recording, "--", "/bin/ls", "-R", "/usr/include/linux")
    run(heaptide, "export", "--format", "parquet", "-o", one, recording)
    shutil.copy(one / "heaptide-dataset", place)
    heap.mkdir()
    shutil.move(place / "heaptide-dataset", heap)
    for table in sorted(path for path in one.iterdir() if path.is_dir()):
        (of_run,) = table.glob("run=*")
        files = sorted(of_run.rglob("*.parquet"))
        lists = (of_run / "_heaptide-files").read_text()
        host = files[0].relative_to(of_run).parts[0]
        for rank in range(ranks):
            names = f"host=node{rank // 64}/rank={rank}"
            to = heap / table.name / f"run=rank{rank}"
            for file in files:
                link = to / names / pathlib.Path(*file.relative_to(of_run).parts[2:])
                link.parent.mkdir(parents=True, exist_ok=True)
                link.hardlink_to(file)
            (to / "_heaptide-files").write_text(lists.replace(f"{host}/rank=-1", names))
    return heap


def counted(words, place):
    """Counts system calls of a command and its threads."""
    log = place / "calls"
    run("strace", "-f", "-c", "-e", f"trace={','.join(CALLS)}", "-o", log, *words)
    found = re.findall(r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?(\w+)$", log.read_text(), re.MULTILINE)
    return {name: int(calls) for calls, name in found}


def measured(words):
    """Returns elapsed and CPU seconds of a command, and its output."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    out = run(*words)
    elapsed, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return elapsed, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, out


def main():
    shown = argparse.RawDescriptionHelpFormatter
    options = argparse.ArgumentParser(description=__doc__, formatter_class=shown)
    options.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("target/release"))
    options.add_argument("--ranks", type=int, default=10_000)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--keep", type=pathlib.Path, help="directory for the dataset, which is used if it exists")
    options.add_argument("--counts-only", action="store_true", help="count system calls only")
    options.add_argument("--compact", action="store_true", help="also measure compaction, and queries after it")
    options = options.parse_args()
    heaptide = options.bin.resolve() / "heaptide"
    if not shutil.which("strace"):
        sys.exit("strace is not installed")
    with tempfile.TemporaryDirectory() as temporary:
        place = options.keep or pathlib.Path(temporary)
        place.mkdir(exist_ok=True)
        heap = place / "heap"
        if not heap.is_dir():
            heap = dataset(heaptide, place, options.ranks)
        rounds = 0 if options.counts_only else options.rounds
        if not list(heap.glob("manifest-*.parquet")):
            report(heaptide, heap, place, rounds)
            rearrange(heaptide, heap, "index", rounds)
        report(heaptide, heap, place, rounds)
        if options.compact:
            rearrange(heaptide, heap, "compact", rounds)
            report(heaptide, heap, place, rounds)


def rearrange(heaptide, heap, action, rounds):
    """Runs `heaptide dataset`."""
    elapsed, cpu, _ = measured([heaptide, "dataset", action, heap])
    print(f"{action}: {elapsed:.2f} s, {cpu:.2f} s of CPU" if rounds else action)


def report(heaptide, heap, place, rounds):
    print(f"{'query':22} {'s':>7} {'CPU s':>7} {'openat':>9} {'getdents64':>11} {'stat':>9} {'read':>9}")
    commands = [(name, ["sql", "--format", "csv", query]) for name, query in QUERIES.items()]
    for name, command in [*commands, ("CalQL: one rank", ["query", CALQL])]:
        words = [heaptide, *command, "--dataset", heap]
        runs = [measured(words) for _ in range(rounds)]
        elapsed, cpu = (min((run[i] for run in runs), default=0) for i in (0, 1))
        calls = counted(words, place)
        stats = calls.get("statx", 0) + calls.get("newfstatat", 0)
        reads = calls.get("read", 0) + calls.get("pread64", 0)
        print(f"{name:22} {elapsed:7.2f} {cpu:7.2f} {calls.get('openat', 0):9,} {calls.get('getdents64', 0):11,} "
              f"{stats:9,} {reads:9,}")


if __name__ == "__main__":
    main()
