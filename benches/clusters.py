#!/usr/bin/env python3
"""Queries on a dataset of many ranks: by one process, and by clusters of one and two executors.

    cargo build --release -p heaptide-cli
    cargo build --release -p heaptide-sql --features cluster
    python3 benches/clusters.py [--bin target/release] [--ranks 256] [--rows 20000000] [--rounds 3]

Records the C++ compiler once, and uses the recording for each rank as often as the number of rows
requires. Files of all ranks are links to one file, so the dataset takes little space and is read
from memory. Results have to be equal. On one machine a cluster cannot be faster than the engine
alone, which uses all processors; this measures the overhead of the cluster, and the gain of a
second executor if executors have one thread each.
"""
import argparse
import json
import os
import pathlib
import secrets
import signal
import subprocess
import sys
import tempfile
import time

QUERIES = {
    "rows": "SELECT count(*) AS n, count(DISTINCT rank) AS ranks FROM sites",
    "by rank": "SELECT rank, sum(allocations) AS n, sum(live_bytes) AS b FROM sites GROUP BY 1 ORDER BY 1",
    "by owner": "SELECT owner, sum(usable_bytes) AS b FROM sites GROUP BY 1 ORDER BY b DESC, owner LIMIT 20",
    "stack_contains": "SELECT rank, sum(allocations) AS n FROM sites WHERE stack_contains(stack, 'parse|lex') "
                      "GROUP BY 1 ORDER BY 1",
    "callees": "SELECT f, sum(allocations) AS n FROM (SELECT unnest(array_distinct(stack)) AS f, allocations "
               "FROM sites WHERE rank % 8 = 0) GROUP BY f ORDER BY n DESC, f LIMIT 20",
    "join": "SELECT s.rank, max(p.peak_bytes) AS peak, sum(s.at_peak_bytes) AS sites "
            "FROM sites s JOIN processes p ON s.rank = p.rank AND s.process = p.process GROUP BY 1 ORDER BY 1",
}


def run(*arguments, **more):
    words = [str(argument) for argument in arguments]
    return subprocess.run(words, check=True, capture_output=True, text=True, **more)


def clean():
    return {name: value for name, value in os.environ.items() if not name.startswith(("HEAPTIDE_", "LD_"))}


class Server:
    """A scheduler or an executor."""

    def __init__(self, *arguments):
        words = [str(argument) for argument in arguments]
        self.process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        line = self.process.stderr.readline()
        if " listens on " not in line:
            sys.exit(line.strip())
        self.address = line.split(" listens on ")[1].split()[0]

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


def dataset(heaptide, place, ranks, rows):
    """Creates a dataset of this many ranks and rows; returns it and its number of rows."""
    source, recording, one, all_ranks = (place / name for name in ("a.cpp", "a.heaptide", "one", "ranks"))
    source.write_text("#include <algorithm>\n#include <functional>\n#include <iostream>\n#include <map>\n#include <regex>\n"
                      "std::regex words(\"[a-z]+\");\nstd::map<std::string, int> names;\n"
                      "int main() { std::cout << names.size(); }\n")
    run(heaptide, "run", "--quiet", "-o", recording, "--", "g++", "-O2", "-c", source, "-o", place / "a.o", env=clean())
    run(heaptide, "export", "--format", "parquet", "-o", one, recording)
    counted = run(heaptide, "sql", "--format", "csv", "--dataset", one, "SELECT count(*) FROM sites").stdout
    of_one = int(counted.split()[-1])
    times = -(-rows // (ranks * of_one))
    for table in ("sites", "processes"):
        for file in sorted((one / table).rglob("*.parquet")):
            process = file.parent.name
            for rank in range(ranks):
                for time_ in range(times if table == "sites" else 1):
                    name = f"image-{file.stem.split('-')[1]}{f'-{time_}' if time_ else ''}.parquet"
                    to = all_ranks / table / f"run=job/host=node{rank // 16}/rank={rank}" / process / name
                    to.parent.mkdir(parents=True, exist_ok=True)
                    os.link(file, to)
    (all_ranks / "heaptide-dataset").write_text("schema 1\n")  # clusters read nothing else
    return all_ranks, of_one * times * ranks


def timed(heaptide, data, query, cluster=()):
    start = time.monotonic()
    answer = run(heaptide, "sql", "--format", "json", "--dataset", data, *cluster, query).stdout
    return time.monotonic() - start, json.loads(answer)


def best(rounds, *arguments):
    runs = [timed(*arguments) for _ in range(rounds)]
    assert all(answer == runs[0][1] for _, answer in runs)
    return min(seconds for seconds, _ in runs), runs[0][1]


def main():
    shown = argparse.RawDescriptionHelpFormatter
    options = argparse.ArgumentParser(description=__doc__, formatter_class=shown)
    options.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("target/release"))
    options.add_argument("--ranks", type=int, default=256)
    options.add_argument("--rows", type=int, default=20_000_000)
    options.add_argument("--rounds", type=int, default=3)
    options = options.parse_args()
    heaptide, engine = options.bin.resolve() / "heaptide", options.bin.resolve() / "heaptide-sql"
    os.environ["HEAPTIDE_CLUSTER_TOKEN"] = secrets.token_hex(24)
    with tempfile.TemporaryDirectory() as directory:
        place = pathlib.Path(directory)
        data, rows = dataset(heaptide, place, options.ranks, options.rows)
        processors = os.cpu_count()
        print(f"{options.ranks} ranks, {rows:,} rows of sites, {processors} processors, load {os.getloadavg()[0]:.1f}")
        times = {name: {} for name in QUERIES}
        expected = {}
        for name, query in QUERIES.items():
            times[name]["one process"], expected[name] = best(options.rounds, heaptide, data, query)
        threads = max(1, processors // 2)
        for executors in (1, 2):
            scheduler = Server(engine, "scheduler", "--port", "0")
            workers = [Server(engine, "executor", "--scheduler", scheduler.address, "--threads", threads)
                       for _ in range(executors)]
            for name, query in QUERIES.items():
                cluster = ("--cluster", scheduler.address)
                seconds, answer = best(options.rounds, heaptide, data, query, cluster)
                if answer != expected[name]:
                    sys.exit(f"{name}: the answer of {executors} executors differs")
                times[name][f"{executors} x {threads}"] = seconds
            for server in (*workers, scheduler):
                server.stop()
        print(f"{'query':16} {'one process':>12} " + "".join(f"{f'{n} x {threads} threads':>17}" for n in (1, 2)))
        for name, all_of in times.items():
            alone, *others = all_of.values()
            print(f"{name:16} {alone:10.2f} s " + "".join(f"{f'{of:.2f} s ({of / alone:.2f})':>17}" for of in others))
        print("all answers are equal")


if __name__ == "__main__":
    main()
