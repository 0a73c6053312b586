"""Control: whether and what is recorded; marks and snapshots."""

import os
import sys
from types import TracebackType
from typing import Optional, Type, Union

from ._interface import library


def loaded() -> bool:
    """Whether the recorder is in this process."""
    return library is not None


def recording() -> bool:
    """Whether this process is recorded: the recorder is there and could make its profile."""
    return library is not None and bool(library.recording())


def active(whole_process: bool = False) -> bool:
    """Whether allocations of this thread, or of the process, are recorded at this moment."""
    return library is not None and bool(library.active(int(whole_process)))


def on() -> None:
    """Turns recording on for the whole process, as ``heaptide ctl on`` does."""
    if library is not None:
        library.turn(1)


def off() -> None:
    """Turns recording off for the whole process; blocks that are freed are noticed still."""
    if library is not None:
        library.turn(0)


class pause:
    """Pauses recording of the calling thread, or of the whole process, while the block runs.

    >>> with pause():
    ...     unseen = bytearray(100000)
    """

    def __init__(self, whole_process: bool = False) -> None:
        self._whole = int(whole_process)

    def __enter__(self) -> "pause":
        if library is not None:
            library.pause(self._whole)
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if library is not None:
            library.resume(self._whole)


def threshold(size: int = 0, below: bool = False) -> None:
    """Records stacks only of requests of ``size`` bytes and more, or only of fewer; 0: of all."""
    if library is not None:
        library.threshold(size, int(below))


def reset() -> bool:
    """Leaves out of reports what was counted until now; whether it could be done."""
    return library is not None and bool(library.reset())


def flush() -> None:
    """Publishes what this thread counted and has not shown to readers yet."""
    if library is not None:
        library.flush()


def separate_threads() -> None:
    """From now on each thread that begins has a row of its own, with its id."""
    if library is not None:
        library.separate_threads()


def mark(name: str) -> None:
    """Puts a mark on the timeline."""
    if library is not None:
        text = name.encode("utf-8", "surrogateescape")
        library.mark(text, len(text))


def snapshot(name: str = "") -> int:
    """Writes a copy of the profile beside it, as it is now: its number from 1; 0 if it could not."""
    if library is None:
        return 0
    text = name.encode("utf-8", "surrogateescape")
    number: int = library.snapshot(text, len(text))
    return number


def write(path: Union[str, "os.PathLike[str]"] = "stdout", format: str = "text") -> bool:
    """Writes what was recorded of this process so far; whether that could be done.

    ``path`` is a file, which is replaced as a whole, ``stdout`` or ``stderr``. The formats:
    ``text`` (the report), ``json``, ``dot``, ``folded``, ``stacks``, ``snapshot`` (a recording,
    which the path names), ``query:CALQL``, any other format of ``heaptide export``, and views of
    the command by their name; options may follow (``text --by scope --top 5``).
    """
    if library is None:
        return False
    target, text = os.fsencode(path), format.encode("utf-8", "surrogateescape")
    for stream, name in ((sys.stdout, b"stdout"), (sys.stderr, b"stderr")):
        # What the program has printed before comes first.
        if target == name and stream is not None:
            stream.flush()
    return bool(library.write(target, len(target), text, len(text)))


def written(format: str = "text") -> str:
    """The same as a string; empty if it could not be written."""
    if library is None:
        return ""
    text = format.encode("utf-8", "surrogateescape")
    file = os.memfd_create("heaptide")
    with open(file, "rb") as content:
        if not library.write_to(file, text, len(text)):
            return ""
        content.seek(0)
        return content.read().decode("utf-8", "replace")
