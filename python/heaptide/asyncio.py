"""Exact scopes in asyncio: each step of a task runs with the task's own scope path.

Without this module, the scopes of tasks are separate, too, but allocations of a task after an
``await``, before it next enters or leaves a scope, may be charged to the task that ran before it.
"""

import asyncio
from typing import Any, Optional

from ._interface import library
from ._steps import of_task

__all__ = ["install", "run"]


class _Factory:
    """Creates the tasks of a loop, through the loop's previous factory."""

    def __init__(self, before: Any) -> None:
        self._before = before

    def __call__(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **more: Any) -> Any:
        steps = of_task(coroutine)
        if self._before is not None:
            return self._before(loop, steps, **more)
        return asyncio.Task(steps, loop=loop, **more)


def install(loop: Optional[asyncio.AbstractEventLoop] = None) -> None:
    """Makes scopes exact for the tasks that this loop (or the running one) creates from now on."""
    if library is None:
        return
    loop = asyncio.get_running_loop() if loop is None else loop
    before = loop.get_task_factory()
    if not isinstance(before, _Factory):
        loop.set_task_factory(_Factory(before))


async def _installed(main: Any) -> Any:
    install()
    return await main


def run(main: Any, **options: Any) -> Any:
    """Like ``asyncio.run``, with exact scopes in all tasks."""
    return asyncio.run(of_task(_installed(main)), **options)
