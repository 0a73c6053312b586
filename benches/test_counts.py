"""Tests of counts and ceilings with known numbers; they run no program except the interpreter."""
import json
import os
import sys
import tempfile
import unittest
from unittest import mock

import cachegrind
import ceilings
import counts
from cachegrind import Counts

PRINTED = """\
==7== I   refs:      34,757,108
==7== I1  misses:         1,234
==7== LLi misses:         1,200
==7== D   refs:      12,000,000  (8,000,000 rd   + 4,000,000 wr)
==7== D1  misses:        56,789  (   40,000 rd   +    16,789 wr)
==7== LL misses:          9,876  (    9,000 rd   +       876 wr)
"""
MADE_WITH = {"rustc": "1.95.0", "gcc": "12", "glibc": "2.36"}


class Cachegrind(unittest.TestCase):
    def test_the_counts_are_parsed(self):
        self.assertEqual(cachegrind.parse(PRINTED), Counts(34_757_108, 1234, 56_789, 9876))

    def test_output_without_counts_is_an_error(self):
        with self.assertRaisesRegex(cachegrind.Failed, "no such file"):
            cachegrind.parse("valgrind: no such file")

    def test_long_paths_do_not_move_the_stack(self):
        def size(argv, variables):
            named = cachegrind.environment(argv, variables)
            return sum(len(text) + 1 for text in [*argv, *named, *named.values()])

        self.assertEqual(size(["a"], {}), size(["a" * 99], {"LD_PRELOAD": "/a/long/path.so"}))

    def test_a_program_that_fails_is_an_error(self):
        with mock.patch("shutil.which", return_value=sys.executable):
            with mock.patch.object(cachegrind, "CACHES", []):
                with self.assertRaisesRegex(cachegrind.Failed, "status"):
                    cachegrind.count(["program"], {})


class Rows(unittest.TestCase):
    def setUp(self):
        self.counter = counts.Counter.__new__(counts.Counter)
        self.counter.done = {}

    def fill(self, work, length, bare, loaded):
        self.counter.done[self.counter.key(work, length, False)] = Counts(bare, 0, 0, 0)
        self.counter.done[self.counter.key(work, length, True)] = Counts(loaded, 0, 0, 0)

    def test_start_up_and_the_programs_own_work_cancel_out(self):
        work = counts.Workload("w", "w", ("w",), (10, 20), "stacks", 10, goals={"instructions": 7})
        self.fill(work, 10, 1000, 5070)
        self.fill(work, 20, 1500, 5640)
        [row] = self.counter.rows(work)
        self.assertEqual(row.counts.instructions, 7)
        self.assertTrue(row.met)

    def test_start_up_of_the_interpreter_is_the_excess_over_the_steady_rate(self):
        work = next(work for work in counts.workloads() if work.name == "python")
        self.fill(work, 1500, 1000, 9000)
        self.fill(work, 3000, 2000, 12_000)
        self.counter.allocations = lambda _, length: {1500: 100, 3000: 300}[length]
        steady, start = self.counter.rows(work)
        self.assertEqual(steady.counts.instructions, 10)
        self.assertEqual(start.counts.instructions, 8000 - 10 * 100)

    def test_only_the_goal_of_misses_is_missed(self):
        limits = {"instructions": 800, "d1": 5}
        self.assertTrue(counts.Row("t", "t", Counts(800, 9, 5, 9), limits).met)
        self.assertFalse(counts.Row("t", "t", Counts(700, 0, 5.1, 0), limits).met)
        self.assertIsNone(counts.Row("t", "t", Counts(700, 0, 5.1, 0), {}).met)

    def test_counts_near_zero_have_no_sign(self):
        self.assertEqual(counts.shown(-0.001), "0.00")
        self.assertEqual(counts.shown(135_400_000), "135.4 M")

    def test_the_interpreter_has_no_ceiling(self):
        with_ceiling = [work.name for work in counts.workloads() if work.has_ceiling]
        self.assertEqual(with_ceiling, ["counters", "sampled", "scopes", "stacks-5", "stacks-40", "tree"])


class Ceilings(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.path = os.path.join(directory.name, "ceilings.json")
        self.measured = {"counters": Counts(100, 0, 2, 0), "tree": Counts(800, 0, 5, 1)}
        ceilings.write(self.path, self.measured, MADE_WITH)

    def check(self, **changed):
        return ceilings.check(self.path, {**self.measured, **changed}, MADE_WITH)

    def test_stored_counts_are_within_their_ceilings(self):
        self.assertEqual(self.check(), [])
        self.assertEqual(self.check(counters=Counts(102, 0.1, 2.1, 0.1)), [])

    def test_each_row_that_exceeds_is_one_line(self):
        problems = self.check(counters=Counts(102.1, 0, 2, 0), tree=Counts(900, 0, 5, 1))
        self.assertEqual(problems, [
            "counts: counters: 102.10 instructions over bare, the ceiling is 102.0",
            "counts: tree: 900.00 instructions over bare, the ceiling is 816.0",
        ])

    def test_misses_that_exceed_are_found(self):
        [problem] = self.check(tree=Counts(800, 0, 5.3, 1))
        self.assertIn("5.30 d1 over bare, the ceiling is 5.2", problem)

    def test_a_row_without_a_ceiling_is_found(self):
        [problem] = self.check(new=Counts(1, 0, 0, 0))
        self.assertIn("new: no ceiling", problem)

    def test_other_compilers_are_not_compared(self):
        with self.assertRaisesRegex(ceilings.Mismatch, "rustc 1.95.0.* this is rustc 1.96.0"):
            ceilings.check(self.path, self.measured, {**MADE_WITH, "rustc": "1.96.0"})

    def test_stored_ceilings_are_those_of_the_rows(self):
        stored = os.path.join(os.path.dirname(ceilings.__file__), "ceilings.json")
        with open(stored) as file:
            names = list(json.load(file)["ceilings"])
        self.assertEqual(names, [w.name for w in counts.workloads() if w.has_ceiling])


if __name__ == "__main__":
    unittest.main()
