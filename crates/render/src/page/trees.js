// Trees for the flame graph. Parents precede their children; `item` identifies what a node shows,
// `own(m)` and `sum(m)` are its own and inclusive value in a metric.

/** The item of a root. A node that merges n branches too small to see has the item ROOT − n. */
const ROOT = -1;

class Tree {
  constructor(parent, item, own) {
    this.parent = parent;
    this.item = item;
    this.ownOf = byMeasure(own);
    this.sumOf = byMeasure((m) => summed(this.parent, this.own(m)));
    // By node: the metric by which its children are sorted.
    this.orders = new Int8Array(parent.length).fill(-1);
  }

  own(m) { return this.ownOf(m); }

  sum(m) { return this.sumOf(m); }

  /** Returns the widths of nodes in a metric. */
  width(m) {
    return this.sum(m);
  }

  /** Returns the children of a node, in any order. */
  below(node) {
    this.index ??= childrenOf(this.parent);
    const { list, start } = this.index;
    return list.subarray(start[node], start[node + 1]);
  }

  /** Returns the children of a node, largest first. */
  children(node, m) {
    const children = this.below(node);
    if (this.orders[node] !== m) {
      const width = this.width(m);
      const last = (i) => (this.item[i] < ROOT ? -1 : width[i]);
      children.sort((a, b) => last(b) - last(a));
      this.orders[node] = m;
    }
    return children;
  }

  /** Returns the node to which a path of items leads, or the last one that exists. */
  at(path) {
    let node = 0;
    for (const item of path) {
      const child = this.below(node).find((at) => this.item[at] === item);
      if (child === undefined) return node;
      node = child;
    }
    return node;
  }

  /** Returns the items on the path from the outermost node to this one. */
  path(node) {
    const path = [];
    for (let at = node; at !== 0; at = this.parent[at]) path.unshift(this.item[at]);
    return path;
  }
}

/** Creates nodes by parent and item. */
class Nodes {
  constructor() {
    this.parent = [0];
    this.item = [ROOT];
    this.known = new Map();
  }

  child(parent, item) {
    const key = parent * 4294967296 + item;
    let node = this.known.get(key);
    if (node === undefined) this.known.set(key, node = this.add(parent, item));
    return node;
  }

  /** Creates a new node. */
  add(parent, item) {
    this.item.push(item);
    return this.parent.push(parent) - 1;
  }
}

/** Returns the functions that the flame graph omits: hidden ones, and optionally all that are not
 * own code; null if it omits none. */
function leftOut(model) {
  const names = new Set(hidden());
  if (names.size === 0 && state.own === "") return null;
  const out = new Uint8Array(model.functions);
  for (let f = 0; f < out.length; f += 1) {
    const item = model.item(f);
    out[f] = names.has(item.name) || (state.own !== "" && !item.own) ? 1 : 0;
  }
  return out;
}

/** Returns a function from sites to the items that group them: thread, scope path, label or type. */
function rootsOf(model, by) {
  const { columns } = model;
  switch (by) {
    case "thread": return (site) => [model.laneItem(columns["site.lane"][site])];
    case "scope": return (site) =>
      model.scopePath(columns["site.scope"][site]).map((scope) => model.scopeItem(scope));
    case "label": return (site) => [model.labelItem(columns["site.label"][site])];
    case "type": return (site) =>
      [model.typeItem(columns["stack.type"][columns["site.stack"][site]])];
    default: return () => [];
  }
}

/** Returns the tree in which callers contain their callees. */
function callTree(model) {
  const out = leftOut(model);
  const selection = selectionOf(model);
  if (state.by === "" && out === null) {
    return model.recent("calls", 4, selection.key, () => new Tree(model.branchParent,
      model.branchFunction, (m) => model.ownByBranch(selection, m)));
  }
  const key = `${selection.key} ${state.by} ${state.hide} ${state.own}`;
  return model.recent("regrouped calls", 4, key, () => {
    const nodes = new Nodes();
    const nodeOf = siteNodes(model, selection, out, nodes);
    return new Tree(Uint32Array.from(nodes.parent), Int32Array.from(nodes.item),
      (m) => ownOfNodes(model, m, nodeOf, nodes.parent.length));
  });
}

function ownOfNodes(model, m, nodeOf, length) {
  const own = new Float64Array(length);
  const { values } = model.measures[m];
  nodeOf.forEach((node, site) => { if (node >= 0) own[node] += values[site]; });
  return own;
}

/** Returns for each site the node at which it ends, below its groups; −1 if it is not selected. */
function siteNodes(model, selection, out, nodes) {
  const roots = rootsOf(model, state.by);
  const stacks = model.columns["site.stack"];
  const nodeOf = new Int32Array(model.sites).fill(-1);
  const places = new Map();
  for (let site = 0; site < nodeOf.length; site += 1) {
    if (!selection.has(site)) continue;
    const root = roots(site).reduce((at, item) => nodes.child(at, item), 0);
    if (!places.has(root)) places.set(root, new Places(model.branchParent.length, places.size, root));
    const known = places.get(root);
    const way = [];
    let at = model.branchOf[stacks[site]];
    for (; known.get(at) < 0; at = model.branchParent[at]) way.push(at);
    let node = known.get(at);
    while (way.length > 0) {
      at = way.pop();
      const called = model.branchFunction[at];
      // Each branch has one node per root, unless functions are omitted.
      if (!out) node = nodes.add(node, called);
      else if (!out[called]) node = nodes.child(node, called);
      known.set(at, node);
    }
    nodeOf[site] = node;
  }
  return nodeOf;
}

/** The nodes of branches below a root: a fast array for the first roots, a map for the others. */
class Places {
  constructor(branches, before, root) {
    this.array = before < 12 ? new Int32Array(branches).fill(-1) : null;
    this.map = this.array ? null : new Map();
    this.set(0, root);
  }

  get(branch) { return this.array ? this.array[branch] : this.map.get(branch) ?? -1; }

  set(branch, node) {
    if (this.array) this.array[branch] = node;
    else this.map.set(branch, node);
  }
}

/** Callers below the whole divided by this are merged. */
const PARTS_OF_CALLERS = 4000;
const LEVELS_OF_CALLERS = 400;

/** Returns the tree with allocating functions at the top and their callers below. Small branches,
 * relative to the zoomed one, are merged, so that the tree stays small. */
function callerTree(model, m) {
  const calls = callTree(model);
  const own = calls.own(m);
  const ways = [];
  const owner = ownersIn(model, calls);
  for (let i = 0; i < own.length; i += 1) if (own[i] > 0) ways.push({ at: owner[i], own: i });
  const build = { calls, m, parent: [0], item: [ROOT], owns: [[]] };
  const path = zoomPath();
  climb(build, 0, ways.filter((way) => way.at !== 0), path, 0, 0);
  build.owns[0] = ways.filter((way) => way.at === 0).map((way) => way.own);
  return new Tree(Uint32Array.from(build.parent), Int32Array.from(build.item), (measure) => {
    const values = calls.own(measure);
    return Float64Array.from(build.owns, (ends) => ends.reduce((sum, i) => sum + values[i], 0));
  });
}

/** Returns for each node that of its owner: the allocating function, without its helpers. */
function ownersIn(model, calls) {
  if (calls.parent === model.branchParent) return model.ownerBranch;
  const owns = new Uint8Array(model.functions);
  model.ownerBranch.forEach((branch) => { if (branch > 0) owns[model.branchFunction[branch]] = 1; });
  const owner = new Uint32Array(calls.parent.length);
  for (let i = 1; i < owner.length; i += 1) {
    const item = calls.item[i];
    const isOwner = item >= model.functions || owns[item] === 1;
    const above = owner[calls.parent[i]];
    owner[i] = isOwner || above === 0 || calls.item[above] >= model.functions ? i : above;
  }
  return owner;
}

/** Adds the callers of paths that are equal so far. Each path holds the node it has reached, and
 * the node whose own value it carries. */
function climb(build, parent, ways, path, depth, inherited) {
  const own = build.calls.own(build.m);
  const valueOf = (group) => group.reduce((sum, way) => sum + own[way.own], 0);
  const onPath = path.length >= depth;
  const least = onPath ? valueOf(ways) / PARTS_OF_CALLERS : inherited;
  const groups = new Map();
  for (const way of ways) {
    const item = build.calls.item[way.at];
    if (!groups.has(item)) groups.set(item, []);
    groups.get(item).push(way);
  }
  const small = [];
  let branches = 0;
  for (const [item, group] of groups) {
    const isNext = onPath && path[depth] === item;
    if (!isNext && (valueOf(group) < least || depth > LEVELS_OF_CALLERS)) {
      small.push(...group.map((way) => way.own));
      branches += 1;
      continue;
    }
    const node = build.parent.length;
    build.parent.push(parent);
    build.item.push(item);
    const above = (way) => ({ at: build.calls.parent[way.at], own: way.own });
    const next = group.map(above);
    build.owns.push(next.filter((way) => way.at === 0).map((way) => way.own));
    climb(build, node, next.filter((way) => way.at !== 0), isNext ? path : [], depth + 1, least);
  }
  if (branches > 0) {
    build.parent.push(parent);
    build.item.push(ROOT - branches);
    build.owns.push(small);
  }
}

/** Two processes in one tree with the nodes of both, each as wide as the larger of its two values. */
class ComparedTree extends Tree {
  constructor(parent, item, now, before) {
    super(parent, item, null);
    this.now = byMeasure(now);
    this.side = byMeasure((m) => {
      const [after, earlier] = [this.now(m), before(m)];
      const wide = after.map((value, i) => Math.max(value, earlier[i]));
      return [after, earlier, wide].map((own) => summed(this.parent, own));
    });
  }

  own(m) { return this.now(m); }

  sum(m) { return this.side(m)[0]; }

  sumBefore(m) { return this.side(m)[1]; }

  width(m) { return this.side(m)[2]; }
}

/** Returns the merged tree of the displayed model and the one compared with; functions are matched
 * by name. */
function comparedTree(model, other) {
  const [now, before] = [callTree(model), callTree(other)];
  const nodes = new Nodes();
  const place = (tree, item) => {
    const at = new Uint32Array(tree.parent.length);
    for (let i = 1; i < at.length; i += 1) at[i] = nodes.child(at[tree.parent[i]], item(tree.item[i]));
    return at;
  };
  const numbers = itemNumbers(model);
  const atNow = place(now, (item) => item);
  const atBefore = place(before, (item) => {
    const of = other.item(item);
    return numbers.get(of.kind + of.name)
      ?? model.extra(of.kind, `gone${item}`, of.short, of.name, { module: of.module, own: of.own });
  });
  const length = nodes.parent.length;
  const sums = (tree, at) => (m) => {
    const own = new Float64Array(length);
    tree.own(m).forEach((value, i) => { own[at[i]] += value; });
    return own;
  };
  return new ComparedTree(Uint32Array.from(nodes.parent), Int32Array.from(nodes.item),
    sums(now, atNow), sums(before, atBefore));
}

/** Returns the numbers of a model's items, by kind and name. */
function itemNumbers(model) {
  const numbers = new Map();
  for (let i = 0; i < model.functions + model.extras.length; i += 1) {
    const { kind, name } = model.item(i);
    numbers.set(kind + name, i);
  }
  return numbers;
}
