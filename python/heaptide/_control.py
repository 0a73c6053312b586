"""Control of the recorder, marks, snapshots and output."""

import os
import sys
from types import TracebackType
from typing import Optional, Type, Union

from ._interface import library


def loaded() -> bool:
    """Returns whether the recorder is loaded into this process."""
    return library is not None


def recording() -> bool:
    """Returns whether this process is recorded: the recorder is loaded and could create its
    profile.
    """
    return library is not None and bool(library.recording())


def active(whole_process: bool = False) -> bool:
    """Returns whether allocations of this thread, or of the process, are being recorded."""
    return library is not None and bool(library.active(int(whole_process)))


def on() -> None:
    """Turns recording on for the whole process, like ``heaptide ctl on``."""
    if library is not None:
        library.turn(1)


def off() -> None:
    """Turns recording off for the whole process; frees of recorded blocks are still recorded."""
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
    """Records stacks only for requests of at least ``size`` bytes or, with ``below``, of fewer
    bytes; with size 0, for all requests.
    """
    if library is not None:
        library.threshold(size, int(below))


def reset() -> bool:
    """Resets the counters, so that reports exclude earlier events. Returns whether it succeeded."""
    return library is not None and bool(library.reset())


def flush() -> None:
    """Writes this thread's buffered counts, so that readers see them."""
    if library is not None:
        library.flush()


def separate_threads() -> None:
    """Gives each thread that starts from now on a separate row with its id."""
    if library is not None:
        library.separate_threads()


def mark(name: str) -> None:
    """Records a mark: a named point in time."""
    if library is not None:
        text = name.encode("utf-8", "surrogateescape")
        library.mark(text, len(text))


def snapshot(name: str = "") -> int:
    """Writes a copy of the profile next to it. Returns the number of the snapshot, from 1, or 0 on
    failure.
    """
    if library is None:
        return 0
    text = name.encode("utf-8", "surrogateescape")
    number: int = library.snapshot(text, len(text))
    return number


def write(path: Union[str, "os.PathLike[str]"] = "stdout", format: str = "text") -> bool:
    """Writes the data of this process recorded so far. Returns whether it succeeded.

    ``path`` is a file, which is replaced atomically, ``stdout`` or ``stderr``. Formats are ``text``
    (the report), ``json``, ``dot``, ``folded``, ``stacks``, ``snapshot`` (a recording at ``path``),
    ``query:CALQL``, any other format of ``heaptide export``, and the name of any view of the
    command. Options may follow (``text --by scope --top 5``).
    """
    if library is None:
        return False
    target, text = os.fsencode(path), format.encode("utf-8", "surrogateescape")
    for stream, name in ((sys.stdout, b"stdout"), (sys.stderr, b"stderr")):
        # Keeps the order of the output: earlier output of the program comes first.
        if target == name and stream is not None:
            stream.flush()
    return bool(library.write(target, len(target), text, len(text)))


def written(format: str = "text") -> str:
    """Returns the output of `write` as a string; empty if it could not be written."""
    if library is None:
        return ""
    text = format.encode("utf-8", "surrogateescape")
    file = os.memfd_create("heaptide")
    with open(file, "rb") as content:
        if not library.write_to(file, text, len(text)):
            return ""
        content.seek(0)
        return content.read().decode("utf-8", "replace")
