"""Waits until other processes leave the processors alone, and sums up how much they took anyway."""
import os
import time

QUIET = 0.2  # of a processor, by others
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
        """What `run` returns, a `Use`; the time that others took meanwhile is added up."""
        before = self.read()
        use = run()
        self.took += max(0.0, self.read() - before - use.cpu)
        self.elapsed += use.wall
        return use

    def said(self):
        return f"other processes took {100 * self.took / max(self.elapsed, 1e-9):.0f} % of a CPU"


def busy_seconds():
    """The time that all processors have worked, since the machine was started."""
    with open("/proc/stat") as stat:
        user, nice, system, _idle, _wait, irq, softirq, steal = map(
            int, stat.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / TICKS_A_SECOND
