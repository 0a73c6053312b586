"""Finds the functions of libheaptide.so with ctypes.

The recorder is loaded when the process starts (``heaptide run`` preloads it) or never. Each
function of its table is exported with the prefix ``heaptide_``; see ``include/heaptide.h``.
"""

import ctypes
from ctypes import c_char_p, c_int, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any, Optional

SIZE_CLASSES = 65


class RawFigures(ctypes.Structure):
    """``struct heaptide_figures``."""

    _fields_ = [
        ("allocations", c_uint64),
        ("frees", c_uint64),
        ("reallocations", c_uint64),
        ("failed", c_uint64),
        ("requested_bytes", c_uint64),
        ("usable_bytes", c_uint64),
        ("freed_bytes", c_uint64),
        ("live_blocks", c_int64),
        ("live_bytes", c_int64),
        ("peak_bytes", c_uint64),
        ("largest_bytes", c_uint64),
    ]


class RawHistograms(ctypes.Structure):
    """``struct heaptide_histograms``."""

    _fields_ = [(name, c_uint64 * SIZE_CLASSES) for name in ("requested", "usable", "freed")]


class RawBlock(ctypes.Structure):
    """``struct heaptide_block``."""

    _fields_ = [
        ("start", c_size_t),
        ("bytes", c_size_t),
        ("uid", c_uint64),
        ("label", c_void_p),
        ("label_length", c_size_t),
        ("element_bytes", c_size_t),
        ("index", c_size_t),
        ("dimension_count", c_size_t),
        ("dimensions", c_size_t * 4),
        ("kind", c_uint32),
        ("reserved", c_uint32),
    ]


class RawMemory(ctypes.Structure):
    """``struct heaptide_memory``."""

    _fields_ = [("resident_bytes", c_uint64), ("virtual_bytes", c_uint64)]


class RawMeasurement(ctypes.Structure):
    """``struct heaptide_measurement``: used by the recorder from begin to end."""

    _fields_ = [("opaque", c_uint64 * 16)]


# Name, result, arguments. Strings are a pointer and a length.
_FUNCTIONS = [
    ("recording", c_int, []),
    ("intern", c_uint32, [c_char_p, c_size_t, c_char_p, c_size_t]),
    ("intern_int", c_uint32, [c_char_p, c_size_t, c_int64]),
    ("scope_begin", None, [c_uint32]),
    ("context", c_uint64, []),
    ("set_context", c_uint64, [c_uint64]),
    (
        "label",
        c_int,
        [c_void_p, c_char_p, c_size_t, c_size_t, ctypes.POINTER(c_size_t), c_size_t, c_size_t],
    ),
    ("unlabel", c_int, [c_void_p]),
    ("resolve", c_int, [c_void_p, ctypes.POINTER(RawBlock)]),
    ("window_begin", c_uint32, [c_char_p, c_size_t]),
    ("window_end", c_int, [c_uint32, ctypes.POINTER(RawFigures)]),
    ("window_figures", c_int, [c_uint32, ctypes.POINTER(RawFigures)]),
    ("measure_begin", None, [ctypes.POINTER(RawMeasurement)]),
    ("measure_end", c_int, [ctypes.POINTER(RawMeasurement), ctypes.POINTER(RawFigures)]),
    ("mark", None, [c_char_p, c_size_t]),
    ("snapshot", c_uint32, [c_char_p, c_size_t]),
    ("turn", None, [c_int]),
    ("pause", None, [c_int]),
    ("resume", None, [c_int]),
    ("active", c_int, [c_int]),
    ("threshold", None, [c_size_t, c_int]),
    ("reset", c_int, []),
    ("flush", None, []),
    ("totals", None, [ctypes.POINTER(RawFigures)]),
    ("thread", None, [ctypes.POINTER(RawFigures)]),
    ("scope", c_int, [c_uint64, c_int, ctypes.POINTER(RawFigures)]),
    ("histograms", None, [ctypes.POINTER(RawHistograms)]),
    ("write", c_int, [c_char_p, c_size_t, c_char_p, c_size_t]),
    ("separate_threads", None, []),
    ("process_memory", None, [ctypes.POINTER(RawMemory)]),
    ("write_to", c_int, [c_int, c_char_p, c_size_t]),
]

# These write files, so other Python threads run meanwhile.
_SLOW = {"snapshot", "reset", "write", "write_to"}


class Library:
    """The functions of the recorder, as attributes."""

    def __init__(self, keeps_lock: Any, gives_lock_up: Any) -> None:
        for name, result, arguments in _FUNCTIONS:
            source = gives_lock_up if name in _SLOW else keeps_lock
            function = source["heaptide_" + name]
            function.restype = result
            function.argtypes = arguments
            setattr(self, name, function)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


def _find() -> Optional[Library]:
    """Returns the library if it is in this process and has all functions that this package needs.
    """
    try:
        # Calls through PyDLL keep the interpreter lock, which makes them cheaper. PyPy has no
        # PyDLL.
        keeps_lock = getattr(ctypes, "PyDLL", ctypes.CDLL)(None)
        return Library(keeps_lock, ctypes.CDLL(None))
    except (AttributeError, OSError, TypeError):
        return None


library: Optional[Library] = _find()
