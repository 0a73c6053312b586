"""Runs commands and measures their resources; alternates setups with bare runs."""
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field

from quiet import Others

LIMIT_S = 300  # a longer run has failed


@dataclass
class Use:
    """The resources that one run used. `ns` is the time that the workload itself reports, if any;
    `written` are the bytes of files that it left.
    """

    wall: float
    cpu: float
    rss_kb: float
    ns: float = 0.0
    written: float = 0.0


@dataclass
class Workload:
    """A command, with {n} for the number of operations, and these numbers for each kind of setup.
    """

    name: str
    command: list
    n: int = 0
    n_heaptrack: int = 0
    stdin: str = ""
    env: dict = field(default_factory=dict)

    def argv(self, n):
        return [word.replace("{n}", str(n)) for word in self.command]


@dataclass
class Setup:
    """How a workload is run: with a preloaded library, or with a command in front."""

    name: str
    preload: str = ""
    prefix: tuple = ()
    env: dict = field(default_factory=dict)
    heavy: bool = False  # runs Workload.n_heaptrack operations
    replaces: int = 0  # number of words of the workload that the command replaces

    def operations(self, workload):
        return workload.n_heaptrack if self.heavy else workload.n


BARE = Setup("bare")


class Failed(Exception):
    """A run ended with a nonzero status."""


class Runner:
    """Runs commands in an empty directory and writes a line of JSON for each."""

    def __init__(self, rusage, scratch, log):
        self.rusage, self.scratch, self.log = rusage, scratch, log
        self.others = Others()

    def path(self, name):
        return os.path.join(self.scratch, name)

    def run(self, workload, setup, n=0):
        directory = self.path("run")
        shutil.rmtree(directory, ignore_errors=True)
        os.makedirs(directory)
        env = dict(os.environ, **workload.env)
        env.update({k: v.replace("{run}", directory) for k, v in setup.env.items()})
        env.pop("LD_PRELOAD", None)
        if setup.preload:
            env["BENCH_PRELOAD"] = setup.preload
        prefix = [word.replace("{run}", directory) for word in setup.prefix]
        argv = prefix + workload.argv(n)[setup.replaces:]
        self.others.wait()
        use = self.others.during(lambda: self.timed(argv, env, workload.stdin, directory))
        use.written = bytes_below(directory)
        self.note(workload.name, setup.name, n, use)
        return use

    def timed(self, argv, env, stdin, cwd):
        """Returns the resources of a workload, with the time that it prints if it times itself."""
        use, out = self.time(argv, env=env, stdin=stdin, cwd=cwd)
        stated = re.search(r"^ns_per_\w+ ([\d.]+)", out, re.M)
        use.ns = float(stated.group(1)) if stated else 0.0
        return use

    def time(self, argv, env=None, stdin="", cwd=None):
        """Returns the resources that `argv` used, and the start of its output."""
        stat, out, err = self.path("stat"), self.path("out"), self.path("err")
        if os.path.exists(stat):
            os.remove(stat)
        with open(stdin or os.devnull) as i, open(out, "w") as o, open(err, "w") as e:
            child = subprocess.Popen(
                [self.rusage, stat, *argv], env=env, cwd=cwd,
                stdin=i, stdout=o, stderr=e, start_new_session=True,
            )
            try:
                child.wait(LIMIT_S)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
                raise Failed(f"{argv[0]}: not done after {LIMIT_S} s") from None
        use = read_stat(stat, argv, err)
        with open(out, errors="replace") as o:
            return use, o.read(10_000)

    def note(self, workload, setup, n, use):
        line = dict(workload=workload, setup=setup, n=n, **use.__dict__)
        self.log.write(json.dumps(line) + "\n")
        self.log.flush()
        shown = f"{use.ns:8.1f} ns" if use.ns else " " * 11
        print(
            f"  {workload:<12} {setup:<18} wall {use.wall:7.3f} s  cpu {use.cpu:7.3f} s "
            f"{shown}  rss {use.rss_kb / 1024:6.1f} MB", file=sys.stderr, flush=True,
        )

    def compare(self, workload, setups, rounds):
        """Runs bare, A, bare, B, bare …: returns, for each setup, pairs of its run and the mean of
        the adjacent bare runs, which cancels slow drift of the machine.
        """
        pairs = {setup.name: [] for setup in setups}
        for _ in range(rounds):
            for heavy in (False, True):
                chosen = [s for s in setups if s.heavy == heavy]
                if not chosen:
                    continue
                n = chosen[0].operations(workload)
                before = self.run(workload, BARE, n)
                for setup in chosen:
                    use = self.run(workload, setup, n)
                    after = self.run(workload, BARE, n)
                    pairs[setup.name].append((use, mean(before, after)))
                    before = after
        return pairs


def bytes_below(directory):
    files = [os.path.join(place, name) for place, _, names in os.walk(directory) for name in names]
    return sum(os.stat(file).st_blocks * 512 for file in files)


def read_stat(path, argv, err):
    with open(err, errors="replace") as e:
        said = e.read()[-300:].strip()
    if not os.path.exists(path):
        raise Failed(f"{' '.join(argv)}: could not be started: {said}")
    with open(path) as stat:
        wall, cpu, rss_kb, status = stat.read().split()
    if status != "0":
        raise Failed(f"{' '.join(argv)}: status {status}: {said}")
    return Use(float(wall), float(cpu), float(rss_kb))


def wall_clock(argv, env=None, stdin=""):
    """Returns the elapsed seconds of `argv`; its output is discarded."""
    start = time.monotonic()
    with open(stdin or os.devnull) as i:
        done = subprocess.run(
            argv, env=env, stdin=i, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            timeout=LIMIT_S, check=False,
        )
    seconds = time.monotonic() - start
    if done.returncode != 0:
        raise Failed(f"{' '.join(argv)}: status {done.returncode}: {done.stderr[-300:]!r}")
    return seconds


def mean(a, b):
    middle = {k: (a.__dict__[k] + b.__dict__[k]) / 2 for k in a.__dict__}
    return Use(**middle)


def median(pairs, figure):
    """Returns the median of `figure(run, bare)` over the rounds; None without rounds."""
    return statistics.median(figure(use, bare) for use, bare in pairs) if pairs else None


def extra_ns(use, bare):
    return use.ns - bare.ns


def cpu_ratio(use, bare):
    return use.cpu / bare.cpu


def wall_ratio(use, bare):
    return use.wall / bare.wall
