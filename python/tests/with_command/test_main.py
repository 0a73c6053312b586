"""``python -m heaptide``: which arguments run with this interpreter, and which the command handles.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import heaptide
from heaptide.__main__ import _WITH_VALUE, arguments

from programs import heaptide as command


class Arguments(unittest.TestCase):
    def test_python_programs_get_this_interpreter(self):
        python = ["--", sys.executable]
        for given, expected in (
            (["run", "app.py", "-o", "x"], ["run", *python, "app.py", "-o", "x"]),
            (["run", "-o", "x", "-q", "app.py"], ["run", "-o", "x", "-q", *python, "app.py"]),
            (["run", "-qo", "x", "app.py"], ["run", "-qo", "x", *python, "app.py"]),
            (
                ["run", "-ox", "--mode=trace", "app.py"],
                ["run", "-ox", "--mode=trace", *python, "app.py"],
            ),
            (
                ["run", "--mode", "trace", "-m", "json"],
                ["run", "--mode", "trace", *python, "-m", "json"],
            ),
            (["run", "-mjson.tool"], ["run", *python, "-mjson.tool"]),
            (["run", "--", "-c", "pass"], ["run", *python, "-c", "pass"]),
            (["run", "-c", "pass", "--", "x"], ["run", *python, "-c", "pass", "--", "x"]),
        ):
            self.assertEqual(arguments(given), expected)

    def test_other_arguments_are_passed_to_the_command(self):
        for given in (
            ["run", "./program", "app.py"],
            ["run", "-o", "app.py", "--", "ls"],
            ["run", "--mode", "trace", "--", "ls", "-c"],
            ["run"],
            ["run", "-q"],
            ["run", "-o"],
            ["report", "-c", "app.py"],
            [],
        ):
            self.assertEqual(arguments(given), given)

    def test_every_option_with_a_value_is_known(self):
        help_page = command("run", "--help", directory=".").stdout
        options = re.findall(r"^ +(?:(-\w), )?(--[\w-]+) <", help_page, re.MULTILINE)
        found = {name for names in options for name in names if name}
        self.assertEqual(found - _WITH_VALUE, set())
        self.assertIn("--output", found)


class Manifests(unittest.TestCase):
    def test_wheel_and_modules_have_the_same_metadata(self):
        import tomllib

        root = os.path.join(os.path.dirname(__file__), "../../..")
        projects = []
        for name in ("pyproject.toml", "python/pyproject.toml"):
            with open(os.path.join(root, name), "rb") as file:
                projects.append(tomllib.load(file)["project"])
        with open(os.path.join(root, "Cargo.toml"), "rb") as file:
            version = tomllib.load(file)["workspace"]["package"]["version"]
        self.assertEqual({project["version"] for project in projects}, {version})
        for key in ("name", "requires-python", "optional-dependencies", "entry-points"):
            self.assertEqual(projects[0][key], projects[1][key], key)


class Runs(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.directory)

    def run_module(self, *words):
        return subprocess.run(
            [sys.executable, "-m", "heaptide", "run", "-q", "-o", "x.heaptide", *words],
            cwd=self.directory,
            stdout=subprocess.PIPE,
            universal_newlines=True,
            check=False,
        )

    def requested(self):
        recording = heaptide.open(os.path.join(self.directory, "x.heaptide"), min_size=654_321)
        return sum(recording.owners()["requested_bytes"])

    def write(self, name, text, mode=0o644):
        path = os.path.join(self.directory, name)
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, mode)

    def test_a_file(self):
        self.write("app.py", "import sys; bytearray(654_321); print(sys.argv[1:]); sys.exit(3)")
        done = self.run_module("app.py", "-o", "a b")
        self.assertEqual((done.returncode, done.stdout), (3, "['-o', 'a b']\n"))
        self.assertEqual(self.requested(), 654_322)

    def test_code_and_a_module(self):
        done = self.run_module("-c", "bytearray(654_321); print('code')")
        self.assertEqual((done.returncode, done.stdout, self.requested()), (0, "code\n", 654_322))
        shutil.rmtree(os.path.join(self.directory, "x.heaptide"))
        self.write("amodule.py", "bytearray(654_321); print(__name__)")
        done = self.run_module("-m", "amodule")
        self.assertEqual((done.stdout, self.requested()), ("__main__\n", 654_322))

    def test_a_script_runs_with_this_interpreter_and_a_program_by_itself(self):
        self.write("script", "#!/nowhere/python3\nimport sys; print(sys.executable)")
        self.assertEqual(self.run_module("./script").stdout, sys.executable + "\n")
        shutil.rmtree(os.path.join(self.directory, "x.heaptide"))
        self.write("program", "#!/bin/sh\necho $0", 0o755)
        self.assertEqual(self.run_module("./program").stdout, "./program\n")
