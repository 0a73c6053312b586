"""Shows the memory of a notebook cell: ``%load_ext heaptide``, then ``%%heaptide``.

The kernel needs the recorder; see `heaptide.kernel`.
"""

import html
import json
import linecache
import os
import sys
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple

from . import _control, _figures, _live, _scopes
from ._command import HeaptideError, ask, package
from ._recording import Picture, Recording
from ._tables import Table
from ._units import format_size

# The attribute of the scope that each cell runs in.
_CELL = "cell"
# The number of functions to list.
_OWNERS = 10
# The number of owners to name when a cell raises.
_HELD = 3
# Width and height of the timeline, in pixels, and its margin for axis labels.
_WIDTH, _HEIGHT, _MARGIN = 900, 160, 70

_RULES = os.path.join(os.path.dirname(__file__), "cell.rules")
_UNRECORDED = "this kernel has no recorder; choose the kernel that `python -m heaptide.kernel install` installs"


class Line(NamedTuple):
    """A line of a cell: bytes allocated by it and its callees, and those of them not freed."""

    text: str
    requested_bytes: int
    live_bytes: int


class Cell:
    """The allocations of a cell: notebooks show numbers, its lines, a timeline and a flame graph."""

    def __init__(
        self,
        number: int,
        figures: _figures.Figures,
        peak: int,
        file: str,
        code: str,
        error: Optional[BaseException] = None,
    ) -> None:
        self.number = number
        self.figures = figures
        self.peak_bytes = peak
        self.error = error
        profile = _live.profile()
        scope = "scope:^{}={}$".format(_CELL, number)
        self._recording = Recording([profile], ["--focus", scope, "--rules", _RULES])
        self._timeline = _timeline(Recording([profile], []), _name(number))
        self._graph = self._recording.flamegraph("requested_bytes")
        self._lines = _lines(["lines", file, profile, "--focus", scope], code) if file else []
        self._held = [] if error is None else _held(self._recording.owners())

    def owners(self) -> Table:
        """Like `Recording.owners`, for the cell."""
        return self._recording.owners()

    def sites(self) -> Table:
        """Like `Recording.sites`, for the cell."""
        return self._recording.sites()

    def lines(self) -> List[Line]:
        """Returns the lines of the cell, with what each allocated; empty if none did."""
        return list(self._lines)

    def flamegraph(self) -> Picture:
        """Returns a flame graph of all allocations of the cell by stack."""
        return self._graph

    def timeline(self) -> Picture:
        """Returns a chart of the live bytes of the process while the cell ran."""
        return Picture(_drawn(self._timeline))

    def __repr__(self) -> str:
        text = "peak {}, {:,} allocations of {} in all, {} ".format(
            format_size(self.peak_bytes),
            self.figures.allocations,
            format_size(self.figures.requested_bytes),
            format_size(self.figures.live_bytes),
        )
        if self.error is None:
            return text + "not freed"
        text += "held when it raised {}".format(type(self.error).__name__)
        return text + (": " + ", ".join(self._held) if self._held else "")

    def _repr_html_(self) -> str:
        # An inline picture must not have an XML declaration.
        graph = self._graph.svg[self._graph.svg.index("<svg") :]
        numbers, lines = html.escape(repr(self)), _table_of(self._lines)
        return "<p>{}</p>{}{}{}".format(numbers, lines, self.timeline().svg, graph)


def _held(owners: Table) -> List[str]:
    """Returns the functions that hold most, with their bytes."""
    rows = zip(owners["owner"], owners["live_bytes"])
    largest = sorted((row for row in rows if row[1] > 0), key=lambda row: -row[1])[:_HELD]
    return ["{} {}".format(owner or "(no stack)", format_size(size)) for owner, size in largest]


def _name(number: int) -> str:
    return "cell {}".format(number)


def _file_of(code: str) -> str:
    """Returns the name under which IPython compiled a cell; empty if it is unknown."""
    for name, entry in reversed(list(linecache.cache.items())):
        if len(entry) > 2 and "".join(entry[2]).strip() == code.strip():
            return name
    return ""


def _lines(words: List[str], code: str) -> List[Line]:
    """Returns the lines of a cell, given the command that sums them."""
    try:
        process = json.loads(ask([*words, "--format", "json"]))["processes"][0]
    except HeaptideError:
        return []  # no line of the cell allocated
    sums = {line["line"]: line["inclusive"] for line in process["lines"]}
    found = []
    for number, text in enumerate(code.splitlines(), 1):
        of = sums.get(number, {})
        found.append(Line(text, of.get("requested_bytes", 0), of.get("live_bytes", 0)))
    return found


def _table_of(lines: List[Line]) -> str:
    """Returns lines as a table in HTML; empty if there are none."""
    if not lines:
        return ""
    row = (
        "<tr><td>{}</td><td>{}</td>"
        '<td style="text-align: left; font-family: monospace; white-space: pre">{}</td></tr>'
    )
    rows = [
        row.format(_size(line.requested_bytes), _size(line.live_bytes), html.escape(line.text))
        for line in lines
    ]
    head = "<tr><th>allocated</th><th>not freed</th><th>line</th></tr>"
    return "<table>{}{}</table>".format(head, "".join(rows))


def _size(size: int) -> str:
    return format_size(size) if size else ""


def _timeline(recording: Recording, window: str) -> List[Tuple[int, int]]:
    """Returns times from the start of a window, with live bytes."""
    windows = [row for row in recording.table("windows") if row["name"] == window]
    if not windows:
        return []
    begin, end = windows[-1]["begin_ns"], windows[-1]["end_ns"]
    samples = recording.query("SELECT time_ns,live_bytes FROM timeline")
    return [
        (row["time_ns"] - begin, row["live_bytes"] or 0)
        for row in samples
        if begin <= row["time_ns"] <= end
    ]


def _drawn(samples: Sequence[Tuple[int, int]]) -> str:
    """Draws the samples as a curve."""
    last = max((time for time, _ in samples), default=0) or 1
    most = max((size for _, size in samples), default=0) or 1
    inner = _WIDTH - 2 * _MARGIN
    points = [
        "{:.1f},{:.1f}".format(_MARGIN + inner * time / last, _HEIGHT - 20 - 130 * size / most)
        for time, size in samples
    ]
    text = '<text x="{}" y="{}" font-size="12" font-family="sans-serif">{}</text>'
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="{1}">'
        '<polyline fill="none" stroke="#c0392b" stroke-width="1.5" points="{2}"/>{3}{4}{5}</svg>'
    ).format(
        _WIDTH,
        _HEIGHT,
        " ".join(points),
        text.format(0, 20, format_size(most)),
        text.format(0, _HEIGHT - 18, "0 B"),
        text.format(_WIDTH - _MARGIN + 4, _HEIGHT - 18, "{:.0f} ms".format(last / 1e6)),
    )


class _Shown(Exception):
    """The error of a cell that IPython has already shown in its own way: ends the cell, and a run
    of all cells.
    """

    def _render_traceback_(self) -> List[str]:
        return []


def _with_traceback(error: BaseException, lines: Callable[[], List[str]]) -> BaseException:
    """Returns an error that IPython shows with this traceback, without the frames of the magic."""

    def rendered(*_: object) -> List[str]:
        return lines()

    # IPython shows its own traceback of errors of syntax.
    if not isinstance(error, SyntaxError):
        try:
            error._render_traceback_ = rendered  # type: ignore[attr-defined]
            return error
        except AttributeError:
            pass  # its class allows no attributes
    kind = type(type(error).__name__, (Exception,), {"_render_traceback_": rendered})
    like: BaseException = kind(str(error))
    return like


def _usage_error(reason: str) -> Exception:
    """Returns an error that IPython shows in one line."""
    error: Exception = package("IPython.core.error").UsageError("%%heaptide: " + reason)
    return error


class _Tracebacks:
    """Keeps the traceback of a cell, which would otherwise be shown while the cell is recorded."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._show = shell.showtraceback
        self.last: Optional[Callable[[], List[str]]] = None

    def defer(self, *words: Any, **options: Any) -> None:
        """Replaces ``showtraceback``. Formatting a traceback allocates much, which is not the
        cell's.
        """
        kind, error, frames = sys.exc_info()
        usage = package("IPython.core.error").UsageError
        if error is None or isinstance(error, (SyntaxError, usage)):
            self._show(*words, **options)
            return
        formatted = self._shell.InteractiveTB.structured_traceback
        self.last = lambda: formatted(kind, error, frames, tb_offset=1)

    def keep(self, _kind: Any, _error: Any, lines: List[str]) -> None:
        """Replaces ``_showtraceback``, which errors of syntax call directly."""
        self.last = lambda: lines


class _Magic:
    """The magic ``%%heaptide``; counts the cells."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._number = 0

    def __call__(self, line: str, cell: str) -> None:
        """Records the cell and shows its allocations; LINE names a variable for the `Cell`."""
        name = line.strip()
        if name and not name.isidentifier():
            raise _usage_error("{!r} is not the name of a variable".format(name))
        if not _control.recording():
            raise _usage_error(_UNRECORDED)
        self._number += 1
        found, error = self._run(cell)
        if found is not None:
            package("IPython.display").display(found)
            if name:
                self._shell.user_ns[name] = found
        if error is not None:
            raise error

    def _run(self, code: str) -> Tuple[Optional[Cell], Optional[BaseException]]:
        """Runs a cell; returns its allocations, and the error to raise, with one traceback."""
        window, thread = _figures.window(_name(self._number)), _figures.measure()
        _control.on()
        try:
            start = _figures.totals().live_bytes
            with window, thread, _scopes.scope(_CELL, self._number):
                raised, shown = self._raised(code)
        finally:
            _control.off()
        figures = window.figures
        peak = max(figures.peak_bytes - start, thread.figures.peak_bytes)
        code = self._shell.transform_cell(code)
        try:
            return Cell(self._number, figures, peak, _file_of(code), code, raised), shown
        except HeaptideError as error:
            # The program's error matters more, such as one of syntax, before any allocation.
            return None, shown or _usage_error(str(error))

    def _raised(self, code: str) -> Tuple[Optional[BaseException], Optional[BaseException]]:
        """Runs a cell without showing its error; returns that, and the one to raise instead."""
        shell, tracebacks = self._shell, _Tracebacks(self._shell)
        shell.showtraceback, shell._showtraceback = tracebacks.defer, tracebacks.keep
        try:
            result = shell.run_cell(code)
        finally:
            del shell.showtraceback, shell._showtraceback
        error = result.error_before_exec or result.error_in_exec
        if error is None:
            return None, None
        # The outer cell shows the traceback of the inner one.
        last = tracebacks.last
        return error, _Shown(error) if last is None else _with_traceback(error, last)


def load(shell: Any) -> None:
    """Registers the magic."""
    shell.register_magic_function(_Magic(shell), magic_kind="cell", magic_name="heaptide")
