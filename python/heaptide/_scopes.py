"""Scopes and contexts, kept apart for each task, generator and thread.

The recorder knows a scope path for each thread. Python switches between tasks on one thread, so a
path has to be known for each logical context too: a context variable holds the innermost scope that
was entered there. What a thread's native path was last set for is remembered beside it; where the
two differ, the thread has switched, and its native path is set right before anything else is done.
"""

import contextvars
import functools
import os
import threading
from concurrent import futures
from types import TracebackType
from typing import Any, Callable, Optional, Type, TypeVar, Union

from ._interface import library

__all__ = ["Context", "ThreadPoolExecutor", "carried", "context", "run_in", "scope", "scoped"]

Value = Union[str, int]
Function = TypeVar("Function", bound=Callable[..., Any])
Result = TypeVar("Result")


class Entered:
    """A scope that was entered, or a context that was attached: a link of a logical path."""

    __slots__ = ("before", "closed", "outer", "outer_last", "outer_native", "path")

    def __init__(self, outer: Optional["Entered"]) -> None:
        self.outer = outer
        self.closed = False
        # The native path of this.
        self.path = 0
        # The native path to go back to.
        self.before = 0
        # What the thread had when this was entered; it may have been another task's.
        self.outer_last: Optional["Entered"] = None
        self.outer_native = 0


class _Thread(threading.local):
    """What is known of a thread's native path."""

    # The scope that the native path was last set for.
    last: Optional[Entered] = None
    # The native path when that was none.
    base = 0


_innermost: "contextvars.ContextVar[Optional[Entered]]" = contextvars.ContextVar(
    "heaptide", default=None
)
_thread = _Thread()


def current_path() -> int:
    """The native path of the logical context, which the thread may not have at this moment."""
    if library is None:
        return 0
    mine = _innermost.get()
    if _thread.last is mine:
        # The same as before: native scopes that were opened within it are right too.
        native: int = library.context()
        if mine is None:
            _thread.base = native
        return native
    return _thread.base if mine is None else mine.path


def enter(change: Callable[[], None]) -> Entered:
    """Enters what ``change`` does to the native path."""
    assert library is not None
    entered = Entered(_innermost.get())
    entered.outer_last = _thread.last
    entered.outer_native = library.context()
    entered.before = current_path()
    if entered.before != entered.outer_native:
        library.set_context(entered.before)
    change()
    entered.path = library.context()
    _innermost.set(entered)
    _thread.last = entered
    return entered


def leave(entered: Entered) -> None:
    """Goes back to what was before, in whichever order scopes are left."""
    assert library is not None
    entered.closed = True
    target = _innermost.get()
    if target is None or not target.closed:
        # What was entered within it is still open, or another context closes it: a generator.
        if _thread.last is entered:
            _back(entered, entered.outer)
        return
    popped = target
    while target is not None and target.closed:
        popped, target = target, target.outer
    _innermost.set(target)
    _back(popped, target)


def _back(popped: Entered, target: Optional[Entered]) -> None:
    assert library is not None
    if popped.outer_last is None:
        # The thread was doing nothing of ours: it may be a worker that runs another's context.
        library.set_context(popped.outer_native)
        _thread.last = None
    else:
        library.set_context(popped.before)
        _thread.last = target


def _number(attribute: str, value: Value) -> int:
    """The number of a scope's name in the profile; 0 if there is no room for it."""
    assert library is not None
    attribute_text = attribute.encode("utf-8", "surrogateescape")
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        number: int = library.intern_int(attribute_text, len(attribute_text), value)
        return number
    text = str(value).encode("utf-8", "surrogateescape")
    number = library.intern(attribute_text, len(attribute_text), text, len(text))
    return number


# Names that were asked for, with their numbers. Values of loops do not fill it: see `number_of`.
_numbers: "dict[tuple[str, str], int]" = {}
_NUMBERS_LIMIT = 4096

if library is not None and hasattr(os, "register_at_fork"):
    # A child has a profile of its own, with numbers of its own.
    os.register_at_fork(after_in_child=_numbers.clear)


def number_of(attribute: str, value: Value) -> int:
    """`_number`, remembered for names that are strings."""
    if isinstance(value, int):
        return _number(attribute, value)
    number = _numbers.get((attribute, value))
    if number is None:
        number = _number(attribute, value)
        if len(_numbers) < _NUMBERS_LIMIT:
            _numbers[attribute, value] = number
    return number


def _names(name: str, value: Optional[Value]) -> "tuple[str, Value]":
    return ("region", name) if value is None else (name, value)


class scope:
    """A scope: what the thread or task is doing, for as long as the block runs.

    >>> with scope("load"):
    ...     for number in range(3):
    ...         with scope("event", number):
    ...             pass

    ``scope(name)`` is a region; ``scope(attribute, value)`` has an attribute of its own, and a
    string or whole number as value. It also decorates functions, generators and coroutines: see
    `scoped`. One object can be entered again and again, also by several threads and tasks.
    """

    __slots__ = ("_attribute", "_open", "_value")

    def __init__(self, name: str, value: Optional[Value] = None) -> None:
        self._attribute, self._value = _names(name, value)
        # The open entries of this object, of all threads.
        self._open: "list[Entered]" = []

    def __enter__(self) -> "scope":
        if library is not None:
            number = number_of(self._attribute, self._value)
            begin = library.scope_begin
            self._open.append(enter(lambda: begin(number) if number else None))
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if library is not None and self._open:
            leave(self._take())

    def _take(self) -> Entered:
        """The innermost entry of this object in this logical context; else its last."""
        entered = _innermost.get()
        while entered is not None:
            if not entered.closed and entered in self._open:
                self._open.remove(entered)
                return entered
            entered = entered.outer
        return self._open.pop()

    def __call__(self, function: Function) -> Function:
        from ._steps import wrapped

        call: Function = wrapped(function, self._attribute, self._value)
        return call


def scoped(function: Function) -> Function:
    """Decorates a function: it runs in a scope of its own name, with the attribute ``function``.

    Of generators, coroutines and asynchronous generators each step runs in the scope, and what runs
    between the steps does not, whether or not `heaptide.asyncio` is installed.

    >>> @scoped
    ... def load(path):
    ...     return bytearray(100)
    """
    name = getattr(function, "__qualname__", type(function).__name__)
    return scope("function", str(name))(function)


def _own(path: int) -> int:
    """The calling thread's number for a path, which may come from another thread."""
    if library is None:
        return path
    before = library.set_context(path)
    own: int = library.context()
    library.set_context(before)
    return own


class Context:
    """A scope path, to be carried to other threads or callbacks: `context` and `run_in`.

    It belongs to the process: in a child of a fork it is none.
    """

    __slots__ = ("path",)

    def __init__(self, path: int) -> None:
        self.path = path

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Context) and _own(self.path) == _own(other.path)

    # Each thread has a number of its own for a path.
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "<heaptide.Context {:#x}>".format(self.path)


def context() -> Context:
    """The scope path of the calling thread or task."""
    return Context(current_path())


def run_in(context: Context, function: Callable[..., Result], *args: Any, **kwargs: Any) -> Result:
    """Calls a function with this scope path; after that the thread has its own again.

    >>> import threading
    >>> with scope("load"):
    ...     worker = threading.Thread(target=run_in, args=(context(), bytearray, 100))
    ...     worker.start()
    ...     worker.join()
    """
    if library is None:
        return function(*args, **kwargs)
    set_context = library.set_context
    entered = enter(lambda: set_context(context.path))
    try:
        return function(*args, **kwargs)
    finally:
        leave(entered)


def carried(function: Function) -> Function:
    """The function with the scope path of now, on whichever thread it is called."""
    if library is None:
        return function
    here = context()

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return run_in(here, function, *args, **kwargs)

    return call  # type: ignore[return-value]


class ThreadPoolExecutor(futures.ThreadPoolExecutor):
    """An executor whose calls have the scope path of where they were submitted.

    >>> with scope("load"), ThreadPoolExecutor(2) as pool:
    ...     sizes = list(pool.map(len, ["a", "bc"]))
    """

    def submit(self, fn, /, *args, **kwargs):  # type: ignore[no-untyped-def]
        return super().submit(run_in, context(), fn, *args, **kwargs)
