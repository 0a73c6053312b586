"""Finds and runs the command `heaptide`."""

import importlib
import os
import sys
from typing import Any, Dict, List, NoReturn, Optional, Sequence


class HeaptideError(Exception):
    """An operation failed; one line describes the failure and the next step."""


_MISSING = (
    "cannot find the command `heaptide` beside this package or in PATH; "
    "the wheel that `cargo xtask package wheel` builds has both"
)


def _installed() -> Optional[str]:
    """Returns the path of the command that this package's wheel installed."""
    from importlib import metadata

    try:
        files = metadata.files("heaptide") or []
    except metadata.PackageNotFoundError:
        return None
    for file in files:
        if file.name == "heaptide" and file.parent.name == "bin":
            path = os.path.abspath(str(file.locate()))
            return path if os.access(path, os.X_OK) else None
    return None


def command() -> str:
    """Returns the path of the command: from this package's wheel, or else from PATH."""
    import shutil

    path = _installed() or shutil.which("heaptide")
    if path is None:
        raise HeaptideError(_MISSING)
    return path


def environment() -> Dict[str, str]:
    """Returns the environment for commands that read recordings; it turns their recording off."""
    values = dict(os.environ, HEAPTIDE_MODE="off")
    preloaded = values.pop("LD_PRELOAD", "").replace(":", " ").split()
    others = [path for path in preloaded if not os.path.basename(path).startswith("libheaptide")]
    if others:
        values["LD_PRELOAD"] = " ".join(others)
    return values


def ask(arguments: Sequence[str]) -> bytes:
    """Runs the command and returns its output; raises `HeaptideError` with its message if it fails.
    """
    import subprocess

    done = subprocess.run(
        [command(), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        check=False,
    )
    if done.returncode != 0:
        raise HeaptideError(_reason(done.stderr.decode("utf-8", "replace"), done.returncode))
    return done.stdout


def _reason(text: str, status: int) -> str:
    """Returns the command's message without its prefix; for a query, with the lines that mark the
    error.
    """
    lines = text.strip().splitlines()
    for number, line in enumerate(lines):
        if line.startswith("error: "):
            # An error about options: the following lines show the usage of the command.
            values = [more.strip() for more in lines[number + 1 :] if "possible values" in more]
            return " ".join([line[len("error: ") :], *values])
        if line.startswith("heaptide: ") and not line.startswith("heaptide: reading "):
            return "\n".join([line[len("heaptide: ") :], *lines[number + 1 :]])
    return text.strip() or "the command ended with status {}".format(status)


def replace_process(arguments: List[str]) -> NoReturn:
    """Replaces this process with the command."""
    path = command()
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(path, ["heaptide", *arguments])


def package(name: str) -> Any:
    """Imports a package that only some functions need."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        reason = "this needs {0}: {1}; `pip install {0}`".format(name.split(".")[0], error)
        raise HeaptideError(reason) from error
