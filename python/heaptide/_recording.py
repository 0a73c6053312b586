"""Recordings as tables: results of the command's queries, with types."""

import glob
import io
import json
import os
import re
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from ._command import HeaptideError, ask
from ._tables import BOOL, FLOAT, INT, LIST, TEXT, UINT, Table

Path = Union[str, int, "os.PathLike[str]"]
Option = Union[None, bool, int, str, Sequence[str]]

# The types of columns by their names in query results.
_TYPES = {"uint": UINT, "int": INT, "double": FLOAT, "bool": BOOL, "string": TEXT, "addr": TEXT}
# The types of columns by their names in `heaptide query --describe`.
_DESCRIBED = {
    "uint": UINT,
    "int": INT,
    "number": FLOAT,
    "bool": BOOL,
    "text": TEXT,
    "path": LIST,
    "address": UINT,
}
# A line of that output: name, aliases, type.
_LINE = re.compile(r"  (\S+?)(?:, \S+)* +({})\b".format("|".join(_DESCRIBED)))
# Tables whose rows have a scope path.
_WITH_PATH = ("sites", "events", "lifetimes", "scopes", "retained", "keepers")

# The metrics that count for blocks of a pool; others count for the chunk that contains the block.
_OF_POOL_BLOCKS = ("live_bytes", "at_peak_bytes")
# Metrics that can be summed over sites, with the metric to subtract: counts that labelling moved
# there from a site where they count already.
_SUMS = {
    "at_peak_bytes": None,
    "at_peak_blocks": None,
    "live_bytes": None,
    "live_blocks": None,
    "allocations": "moved_blocks",
    "requested_bytes": "moved_requested_bytes",
    "usable_bytes": "moved_usable_bytes",
    "temporary": None,
}


class Recording:
    """One or more recordings, opened by `open`. Methods run the command and return a `Table`.

    Tables include all processes of the recording, unless ``process`` was given.
    """

    def __init__(self, paths: Sequence[str], options: Sequence[str]) -> None:
        self._paths = list(paths)
        self._options = list(options)
        self._processes = self.table("processes")

    @property
    def paths(self) -> Tuple[str, ...]:
        """The paths of the recordings."""
        return tuple(self._paths)

    def __repr__(self) -> str:
        processes = len(self._processes)
        return "<heaptide.Recording {}: {} process image{}>".format(
            ", ".join(self._paths), processes, "" if processes == 1 else "s"
        )

    def query(self, calql: str) -> Table:
        """Returns the result of a query in CalQL.

        >>> open("app.heaptide").query(
        ...     "SELECT owner,sum(live_bytes) GROUP BY owner")   # doctest: +SKIP

        The columns are those of the query: ``sum(live_bytes)`` is called ``sum#live_bytes`` unless
        ``AS`` gives it a name. Stacks and paths are lists, outermost first; addresses are
        hexadecimal text. A column without any value is omitted.
        """
        return _table(self._ask(calql))

    def table(self, name: str) -> Table:
        """Returns a whole table: sites, events, lifetimes, stacks, frames, scopes, labels, lanes,
        windows, snapshots, timeline, histogram, retained, keepers, processes or modules.

        ``heaptide query --describe NAME`` lists the columns with their units. Every column is
        present, with None where a row has no value.
        """
        described = ask(["query", "--describe", name]).decode()
        lines = [_LINE.match(line) for line in described.splitlines()]
        types = {line[1]: _DESCRIBED[line[2]] for line in lines if line}
        # A computed sum of allocations that only queries offer.
        types.pop("count", None)
        if name in _WITH_PATH:
            types["path"] = LIST
        answer = self._ask("SELECT {} FROM {}".format(",".join(types), name))
        return _table(answer, types)

    def sites(self) -> Table:
        """Returns counters by stack, scope, label, kind and thread: a row for each site.

        - ``process``, ``image``, ``program``, ``host``, ``rank``, ``run``: the process image
        - ``stack``: functions from the outermost to the allocating one; ``frame``: the innermost
        - ``owner``: function that the allocation is attributed to; ``owner_file``, ``owner_line``:
          its source; ``type``: allocated type
        - ``module``, ``file``, ``line``: of the innermost function
        - ``label``, ``kind``, ``class``, ``device``, ``mem.alloc``: purpose, kind and place of the
          memory
        - ``lane``: name of the threads; ``path``: open scopes, outermost first
        - ``size``: request size in bytes, in recordings made with ``--by-size``
        - ``call``: function called (malloc, calloc, realloc, aligned, new or other), in recordings
          made with ``--by-call``
        - ``allocations``, ``frees``, ``reallocations``, ``failed``, ``temporary``,
          ``cross_thread_frees``, ``frees_here``, ``live_blocks``, ``at_peak_blocks``,
          ``moved_blocks``: numbers of blocks or events
        - ``requested_bytes``, ``usable_bytes``, ``freed_bytes``, ``live_bytes``, ``at_peak_bytes``,
          ``largest_bytes``, ``freed_here_bytes``, ``slack_bytes``, ``moved_usable_bytes``,
          ``moved_requested_bytes``, ``lent_bytes``: bytes
        - ``live_requested_bytes``: requested bytes of live blocks, where their sizes are known
        """
        return self.table("sites")

    def lifetimes(self) -> Table:
        """Returns every block of a trace (``heaptide run --mode trace``), in the order of frees.

        - ``process``, ``image``, ``program``, ``host``, ``rank``, ``run``: the process image
        - ``uid``: for labelled memory the number that ``resolve`` returns, for other memory a
          number after those; ``block``: number of the block, from 1; ``address``
        - ``size``, ``usable_bytes``: requested and usable bytes
        - ``allocated_ns``, ``freed_ns``: nanoseconds from the start of the process
        - ``lifetime_ns``, ``lifetime_events``: nanoseconds and events from allocation to free
        - ``dims``, ``element_bytes``: elements in each dimension of labelled memory, bytes per
          element
        - ``freed``, ``reallocated``, ``temporary``, ``cross_thread``: how the block ended
        - ``lane``, ``freed_lane``, ``freed_tid``: name of the allocating and the freeing thread,
          number of the latter; ``freed_in``: scopes of the freeing thread
        - ``stack``, ``free_stack``: functions, outermost first; ``frame``, ``owner``,
          ``owner_file``, ``owner_line``, ``type``, ``module``, ``file``, ``line``, ``label``,
          ``kind``, ``call``, ``mem.alloc``, ``path``: see `sites`

        The table holds all blocks in memory. For a trace with many millions of blocks, use `query`
        to get sums: ``SELECT owner,avg(lifetime_ns) FROM lifetimes GROUP BY owner``.
        """
        return self.table("lifetimes")

    def timeline(self) -> Table:
        """Returns samples of each process over time.

        - ``process``, ``image``, ``program``, ``host``, ``rank``, ``run``: the process image
        - ``time_ns``: nanoseconds from the start of the process
        - ``live_bytes``: live bytes; ``peak_bytes``: their peak so far
        - ``allocations``, ``frees``: blocks so far; ``usable_bytes``: bytes allocated so far
        - ``resident_bytes``, ``virtual_bytes``: memory of the process
        """
        return self.table("timeline")

    def processes(self) -> Table:
        """Returns process images with their totals; see ``heaptide query --describe processes``."""
        return self._processes

    def owners(self) -> Table:
        """Returns the memory that each function itself holds and allocates, largest at peak first.

        - ``owner``: function that allocations are attributed to; None without a stack
        - ``at_peak_bytes``, ``at_peak_blocks``: live at the peak of the process
        - ``live_bytes``, ``live_blocks``: allocated and not freed
        - ``allocations``, ``requested_bytes``, ``usable_bytes``: allocated in total
        - ``temporary``: blocks freed by the allocating thread before its next allocation

        The rows add up to the totals of the heap in `processes`.
        """
        sums: Dict[Optional[str], Dict[str, int]] = {}
        for row in self._summed("owner"):
            _add(sums.setdefault(row["owner"], dict.fromkeys(_SUMS, 0)), row)
        order = sorted(sums.items(), key=lambda item: -item[1]["at_peak_bytes"])
        columns: Dict[str, List[Any]] = {"owner": [owner for owner, _ in order]}
        columns.update({name: [of[name] for _, of in order] for name in _SUMS})
        return Table(columns, {"owner": TEXT, **dict.fromkeys(_SUMS, UINT)})

    def tree(self) -> Table:
        """Returns the call tree, with a row for each node, callers before their callees.

        - ``node``: number of the row; ``parent``: that of the caller, None for the outermost
        - ``depth``: number of callers above the node; ``function``: its name
        - ``at_peak_bytes``, ``at_peak_blocks``, ``live_bytes``, ``live_blocks``, ``allocations``,
          - ``own_…``: the same without callees
        """
        root = _Node(None, -1, None)
        for row in self._summed("stack"):
            node = root
            for function in row["stack"] or ["[no stack]"]:
                node = node.below(function)
            _add(node.own, row)
        return _tree_table(root)

    def diff(
        self,
        other: Union["Recording", Path],
        by: str = "function",
        metric: Optional[str] = None,
    ) -> Table:
        """Compares with another recording. Returns the rows that changed, the largest change first.

        - by ``function``: ``function``, ``module``
        - by ``stack``: ``stack``, functions from the outermost
        - by ``scope``: ``path``, scopes from the outermost
        - ``before``, ``after``, ``change``: the metric in this recording, in the other one, and the
          difference; excluding callees or inner scopes
        - ``inclusive_before``, ``inclusive_after``, ``inclusive_change``: the same including them,
          by function and scope

        ``metric`` is one of ``heaptide diff --metric``; the default is ``live_bytes`` between
        snapshots of one run, else ``at_peak_bytes``. If there are several processes, the subject
        of each recording is compared.
        """
        if not isinstance(other, Recording):
            other = open(other)
        if len(self._paths) != 1 or len(other._paths) != 1:
            raise HeaptideError("two recordings are compared; this names several")
        words = ["diff", self._paths[0], other._paths[0], "--format", "json", "--by", by]
        words += ["--metric", metric] if metric is not None else []
        return _difference(json.loads(ask(words + self._options)), by)

    def flamegraph(self, metric: str = "at_peak_bytes") -> "Picture":
        """Returns a flame graph of a metric as SVG, of the largest process unless `open` chose one.
        """
        if len(self._paths) != 1:
            raise HeaptideError("a flame graph is of one recording; this names several")
        words = ["flamegraph", self._paths[0], "-o", "-", "--metric", metric]
        return Picture(ask(words + self._options).decode())

    def _summed(self, by: str) -> Table:
        """Returns sums for the heap by a column and kind of memory."""
        sums = [name for pair in _SUMS.items() for name in pair if name is not None]
        select = ",".join("sum({0}) AS {0}".format(name) for name in sums)
        return self.query("SELECT {0},kind,{1} GROUP BY {0},kind".format(by, select))

    def _ask(self, calql: str) -> Dict[str, Any]:
        words = ["query", calql, *self._paths, "--format", "json-split"]
        answer: Dict[str, Any] = json.loads(ask(words + self._options))
        return answer


class Picture:
    """A picture that notebooks display; ``svg`` is its text."""

    def __init__(self, svg: str) -> None:
        self.svg = svg

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: "Union[str, os.PathLike[str]]") -> None:
        """Writes the picture to a file."""
        with io.open(path, "w", encoding="utf-8") as file:
            file.write(self.svg)


def open(path: Union[None, Path, Sequence[Path]] = None, **selection: Option) -> Recording:
    """Opens a recording: a path, a pattern such as ``"run-*.heaptide"``, several of them, a
    snapshot ``"app.heaptide@after"`` or the process id of a running program. By default it opens
    the newest ``*.heaptide`` in the current directory.

    Keywords are the selection options of every command, with ``_`` instead of ``-``:
    ``process=1234`` or ``"all"``, ``focus="parse"``, ``ignore=["module:libfoo"]``, ``kind="all"``,
    ``live_only=True``, ``python="only"``, ``rules="std"``, ``from_start=True``.

    >>> recording = open("app.heaptide", focus="parse")              # doctest: +SKIP
    >>> recording.owners().to_pandas().head()                        # doctest: +SKIP
    """
    options: List[str] = []
    for name, value in selection.items():
        options += _option("--" + name.replace("_", "-"), value)
    if path is None:
        newest = json.loads(ask(["query", "SELECT process FROM processes", *_JSON_SPLIT]))
        return Recording([os.path.abspath(newest["recording"])], options)
    several = [path] if isinstance(path, (str, int, os.PathLike)) else list(path)
    found = [name for one in several for name in _matching(one)]
    if not found:
        raise HeaptideError("no recordings are named; give at least one path")
    return Recording(found, options)


_JSON_SPLIT = ["--format", "json-split"]


def _matching(path: Path) -> List[str]:
    """Returns absolute paths, because the program may change its directory before it requests a
    table.
    """
    name = str(path) if isinstance(path, int) else os.fspath(path)
    file, at, snapshot = name.rpartition("@")
    if os.path.exists(name):
        return [os.path.abspath(name)]
    if at and os.path.exists(file):
        return [os.path.abspath(file) + at + snapshot]
    if not glob.has_magic(name):
        # A process id, or a name that the command reports as missing.
        return [name]
    found = sorted(glob.glob(os.path.abspath(name)))
    if not found:
        raise HeaptideError("{}: no recording matches this pattern".format(name))
    return found


def _option(flag: str, value: Option) -> List[str]:
    if value is None or value is False:
        return []
    if value is True:
        return [flag]
    if isinstance(value, (int, str)):
        return ["{}={}".format(flag, value)]
    return ["{}={}".format(flag, one) for one in value]


def _table(answer: Mapping[str, Any], wanted: Optional[Mapping[str, str]] = None) -> Table:
    """Converts `json-split` output to a table, with the wanted columns and types, else all columns
    of the output.
    """
    stack_of = _Stacks(answer["nodes"])
    values = list(zip(*answer["data"]))
    columns: Dict[str, List[Any]] = {}
    types: Dict[str, str] = {}
    for place, (name, about) in enumerate(zip(answer["columns"], answer["column_metadata"])):
        column = values[place] if values else ()
        if about["is_value"]:
            types[name] = _TYPES[about["attribute.type"]]
        else:
            types[name] = LIST
            column = tuple(None if node is None else stack_of(node) for node in column)
        if types[name] == BOOL:
            column = tuple(None if value is None else value == "true" for value in column)
        if types[name] == FLOAT:
            column = tuple(None if value is None else float(value) for value in column)
        columns[name] = list(column)
    if wanted is None:
        return Table(columns, types)
    rows = len(answer["data"])
    for name, kind in wanted.items():
        if name not in columns:
            columns[name] = [None] * rows
        elif kind == UINT and types[name] == TEXT:
            columns[name] = [None if value is None else int(value, 16) for value in columns[name]]
    return Table({name: columns[name] for name in wanted}, wanted)


class _Stacks:
    """The paths to nodes, each built once."""

    def __init__(self, nodes: Sequence[Mapping[str, Any]]) -> None:
        self._nodes = nodes
        self._made: Dict[int, List[str]] = {}

    def __call__(self, node: int) -> List[str]:
        made = self._made.get(node)
        if made is None:
            made = self._made[node] = []
            above: Optional[int] = node
            while above is not None:
                made.append(self._nodes[above]["label"])
                above = self._nodes[above].get("parent")
            made.reverse()
        return made


def _add(sums: Dict[str, int], row: Mapping[str, Any]) -> None:
    """Adds a row of sites so that each block counts once; see the manual's section on JSON."""
    kind = row["kind"] or "heap"
    if kind.startswith("outside"):
        return
    names = _OF_POOL_BLOCKS if kind == "pool_block" else tuple(_SUMS)
    for name in names:
        moved = _SUMS[name]
        sums[name] += (row[name] or 0) - (row[moved] or 0 if moved else 0)


class _Node:
    """A node of the call tree."""

    __slots__ = ("children", "depth", "function", "own", "parent", "sums")

    def __init__(self, function: Optional[str], depth: int, parent: Optional["_Node"]) -> None:
        self.function = function
        self.depth = depth
        self.parent = parent
        self.own = dict.fromkeys(_SUMS, 0)
        self.sums: Dict[str, int] = {}
        self.children: Dict[str, _Node] = {}

    def below(self, function: str) -> "_Node":
        node = self.children.get(function)
        if node is None:
            node = self.children[function] = _Node(function, self.depth + 1, self)
        return node


def _tree_table(root: _Node) -> Table:
    nodes: List[_Node] = []
    waiting = [root]
    while waiting:
        node = waiting.pop()
        nodes.append(node)
        node.sums = dict(node.own)
        waiting.extend(node.children.values())
    for node in reversed(nodes):
        if node.parent is not None:
            for name in _SUMS:
                node.parent.sums[name] += node.sums[name]
    shown: List[_Node] = []
    waiting = [root]
    while waiting:
        node = waiting.pop()
        shown += [node] if node is not root else []
        waiting.extend(sorted(node.children.values(), key=lambda one: one.sums["at_peak_bytes"]))
    numbers = {id(node): number for number, node in enumerate(shown)}
    columns: Dict[str, List[Any]] = {
        "node": list(range(len(shown))),
        "parent": [numbers.get(id(node.parent)) for node in shown],
        "depth": [node.depth for node in shown],
        "function": [node.function for node in shown],
    }
    types = {"node": UINT, "parent": UINT, "depth": UINT, "function": TEXT}
    for name in _SUMS:
        columns[name] = [node.sums[name] for node in shown]
        columns["own_" + name] = [node.own[name] for node in shown]
        types[name] = types["own_" + name] = UINT
    return Table(columns, types)


def _difference(answer: Mapping[str, Any], by: str) -> Table:
    rows = answer["rows"]
    columns: Dict[str, List[Any]]
    if by == "function":
        columns = {
            "function": [_name(row) for row in rows],
            "module": [row["module"] or None for row in rows],
        }
        types = {"function": TEXT, "module": TEXT}
    elif by == "stack":
        names = [_name(function) for function in answer["functions"]]
        columns = {"stack": [[names[index] for index in row["stack"]] for row in rows]}
        types = {"stack": LIST}
    else:
        columns = {"path": [[_scope(scope) for scope in row["scope"]] for row in rows]}
        types = {"path": LIST}
    for part, prefix in (("own", ""), ("inclusive", "inclusive_")):
        for name in ("before", "after", "change"):
            if rows and part not in rows[0]:
                continue
            columns[prefix + name] = [row[part][name] for row in rows]
            types[prefix + name] = INT
    return Table(columns, types)


def _name(function: Mapping[str, Any]) -> str:
    """Returns a function's name, or its module and offset if it has none."""
    if function["function"] is not None:
        return str(function["function"])
    offset = function["offset"]
    module = function["module"]
    return module if offset is None else "{}+{:#x}".format(module, offset)


def _scope(scope: Mapping[str, Any]) -> str:
    return "{}={}".format(scope["attribute"], scope["value"])
