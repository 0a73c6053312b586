"""The command `heaptide`: where it is, and its answers."""

import importlib
import os
import sys
from typing import Any, Dict, List, NoReturn, Optional, Sequence


class HeaptideError(Exception):
    """What could not be done, in one line that says what to do next."""


_MISSING = (
    "cannot find the command `heaptide` beside this package or in PATH; "
    "the wheel that `cargo xtask package wheel` builds has both"
)


def _installed() -> Optional[str]:
    """The command that the wheel of this package installed."""
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
    """The path of the command: the one of this package's wheel, else the one in PATH."""
    import shutil

    path = _installed() or shutil.which("heaptide")
    if path is None:
        raise HeaptideError(_MISSING)
    return path


def environment() -> Dict[str, str]:
    """This process's environment for commands that read recordings: they are not recorded."""
    values = dict(os.environ, HEAPTIDE_MODE="off")
    preloaded = values.pop("LD_PRELOAD", "").replace(":", " ").split()
    others = [path for path in preloaded if not os.path.basename(path).startswith("libheaptide")]
    if others:
        values["LD_PRELOAD"] = " ".join(others)
    return values


def ask(arguments: Sequence[str]) -> bytes:
    """What the command prints; raises `HeaptideError` with the line that it fails with."""
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
    """The command's message, without its name; that of a query has the place of the error below."""
    lines = text.strip().splitlines()
    for number, line in enumerate(lines):
        if line.startswith("error: "):
            # About options: what follows is usage of the command.
            values = [more.strip() for more in lines[number + 1 :] if "possible values" in more]
            return " ".join([line[len("error: ") :], *values])
        if line.startswith("heaptide: ") and not line.startswith("heaptide: reading "):
            return "\n".join([line[len("heaptide: ") :], *lines[number + 1 :]])
    return text.strip() or "the command ended with status {}".format(status)


def replace_process(arguments: List[str]) -> NoReturn:
    """Runs the command in place of this process."""
    path = command()
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(path, ["heaptide", *arguments])


def package(name: str) -> Any:
    """A module of a package that only some functions need."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        reason = "this needs {0}: {1}; `pip install {0}`".format(name.split(".")[0], error)
        raise HeaptideError(reason) from error
