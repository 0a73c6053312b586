"""Counters of the process, a thread, a scope, a window or a measurement."""

import threading
from types import TracebackType
from typing import List, NamedTuple, Optional, Tuple, Type

from . import _scopes
from ._interface import RawFigures, RawHistograms, RawMeasurement, RawMemory, library


class Figures(NamedTuple):
    """Counters of allocations; all zero in a process without the recorder.

    For windows and measurements, ``live_blocks`` and ``live_bytes`` are changes, which may be
    negative. ``peak_bytes`` is the highest live bytes of the process, or of a window while it was
    open; for a measurement, the largest rise of the thread's live bytes over the start; 0 for a
    scope. ``largest_bytes`` is the largest request, or 0 for windows.
    """

    allocations: int = 0
    frees: int = 0
    reallocations: int = 0
    failed: int = 0
    requested_bytes: int = 0
    usable_bytes: int = 0
    freed_bytes: int = 0
    live_blocks: int = 0
    live_bytes: int = 0
    peak_bytes: int = 0
    largest_bytes: int = 0


class Histograms(NamedTuple):
    """Numbers of blocks by size: entry ``b`` is for sizes with ``b`` significant bits."""

    requested: Tuple[int, ...] = ()
    usable: Tuple[int, ...] = ()
    freed: Tuple[int, ...] = ()


def _taken(raw: RawFigures) -> Figures:
    return Figures(*(getattr(raw, name) for name in Figures._fields))


def totals() -> Figures:
    """Returns the counters of the process since its start or last reset."""
    raw = RawFigures()
    if library is not None:
        library.totals(raw)
    return _taken(raw)


def thread() -> Figures:
    """Returns the counters of the calling thread."""
    raw = RawFigures()
    if library is not None:
        library.thread(raw)
    return _taken(raw)


def figures(context: Optional["_scopes.Context"] = None, inclusive: bool = False) -> Figures:
    """Returns the counters of a scope path, by default the current one, for all threads.

    With ``inclusive``, they include the scopes nested in it.
    """
    raw = RawFigures()
    if library is not None:
        path = _scopes.current_path() if context is None else context.path
        library.scope(path, int(inclusive), raw)
    return _taken(raw)


def histograms() -> Histograms:
    """Returns numbers of blocks of the process by size; empty in a process without the recorder."""
    if library is None:
        return Histograms()
    raw = RawHistograms()
    library.histograms(raw)
    return Histograms(tuple(raw.requested), tuple(raw.usable), tuple(raw.freed))


class window:
    """A named interval of the whole process, with its own peak.

    >>> with window("event loop") as loop:
    ...     events = [bytearray(1000) for _ in range(10)]
    >>> changed = loop.figures.live_bytes
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._number = 0
        self._figures = Figures()

    def __enter__(self) -> "window":
        if library is not None:
            text = self._name.encode("utf-8", "surrogateescape")
            self._number = library.window_begin(text, len(text))
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if library is not None and self._number:
            raw = RawFigures()
            library.window_end(self._number, raw)
            self._figures, self._number = _taken(raw), 0

    @property
    def figures(self) -> Figures:
        """The counters so far, or those of the whole interval once it has ended."""
        if library is not None and self._number:
            raw = RawFigures()
            library.window_figures(self._number, raw)
            return _taken(raw)
        return self._figures


class _Open(threading.local):
    """The open measurements of a thread, innermost last."""

    def __init__(self) -> None:
        self.measurements: List["measure"] = []


_open = _Open()


class measure:
    """Counts what the calling thread allocates and frees while the block runs.

    >>> with measure() as load:
    ...     data = bytearray(100000)
    >>> if recording():
    ...     assert load.figures.largest_bytes > 100000

    Measurements may be nested; an outer measurement includes the inner ones. A measurement belongs
    to a thread: in a task, it includes the allocations that other tasks of the same thread make
    meanwhile.
    """

    def __init__(self) -> None:
        self.figures = Figures()
        self._raw = RawMeasurement()
        self._out = RawFigures()
        self._thread: Optional[List["measure"]] = None

    def __enter__(self) -> "measure":
        if library is not None and self._thread is None:
            self.figures = Figures()
            self._thread = _open.measurements
            self._thread.append(self)
            library.measure_begin(self._raw)
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        thread = self._thread
        if thread is None:
            return
        if thread is not _open.measurements:
            if error is None:
                raise RuntimeError("a measurement has to end on the thread that it began on")
            return
        if thread[-1] is self:
            self._end()
        else:
            self._end_below(thread)
        thread.remove(self)
        self._thread = None

    def _end(self) -> None:
        """Ends the native measurement, and adds its counters to the earlier ones."""
        assert library is not None
        library.measure_end(self._raw, self._out)
        self.figures = _together(self.figures, _taken(self._out))

    def _end_below(self, thread: List["measure"]) -> None:
        """Ends a measurement that is not innermost: ends those above it first, and restarts them
        afterwards.
        """
        assert library is not None
        above = thread[thread.index(self) + 1 :]
        for measurement in reversed(above):
            measurement._end()
        self._end()
        for measurement in above:
            library.measure_begin(measurement._raw)


def _together(first: Figures, then: Figures) -> Figures:
    """Adds the counters of two consecutive intervals."""
    sums = [a + b for a, b in zip(first, then)]
    peak = max(first.peak_bytes, first.live_bytes + then.peak_bytes)
    largest = max(first.largest_bytes, then.largest_bytes)
    return Figures(*sums)._replace(peak_bytes=peak, largest_bytes=largest)


class Memory(NamedTuple):
    """Memory of the process as reported by the kernel."""

    resident_bytes: int = 0
    virtual_bytes: int = 0


def memory() -> Memory:
    """Returns the memory of the process, excluding the recorder's reservations; zeros without the
    recorder.
    """
    if library is None:
        return Memory()
    raw = RawMemory()
    library.process_memory(raw)
    return Memory(raw.resident_bytes, raw.virtual_bytes)
