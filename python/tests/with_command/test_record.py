"""``with heaptide.record(path):`` records the allocations of the block and nothing else."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import heaptide

from programs import LARGE, heaptide as command

# In the first part, 2 blocks of 1 MB stay live, 5 of 2 MB are freed at once, and another thread
# allocates one of 3 MB. In the second part, 1 block of 1 MB stays live, and one of the first part
# is freed.
PARTS = """
import threading
import heaptide

def keep(count):
    blocks = []
    for _ in range(count):
        blocks.append(bytearray(1_000_000))
    return blocks

def churn(count):
    for _ in range(count):
        bytearray(2_000_000)

def elsewhere():
    other.append(bytearray(3_000_000))

before, other = bytearray(9_000_000), []
with heaptide.record("first.heaptide") as part:
    kept = keep(2)
    churn(5)
    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
assert not heaptide.active(whole_process=True)
between = bytearray(8_000_000)
try:
    with heaptide.record("second.heaptide"):
        del before, between, kept[0]
        kept += keep(2)
        raise KeyError
except KeyError:
    print(part.path)
after = bytearray(7_000_000)
"""

REFUSED = """
import os
import sys
import heaptide

try:
    with heaptide.record(sys.argv[1]):
        print("the part runs")
except heaptide.HeaptideError as error:
    print(error)
"""

# Children that leave the block, normally or by an exception, write nothing.
FORKED = """
import os
import heaptide

with heaptide.record("forked.heaptide"):
    kept = bytearray(1_000_000)
    child = os.fork()
    if child == 0:
        unseen = bytearray(5_000_000)
    else:
        assert os.waitpid(child, 0)[1] == 0
"""


# A part inside another, and one that another thread starts while the first recording is written.
OVERLAPPING = """
import os
import threading
import heaptide
from heaptide import _record

def another():
    try:
        with heaptide.record("another.heaptide"):
            pass
    except heaptide.HeaptideError as error:
        print(error)

def ask(words, ask=_record.ask):
    _record.ask = ask
    thread = threading.Thread(target=another)
    thread.start()
    thread.join()
    child = os.fork()
    if child == 0:
        # The open part belongs to the parent, so a child may start its own.
        with heaptide.record("child.heaptide"):
            pass
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    return ask(words)

_record.ask = ask
with heaptide.record("outer.heaptide"):
    another()
    kept = bytearray(1_000_000)
"""


class Parts(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.directory)

    def python(self, code, *arguments, options=("--start-off",)):
        words = ["run", "--quiet", *options, "-o", self.path("run.heaptide"), "--force", "--"]
        words += [sys.executable, "-c", code, *arguments]
        return command(*words, directory=self.directory).stdout

    def without_command(self, **variables):
        done = subprocess.run(
            [sys.executable, "-c", REFUSED, "a.heaptide"],
            cwd=self.directory,
            check=True,
            stdout=subprocess.PIPE,
            env={**os.environ, **variables},
            universal_newlines=True,
        )
        return done.stdout

    def path(self, name):
        return os.path.join(self.directory, name)

    def by_function(self, name, **selection):
        """Returns total, live and peak MB of each function of the program."""
        rows = {row["owner"]: row for row in heaptide.open(self.path(name), **selection).owners()}
        found = {}
        for function in ("keep", "churn", "elsewhere"):
            columns = ("requested_bytes", "live_bytes", "at_peak_bytes")
            found[function] = tuple(rows[function][column] // LARGE for column in columns)
        return found

    def test_each_part_has_its_own_allocations_and_peak(self):
        printed = self.python(PARTS)
        self.assertEqual(printed, self.path("first.heaptide") + "\n")
        self.assertEqual(
            self.by_function("first.heaptide"),
            {"keep": (2, 2, 2), "churn": (10, 0, 0), "elsewhere": (3, 3, 3)},
        )
        # Only the live blocks of the first part count.
        self.assertEqual(
            self.by_function("second.heaptide"),
            {"keep": (2, 3, 3), "churn": (0, 0, 0), "elsewhere": (0, 3, 3)},
        )
        for name, most in (("first.heaptide", 5), ("second.heaptide", 6)):
            recording = heaptide.open(self.path(name))
            (process,) = recording.processes()
            # In addition to the arrays, the program has some objects and a thread.
            self.assertEqual(process["peak_bytes"] // LARGE, most)
            self.assertEqual(sum(recording.owners()["live_bytes"]), process["live_bytes"])
        # The run's own recording contains all parts.
        whole = self.by_function("run.heaptide", from_start=True)
        self.assertEqual([whole[name][0] for name in ("keep", "churn", "elsewhere")], [4, 10, 3])

    def test_a_recording_is_overwritten_only_on_request(self):
        code = "import heaptide\nwith heaptide.record('a.heaptide', overwrite=True): x = bytearray(1_000_000)"
        for _ in range(2):
            self.python(code)
        self.assertIn("already exists; overwrite=True", self.python(REFUSED, "a.heaptide"))
        os.mkdir(self.path("mine"))
        self.assertIn("mine: already exists", self.python(REFUSED, "mine"))
        self.assertIn("no/such: no such directory", self.python(REFUSED, "no/such/x.heaptide"))

    def test_unrecordable_parts_are_rejected_before_they_run(self):
        recorded = self.python(REFUSED, "a.heaptide", options=())
        self.assertEqual(
            recorded,
            "recording is on already; end the part that it is on for, or "
            "start the program with `python -m heaptide run --start-off app.py`\n",
        )
        self.assertEqual(
            self.without_command(),
            "this process has no recorder; "
            "start the program with `python -m heaptide run --start-off app.py`\n",
        )
        library = command("library", directory=self.directory).stdout.strip()
        disabled = self.without_command(LD_PRELOAD=library, HEAPTIDE_MODE="off")
        self.assertEqual(disabled, "this process is not recorded; `heaptide info` explains why\n")
        self.assertEqual([name for name in os.listdir(self.directory) if name.startswith("a")], [])

    def test_parts_do_not_overlap(self):
        printed = self.python(OVERLAPPING).splitlines()
        self.assertEqual(len(printed), 2, printed)
        for line in printed:
            self.assertTrue(line.startswith("recording is on already; end the part"), line)
        large = heaptide.open(self.path("outer.heaptide"), min_size=LARGE).owners()
        self.assertEqual([row["live_bytes"] // LARGE for row in large], [1])
        self.assertTrue(os.path.exists(self.path("child.heaptide")))
        self.assertFalse(os.path.exists(self.path("another.heaptide")))

    def test_a_forked_child_writes_nothing(self):
        self.python(FORKED)
        large = heaptide.open(self.path("forked.heaptide"), min_size=LARGE).owners()
        self.assertEqual([row["requested_bytes"] for row in large], [1_000_001])


if __name__ == "__main__":
    unittest.main()
