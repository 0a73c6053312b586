"""Annotation, measurement and control of a Python program that Heaptide records, and analysis of
recordings.

Start the program with ``heaptide run -- python3 program.py`` to record it. In a process without the
recorder, annotations, measurements and control do nothing.

>>> import heaptide
>>> with heaptide.scope("load"), heaptide.measure() as load:
...     data = bytearray(100000)
>>> if heaptide.recording():
...     assert load.figures.requested_bytes > 100000
"""

from typing import TYPE_CHECKING, Any

from ._control import active, flush, loaded, mark, off, on, pause, recording, reset, snapshot
from ._control import separate_threads, threshold, write, written
from ._figures import Figures, Histograms, Memory, figures, histograms, measure, memory, thread
from ._figures import totals, window
from ._labels import Block, Label, address, label, resolve
from ._scopes import Context, ThreadPoolExecutor, carried, context, run_in, scope, scoped

if TYPE_CHECKING:
    from ._command import HeaptideError
    from ._record import record
    from ._recording import Picture, Recording, open
    from ._tables import Table

__all__ = [
    "Block",
    "Context",
    "Figures",
    "HeaptideError",
    "Histograms",
    "Label",
    "Memory",
    "Picture",
    "Recording",
    "Table",
    "ThreadPoolExecutor",
    "active",
    "address",
    "carried",
    "context",
    "figures",
    "flush",
    "histograms",
    "label",
    "loaded",
    "mark",
    "measure",
    "memory",
    "off",
    "on",
    "open",
    "pause",
    "record",
    "recording",
    "reset",
    "resolve",
    "run_in",
    "scope",
    "scoped",
    "separate_threads",
    "snapshot",
    "thread",
    "threshold",
    "totals",
    "window",
    "write",
    "written",
]


def load_ipython_extension(shell: Any) -> None:
    """Registers the magic ``%%heaptide``; see `heaptide.jupyter`."""
    from . import jupyter

    jupyter.load(shell)


# Imported at first use, because recorded programs do not need it.
_LATER = {
    "HeaptideError": "_command",
    "Picture": "_recording",
    "Recording": "_recording",
    "Table": "_tables",
    "open": "_recording",
    "record": "_record",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError("module 'heaptide' has no attribute {!r}".format(name))
    import importlib

    return getattr(importlib.import_module("." + _LATER[name], __name__), name)
