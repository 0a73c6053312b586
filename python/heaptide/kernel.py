"""A Jupyter kernel with the recorder: ``python -m heaptide.kernel install``.

The kernel is ``ipykernel`` of this interpreter. Only cells with ``%%heaptide`` are recorded; the
recording is ``jupyter-PID.heaptide`` in the directory of the notebook.
"""

import argparse
import json
import os
import sys
import tempfile
from typing import List, NoReturn

from ._command import HeaptideError, ask, package

_NAME = "heaptide"


def _run(arguments: List[str]) -> NoReturn:
    """Replaces this process with the kernel."""
    values = dict(os.environ)
    library = ask(["library"]).decode().strip()
    others = values.get("LD_PRELOAD")
    values["LD_PRELOAD"] = library if not others else library + ":" + others
    values["HEAPTIDE_OUTPUT"] = os.path.abspath("jupyter-{}.heaptide".format(os.getpid()))
    values["HEAPTIDE_START"] = "off"
    words = [sys.executable, "-m", "ipykernel_launcher", *arguments]
    os.execve(sys.executable, words, values)


def _install(prefix: str, name: str) -> str:
    package("ipykernel")
    manager = package("jupyter_client.kernelspec").KernelSpecManager()
    specification = {
        "argv": [sys.executable, "-m", "heaptide.kernel", "run", "-f", "{connection_file}"],
        "display_name": "Python {}.{} (heaptide)".format(*sys.version_info[:2]),
        "language": "python",
        "metadata": {"debugger": True},
    }
    with tempfile.TemporaryDirectory() as directory:
        with open(os.path.join(directory, "kernel.json"), "w", encoding="utf-8") as file:
            json.dump(specification, file, indent=1)
        os.chmod(directory, 0o755)
        place = manager.install_kernel_spec(directory, name, prefix=prefix)
    return str(place)


def main() -> None:
    """Runs the commands ``install`` and ``run``."""
    if sys.argv[1:2] == ["run"]:
        _run(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="python -m heaptide.kernel")
    commands = parser.add_subparsers(dest="command", required=True)
    install = commands.add_parser("install", help="install the kernel for Jupyter")
    install.add_argument("--prefix", default=sys.prefix, help="where [default: this environment]")
    install.add_argument("--name", default=_NAME, help="its name [default: heaptide]")
    options = parser.parse_args()
    print("installed the kernel in {}".format(_install(options.prefix, options.name)))


if __name__ == "__main__":
    try:
        main()
    except HeaptideError as error:
        sys.exit("heaptide: {}".format(error))
