"""Tests of rows, goals and tables with known numbers; they run no program."""
import tempfile
import unittest
from unittest import mock

import goals
import quiet
import results
import rivals
import tables
from measure import Use


class Rivals(unittest.TestCase):
    def row(self, heaptide, heaptrack):
        """Returns the row for these times of the tools; a bare pair takes 10 ns."""
        suite = goals.Suite.__new__(goals.Suite)
        suite.rounds, suite.stacks, suite.heaptrack = 1, goals.Setup("heaptide stacks"), None
        pairs = {"heaptide stacks": [(Use(1, 1, 1, heaptide), Use(1, 1, 1, 10))]}
        if heaptrack:
            pairs["heaptrack"] = [(Use(1, 1, 1, heaptrack), Use(1, 1, 1, 10))]
        suite.runner = mock.Mock(**{"compare.return_value": pairs})
        return rivals.compared(suite, "pairs", None, 25)

    def test_extra_times_are_compared(self):
        self.assertTrue(self.row(20, 260).met)
        self.assertFalse(self.row(20, 259).met)

    def test_no_added_time_has_no_ratio(self):
        row = self.row(9, 260)
        self.assertTrue(row.met)
        self.assertEqual(row.heaptrack, "+250.0 ns")

    def test_without_heaptrack_the_row_fails(self):
        row = self.row(20, None)
        self.assertIs(row.met, False)
        self.assertEqual(row.heaptrack, "not installed")


class Quiet(unittest.TestCase):
    def others(self, busy):
        """Simulates processors with these consecutive busy times, in seconds."""
        return quiet.Others(read=mock.Mock(side_effect=busy), sleep=lambda _: None)

    def test_it_waits_for_a_quiet_sample(self):
        others = self.others([0, 0.1, 0.1, 0.2, 0.2, 0.21])
        others.wait()
        self.assertEqual(others.read.call_count, 6)

    def test_it_does_not_wait_forever(self):
        others = self.others(range(10_000))
        others.wait()
        self.assertLessEqual(others.patience, quiet.PATIENCE_S - quiet.LONGEST_WAIT_S)

    def test_the_time_of_the_run_does_not_count_as_others(self):
        others = self.others([10, 13])
        others.during(lambda: Use(wall=4, cpu=2, rss_kb=0))
        self.assertEqual(others.said(), "other processes took 25 % of a CPU")

    def test_the_kernels_times_are_read(self):
        self.assertGreater(quiet.busy_seconds(), 0)


class Tables(unittest.TestCase):
    STORED = {
        "machine": "M", "commit": "c0ffee", "date": "2026-01-02", "method": "once",
        "versions": {"gcc": "12"}, "columns": ["workload", "goal", "met"],
        "rows": [{"cells": ["w", "≤ 1"], "met": False, "figures": {}}],
    }
    PAGE = "before\n<!-- table k -->\nold\n<!-- end of table -->\nafter\n"

    def test_a_kind_without_results_is_named(self):
        page = tables.filled(self.PAGE.replace("table k", "table no-such-kind"))
        self.assertIn("`cargo xtask bench --store --only no-such-kind` measures them", page)

    def test_only_the_table_is_replaced(self):
        stored = mock.patch.object(results, "load", return_value=self.STORED)
        with stored, mock.patch("os.path.exists", return_value=True):
            page = tables.filled(self.PAGE)
            self.assertEqual(tables.filled(page), page)
        self.assertEqual(page, (
            "before\n<!-- table k -->\n\nM; commit c0ffee, 2026-01-02; once.\ngcc 12.\n\n"
            "| workload | goal | met |\n|---|---|---|\n| w | ≤ 1 | **no** |\n\n"
            "<!-- end of table -->\nafter\n"))

    def test_a_failure_leaves_the_pages_alone(self):
        with tempfile.NamedTemporaryFile("w+") as page:
            page.write(self.PAGE)
            page.flush()
            with mock.patch.object(tables, "PAGES", [page.name]):
                with mock.patch.object(tables, "filled", side_effect=OSError):
                    self.assertRaises(OSError, tables.write)
            with open(page.name) as left:
                self.assertEqual(left.read(), self.PAGE)

    def test_a_missing_tool_is_a_dash(self):
        figures = {"bare_ns": 10, "heaptide_ns": 5, "heaptrack_ns": None}
        self.assertEqual(tables.times(figures), ["10 ns", "1.50", "–", "–"])
        figures = {"bare_wall_s": 2, "heaptide_wall": 1.125, "heaptrack_wall": 12}
        self.assertEqual(tables.walls(figures), ["2.0 s", "1.12", "12", "–"])


if __name__ == "__main__":
    unittest.main()
