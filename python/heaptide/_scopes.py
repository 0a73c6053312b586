"""Scopes and contexts, kept separate for each task, generator and thread.

The recorder keeps one scope path per thread. Because Python switches between tasks on a thread, a
path is needed for each logical context, too: a context variable holds the innermost scope that was
entered there. A thread-local variable holds the scope that the thread's native path was last set
for. If the two differ, the thread has switched tasks, and its native path is corrected before any
other operation.
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
        # The native path of this entry.
        self.path = 0
        # The native path to restore.
        self.before = 0
        # The thread's last entry when this was entered, possibly of another task.
        self.outer_last: Optional["Entered"] = None
        self.outer_native = 0


class _Thread(threading.local):
    """The state of a thread's native path."""

    # The entry that the native path was last set for.
    last: Optional[Entered] = None
    # The native path while there was no such entry.
    base = 0


_innermost: "contextvars.ContextVar[Optional[Entered]]" = contextvars.ContextVar(
    "heaptide", default=None
)
_thread = _Thread()


def current_path() -> int:
    """Returns the native path of the logical context; that of the thread may currently differ."""
    if library is None:
        return 0
    mine = _innermost.get()
    if _thread.last is mine:
        # Unchanged: native scopes opened inside it are part of the path.
        native: int = library.context()
        if mine is None:
            _thread.base = native
        return native
    return _thread.base if mine is None else mine.path


def enter(change: Callable[[], None]) -> Entered:
    """Enters a scope or context; ``change`` modifies the native path."""
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
    """Restores the path from before an entry; entries may be left in any order."""
    assert library is not None
    entered.closed = True
    target = _innermost.get()
    if target is None or not target.closed:
        # A scope inside it is still open, or another context closes it: a generator.
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
        # The thread had no entry of ours: it may be a worker that runs in another thread's context.
        library.set_context(popped.outer_native)
        _thread.last = None
    else:
        library.set_context(popped.before)
        _thread.last = target


def _number(attribute: str, value: Value) -> int:
    """Returns the number of a scope's name in the profile; 0 if the profile is out of space."""
    assert library is not None
    attribute_text = attribute.encode("utf-8", "surrogateescape")
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        number: int = library.intern_int(attribute_text, len(attribute_text), value)
        return number
    text = str(value).encode("utf-8", "surrogateescape")
    number = library.intern(attribute_text, len(attribute_text), text, len(text))
    return number


# Names with their numbers. Only strings are cached, so loop values cannot fill it; see `number_of`.
_numbers: "dict[tuple[str, str], int]" = {}
_NUMBERS_LIMIT = 4096

if library is not None and hasattr(os, "register_at_fork"):
    # A child has a profile of its own, with other numbers.
    os.register_at_fork(after_in_child=_numbers.clear)


def number_of(attribute: str, value: Value) -> int:
    """Like `_number`, with a cache for names that are strings."""
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
    """Opens a scope for the current activity of the thread or task while the block runs.

    >>> with scope("load"):
    ...     for number in range(3):
    ...         with scope("event", number):
    ...             pass

    ``scope(name)`` is a region; ``scope(attribute, value)`` has another attribute, and a string or
    whole number as value. It also decorates functions, generators and coroutines; see `scoped`. An
    object can be entered repeatedly, also by several threads and tasks.
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
        """Removes the innermost entry of this object in this logical context, or else its last
        entry.
        """
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
    """Decorates a function: it runs in a scope with its name, with the attribute ``function``.

    Each step of a generator, coroutine or asynchronous generator runs in the scope, and code
    between the steps does not, whether or not `heaptide.asyncio` is installed.

    >>> @scoped
    ... def load(path):
    ...     return bytearray(100)
    """
    name = getattr(function, "__qualname__", type(function).__name__)
    return scope("function", str(name))(function)


def _own(path: int) -> int:
    """Returns the calling thread's number for a path, which may come from another thread."""
    if library is None:
        return path
    before = library.set_context(path)
    own: int = library.context()
    library.set_context(before)
    return own


class Context:
    """A scope path, to pass to other threads or callbacks; see `context` and `run_in`.

    It belongs to the process: in a forked child it is invalid.
    """

    __slots__ = ("path",)

    def __init__(self, path: int) -> None:
        self.path = path

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Context) and _own(self.path) == _own(other.path)

    # Each thread has its own number for a path.
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "<heaptide.Context {:#x}>".format(self.path)


def context() -> Context:
    """Returns the scope path of the calling thread or task."""
    return Context(current_path())


def run_in(context: Context, function: Callable[..., Result], *args: Any, **kwargs: Any) -> Result:
    """Calls a function with this scope path, and then restores the thread's own path.

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
    """Wraps a function so that it runs with the current scope path, on any thread."""
    if library is None:
        return function
    here = context()

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return run_in(here, function, *args, **kwargs)

    return call  # type: ignore[return-value]


class ThreadPoolExecutor(futures.ThreadPoolExecutor):
    """An executor whose calls run with the scope path of the caller of ``submit``.

    >>> with scope("load"), ThreadPoolExecutor(2) as pool:
    ...     sizes = list(pool.map(len, ["a", "bc"]))
    """

    def submit(self, fn, /, *args, **kwargs):  # type: ignore[no-untyped-def]
        return super().submit(run_in, context(), fn, *args, **kwargs)
