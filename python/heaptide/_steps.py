"""Coroutines and generators that keep their scope path from step to step."""

import collections.abc
import functools
import inspect
from typing import Any, Callable, Optional

from . import _scopes
from ._interface import library
from ._scopes import Entered, Value


class Path:
    """The scope path of a coroutine or generator between its steps."""

    __slots__ = ("base", "innermost", "last", "native", "number", "owns_variable")

    def __init__(self, number: int, owns_variable: bool) -> None:
        # The path where it was created; its own path is below that.
        self.native = _scopes.current_path()
        self.base = self.native
        self.innermost: Optional[Entered] = _scopes._innermost.get()
        self.last = self.innermost
        # A scope to enter at the first step; 0: none.
        self.number = number
        # Tasks have their own context variables; a generator shares those of its caller.
        self.owns_variable = owns_variable

    def step(self, call: Callable[..., Any], *args: Any) -> Any:
        """Runs a step with this path, then saves the path and restores the thread's own path."""
        assert library is not None
        thread, variable = _scopes._thread, _scopes._innermost
        native, last, base = library.set_context(self.native), thread.last, thread.base
        thread.last, thread.base = self.last, self.base
        innermost = variable.get()
        if self.owns_variable:
            variable.set(self.innermost)
        if self.number:
            number, self.number = self.number, 0
            begin = library.scope_begin
            _scopes.enter(lambda: begin(number))
        try:
            return call(*args)
        finally:
            self.innermost = variable.get()
            if self.owns_variable:
                variable.set(innermost)
            self.last, self.base = thread.last, thread.base
            self.native = library.set_context(native)
            thread.last, thread.base = last, base


class Steps:
    """Drives a coroutine or generator on behalf of its caller."""

    def __init__(self, inner: Any, path: Path) -> None:
        self._inner = inner
        self._path = path

    def send(self, value: Any) -> Any:
        return self._path.step(self._inner.send, value)

    def throw(self, *error: Any) -> Any:
        return self._path.step(self._inner.throw, *error)

    def close(self) -> None:
        self._path.step(self._inner.close)

    def __iter__(self) -> "Steps":
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def __await__(self) -> "Steps":
        return self

    def __getattr__(self, name: str) -> Any:
        # Debuggers and asyncio read a coroutine's frame, code and name.
        return getattr(self._inner, name)

    def __repr__(self) -> str:
        return repr(self._inner)


class CoroutineSteps(Steps, collections.abc.Coroutine):  # type: ignore[type-arg]
    """A coroutine, for asyncio."""


class GeneratorSteps(Steps, collections.abc.Generator):  # type: ignore[type-arg]
    """A generator, for ``yield from``."""


def of_task(coroutine: Any) -> Any:
    """Wraps a coroutine for a new task; its path begins as the current path."""
    if library is None or isinstance(coroutine, CoroutineSteps):
        return coroutine
    return CoroutineSteps(coroutine, Path(0, owns_variable=False))


def wrapped(function: Any, attribute: str, value: Value) -> Any:
    """Wraps a function so that each call runs in this scope; the kind of function stays the same.
    """
    if library is None:
        return function
    if inspect.iscoroutinefunction(function):
        wrapper = _coroutine
    elif inspect.isasyncgenfunction(function):
        wrapper = _asynchronous_generator
    elif inspect.isgeneratorfunction(function):
        wrapper = _generator
    else:
        wrapper = _plain
    call = wrapper(function, lambda: _scopes.number_of(attribute, value))
    return functools.wraps(function)(call)


def _plain(function: Any, number: Callable[[], int]) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        assert library is not None
        begin, name = library.scope_begin, number()
        entered = _scopes.enter(lambda: begin(name) if name else None)
        try:
            return function(*args, **kwargs)
        finally:
            _scopes.leave(entered)

    return call


def _coroutine(function: Any, number: Callable[[], int]) -> Any:
    async def call(*args: Any, **kwargs: Any) -> Any:
        path = Path(number(), owns_variable=True)
        return await CoroutineSteps(function(*args, **kwargs), path)

    return call


def _generator(function: Any, number: Callable[[], int]) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        path = Path(number(), owns_variable=True)
        return (yield from GeneratorSteps(function(*args, **kwargs), path))

    return call


def _asynchronous_generator(function: Any, number: Callable[[], int]) -> Any:
    async def call(*args: Any, **kwargs: Any) -> Any:
        path = Path(number(), owns_variable=True)
        inner = function(*args, **kwargs)
        try:
            value = await CoroutineSteps(inner.__anext__(), path)
            while True:
                try:
                    sent = yield value
                except GeneratorExit:
                    await CoroutineSteps(inner.aclose(), path)
                    raise
                except BaseException as error:
                    value = await CoroutineSteps(inner.athrow(error), path)
                else:
                    value = await CoroutineSteps(inner.asend(sent), path)
        except StopAsyncIteration:
            return

    return call
