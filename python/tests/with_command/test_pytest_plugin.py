"""``pytest --heaptide``: numbers of each test, limits, workers, and behaviour that must not change.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from xml.etree import ElementTree

import heaptide
from heaptide.pytest_plugin import format_size, parse_size

# Each test in this file holds, or leaks, as many bytes as its name states.
TESTS = """
import threading
import pytest

leaked = []

def hold(size):
    return bytearray(size)

def leak(size):
    leaked.append(bytearray(size))

def in_thread(function, size):
    thread = threading.Thread(target=function, args=(size,))
    thread.start()
    thread.join()

def is_not_of_leak(stack):
    assert stack.frames[0].filename.endswith(".py") and stack.frames[0].lineno > 0
    return all(frame.function != "leak" for frame in stack.frames)

def test_3000000_at_once():
    blocks = [hold(1_000_000) for _ in range(3)]

def test_1000000_at_once():
    for _ in range(3):
        hold(1_000_000)

@pytest.mark.limit_memory("1 MB")
def test_passes_500000():
    hold(500_000)

@pytest.mark.limit_memory("1 MB")
def test_fails_2000000():
    hold(2_000_000)

@pytest.mark.limit_memory("1 MB")
def test_fails_in_thread():
    in_thread(hold, 2_000_000)

@pytest.mark.limit_memory("1 MB", current_thread_only=True)
def test_passes_in_another_thread():
    in_thread(hold, 2_000_000)

@pytest.mark.limit_leaks("100 KB")
def test_passes_without_a_leak():
    hold(5_000_000)
    for _ in range(3):
        leak(30_000)

@pytest.mark.limit_leaks("100 KB")
def test_fails_with_a_leak():
    for _ in range(3):
        leak(60_000)

@pytest.mark.limit_leaks("100 KB")
def test_fails_with_a_leak_in_thread():
    in_thread(leak, 150_000)

@pytest.mark.limit_leaks("100 KB", current_thread_only=True)
def test_passes_with_a_leak_in_another_thread():
    in_thread(leak, 150_000)

@pytest.mark.limit_leaks("100 KB")
def test_passes_with_a_cycle():
    cycle = [hold(500_000)]
    cycle.append(cycle)

@pytest.mark.limit_leaks("100 KB", filter_fn=is_not_of_leak)
def test_passes_the_filter():
    leak(500_000)

cache = {}

@pytest.mark.limit_leaks("100 KB", warmups=1)
def test_passes_after_a_warmup():
    if not cache:
        cache["first"] = hold(500_000)

@pytest.mark.parametrize("text", ['a"b\\\\c [d]'])
@pytest.mark.limit_memory("1 KB")
def test_fails_with_an_odd_name(text):
    hold(10_000)

@pytest.mark.limit_memory("1 MB")
def test_fails_by_itself():
    hold(2_000_000)
    raise ValueError("its own reason")
"""

PASS = (
    "1000000_at_once",
    "3000000_at_once",
    "passes_500000",
    "passes_after_a_warmup",
    "passes_in_another_thread",
    "passes_the_filter",
    "passes_with_a_leak_in_another_thread",
    "passes_with_a_cycle",
    "passes_without_a_leak",
)


# Outcomes of the tests in order: M for those that exceed a limit.
OUTCOMES = "...MM..MM....MF"

# Files contain how much it holds, and how much it leaks.
GROWING = """
import pytest

kept = []

@pytest.mark.limit_memory("10 MB")
def test_size():
    with open("size") as file:
        bytearray(int(file.read()))

@pytest.mark.limit_leaks("1 MB", filter_fn=lambda stack: names.append(stack.frames) is None)
def test_leak():
    kept.append(bytearray(2_000_000))

names = []

def test_frames():
    with open("frames", "w") as file:
        file.write("\\n".join(frame.function for frame in names[0]))
"""


class Plugin(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.directory)
        with open(os.path.join(self.directory, "test_memory.py"), "w") as file:
            file.write(TESTS)

    def run_pytest(self, *options):
        words = ["-m", "pytest", "-p", "heaptide.pytest_plugin", "-p", "no:cacheprovider"]
        return subprocess.run(
            [sys.executable, *words, "--junitxml", "junit.xml", *options],
            cwd=self.directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            universal_newlines=True,
            check=False,
        )

    def cases(self):
        """Returns the tests in the JUnit file: whether each passed, and its properties."""
        cases = {}
        for case in ElementTree.parse(os.path.join(self.directory, "junit.xml")).iter("testcase"):
            found = {entry.get("name"): int(entry.get("value")) for entry in case.iter("property")}
            failure = case.find("failure")
            found["failure"] = None if failure is None else failure.get("message")
            cases[case.get("name")[len("test_") :]] = found
        return cases

    def check_cases(self):
        cases = self.cases()
        self.assertEqual(len(cases), 15)
        passed = sorted(name for name, case in cases.items() if case["failure"] is None)
        self.assertEqual(passed, sorted(PASS))
        for name, bytes_at_once in (
            ("3000000_at_once", 3_000_000),
            ("1000000_at_once", 1_000_000),
            ("fails_in_thread", 2_000_000),
            ("passes_in_another_thread", 2_000_000),
        ):
            peak = cases[name]["heaptide_peak_bytes"]
            # Within 32 KiB per thread, and allocations of pytest itself.
            self.assertTrue(abs(peak - bytes_at_once) < 80_000, (name, peak))
        allocated = cases["1000000_at_once"]["heaptide_allocated_bytes"]
        self.assertTrue(3_000_000 <= allocated < 3_060_000, allocated)
        kept = cases["fails_with_a_leak"]["heaptide_not_freed_bytes"]
        self.assertTrue(180_000 <= kept < 200_000, kept)
        self.assertRegex(
            cases["fails_2000000"]["failure"],
            r"^Test was limited to 1\.00 MiB but held 1\.9. MiB at once$",
        )
        self.assertRegex(
            cases["fails_with_a_leak"]["failure"],
            r"^Test was allowed to leak less than 100 KiB per location but leaked 17. KiB$",
        )
        self.assertEqual(cases["fails_by_itself"]["failure"], "ValueError: its own reason")

    def test_limits_figures_and_summary(self):
        done = self.run_pytest("--heaptide", "--heaptide-tests", "1", "--strict-markers")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.check_cases()
        self.assertIn("memory of tests, by heaptide", done.stdout)
        self.assertEqual(re.findall(r"^test_memory\.py (\S+)", done.stdout, re.M), [OUTCOMES])
        self.assertIn("MEMORY PROBLEMS test_memory.py::test_fails_2000000", done.stdout)
        # The owner of the memory is `hold`.
        self.assertRegex(
            done.stdout,
            r"Largest allocating lines, by bytes in all:\n +1\.91 MiB  test_memory\.py:\d+  "
            r"return bytearray\(size\)\n",
        )
        most = done.stdout.split("memory of tests, by heaptide")[1]
        self.assertRegex(most, r"\ntest_memory\.py::test_passes_without_a_leak\n +peak 4\.[78]")
        self.assertRegex(
            most, r"MiB in all, \d+\.?\d* KiB not freed\n +4\.7. MiB in \d+ blocks  \w+"
        )
        self.assertIn("14 more tests; --heaptide-tests 0 shows all", most)
        self.assertIn("recording: pytest.heaptide;", most)
        # The stack of a leak, innermost function first.
        self.assertRegex(
            done.stdout,
            r"17. KiB not freed:\n    leak  \S+test_memory\.py:11\n"
            r"    test_fails_with_a_leak  \S+test_memory\.py:\d+\n",
        )
        recording = heaptide.open(os.path.join(self.directory, "pytest.heaptide"))
        # The commands that the plug-in runs are not recorded.
        programs = {os.path.basename(row["program"]) for row in recording.processes()}
        self.assertFalse([name for name in programs if "heaptide" in name])
        tests = recording.query("SELECT pytest,count() GROUP BY pytest WHERE pytest")
        self.assertEqual(len(tests), 15)

    def test_workers(self):
        done = self.run_pytest("--heaptide", "-n", "2", "-p", "xdist")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.check_cases()
        self.assertRegex(
            done.stdout, r"test_memory\.py::test_3000000_at_once\n +peak 2\.[89]. MiB, "
        )

    def growing(self, size, *options):
        """Returns the summaries of failed tests, and the whole output."""
        with open(os.path.join(self.directory, "test_memory.py"), "w") as file:
            file.write(GROWING)
        with open(os.path.join(self.directory, "size"), "w") as file:
            file.write(str(size))
        done = self.run_pytest("--heaptide", "-p", "cacheprovider", *options)
        cases = self.cases()
        return {name: case["failure"] for name, case in cases.items() if case["failure"]}, done

    def test_a_test_with_more_memory_than_before_fails_on_request(self):
        option = "--heaptide-fail-on-increase"
        for size, options, is_failed in (
            (2_000_000, [option], False),
            (1_000_000, [option], False),
            (3_000_000, [option], True),
            (3_000_000, [option], True),
            (3_000_000, [], False),
            (2_000_000, [option], False),
        ):
            failed, _ = self.growing(size, *options, "-k", "test_size")
            self.assertEqual("size" in failed, is_failed, (size, options))
            if is_failed:
                self.assertRegex(
                    failed["size"],
                    r"^Test held 9\d\d KiB at once when it last passed but now held 2\.[89]. MiB, "
                    r"[12],\d{3},\d{3} bytes more$",
                )
        _, done = self.growing(1, option, "-p", "no:cacheprovider")
        self.assertIn("--heaptide-fail-on-increase needs the cache of pytest", done.stdout)

    def test_frames_of_leaks_and_the_summary_are_chosen(self):
        failed, done = self.growing(1, "--heaptide-stacks", "1", "--hide-heaptide-summary")
        self.assertEqual(list(failed), ["leak"])
        self.assertNotIn("memory of tests, by heaptide", done.stdout)
        listed = r"1\.91 MiB not freed:\n((?: {4}.*\n)+)"
        (frames,) = re.findall(listed, done.stdout)
        self.assertRegex(frames, r"^    test_leak  \S+test_memory\.py:\d+\n$")
        with open(os.path.join(self.directory, "frames")) as file:
            self.assertEqual(file.readline(), "test_leak\n")
        _, done = self.growing(1, "--heaptide-stacks", "0", "--heaptide-native")
        (frames,) = re.findall(listed, done.stdout)
        functions = [line.strip().rpartition("  ")[0] for line in frames.splitlines()]
        self.assertIn("bytearray", functions[0].lower())
        self.assertIn("test_leak", functions[1:])
        with open(os.path.join(self.directory, "frames")) as file:
            self.assertEqual(file.read().splitlines(), functions)

    def test_without_the_option_markers_do_nothing(self):
        done = self.run_pytest("--strict-markers")
        self.assertEqual(done.returncode, 1, done.stdout)
        failed = [name for name, case in self.cases().items() if case["failure"] is not None]
        self.assertEqual(failed, ["fails_by_itself"])
        self.assertNotIn("heaptide_peak_bytes", self.cases()["3000000_at_once"])
        self.assertFalse(os.path.exists(os.path.join(self.directory, "pytest.heaptide")))

    def test_inside_another_program_it_explains_how_to_start(self):
        code = "import pytest, sys; sys.exit(pytest.main(['-p', 'heaptide.pytest_plugin', '--heaptide']))"
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=self.directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            universal_newlines=True,
            check=False,
        )
        self.assertEqual(done.returncode, 4, done.stdout)
        self.assertIn("start that by `heaptide run -- ", done.stdout)


class Sizes(unittest.TestCase):
    def test_sizes_are_parsed_like_in_pytest_memray(self):
        for text, size in (("24 MB", 24 << 20), ("1kb", 1024), ("1.5 GB", 1.5 * 2**30), ("7B", 7)):
            self.assertEqual(parse_size(text), size)
        for text in ("", "24", "24 MiB", "-1 KB", "x KB", "1 KB more"):
            with self.assertRaisesRegex(ValueError, re.escape(repr(text))):
                parse_size(text)

    def test_sizes_are_shown_with_three_digits(self):
        shown = [format_size(size) for size in (0, 1023, 1024, 10_240, 1_048_576, -2048, 2.5e12)]
        expected = ["0 B", "1023 B", "1.00 KiB", "10.0 KiB", "1.00 MiB", "-2.00 KiB", "2.27 TiB"]
        self.assertEqual(shown, expected)
