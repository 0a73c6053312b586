"""Tables of a recording: typed columns for Arrow, pandas, polars, or plain Python."""

import array
import html
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Tuple, Union, overload

from ._command import HeaptideError, package

# The types of columns. Stacks and paths are lists of strings.
UINT = "uint64"
INT = "int64"
FLOAT = "float64"
BOOL = "bool"
TEXT = "string"
LIST = "list<string>"

# The number of rows that a notebook shows.
_SHOWN_ROWS = 20
# The number of characters of a cell that a notebook shows.
_SHOWN_CHARACTERS = 80

Row = Dict[str, Any]


class Table:
    """A table of a recording, with all rows in memory.

    It is an Arrow stream (``__arrow_c_stream__``), so ``pyarrow.table(t)``, ``polars.DataFrame(t)``
    and ``duckdb.sql("FROM t")`` accept it directly. Iteration yields rows as dictionaries;
    ``table["owner"]`` is a column as a list, ``table[0]`` a row.

    >>> table = Table({"owner": ["load", "main"], "bytes": [100, 20]},
    ...               {"owner": "string", "bytes": "uint64"})
    >>> len(table), table.columns
    (2, ('owner', 'bytes'))
    >>> table[0]
    {'owner': 'load', 'bytes': 100}
    >>> sum(table["bytes"])
    120
    """

    def __init__(self, columns: Mapping[str, Sequence[Any]], types: Mapping[str, str]) -> None:
        self._columns = {name: list(values) for name, values in columns.items()}
        self._types = dict(types)
        lengths = {len(values) for values in self._columns.values()}
        self._rows = lengths.pop() if lengths else 0
        if lengths or self._types.keys() != self._columns.keys():
            raise ValueError("every column of a table has a type and as many values as the others")

    @property
    def columns(self) -> Tuple[str, ...]:
        """The names of the columns."""
        return tuple(self._columns)

    @property
    def types(self) -> Dict[str, str]:
        """The type of each column: uint64, int64, float64, bool, string or list<string>."""
        return dict(self._types)

    def __len__(self) -> int:
        return self._rows

    def __iter__(self) -> Iterator[Row]:
        names = self.columns
        for values in zip(*self._columns.values()):
            yield dict(zip(names, values))

    @overload
    def __getitem__(self, key: str) -> List[Any]: ...

    @overload
    def __getitem__(self, key: int) -> Row: ...

    def __getitem__(self, key: Union[str, int]) -> Union[List[Any], Row]:
        if isinstance(key, str):
            return list(self._columns[key])
        return {name: values[key] for name, values in self._columns.items()}

    def to_pandas(self) -> Any:
        """Converts to a ``pandas.DataFrame``. Integers and flags with missing values get nullable
        types.
        """
        pandas = package("pandas")
        nullable = {UINT: "UInt64", INT: "Int64", BOOL: "boolean", FLOAT: "float64"}
        series = {}
        for name, values in self._columns.items():
            kind = self._types[name]
            if kind not in nullable:
                dtype = "object"
            else:
                dtype = nullable[kind] if None in values else kind
            series[name] = pandas.Series(values, dtype=dtype)
        return pandas.DataFrame(series)

    def to_polars(self) -> Any:
        """Converts to a ``polars.DataFrame``."""
        polars = package("polars")
        types = {
            UINT: polars.UInt64,
            INT: polars.Int64,
            FLOAT: polars.Float64,
            BOOL: polars.Boolean,
            TEXT: polars.String,
            LIST: polars.List(polars.String),
        }
        schema = {name: types[kind] for name, kind in self._types.items()}
        return polars.DataFrame(self._columns, schema=schema)

    def to_arrow(self) -> Any:
        """Converts to a ``pyarrow.Table``."""
        arrow = package("pyarrow")
        types = {
            UINT: arrow.uint64(),
            INT: arrow.int64(),
            FLOAT: arrow.float64(),
            BOOL: arrow.bool_(),
            TEXT: arrow.string(),
            LIST: arrow.list_(arrow.string()),
        }
        columns = {n: arrow.array(v, types[self._types[n]]) for n, v in self._columns.items()}
        return arrow.table(columns)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Returns the table as an Arrow stream, with nanoarrow if installed, else with pyarrow."""
        try:
            nanoarrow = package("nanoarrow")
        except HeaptideError:
            made = _by_pyarrow(self)
        else:
            made = _by_nanoarrow(nanoarrow, self._columns, self._types)
        stream: object = made.__arrow_c_stream__(requested_schema)
        return stream

    def __repr__(self) -> str:
        columns = ", ".join("{} {}".format(name, kind) for name, kind in self._types.items())
        return "<heaptide.Table of {} rows: {}>".format(self._rows, columns)

    def _repr_html_(self) -> str:
        """Returns the first rows as HTML, for notebooks."""
        head = "".join("<th>{}</th>".format(html.escape(name)) for name in self._columns)
        rows = "".join(
            "<tr>{}</tr>".format(
                "".join(
                    "<td>{}</td>".format(_cell(values[row])) for values in self._columns.values()
                )
            )
            for row in range(min(self._rows, _SHOWN_ROWS))
        )
        return "<table><thead><tr>{}</tr></thead><tbody>{}</tbody></table><p>{} rows</p>".format(
            head, rows, self._rows
        )


def _cell(value: Any) -> str:
    if value is None:
        return ""
    text = ";".join(value) if isinstance(value, list) else str(value)
    if len(text) > _SHOWN_CHARACTERS:
        text = "…" + text[1 - _SHOWN_CHARACTERS :]
    return html.escape(text)


def _by_pyarrow(table: Table) -> Any:
    try:
        return table.to_arrow()
    except HeaptideError as error:
        reason = "Arrow streams need nanoarrow or pyarrow; `pip install 'heaptide[tables]'`"
        raise HeaptideError(reason) from error


def _by_nanoarrow(
    nanoarrow: Any, columns: Mapping[str, Sequence[Any]], types: Mapping[str, str]
) -> Any:
    """Converts the columns to a struct array of nanoarrow."""
    plain = {
        UINT: nanoarrow.uint64(),
        INT: nanoarrow.int64(),
        FLOAT: nanoarrow.float64(),
        BOOL: nanoarrow.bool_(),
        TEXT: nanoarrow.string(),
    }
    fields: Dict[str, Any] = {}
    children = []
    for name, values in columns.items():
        kind = types[name]
        if kind == LIST:
            fields[name] = nanoarrow.list_(nanoarrow.string())
            children.append(_lists(nanoarrow, values))
        else:
            fields[name] = plain[kind]
            children.append(nanoarrow.c_array(values, plain[kind]))
    rows = len(next(iter(columns.values()), []))
    schema = nanoarrow.struct(fields)
    return nanoarrow.Array(nanoarrow.c_array_from_buffers(schema, rows, [None], children=children))


def _lists(nanoarrow: Any, values: Sequence[Any]) -> Any:
    """Converts a column of string lists to the end offset of each list, and all strings."""
    ends = array.array("i", [0])
    texts: List[str] = []
    for value in values:
        texts.extend(value or [])
        ends.append(len(texts))
    missing = [value is not None for value in values]
    valid = None
    if not all(missing):
        valid = nanoarrow.c_array(missing, nanoarrow.bool_()).view().buffer(1)
    return nanoarrow.c_array_from_buffers(
        nanoarrow.list_(nanoarrow.string()),
        len(values),
        [valid, ends],
        children=[nanoarrow.c_array(texts, nanoarrow.string())],
    )
