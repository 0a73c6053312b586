"""A pytest plug-in: ``pytest --heaptide`` reports and limits the memory of each test.

The recorder has to be loaded when a process starts, so ``pytest --heaptide`` executes its own
command line again under ``heaptide run --start-off``, and recording begins with the first test.
Workers of pytest-xdist are child processes and have the recorder, too.

Each test runs in a scope with its name, which the threads that it starts inherit, so that the
report can list its allocations by function. Its peak is that of a window of the whole process.
"""

import contextlib
import gc
import json
import linecache
import os
import re
import sys
import threading
from typing import Any, Callable, Dict, Generator, Iterator, List, NamedTuple, Optional, Tuple

import pytest

from . import _control, _figures, _live, _scopes
from ._command import HeaptideError, ask, replace_process
from ._units import format_size

# The attribute of the scope of each test, and of the scopes of its extra runs inside.
_TEST = "pytest"
_RUN = "pytest_run"
# Attributes of the scopes of warm-up runs of a test, and of threads that the test starts.
_WARMUP = "pytest_warmup"
_THREAD = "pytest_thread"
# The number of functions to list for each test, and for a failed one; and the smallest share of the
# test's allocations to list.
_OWNERS = 3
_OWNERS_OF_FAILURES = 10
_LINES_OF_FAILURES = 5
_LEAST_PART = 0.01
# The number of call stacks to list for a leak.
_LEAKS = 5

_MARKERS = (
    "limit_memory(memory_limit, current_thread_only=False): with --heaptide, fail the test if the "
    "memory it holds at once reaches memory_limit, such as '24 MB'",
    "limit_leaks(location_limit, filter_fn=None, warmups=0, current_thread_only=False): with "
    "--heaptide, fail the test if a call stack in it leaks location_limit or more, such as '1 MB'",
)
_SIZE = re.compile(r"\s*\+?(\d*\.\d+|\d+)\s*([KMGTP]?)B\s*", re.IGNORECASE)
_UNITS = " KMGTP"

# Titles of sections in reports of failed tests.
_TITLE_OF_MEMORY = "heaptide-max-memory"
_TITLE_OF_LEAKS = "heaptide-leaked-memory"

# Names of the properties of tests, also in JUnit files.
_PEAK = "heaptide_peak_bytes"
_ALLOCATIONS = "heaptide_allocations"
_ALLOCATED = "heaptide_allocated_bytes"
_KEPT = "heaptide_not_freed_bytes"


class StackFrame(NamedTuple):
    """A function on a call stack: a Python function or, with --heaptide-native, a native one."""

    function: str
    filename: str
    lineno: int


class Stack(NamedTuple):
    """A call stack, innermost function first."""

    frames: Tuple[StackFrame, ...]


LeaksFilterFunction = Callable[[Stack], bool]


def parse_size(text: str) -> float:
    """Parses a size such as ``24 MB`` to bytes; a KB is 1024 bytes, as in pytest-memray."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ValueError(
            "invalid size {!r}; expected a number and B, KB, MB, GB or TB".format(text)
        )
    return float(found[1]) * 1024.0 ** _UNITS.index(found[2].upper() or " ")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options."""
    group = parser.getgroup("heaptide", "memory of tests, recorded by heaptide")
    group.addoption(
        "--heaptide",
        action="store_true",
        help="record memory, report it for each test, and apply limit_memory and limit_leaks; runs "
        "this command line again under `heaptide run`",
    )
    group.addoption(
        "--heaptide-output",
        metavar="REC",
        default="pytest.heaptide",
        help="recording to write, or to replace [default: pytest.heaptide]",
    )
    group.addoption(
        "--heaptide-tests",
        metavar="N",
        type=int,
        default=10,
        help="report the N tests with the highest peak, 0 for all [default: 10]",
    )
    group.addoption(
        "--hide-heaptide-summary",
        action="store_true",
        help="do not report the memory of each test at the end",
    )
    group.addoption(
        "--heaptide-stacks",
        metavar="N",
        type=int,
        default=6,
        help="list the N innermost functions of each leak, 0 for all [default: 6]",
    )
    group.addoption(
        "--heaptide-native",
        action="store_true",
        help="list, and give to filter_fn, native functions between those of Python",
    )
    group.addoption(
        "--heaptide-fail-on-increase",
        action="store_true",
        help="fail a test with limit_memory if it holds more at once than when it last passed",
    )


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, None, None]:
    """Runs the command line again under the recorder, before output is captured."""
    options = early_config.known_args_namespace
    if options.heaptide and not _control.recording() and not _is_worker(early_config):
        _run_again(options.heaptide_output)
    yield


def _is_worker(config: pytest.Config) -> bool:
    return "PYTEST_XDIST_WORKER" in os.environ or hasattr(config, "workerinput")


def _run_again(output: str) -> None:
    if "libheaptide" in os.environ.get("LD_PRELOAD", ""):
        raise pytest.UsageError(
            "--heaptide: the recorder is preloaded and records nothing; `heaptide info` explains why"
        )
    program = sys.argv[0]
    is_pytest = os.path.basename(program) in ("pytest", "py.test")
    if not is_pytest and not program.endswith(os.path.join("pytest", "__main__.py")):
        raise pytest.UsageError(
            "--heaptide: pytest runs inside another program; start that by `heaptide run -- {}`".format(
                os.path.basename(program) or "PROGRAM"
            )
        )
    with open("/proc/self/cmdline", "rb") as file:
        words = [os.fsdecode(word) for word in file.read().split(b"\0")[1:-1]]
    options = ["--quiet", "--start-off", "--force", "-o", output]
    run = ["run", *options, "--", sys.executable, *words]
    try:
        replace_process(run)
    except HeaptideError as error:
        raise pytest.UsageError("--heaptide: {}".format(error)) from error


def pytest_configure(config: pytest.Config) -> None:
    """Registers the markers, and the plug-in itself if memory is recorded."""
    for marker in _MARKERS:
        config.addinivalue_line("markers", marker)
    if config.getoption("heaptide"):
        if config.getoption("heaptide_fail_on_increase") and not hasattr(config, "cache"):
            raise pytest.UsageError("--heaptide-fail-on-increase needs the cache of pytest")
        config.pluginmanager.register(_Plugin(config), "heaptide-memory")


def _is_of_limit(titles: List[str]) -> bool:
    return _TITLE_OF_MEMORY in titles or _TITLE_OF_LEAKS in titles


class _Limit(NamedTuple):
    """A limit that a test has exceeded."""

    summary: str
    title: str
    details: str


class _Plugin:
    """Measures tests, fails those that exceed their limits, and reports."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._exceeded: Dict[str, List[_Limit]] = {}
        # How often each test has run.
        self._runs: Dict[str, int] = {}
        # Tests with their properties, of all workers.
        self._measured: Dict[str, Dict[str, int]] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self) -> None:
        if not _control.active(whole_process=True):
            _control.on()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        memory = item.get_closest_marker("limit_memory")
        leaks = item.get_closest_marker("limit_leaks")
        memory_limit = None if memory is None else _MemoryLimit(*memory.args, **memory.kwargs)
        leak_limit = None if leaks is None else _LeakLimit(*leaks.args, **leaks.kwargs)
        if not _control.recording():
            if memory_limit is not None or leak_limit is not None:
                raise HeaptideError("the memory of this test has a limit, but is not recorded here")
            yield
            return
        for _ in range(0 if leak_limit is None else leak_limit.warmups):
            with _scopes.scope(_WARMUP, item.nodeid):
                item.runtest()
        run = self._runs[item.nodeid] = self._runs.get(item.nodeid, 0) + 1
        window, thread = _figures.window(item.nodeid), _figures.measure()
        start = _figures.totals().live_bytes
        with contextlib.ExitStack() as open_here:
            open_here.enter_context(window)
            if memory_limit is not None:
                # Exact, but more expensive: the peak of a window is exact within 32 KiB per thread.
                open_here.enter_context(thread)
            context = open_here.enter_context(_scope_of(item.nodeid, run))
            outcome = yield
        figures = window.figures
        peak = max(figures.peak_bytes - start, thread.figures.peak_bytes)
        item.user_properties += [
            (_PEAK, peak),
            (_ALLOCATIONS, figures.allocations),
            (_ALLOCATED, figures.requested_bytes),
            (_KEPT, figures.live_bytes),
        ]
        if getattr(outcome, "excinfo", None) is not None:
            return
        exceeded = []
        if leak_limit is not None:
            exceeded += leak_limit.check(context, item, run)
        if memory_limit is not None:
            held = thread.figures.peak_bytes if memory_limit.current_thread_only else peak
            exceeded += memory_limit.check(held, item) or _increase(held, item)
        self._exceeded[item.nodeid] = exceeded

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: "pytest.CallInfo[None]"
    ) -> Generator[None, None, None]:
        outcome: Any = yield
        report = outcome.get_result()
        if call.when != "call":
            return
        limits = self._exceeded.pop(item.nodeid, [])
        if limits and report.passed:
            report.outcome = "failed"
            report.longrepr = "\n".join(limit.summary for limit in limits)
            report.sections += [(limit.title, limit.details) for limit in limits]

    @pytest.hookimpl(hookwrapper=True, trylast=True)
    def pytest_report_teststatus(self, report: Any) -> Generator[None, Any, None]:
        outcome = yield
        titles = [title for title, _ in report.sections]
        if report.failed and report.when == "call" and _is_of_limit(titles):
            outcome.force_result(("failed", "M", "MEMORY PROBLEMS"))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        properties = {name: value for name, value in report.user_properties}
        if report.when == "call" and _PEAK in properties:
            self._measured[report.nodeid] = properties  # type: ignore[assignment]

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self._config.getoption("hide_heaptide_summary"):
            return
        write = terminalreporter.write_line
        terminalreporter.section("memory of tests, by heaptide")
        tests = sorted(self._measured.items(), key=lambda test: -test[1][_PEAK])
        shown = tests[: self._config.getoption("heaptide_tests") or None]
        try:
            owners = _owners() if shown else {}
        except HeaptideError as error:
            owners = {}
            write("functions are missing: {}".format(error))
        for test, properties in shown:
            write(test)
            write(
                "    peak {}, {:,} allocations of {} in all, {} not freed".format(
                    format_size(properties[_PEAK]),
                    properties[_ALLOCATIONS],
                    format_size(properties[_ALLOCATED]),
                    format_size(properties[_KEPT]),
                )
            )
            for line in _lines(owners.get(test, [])[:_OWNERS]):
                write("    " + line)
        if len(shown) < len(tests):
            write("{} more tests; --heaptide-tests 0 shows all".format(len(tests) - len(shown)))
        if not tests:
            write("no test ran, or none in a process that is recorded")
        if _control.recording():
            write("recording: {0}; `heaptide report {0}` shows all of it".format(_live.recording()))


class _MemoryLimit:
    """The marker `limit_memory`."""

    def __init__(self, memory_limit: str, *, current_thread_only: bool = False) -> None:
        self.limit = parse_size(memory_limit)
        self.current_thread_only = current_thread_only

    def check(self, peak: int, item: pytest.Item) -> List[_Limit]:
        if peak < self.limit:
            return []
        owners = _owners(item.nodeid).get(item.nodeid, [])
        lines = ["Largest allocating functions, by bytes in all:"]
        lines += _lines(owners[:_OWNERS_OF_FAILURES])
        lines += _source_lines(item.nodeid)
        summary = "Test was limited to {} but held {} at once".format(
            format_size(self.limit), format_size(peak)
        )
        return [_Limit(summary, _TITLE_OF_MEMORY, "\n".join(lines))]


def _increase(held: int, item: pytest.Item) -> List[_Limit]:
    """If requested, compares with the last passing run of the test, and stores this run."""
    cache: Any = getattr(item.config, "cache", None)
    if cache is None:
        return []
    key = "heaptide/{}".format(item.nodeid)
    before = cache.get(key, None)
    if item.config.getoption("heaptide_fail_on_increase") and before is not None and held > before:
        summary = "Test held {} at once when it last passed but now held {}, {:,} bytes more"
        summary = summary.format(format_size(before), format_size(held), held - before)
        return [_Limit(summary, _TITLE_OF_MEMORY, summary)]
    cache.set(key, held)
    return []


class _LeakLimit:
    """The marker `limit_leaks`."""

    def __init__(
        self,
        location_limit: str,
        *,
        filter_fn: Optional[LeaksFilterFunction] = None,
        warmups: int = 0,
        current_thread_only: bool = False,
    ) -> None:
        self.limit = parse_size(location_limit)
        self.filter = filter_fn
        self.warmups = warmups
        self.current_thread_only = current_thread_only

    def check(self, context: _scopes.Context, item: pytest.Item, run: int) -> List[_Limit]:
        gc.collect()
        if _figures.figures(context, inclusive=True).live_bytes < self.limit:
            # The total is below the limit for one location.
            return []
        sums = _live_by_stack(item, run, self.current_thread_only)
        found = [(size, stack) for stack, size in sums.items()]
        leaks = [leak for leak in found if leak[0] >= max(self.limit, 1)]
        leaks = [leak for leak in leaks if self.filter is None or self.filter(leak[1])]
        if not leaks:
            return []
        leaks.sort(key=lambda leak: -leak[0])
        lines: List[str] = []
        shown = item.config.getoption("heaptide_stacks") or None
        for size, stack in leaks[:_LEAKS]:
            lines.append("{} not freed:".format(format_size(size)))
            for frame in stack.frames[:shown]:
                lines.append("    {}  {}:{}".format(frame.function, frame.filename, frame.lineno))
        if len(leaks) > _LEAKS:
            lines.append("and {} more call stacks".format(len(leaks) - _LEAKS))
        summary = "Test was allowed to leak less than {} per location but leaked {}".format(
            format_size(self.limit), format_size(leaks[0][0])
        )
        return [_Limit(summary, _TITLE_OF_LEAKS, "\n".join(lines))]


@contextlib.contextmanager
def _scope_of(test: str, run: int) -> Iterator[_scopes.Context]:
    """Opens the scope of a run of a test. Threads started in it get an inner scope."""
    original = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        context, own = _scopes.context(), thread.run

        def in_scope() -> None:
            if "run" in vars(thread):
                del thread.run
            _scopes.run_in(context, _in_thread, own)

        thread.run = in_scope  # type: ignore[method-assign]
        original(thread)

    with contextlib.ExitStack() as scopes:
        scopes.enter_context(_scopes.scope(_TEST, test))
        if run > 1:
            scopes.enter_context(_scopes.scope(_RUN, run))
        threading.Thread.start = start  # type: ignore[method-assign,assignment]
        try:
            yield _scopes.context()
        finally:
            threading.Thread.start = original  # type: ignore[method-assign]


def _in_thread(function: Callable[[], None]) -> None:
    with _scopes.scope(_THREAD, "started"):
        function()


def _live_by_stack(
    item: pytest.Item, run: int, current_thread_only: bool
) -> "Dict[Stack, int]":
    """Returns the bytes that a test run allocated and did not free in this process, by stack."""
    kind = "mixed" if item.config.getoption("heaptide_native") else "only"
    words = ["report", _live.profile(), "--format", "json", "--python", kind, "--live-only"]
    words += ["--focus", "scope:{}".format(re.escape(item.nodeid))]
    path = [(_TEST, item.nodeid)] + ([(_RUN, run)] if run > 1 else [])
    return _sums(json.loads(ask(words))["processes"][0], path, current_thread_only)


def _sums(
    process: Dict[str, Any], path: List[Tuple[str, Any]], current_thread_only: bool
) -> "Dict[Stack, int]":
    """Returns live bytes in a scope path by stack."""
    frames = [
        StackFrame(frame["function"] or "???", frame["file"] or "???", frame["line"] or 0)
        for frame in process["frames"]
    ]
    sums: Dict[Stack, int] = {}
    for site in process["sites"]:
        scopes = [(scope["attribute"], scope["value"]) for scope in site["scope"]]
        runs = [scope for scope in scopes if scope[0] in (_TEST, _RUN)]
        if [(name, str(value)) for name, value in runs] != [(n, str(v)) for n, v in path]:
            continue
        if current_thread_only and any(name == _THREAD for name, _ in scopes):
            continue
        if site["kind"].startswith(("outside", "pool_chunk")):
            continue
        stack = Stack(tuple(frames[index] for index in reversed(site["stack"])))
        sums[stack] = sums.get(stack, 0) + site["live_bytes"]
    return sums


class _Owner(NamedTuple):
    name: str
    allocated: int
    blocks: int


def _owners(test: Optional[str] = None) -> Dict[str, List[_Owner]]:
    """Returns the functions that allocated most in each test, or in one test."""
    from ._recording import Recording

    _control.flush()
    where = _TEST if test is None else "{}={}".format(_TEST, _quoted(test))
    query = (
        "SELECT {0},owner,sum(requested_bytes) AS bytes,sum(allocations) AS blocks "
        "GROUP BY {0},owner WHERE {1}"
    ).format(_TEST, where)
    found: Dict[str, List[_Owner]] = {}
    for row in Recording([_live.recording()], ["--python", "mixed"]).query(query):
        owner = _Owner(row["owner"] or "[no stack]", row["bytes"] or 0, row["blocks"] or 0)
        if owner.blocks:
            found.setdefault(row["path"][0], []).append(owner)
    for owners in found.values():
        least = sum(owner.allocated for owner in owners) * _LEAST_PART
        owners[:] = [owner for owner in owners if owner.allocated >= least]
        owners.sort(key=lambda owner: -owner.allocated)
    return found


def _source_lines(test: str) -> List[str]:
    """Returns the source lines that allocated most in a test, with a heading."""
    from ._recording import Recording

    query = (
        "SELECT owner_file,owner_line,sum(requested_bytes) AS bytes "
        "GROUP BY owner_file,owner_line WHERE {}={}"
    ).format(_TEST, _quoted(test))
    rows = Recording([_live.recording()], ["--python", "mixed"]).query(query)
    rows = [row for row in rows if row.get("owner_file") and row.get("owner_line") and row["bytes"]]
    rows.sort(key=lambda row: -row["bytes"])
    least = sum(row["bytes"] for row in rows) * _LEAST_PART
    shown = [row for row in rows[:_LINES_OF_FAILURES] if row["bytes"] >= least]
    lines = ["Largest allocating lines, by bytes in all:"] if shown else []
    for row in shown:
        file, number = row["owner_file"], row["owner_line"]
        text = linecache.getline(file, number).strip()
        place = "{}:{}".format(os.path.basename(file), number)
        lines.append("{:>10}  {}  {}".format(format_size(row["bytes"]), place, text).rstrip())
    return lines


def _quoted(text: str) -> str:
    return '"{}"'.format(text.replace("\\", "\\\\").replace('"', '\\"'))


def _lines(owners: List[_Owner]) -> List[str]:
    line = "{:>10} in {:,} block{}  {}"
    return [
        line.format(format_size(o.allocated), o.blocks, "" if o.blocks == 1 else "s", o.name)
        for o in owners
    ]
