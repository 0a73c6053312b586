"""``%%heaptide`` in a kernel with the recorder, and in one without."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import nbformat
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

import heaptide

EXAMPLES = os.path.join(os.path.dirname(__file__), "../../../examples/python")


def printed(outputs):
    """Joins the pieces of a cell's output."""
    return "".join(output.text for output in outputs if output.output_type == "stream")


class Notebooks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.mkdtemp()
        install = [sys.executable, "-m", "heaptide.kernel", "install", "--prefix", cls.directory]
        done = subprocess.run(install, check=True, stdout=subprocess.PIPE, universal_newlines=True)
        kernels = os.path.join(cls.directory, "share/jupyter/kernels")
        assert done.stdout == "installed the kernel in {}/heaptide\n".format(kernels), done.stdout
        os.environ["JUPYTER_PATH"] = os.path.join(cls.directory, "share/jupyter")
        os.environ["MPLCONFIGDIR"] = os.path.join(cls.directory, "matplotlib")
        os.environ["IPYTHONDIR"] = os.path.join(cls.directory, "ipython")

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.directory)

    def execute(self, notebook, kernel="heaptide"):
        client = NotebookClient(
            notebook,
            kernel_name=kernel,
            allow_errors=True,
            timeout=120,
            resources={"metadata": {"path": self.directory}},
        )
        client.execute()
        return [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]

    def cells(self, *sources, kernel="heaptide"):
        return self.execute(new_notebook(cells=[new_code_cell(text) for text in sources]), kernel)

    def example(self, name, **options):
        return self.execute(nbformat.read(os.path.join(EXAMPLES, name), as_version=4), **options)

    def test_the_analysis_of_time_steps_has_known_figures_and_plots(self):
        outputs = self.example("steps.ipynb", kernel="python3")
        # The cells check the counters of the program themselves.
        errors = [output for cell in outputs for output in cell if output.output_type == "error"]
        self.assertEqual(errors, [])
        pictures = [o for cell in outputs for o in cell if "image/png" in o.get("data", {})]
        self.assertEqual(len(pictures), 3)
        (arenas,) = [printed(cell) for cell in outputs if "places" in printed(cell)]
        self.assertEqual(arenas, "2,640,000 bytes in 5 places for 520 allocations\n")

    def test_the_example_shows_what_its_cell_allocates(self):
        _, loaded, owners, table = self.example("cells.ipynb")
        result, shown = loaded
        self.assertEqual(result.data["text/plain"], "6000000")
        # Three blocks of 1 MB stay live, and in addition one of 2 MB at a time.
        self.assertRegex(
            shown.data["text/plain"],
            r"^peak 4\.[78]\d MiB, [\d,]+ allocations of \d.*B in all, 2\.[89]\d MiB not freed$",
        )
        page = shown.data["text/html"]
        self.assertNotIn("<?xml", page)
        points = re.search(r'points="([^"]*)"', page)[1].split()
        self.assertGreater(len(points), 3)
        for name in ("load", "parse"):
            self.assertRegex(page, r"<title>{} ".format(name))
        # Functions of the kernel, which call the cell, are omitted.
        self.assertNotIn("dispatch_shell", page)
        lines = printed(owners).splitlines()
        self.assertEqual(lines, ["parse.<locals>.<genexpr> 6 MB", "load 3 MB"])
        self.assertIn("<td>load</td>", table[0].data["text/html"])

    def test_only_cells_with_the_magic_are_recorded(self):
        outputs = self.cells(
            "%load_ext heaptide\nbefore = bytearray(3_000_000)",
            "%%heaptide first\nkept = bytearray(1_000_000)",
            "after = bytearray(4_000_000)",
            "%%heaptide second\nkept = bytearray(2_000_000)",
            "for cell in (first, second):\n"
            "    print([size for size in cell.sites()['requested_bytes'] if size > 500_000])\n"
            "import heaptide\nprint(heaptide.active())",
        )
        self.assertEqual(printed(outputs[-1]), "[1000001]\n[2000001]\nFalse\n")

    def test_lines_of_a_cell_have_known_sizes(self):
        outputs = self.cells(
            "%load_ext heaptide",
            "%%heaptide cell\nkept = bytearray(1_000_000)\n\nfor _ in range(3):\n"
            "    bytearray(2_000_000)",
            "for line in cell.lines():\n"
            "    print(line.requested_bytes // 10000, line.live_bytes // 10000, line.text)",
        )
        (shown,) = [output for output in outputs[1] if "text/html" in output.get("data", {})]
        self.assertIn("kept = bytearray(1_000_000)</td>", shown.data["text/html"])
        lines = printed(outputs[2]).splitlines()
        self.assertEqual(
            lines,
            [
                "100 100 kept = bytearray(1_000_000)",
                "0 0 ",
                "0 0 for _ in range(3):",
                "600 0     bytearray(2_000_000)",
            ],
        )

    def test_an_error_ends_the_cell_and_is_shown_once(self):
        outputs = self.cells(
            "%load_ext heaptide",
            "%%heaptide\n1 / 0",
            "%%heaptide a b\n1",
            "%%heaptide\n1 +",
            "print(1)",
        )
        for cell, name in ((outputs[1], "ZeroDivisionError"), (outputs[3], "SyntaxError")):
            shown = [output for output in cell if output.output_type == "error"]
            self.assertEqual([error.ename for error in shown], [name])
            self.assertTrue(shown[0].traceback)
            # Frames of the magic are omitted.
            self.assertNotIn("run_cell", "".join(shown[0].traceback))
            self.assertEqual(cell[-1].output_type, "error")
        self.assertIn("'a b' is not the name of a variable", str(outputs[2]))
        self.assertEqual(printed(outputs[4]), "1\n")

    def test_a_cell_that_raises_shows_what_it_held(self):
        outputs = self.cells(
            "%load_ext heaptide\ndef load():\n    return bytearray(3_000_000)",
            "%%heaptide failed\ndata = load()\nmore = bytearray(1_000_000)\n{}['missing']",
            "print(type(failed.error).__name__)",
        )
        shown, error = outputs[1]
        self.assertRegex(
            shown.data["text/plain"],
            r"^peak 3\.8\d MiB, .*, 3\.8\d MiB held when it raised KeyError: load 2\.86 MiB, ",
        )
        self.assertEqual((error.ename, error.evalue), ("KeyError", "'missing'"))
        self.assertEqual(printed(outputs[2]), "KeyError\n")

    def test_a_kernel_without_the_recorder_names_the_command_to_run(self):
        install = [sys.executable, "-m", "ipykernel", "install", "--name", "bare"]
        subprocess.run(
            [*install, "--prefix", self.directory], check=True, stdout=subprocess.DEVNULL
        )
        outputs = self.cells("%load_ext heaptide", "%%heaptide\n1", kernel="bare")
        self.assertIn("`python -m heaptide.kernel install` installs", str(outputs[1]))
        self.assertNotIn("execute_result", str(outputs[1]))
