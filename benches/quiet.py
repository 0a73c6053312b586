"""Waits until other processes leave the processors idle, and sums up the time that they still take.
"""
import os
import time

QUIET = 0.2  # share of a processor taken by others
SAMPLE_S = 0.1
LONGEST_WAIT_S = 30  # before a run
PATIENCE_S = 600  # before all runs of a benchmark

TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


class Others:
    """The share of a processor that processes other than the measured ones take."""

    def __init__(self, read=None, sleep=time.sleep):
        self.read, self.sleep = read or busy_seconds, sleep
        self.patience = PATIENCE_S
        self.reset()

    def reset(self):
        self.took, self.elapsed = 0.0, 0.0

    def wait(self):
        """Returns when a sample is quiet, or after the longest wait."""
        end = min(LONGEST_WAIT_S, self.patience)
        waited = 0.0
        while waited < end and self.share() > QUIET:
            self.sleep(SAMPLE_S)
            waited += 2 * SAMPLE_S
        self.patience -= waited

    def share(self):
        before = self.read()
        self.sleep(SAMPLE_S)
        return (self.read() - before) / SAMPLE_S

    def during(self, run):
        """Returns the result of `run`, a `Use`, and adds up the time that others took meanwhile."""
        before = self.read()
        use = run()
        self.took += max(0.0, self.read() - before - use.cpu)
        self.elapsed += use.wall
        return use

    def said(self):
        return f"other processes took {100 * self.took / max(self.elapsed, 1e-9):.0f} % of a CPU"


def busy_seconds():
    """Returns the time that all processors have been busy since boot."""
    with open("/proc/stat") as stat:
        user, nice, system, _idle, _wait, irq, softirq, steal = map(
            int, stat.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / TICKS_A_SECOND
