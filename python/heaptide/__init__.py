"""What a Python program can tell Heaptide about itself, ask it, and have it do.

Start the program with ``heaptide run -- python3 program.py`` to have it recorded. In a process
without the recorder everything here does nothing.

>>> import heaptide
>>> with heaptide.scope("load"), heaptide.measure() as load:
...     data = bytearray(100000)
>>> if heaptide.recording():
...     assert load.figures.requested_bytes > 100000
"""

from ._control import active, flush, loaded, mark, off, on, pause, recording, reset, snapshot
from ._control import threshold
from ._figures import Figures, Histograms, figures, histograms, measure, thread, totals, window
from ._labels import Block, Label, address, label, resolve
from ._scopes import Context, ThreadPoolExecutor, carried, context, run_in, scope, scoped

__all__ = [
    "Block",
    "Context",
    "Figures",
    "Histograms",
    "Label",
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
    "off",
    "on",
    "pause",
    "recording",
    "reset",
    "resolve",
    "run_in",
    "scope",
    "scoped",
    "snapshot",
    "thread",
    "threshold",
    "totals",
    "window",
]
