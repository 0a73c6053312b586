"""A recording of a part of a program: ``with heaptide.record("x.heaptide"):``."""

import os
import threading
from types import TracebackType
from typing import Optional, Type, Union

from . import _control
from ._command import HeaptideError, ask

_START = "start the program with `python -m heaptide run --start-off app.py`"
_IS_ON = "recording is on already; end the part that it is on for, or " + _START


# Held from the start of a part until its recording is written.
_part = threading.Lock()


def _forget_part() -> None:
    """Forgets the part in a forked child: it belongs to the parent."""
    global _part
    _part = threading.Lock()


os.register_at_fork(after_in_child=_forget_part)


class record:
    """Records the allocations of all threads of this process while the block runs, in a separate
    recording.

    >>> with record("load.heaptide"):                                # doctest: +SKIP
    ...     data = load()

    The program has to be started with ``python -m heaptide run --start-off``, because the recorder
    can only be loaded when the process starts. The recording at ``path`` has the allocations of the
    block and its peak. Its live blocks at the end are those of the block, and of earlier uses of
    `record` in this process. The recording of the run contains all parts: its reports count from
    the last one, or from the first one with ``--from-start``.

    ``overwrite`` replaces an older recording. Raises `HeaptideError` before the block runs if it
    cannot be recorded, or after it if the recording cannot be written.
    """

    def __init__(self, path: "Union[str, os.PathLike[str]]", overwrite: bool = False) -> None:
        self.path = os.path.abspath(os.fspath(path))
        self._overwrite = overwrite
        self._process = 0

    def __enter__(self) -> "record":
        if not _control.loaded():
            raise HeaptideError("this process has no recorder; " + _START)
        if not _control.recording():
            raise HeaptideError("this process is not recorded; `heaptide info` explains why")
        directory = os.path.dirname(self.path)
        if not os.path.isdir(directory):
            raise HeaptideError("{}: no such directory".format(directory))
        if os.path.lexists(self.path) and not self._overwrite:
            reason = "{}: already exists; overwrite=True replaces a recording"
            raise HeaptideError(reason.format(self.path))
        if not _part.acquire(blocking=False):
            raise HeaptideError(_IS_ON)
        try:
            self._begin()
        except BaseException:
            _part.release()
            raise
        return self

    def _begin(self) -> None:
        if _control.active(whole_process=True):
            raise HeaptideError(_IS_ON)
        if not _control.reset():
            raise HeaptideError("the counters cannot be reset: no space beside the profile")
        self._process = os.getpid()
        _control.on()

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        _control.off()
        process = os.getpid()
        if process != self._process:
            # A forked child: the part belongs to its parent.
            return
        try:
            _control.flush()
            force = ["--force"] if self._overwrite else []
            ask(["merge", str(process), "--output", self.path, *force])
        finally:
            _part.release()
