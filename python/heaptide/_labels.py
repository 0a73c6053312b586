"""Labels: names for data, and lookup of addresses."""

import ctypes
from types import TracebackType
from typing import Any, NamedTuple, Optional, Sequence, Tuple, Type, Union

from ._interface import RawBlock, library

_KINDS = {1: "heap", 2: "pool", 3: "chunk", 4: "other"}


class _Buffer(ctypes.Structure):
    """``Py_buffer``; only the address is used."""

    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    ]


# Missing in PyPy, where objects move, so that their buffers have no fixed address.
_api = getattr(ctypes, "pythonapi", None)
# PyBUF_STRIDES | PyBUF_FORMAT: any buffer except those of pointers to pointers.
_ANY_BUFFER = 0x18 | 0x04


def address(data: Any) -> int:
    """Returns the address of a buffer's first element: bytes, bytearray, array, memoryview, numpy
    array.
    """
    if _api is None:
        raise BufferError("buffers of this interpreter have no address that stays")
    buffer = _Buffer()
    get = _api.PyObject_GetBuffer
    get.argtypes = [ctypes.py_object, ctypes.POINTER(_Buffer), ctypes.c_int]
    get.restype = ctypes.c_int
    get(data, buffer, _ANY_BUFFER)
    release = _api.PyBuffer_Release
    release.argtypes = [ctypes.POINTER(_Buffer)]
    release.restype = None
    found = buffer.buf or 0
    release(buffer)
    return found


class Label:
    """The result of `label`: true if memory was labelled, and a context manager that removes the
    label.
    """

    __slots__ = ("_address", "_uid")

    def __init__(self, address: int, uid: int) -> None:
        self._address, self._uid = address, uid

    def __bool__(self) -> bool:
        return self._uid != 0

    def remove(self) -> None:
        """Removes the label, unless the memory was freed and has another label by now."""
        if library is not None and self._uid:
            found = resolve(self._address)
            if found is not None and found.uid == self._uid:
                library.unlabel(self._address)
            self._uid = 0

    def __enter__(self) -> "Label":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.remove()


def label(name: str, data: Any, dimensions: Optional[Sequence[int]] = None) -> Label:
    """Labels the memory of a buffer: bytearray, array, memoryview, numpy array, bytes.

    A heap block keeps its label until it is freed. Small data, and data that shares its block with
    its object (bytes), has no block of its own: the label belongs to the range of memory, and the
    caller has to remove it, for example by using the result as a context manager. In PyPy, no data
    is labelled.

    >>> energies = bytearray(100000)
    >>> if label("energies", energies):
    ...     assert resolve(address(energies) + 7).index == 7
    """
    if library is None or _api is None:
        return Label(0, 0)
    with memoryview(data) as view:
        element, nbytes = view.itemsize, view.nbytes
        shape = tuple(view.shape or ()) if dimensions is None else tuple(dimensions)
    where = address(data)
    if not where or not nbytes:
        return Label(0, 0)
    text = name.encode("utf-8", "surrogateescape")
    sizes = (ctypes.c_size_t * len(shape))(*shape)
    done = library.label(where, text, len(text), element, sizes, len(shape), 0) or library.label(
        where, text, len(text), element, sizes, len(shape), nbytes
    )
    found = resolve(where) if done else None
    return Label(where, found.uid if found is not None else 0)


class Block(NamedTuple):
    """The result of `resolve`."""

    # The address and size of the block.
    start: int
    bytes: int
    # The number of this labelling, from 1; 0 without a label.
    uid: int
    label: Optional[str]
    # The size of an element, and the index of the element that contains the address.
    element_bytes: int
    index: int  # type: ignore[assignment]
    dimensions: Tuple[int, ...]
    # "heap", "pool", "chunk" or "other".
    kind: str


def resolve(data: Union[int, Any]) -> Optional[Block]:
    """Returns the block at an address, or at that of a buffer; None if it was freed or is unknown.
    """
    if library is None or (_api is None and not isinstance(data, int)):
        return None
    raw = RawBlock()
    if not library.resolve(data if isinstance(data, int) else address(data), raw):
        return None
    name = None
    if raw.label:
        name = ctypes.string_at(raw.label, raw.label_length).decode("utf-8", "replace")
    dimensions = tuple(raw.dimensions[: min(raw.dimension_count, 4)])
    kind = _KINDS.get(raw.kind, "other")
    return Block(
        raw.start, raw.bytes, raw.uid, name, raw.element_bytes, raw.index, dimensions, kind
    )
