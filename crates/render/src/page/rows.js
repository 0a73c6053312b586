// The rows of the tables. A table has `length` rows, with the values `own(m)` and, if applicable,
// `inclusive(m)`; `item(row)` returns the item of a row.

/** Sums the selected sites by a key. */
function grouped(model, key, length, item) {
  const selection = selectionOf(model);
  const own = byMeasure((m) => {
    const sum = new Float64Array(length);
    const { values } = model.measures[m];
    for (let site = 0; site < values.length; site += 1) {
      if (values[site] !== 0 && selection.has(site)) sum[key(site)] += values[site];
    }
    return sum;
  });
  return { length, own, item };
}

/** Returns the functions, with what they own and what passes through them. */
function functionRows(model) {
  const selection = selectionOf(model);
  const stacks = model.columns["site.stack"];
  const none = model.functions;
  const nothing = () => model.extra("none", 0, "(no stack)", "(no stack)");
  const key = (site) => {
    const owner = model.ownerOf(stacks[site]);
    return owner < 0 ? none : owner;
  };
  const inclusive = byMeasure((m) => {
    const outermost = model.outermost();
    const own = model.ownByBranch(selection, m);
    const sum = summed(model.branchParent, own);
    const all = new Float64Array(none + 1);
    for (let at = 1; at < sum.length; at += 1) {
      if (outermost[at]) all[model.branchFunction[at]] += sum[at];
    }
    all[none] = own[0];
    return all;
  });
  return { ...grouped(model, key, none + 1, (f) => (f === none ? nothing() : f)), inclusive, key };
}

/** Returns the source lines of owners. */
function lineRows(model) {
  const stacks = model.columns["site.stack"];
  const { ofStack, frames } = model.lines();
  const none = frames.length;
  const nothing = () => model.extra("none", 0, "(no stack)", "(no stack)");
  const key = (site) => {
    const line = ofStack[stacks[site]];
    return line < 0 ? none : line;
  };
  const item = (line) => (line === none ? nothing() : model.lineItem(frames[line]));
  return grouped(model, key, none + 1, item);
}

function ownerItem(model, stack) {
  if (stack === 0) return model.extra("none", 0, "(no stack)", "(no stack)");
  const owner = model.ownerOf(stack);
  return owner >= 0 ? owner : model.branchFunction[model.branchOf[stack]];
}

function stackRows(model) {
  const stacks = model.columns["site.stack"];
  return {
    ...grouped(model, (site) => stacks[site], model.stackParent.length,
      (stack) => ownerItem(model, stack)),
    stack: (row) => row,
  };
}

/** Returns the sites: a stack of a thread, scope and label each. */
function siteRows(model) {
  const { columns } = model;
  const stacks = columns["site.stack"];
  const facts = (site) => [
    ["thread", model.item(model.laneItem(columns["site.lane"][site])).name],
    ["scope", model.scopeText(columns["site.scope"][site])],
    ["label", model.item(model.labelItem(columns["site.label"][site])).name],
    ["memory", kinds[columns["site.kind"][site]]],
  ].filter(([, value]) => !value.startsWith("(no ") && value !== "heap");
  return {
    ...grouped(model, (site) => site, model.sites, (site) => ownerItem(model, stacks[site])),
    stack: (site) => stacks[site], facts,
  };
}

/** Returns the scopes, with their own allocations and those of their descendants. */
function scopeRows(model) {
  const { columns } = model;
  const item = (scope) => {
    const path = model.scopeText(scope);
    return model.extra("scope path", scope, path, path);
  };
  const rows = grouped(model, (site) => columns["site.scope"][site], columns["scope.name"].length,
    item);
  const parents = earlier(columns["scope.parent"]);
  return {
    ...rows, inclusive: byMeasure((m) => summed(parents, rows.own(m))),
    times: (scope) => columns["scope.entered"][scope],
  };
}

/** Returns the labels by kind of memory. A row counts declared memory, which the sums exclude. */
function labelRows(model) {
  const { columns } = model;
  const selection = selectionOf(model);
  const many = kinds.length;
  const length = (columns["label.name"].length + 1) * many;
  const own = byMeasure((m) => {
    const sum = new Float64Array(length);
    const [values, raw] = [model.measures[m].values, columns[model.measures[m].name]];
    for (let site = 0; site < raw.length; site += 1) {
      const label = columns["site.label"][site];
      const value = (label === 0 ? values : raw)[site];
      if (value !== 0 && selection.has(site)) sum[label * many + columns["site.kind"][site]] += value;
    }
    return sum;
  });
  return {
    length, own, item: (row) => model.labelItem(Math.floor(row / many)),
    facts: (row) => (row % many === 0 ? [] : [["memory", kinds[row % many]]]),
  };
}

function typeRows(model) {
  const { columns } = model;
  const type = (site) => columns["stack.type"][columns["site.stack"][site]];
  return grouped(model, type, columns["type.name"].length + 1, (of) => model.typeItem(of));
}

function threadRows(model) {
  const { columns } = model;
  const lane = (site) => columns["site.lane"][site];
  return {
    ...grouped(model, lane, columns["lane.name"].length, (of) => model.laneItem(of)),
    times: (of) => columns["lane.threads"][of],
  };
}

const hasStacks = (model) => model.head.mode === "stacks";
const tableKinds = [
  { kind: "functions", title: "Functions", text: "function", rows: functionRows, there: hasStacks },
  { kind: "lines", title: "Lines", text: "source line of the owner", rows: lineRows,
    there: (model) => hasStacks(model) && model.columns["frame.line"].some((line) => line > 0) },
  { kind: "stacks", title: "Stacks", text: "owner, and its stack", rows: stackRows, there: hasStacks },
  { kind: "sites", title: "Sites", text: "owner, stack, thread, scope and label", rows: siteRows,
    there: hasStacks },
  { kind: "types", title: "Types", text: "allocated type", only: "type", rows: typeRows,
    there: (model) => model.columns["type.name"].length > 0 },
  { kind: "scopes", title: "Scopes", text: "scope", times: "entered", only: "scope",
    rows: scopeRows, there: (model) => model.columns["scope.name"].length > 1 },
  { kind: "labels", title: "Labels", text: "label", only: "label", rows: labelRows,
    there: (model) => model.columns["label.name"].length > 0 },
  { kind: "threads", title: "Threads", text: "thread", times: "threads", only: "thread",
    rows: threadRows, there: (model) => model.sites > 0 },
  { kind: "lifetimes", title: "Lifetimes", text: "owner", draw: lifetimes, there: hasStacks },
  { kind: "sizes", title: "Sizes", draw: sizes, there: (model) => model.head.sizes.length > 0 },
];
