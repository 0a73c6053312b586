// The model of a process: its tables as columns, and sums over them.

/** Kinds of memory by the number in the column `site.kind`. */
const kinds = ["heap", "pool chunk", "mapped", "pool block", "outside", "outside pool block",
  "outside pool chunk", "device"];
const [POOL_BLOCK, DEVICE] = [3, 7];
const [OWN, INLINED] = [1, 1];

/** Converts distances to earlier rows into row numbers. */
function earlier(distances) {
  return Uint32Array.from(distances, (distance, i) => i - distance);
}

class Model {
  constructor(head, bytes) {
    this.head = head;
    this.measures = head.measures;
    const columns = columnsOf(head.columns, bytes);
    this.columns = columns;
    this.text = textsOf(columns);
    this.functions = columns["function.short"].length;
    this.sites = columns["site.stack"].length;
    this.extras = [];
    this.cached = new Map();
    this.setStacks(columns);
    this.measures.forEach((measure) => this.setValues(columns, measure));
  }

  /** Builds stacks, which distinguish lines, and branches, which are stacks by function. */
  setStacks(columns) {
    const frame = columns["stack.frame"];
    const distance = columns["stack.branch"];
    this.stackParent = earlier(columns["stack.parent"]);
    this.stackOwner = earlier(columns["stack.owner"]);
    this.branchOf = new Uint32Array(distance.length);
    const parent = new Uint32Array(distance.length);
    const called = new Int32Array(distance.length);
    let next = 0;
    for (let stack = 0; stack < distance.length; stack += 1) {
      if (distance[stack] > 0) {
        this.branchOf[stack] = next - distance[stack];
        continue;
      }
      this.branchOf[stack] = next;
      if (stack > 0) {
        parent[next] = this.branchOf[this.stackParent[stack]];
        called[next] = columns["frame.function"][frame[stack]];
      }
      next += 1;
    }
    this.branchParent = parent.subarray(0, next);
    this.branchFunction = called.subarray(0, next);
    this.branchFunction[0] = -1;
    this.ownerBranch = new Uint32Array(next);
    for (let stack = 0; stack < distance.length; stack += 1) {
      this.ownerBranch[this.branchOf[stack]] = this.branchOf[this.stackOwner[stack]];
    }
  }

  /** Computes what each site adds to sums: a labelled block counts once, memory that does not come
   * from the allocator counts nowhere, and pool blocks count only as live bytes. */
  setValues(columns, measure) {
    const raw = columns[measure.name];
    const moved = {
      allocations: "site.moved_blocks", usable_bytes: "site.moved_usable_bytes",
      requested_bytes: "site.moved_requested_bytes",
    }[measure.name];
    const kind = columns["site.kind"];
    const inPools = measure.name === "live_bytes" || measure.name === "at_peak_bytes";
    const isPlain = (k) => k < POOL_BLOCK || k === DEVICE || (k === POOL_BLOCK && inPools);
    const values = raw.slice();
    for (let site = 0; site < values.length; site += 1) {
      if (!isPlain(kind[site])) values[site] = 0;
      else if (moved) values[site] = Math.max(0, raw[site] - columns[moved][site]);
    }
    measure.values = values;
  }

  /** Computes a value once per key. */
  once(key, compute) {
    if (!this.cached.has(key)) this.cached.set(key, compute());
    return this.cached.get(key);
  }

  /** Like `once` for values with many keys: only the most recently used ones are kept. */
  recent(kind, limit, key, compute) {
    const known = this.once(`recent ${kind}`, () => new Map());
    const value = known.has(key) ? known.get(key) : compute();
    known.delete(key);
    known.set(key, value);
    if (known.size > limit) known.delete(known.keys().next().value);
    return value;
  }

  // Items are what boxes and rows represent: functions by their numbers, then all others.

  /** Returns the number of an item that is not a function, such as a thread. */
  extra(kind, id, short, name, more = {}) {
    return this.once(`item ${kind} ${id}`, () =>
      this.functions + this.extras.push({ kind, id, short, name, ...more }) - 1);
  }

  item(number) {
    if (number >= this.functions) return this.extras[number - this.functions];
    return this.once(number, () => {
      const of = (column) => this.columns[`function.${column}`][number];
      const text = (column) => this.text(of(column));
      // The complete name can be long, and boxes do not show it, so it is decoded on use.
      return {
        kind: "function", id: number, short: text("short"), get name() { return text("name"); },
        module: text("module"), own: (of("flags") & OWN) !== 0,
      };
    });
  }

  /** Returns a name of an item for the address, which is stable when the recording is opened again. */
  wordOf(number) {
    if (number < this.functions) return String(number);
    const { kind, id } = this.extras[number - this.functions];
    return `${kind}-${id}`;
  }

  /** Returns the item with such a name; −2, which is no item, if it does not exist. */
  itemOf(word) {
    const [kind, id] = word.split("-");
    if (id === undefined) return Number(word);
    const make = { scope: "scopeItem", thread: "laneItem", label: "labelItem", type: "typeItem" }[kind];
    const known = this.cached.get(`item ${kind} ${id}`);
    return known ?? (make && /^[0-9]+$/.test(id) ? this[make](Number(id)) : -2);
  }

  /** Returns for each item whether a test of names is true; null without a test. */
  found(test) {
    if (!test) return null;
    if (this.foundOf !== test) {
      this.foundOf = test;
      this.foundItems = [];
    }
    for (let i = this.foundItems.length; i < this.functions + this.extras.length; i += 1) {
      this.foundItems.push(test(this.item(i).name));
    }
    return this.foundItems;
  }

  scopeItem(scope) {
    const name = this.text(this.columns["scope.name"][scope]);
    return this.extra("scope", scope, name, name);
  }

  laneItem(lane) {
    const name = this.text(this.columns["lane.name"][lane]);
    return this.extra("thread", lane, name, name);
  }

  labelItem(label) {
    const name = label === 0 ? "(no label)" : this.text(this.columns["label.name"][label - 1]);
    return this.extra("label", label, name, name);
  }

  typeItem(type) {
    const name = type === 0 ? "(type not known)" : this.text(this.columns["type.name"][type - 1]);
    return this.extra("type", type, name, name);
  }

  /** Returns the item of the source line of a frame, with its function. */
  lineItem(frame) {
    const { columns } = this;
    const [number, line] = [columns["frame.function"][frame], columns["frame.line"][frame]];
    const [of, file] = [this.item(number), this.text(columns["frame.file"][frame])];
    const place = (path) => (path ? `${path}${line ? `:${line}` : ""} ` : "");
    return this.extra("line", frame, place(file.split("/").pop()) + of.short, place(file) + of.name,
      { module: of.module, own: of.own, function: number, text: this.sourceText(frame) });
  }

  /** Returns the text of the source line of a frame; empty if the page does not have it. */
  sourceText(frame) {
    const { columns } = this;
    const line = columns["frame.line"][frame];
    return this.head.sources?.[this.text(columns["frame.file"][frame])]?.[line] ?? "";
  }

  /** Returns the lines of each function that owns something of a metric at several lines, as pairs of
   * a frame and a value, largest first. */
  linesByFunction(m) {
    const { key } = selectionOf(this);
    return this.recent("lines by function", 4, `${m} ${key}`, () => {
      const { frames } = this.lines();
      const own = lineRows(this).own(m);
      const found = new Map();
      frames.forEach((frame, line) => {
        if (own[line] <= 0) return;
        const number = this.columns["frame.function"][frame];
        if (!found.has(number)) found.set(number, []);
        found.get(number).push([frame, own[line]]);
      });
      for (const [number, lines] of found) {
        if (lines.length < 2) found.delete(number);
        else lines.sort((a, b) => b[1] - a[1]);
      }
      return found;
    });
  }

  /** Returns the scopes of a path, outermost first. */
  scopePath(scope) {
    const path = [];
    const parents = this.once("scope parents", () => earlier(this.columns["scope.parent"]));
    for (let at = scope; at !== 0; at = parents[at]) path.unshift(at);
    return path;
  }

  scopeText(scope) {
    const names = this.scopePath(scope).map((at) => this.text(this.columns["scope.name"][at]));
    return names.length === 0 ? "(no scope)" : names.join(" / ");
  }

  /** Returns the frames of a stack, innermost first: function, file, line and whether it is
   * inlined. */
  framesOf(stack) {
    const frames = [];
    for (let at = stack; at !== 0; at = this.stackParent[at]) {
      const frame = this.columns["stack.frame"][at];
      frames.push({
        frame, function: this.columns["frame.function"][frame],
        file: this.text(this.columns["frame.file"][frame]), line: this.columns["frame.line"][frame],
        inlined: (this.columns["frame.flags"][frame] & INLINED) !== 0, stack: at,
      });
    }
    return frames;
  }

  ownerOf(stack) {
    const owner = this.stackOwner[stack];
    return owner === 0 ? -1 : this.columns["frame.function"][this.columns["stack.frame"][owner]];
  }

  /** Returns the source lines of owners: the number of the line by stack, −1 without one, and a
   * frame of each line. */
  lines() {
    return this.once("lines", () => {
      const { columns } = this;
      const places = ["function", "file", "line"].map((name) => columns[`frame.${name}`]);
      const [numbers, frames] = [new Map(), []];
      const ofStack = Int32Array.from(this.stackOwner, (owner) => {
        if (owner === 0) return -1;
        const frame = columns["stack.frame"][owner];
        const key = places.map((place) => place[frame]).join(" ");
        if (!numbers.has(key)) numbers.set(key, frames.push(frame) - 1);
        return numbers.get(key);
      });
      return { ofStack, frames };
    });
  }

  /** Sums the values of the selected sites by branch. */
  ownByBranch(selection, m) {
    return this.recent("own", 30, `${m} ${selection.key}`, () => {
      const sums = new Float64Array(this.branchParent.length);
      const { values } = this.measures[m];
      const stacks = this.columns["site.stack"];
      for (let site = 0; site < values.length; site += 1) {
        if (values[site] !== 0 && selection.has(site)) {
          sums[this.branchOf[stacks[site]]] += values[site];
        }
      }
      return sums;
    });
  }

  total(selection, m) {
    return this.recent("total", 99, `${m} ${selection.key}`, () =>
      this.ownByBranch(selection, m).reduce((sum, value) => sum + value, 0));
  }

  /** Returns the sites of a selection; all sites if nothing is selected. */
  select({ focus, thread, scope, label, type }) {
    const key = JSON.stringify([focus, thread, scope, label, type]);
    return this.recent("selection", 8, key, () => {
      const tests = [];
      const { columns } = this;
      const named = (column, id) => this.text(columns[column][id]);
      if (thread) tests.push((i) => named("lane.name", columns["site.lane"][i]) === thread);
      if (label) tests.push((i) => this.item(this.labelItem(columns["site.label"][i])).name === label);
      if (type) {
        const types = columns["stack.type"];
        tests.push((i) => this.item(this.typeItem(types[columns["site.stack"][i]])).name === type);
      }
      if (scope) {
        const inside = new Uint8Array(columns["scope.name"].length);
        const parents = earlier(columns["scope.parent"]);
        for (let at = 0; at < inside.length; at += 1) {
          inside[at] = (at > 0 && inside[parents[at]]) || this.scopeText(at) === scope ? 1 : 0;
        }
        tests.push((i) => inside[columns["site.scope"][i]] === 1);
      }
      if (focus) {
        const through = this.through((f) => this.item(f).name === focus);
        tests.push((i) => through[this.branchOf[columns["site.stack"][i]]] === 1);
      }
      if (tests.length === 0) return { key: "", has: () => true };
      const mask = new Uint8Array(this.sites);
      for (let i = 0; i < mask.length; i += 1) mask[i] = tests.every((test) => test(i)) ? 1 : 0;
      return { key, has: (site) => mask[site] === 1 };
    });
  }

  /** Returns for each branch whether its function or that of an ancestor passes a test. */
  through(test) {
    const is = new Int8Array(this.functions).fill(-1);
    const inside = new Uint8Array(this.branchParent.length);
    for (let at = 1; at < inside.length; at += 1) {
      const called = this.branchFunction[at];
      if (is[called] < 0) is[called] = test(called) ? 1 : 0;
      inside[at] = inside[this.branchParent[at]] | is[called];
    }
    return inside;
  }

  /** Returns for each branch whether it is the outermost one of its function on its path. */
  outermost() {
    return this.once("outermost", () => {
      const { list, start } = childrenOf(this.branchParent);
      const open = new Uint32Array(this.functions);
      const is = new Uint8Array(this.branchParent.length);
      const todo = [0];
      const next = start.slice();
      while (todo.length > 0) {
        const at = todo[todo.length - 1];
        if (next[at] === start[at + 1]) {
          todo.pop();
          if (at > 0) open[this.branchFunction[at]] -= 1;
          continue;
        }
        const child = list[next[at]++];
        is[child] = open[this.branchFunction[child]]++ === 0 ? 1 : 0;
        todo.push(child);
      }
      return is;
    });
  }
}

/** Returns a function that computes an array once per metric. */
function byMeasure(compute) {
  const known = [];
  return (m) => (known[m] ??= compute(m));
}

/** Returns the children of each node of a tree in which parents precede children: those of node n
 * are `list` from `start[n]` to `start[n + 1]`. */
function childrenOf(parent) {
  const start = new Uint32Array(parent.length + 1);
  for (let i = 1; i < parent.length; i += 1) start[parent[i] + 1] += 1;
  for (let i = 0; i < parent.length; i += 1) start[i + 1] += start[i];
  const list = new Uint32Array(Math.max(0, parent.length - 1));
  const next = start.slice();
  for (let i = 1; i < parent.length; i += 1) list[next[parent[i]]++] = i;
  return { list, start };
}

/** Computes inclusive from own values of a tree in which parents precede children. */
function summed(parent, own) {
  const sum = own.slice();
  for (let i = parent.length - 1; i > 0; i -= 1) sum[parent[i]] += sum[i];
  return sum;
}
