"""Recordings as tables: known numbers, types, and every conversion of a table."""

import contextlib
import io
import os
import re
import shutil
import sys
import tempfile
import unittest

import heaptide

from programs import LARGE, heaptide as command, record


class Recordings(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.mkdtemp()
        cls.path = record(cls.directory, "three.heaptide")
        cls.later = record(cls.directory, "seven.heaptide", count=7)
        cls.traced = record(cls.directory, "traced.trace", "--mode", "trace")
        cls.whole = heaptide.open(cls.path)
        cls.large = heaptide.open(cls.path, min_size=LARGE)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.directory)

    @contextlib.contextmanager
    def here(self):
        before = os.getcwd()
        os.chdir(self.directory)
        try:
            yield
        finally:
            os.chdir(before)

    def test_sites_have_stacks_scopes_and_numbers(self):
        sites = [site for site in self.large.sites() if site["allocations"]]
        kept, churned = sorted(sites, key=lambda site: site["allocations"])
        self.assertEqual((kept["allocations"], kept["requested_bytes"]), (3, 3_000_003))
        self.assertEqual((churned["allocations"], churned["frees"]), (5, 5))
        self.assertEqual((churned["live_bytes"], churned["requested_bytes"]), (0, 10_000_005))
        self.assertEqual((kept["owner"], kept["path"]), ("keep", ["load"]))
        self.assertEqual((churned["owner"], churned["path"]), ("churn", None))
        functions = [name for name in kept["stack"] if name in ("main", "keep")]
        self.assertEqual(functions[-2:], ["main", "keep"])

    def test_integers_are_integers_and_lists_are_lists(self):
        sites = self.large.sites()
        self.assertEqual(sites.types["requested_bytes"], "uint64")
        self.assertEqual(sites.types["stack"], "list<string>")
        self.assertEqual(sites.types["owner"], "string")
        self.assertTrue(all(type(value) is int for value in sites["requested_bytes"]))
        # No block here has a label or a size of its own, but the columns exist.
        self.assertEqual(set(sites["label"]) | set(sites["size"]), {None})

    def test_lifetimes_are_those_of_each_block(self):
        blocks = heaptide.open(self.traced, min_size=LARGE).lifetimes()
        kept = [block for block in blocks if block["size"] == 1_000_001]
        churned = [block for block in blocks if block["size"] == 2_000_001]
        self.assertEqual((len(kept), len(churned)), (3, 5))
        self.assertTrue(all(b["freed"] is True and b["temporary"] is True for b in churned))
        self.assertTrue(all(b["freed_ns"] - b["allocated_ns"] == b["lifetime_ns"] for b in churned))
        self.assertEqual({block["path"][0] for block in kept}, {"load"})
        self.assertEqual(blocks.types["address"], "uint64")
        self.assertTrue(all(block["address"] > 4096 for block in blocks))

    def test_owners_add_up_to_the_process(self):
        owners, (process,) = self.whole.owners(), self.whole.processes()
        for name in ("at_peak_bytes", "live_bytes", "allocations", "usable_bytes", "temporary"):
            self.assertEqual(sum(owners[name]), process[name], name)
        large = {row["owner"]: row for row in self.large.owners()}
        self.assertEqual(sorted(large), ["churn", "keep"])
        self.assertEqual((large["keep"]["allocations"], large["churn"]["temporary"]), (3, 5))

    def test_the_tree_has_sums_and_callers(self):
        tree, (process,) = self.whole.tree(), self.whole.processes()
        roots = [row for row in tree if row["parent"] is None]
        self.assertEqual(sum(row["allocations"] for row in roots), process["allocations"])
        self.assertEqual(sum(tree["own_live_bytes"]), process["live_bytes"])
        self.assertEqual(tree["node"], list(range(len(tree))))
        for row in tree:
            if row["parent"] is not None:
                self.assertLess(row["parent"], row["node"])
                self.assertEqual(tree[row["parent"]]["depth"], row["depth"] - 1)
        large = self.large.tree()
        (main,) = [row for row in large if row["function"] == "main"]
        self.assertEqual((main["allocations"], main["own_allocations"]), (8, 0))

    def test_the_timeline_ends_with_the_process(self):
        timeline, (process,) = self.whole.timeline(), self.whole.processes()
        self.assertEqual(timeline["time_ns"], sorted(timeline["time_ns"]))
        self.assertEqual(timeline["peak_bytes"][-1], process["peak_bytes"])

    def test_differences_by_function_stack_or_scope(self):
        (keep,) = [
            row
            for row in self.large.diff(self.later, metric="allocations")
            if row["function"] == "keep"
        ]
        self.assertEqual((keep["before"], keep["after"], keep["change"]), (3, 7, 4))
        stack = self.large.diff(self.later, by="stack", metric="allocations")[0]
        self.assertEqual((stack["change"], "keep" in stack["stack"]), (4, True))
        scopes = self.large.diff(self.later, by="scope", metric="allocations")
        changes = {tuple(row["path"]): row["change"] for row in scopes}
        self.assertEqual(changes[("region=load",)], 4)
        back = heaptide.open(self.later, min_size=LARGE).diff(self.path, metric="allocations")
        self.assertIn(-4, back["change"])

    def test_a_query_has_the_types_of_its_columns(self):
        answer = self.large.query(
            "SELECT owner,sum(allocations) AS n,percent_total(allocations) AS share "
            "GROUP BY owner WHERE allocations>0 ORDER BY n DESC"
        )
        self.assertEqual(answer.types, {"owner": "string", "n": "uint64", "share": "float64"})
        self.assertEqual((answer["owner"], answer["n"]), (["churn", "keep"], [5, 3]))
        self.assertEqual(answer["share"], [62.5, 37.5])

    def test_docstrings_list_every_column(self):
        for table, method in (
            (self.whole.sites(), heaptide.Recording.sites),
            (heaptide.open(self.traced).lifetimes(), heaptide.Recording.lifetimes),
            (self.whole.timeline(), heaptide.Recording.timeline),
            (self.whole.owners(), heaptide.Recording.owners),
        ):
            listed = set(re.findall(r"``([\w.]+)``", method.__doc__))
            self.assertEqual(set(table.columns) - listed, set(), method.__name__)

    def test_every_table_is_available(self):
        for name in ("stacks", "frames", "scopes", "labels", "lanes", "windows", "snapshots"):
            table = self.whole.table(name)
            self.assertGreater(len(table.columns), 5, name)
        # Two entries: recording turned on, and the snapshot.
        self.assertEqual(self.whole.table("snapshots")["name"], [None, "loaded"])
        self.assertEqual(heaptide.open(self.traced).table("events").types["operation"], "string")

    def test_data_frames_have_the_same_contents(self):
        import duckdb
        import nanoarrow
        import pandas
        import polars
        import pyarrow

        sites = self.large.sites()
        arrow, frame = sites.to_arrow(), sites.to_pandas()
        self.assertEqual(arrow.to_pylist(), list(sites))
        self.assertEqual(pyarrow.table(sites), arrow)
        self.assertEqual(nanoarrow.Array(sites).to_pylist(), list(sites))
        self.assertEqual(sites.to_polars().to_dicts(), list(sites))
        self.assertTrue(polars.DataFrame(sites).equals(sites.to_polars()))
        self.assertEqual(str(frame["requested_bytes"].dtype), "uint64")
        self.assertEqual(str(frame["size"].dtype), "UInt64")
        self.assertIsInstance(frame, pandas.DataFrame)
        self.assertEqual(list(frame["requested_bytes"]), sites["requested_bytes"])
        query = "SELECT sum(requested_bytes)::BIGINT FROM arrow WHERE owner = 'keep'"
        self.assertEqual(duckdb.sql(query).fetchall(), [(3_000_003,)])

    def test_paths_patterns_snapshots_and_the_newest(self):
        with self.here():
            self.assertEqual(heaptide.open("three*").paths, (self.path,))
            self.assertEqual(heaptide.open().paths, (self.later,))
            both = heaptide.open("[st]*.heaptide")
            self.assertEqual(both.paths, (self.later, self.path))
            self.assertEqual(len(both.processes()), 2)
            loaded = heaptide.open("three.heaptide@loaded", min_size=LARGE)
            with self.assertRaisesRegex(heaptide.HeaptideError, "^none-\\*: no recording matches"):
                heaptide.open("none-*")
            with self.assertRaisesRegex(heaptide.HeaptideError, "^two recordings are compared"):
                both.diff("three.heaptide")
        # It also works from another directory.
        self.assertEqual(sum(loaded.sites()["allocations"]), 3)

    def test_errors_are_those_of_the_command(self):
        for fails, reason in (
            (lambda: heaptide.open("/nowhere/x"), "^/nowhere/x: no such recording; create one with"),
            (lambda: heaptide.open(self.path, fokus="x"), "^unexpected argument '--fokus' found$"),
            (lambda: self.whole.query("SELECT a FRMO b"), "^query: expected a clause keyword, got"),
            (lambda: self.whole.lifetimes(), "recorded without a trace"),
            (lambda: self.whole.diff(self.later, by="x"), "^invalid value 'x'.*possible values"),
        ):
            with self.assertRaisesRegex(heaptide.HeaptideError, reason):
                fails()

    def test_without_the_command_the_error_names_the_package(self):
        path = os.environ["PATH"]
        os.environ["PATH"] = "/nowhere"
        try:
            with self.assertRaisesRegex(heaptide.HeaptideError, "wheel` builds has both"):
                heaptide.open(self.path)
        finally:
            os.environ["PATH"] = path

    def test_a_notebook_shows_rows_and_pictures(self):
        owners = self.large.owners()
        self.assertIn("<td>keep</td>", owners._repr_html_())
        self.assertIn("<p>2 rows</p>", owners._repr_html_())
        picture = self.large.flamegraph("requested_bytes")
        self.assertIn("<svg", picture._repr_svg_())
        self.assertIn("churn", picture.svg)
        picture.save(os.path.join(self.directory, "picture.svg"))
        with open(os.path.join(self.directory, "picture.svg"), encoding="utf-8") as file:
            self.assertEqual(file.read(), picture.svg)

    def test_the_program_of_the_readme(self):
        readme = os.path.join(os.path.dirname(__file__), "../../README.md")
        with open(readme, encoding="utf-8") as file:
            page = file.read()
        (block,) = re.findall(
            r"```python\n(import heaptide\n\nrecording = .*?)```", page, re.DOTALL
        )
        (code,) = re.findall(r"-o first\.heaptide -c '(.*)'\n", page)
        run = ["run", "-q", "-o", "first.heaptide", "--", sys.executable, "-c", code]
        command(*run, directory=self.directory)
        out = io.StringIO()
        with self.here(), contextlib.redirect_stdout(out):
            variables = {}
            exec(block, variables)
        lines = out.getvalue().splitlines()
        # The list of a million integers, and the integers.
        self.assertRegex(lines[0], r"^<module <string>> 4[0-9]{7} 100[0-9]{4}$")
        self.assertEqual(len(lines), 3)
        self.assertEqual(len(variables["frame"]), len(variables["recording"].sites()))

    def test_names_are_escaped_in_notebooks(self):
        table = heaptide.Table({"a": ["<b>", None]}, {"a": "string"})
        self.assertIn("<td>&lt;b&gt;</td></tr><tr><td></td>", table._repr_html_())
        with self.assertRaises(ValueError):
            heaptide.Table({"a": [1], "b": [1, 2]}, {"a": "uint64", "b": "uint64"})
