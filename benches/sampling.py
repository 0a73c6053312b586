#!/usr/bin/env python3
"""Measures how often the 95 % intervals of sampled recordings contain the true value.

    benches/sampling.py [--heaptide FILE] [--runs N] [--only NAME[,NAME…]]

Each workload allocates the same in every run, for twelve owners. It is recorded once with all
blocks, which is the truth, and N times sampled, with the seeds 1 to N. Counted are the owners that
have at least 1 % of the bytes: of all their intervals, and of the owner with the fewest, how many
contain the truth. Owners without a sampled block count, too: their interval begins at 0. Exit
status 1: less than 94 % of all intervals of a row do; 2: something could not be run.
"""
import argparse
import concurrent.futures
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field

import build

GOAL = 0.94
MEAN = "16K"  # with 12 MB, an owner of 1 % has 4 sampled blocks at the peak
MEGABYTES = "12"
METRICS = ("usable_bytes", "live_bytes", "at_peak_bytes")
# What threads have at the peak depends on their timing.
WORKLOADS = {"uniform": METRICS, "mixed": METRICS, "heavy": METRICS, "threads": METRICS[:2]}
LEAST_SHARE = 0.01
# Totals that a sampled recording has as one of all blocks.
EXACT = ("allocations", "usable_bytes", "requested_bytes", "live_bytes", "peak_bytes", "temporary")


class Failed(Exception):
    """Something could not be run."""


@dataclass
class Coverage:
    """Of one metric: how many intervals of an owner contain the truth, and how wide they are."""

    inside: dict = field(default_factory=dict)
    widths: list = field(default_factory=list)
    exact: bool = True

    def all(self, runs):
        return sum(self.inside.values()) / (runs * len(self.inside))

    def least(self, runs):
        return min(self.inside.values()) / runs


def record(o, library, workload, mode, place, seed=0):
    """The scopes of a recording by name."""
    recording = os.path.join(place, f"{workload}-{seed}.heaptide")
    variables = dict(os.environ, LD_PRELOAD=library, HEAPTIDE_OUTPUT=recording, HEAPTIDE_MODE=mode,
                     HEAPTIDE_SAMPLE_SEED=str(seed), HEAPTIDE_ACCOUNTS="off")
    run([build.path("owners"), workload, MEGABYTES], variables)
    said = run([o.heaptide, "report", "--format", "json", "--top", "0", recording])
    shutil.rmtree(recording)
    process = json.loads(said)["processes"][0]
    if process["mode"] != mode.split("=")[0]:
        raise Failed(f"{workload}: recorded with {process['mode']}, expected {mode}")
    return process["totals"], {scope["value"]: scope for scope in process["scopes"]}


def run(command, variables=None):
    done = subprocess.run(command, env=variables, capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed(f"{' '.join(command)}: exit status {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def covered(o, library, workload, place):
    """The coverage of each metric of a workload."""
    totals, truth = record(o, library, workload, "stacks", place)
    metrics = {metric: Coverage() for metric in WORKLOADS[workload]}
    for metric, coverage in metrics.items():
        whole = totals["peak_bytes" if metric == "at_peak_bytes" else metric]
        coverage.inside = {name: 0 for name, scope in truth.items()
                           if name and scope[metric] >= LEAST_SHARE * whole}
        if len(coverage.inside) < 8:
            raise Failed(f"{workload}: {len(coverage.inside)} owners of {metric}, expected 8")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = pool.map(lambda seed: record(o, library, workload, f"sampled={MEAN}", place, seed),
                           range(1, o.runs + 1))
        for sampled_totals, scopes in results:
            for metric, coverage in metrics.items():
                add(coverage, metric, truth, scopes)
                # How large blocks are depends on the timing of threads.
                coverage.exact &= all(sampled_totals[total] == totals[total] for total in EXACT
                                      if workload != "threads" or total == "allocations")
    return metrics


def add(coverage, metric, truth, scopes):
    """Counts the intervals of one run."""
    for name in coverage.inside:
        value, scope = truth[name][metric], scopes[name]
        low, high = scope[f"{metric}_low"], scope[f"{metric}_high"]
        coverage.inside[name] += low <= value <= high
        coverage.widths.append((high - low) / value)


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--heaptide", help="the command to use, built if it is not given")
    parser.add_argument("--runs", type=int, default=1000, help="sampled runs of each workload")
    parser.add_argument("--only", default="", help="workloads, separated by commas")
    o = parser.parse_args()
    o.only = o.only.split(",") if o.only else list(WORKLOADS)
    for name in o.only:
        if name not in WORKLOADS:
            raise Failed(f"{name}: no such workload; one of {', '.join(WORKLOADS)}")
    if not o.heaptide:
        run(["cargo", "build", "--release", "--quiet", "-p", "heaptide-cli"])
        o.heaptide = os.path.join(os.path.dirname(build.BUILT), "release", "heaptide")
    return o


def main():
    o = options()
    build.compile_programs(("owners",))
    library = run([o.heaptide, "library"]).strip()
    met = True
    print(f"sampled={MEAN}, {MEGABYTES} MB, {o.runs} runs; owners of at least 1 %")
    print(f"{'workload':<10} {'metric':<14} {'owners':>6} {'inside':>8} {'least':>8} {'width':>7}")
    with tempfile.TemporaryDirectory(prefix="heaptide-sampling-") as place:
        for workload in o.only:
            for metric, coverage in covered(o, library, workload, place).items():
                inside, least = coverage.all(o.runs), coverage.least(o.runs)
                width = sorted(coverage.widths)[len(coverage.widths) // 2]
                exact = "" if coverage.exact else "  totals differ"
                print(f"{workload:<10} {metric:<14} {len(coverage.inside):>6} {inside:>8.1%} "
                      f"{least:>8.1%} {width:>7.0%}{exact}", flush=True)
                met &= inside >= GOAL and coverage.exact
    return 0 if met else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (Failed, OSError) as e:
        print(f"sampling: {e}", file=sys.stderr)
        sys.exit(2)
