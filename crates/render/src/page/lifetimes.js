// The table of lifetimes of freed blocks by owner, from a trace. Sites have lifetimes by classes, 8
// for each power of two, so statistics can be computed for any selection.

/** The columns of the table: the key of the statistic, a title, a description, and the formats. */
const lifetimeColumns = [
  ["own", "freed", "blocks that were freed", shortCount, count],
  ["median", "median", "half of the blocks lived no longer; within 6 %", duration],
  ["mean", "mean", "the mean lifetime", duration],
  ["late", "99 %", "99 of 100 blocks lived no longer; within 6 %", duration],
  ["longest", "longest", "the longest lifetime of a block that was freed", duration],
  ["temporary", "temporary", "freed before the thread allocated again", shortCount, count],
  ["others", "freed by others", "freed by a thread other than the allocating one", shortCount, count],
  ["live", "never freed", "blocks that were live at the end", shortCount, count],
];

/** Returns the lifetime in the middle of a class. */
function lifetimeOf(number) {
  if (number < 8) return number;
  const wide = 2 ** (Math.floor(number / 8) - 1);
  return (8 + (number % 8)) * wide + (wide - 1) / 2;
}

/** Returns the classes of all sites, and the index at which those of each site begin. */
function lifetimeClasses(model) {
  return model.once("lifetime classes", () => {
    const of = (name) => model.columns[`lifetime.${name}`];
    const [counts, steps, blocks] = [of("classes"), of("class"), of("blocks")];
    const start = new Uint32Array(counts.length + 1);
    const classes = new Uint16Array(steps.length);
    for (let site = 0; site < counts.length; site += 1) {
      start[site + 1] = start[site] + counts[site];
      let at = 0;
      for (let i = start[site]; i < start[site + 1]; i += 1) classes[i] = at += steps[i];
    }
    return { start, classes, blocks };
  });
}

/** Returns owners with the statistics of their blocks. */
function lifetimeRows(model) {
  const rows = functionRows(model);
  const { key, length } = rows;
  const selection = selectionOf(model);
  const sitesOf = Array.from({ length }, () => null);
  for (let site = 0; site < model.sites; site += 1) {
    if (selection.has(site)) (sitesOf[key(site)] ??= []).push(site);
  }
  const stats = Object.fromEntries(["freed", "median", "mean", "late", "longest"].map((name) =>
    [name, new Float64Array(length)]));
  const room = new Float64Array(512);
  sitesOf.forEach((sites, row) => {
    if (sites) Object.entries(lifetimesOf(model, sites, room)).forEach(([name, value]) => {
      stats[name][row] = value;
    });
  });
  const measure = (name) => rows.own(model.measures.findIndex((one) => one.name === name));
  Object.assign(stats, { own: stats.freed, temporary: measure("temporary"),
    others: measure("cross_thread_frees"), live: measure("live_blocks") });
  const all = stats.freed.map((freed, row) => freed + stats.live[row]);
  return { length, item: rows.item, own: () => stats.freed, inclusive: () => all, stats };
}

/** Computes the statistics over some sites; `room` is scratch space with a zero for each class. */
function lifetimesOf(model, sites, room) {
  const { start, classes, blocks } = lifetimeClasses(model);
  const of = (name) => model.columns[`lifetime.${name}`];
  const [sums, most] = [of("sum_ns"), of("max_ns")];
  let [freed, sum, longest] = [0, 0, 0];
  const found = [];
  for (const site of sites) {
    sum += sums[site];
    longest = Math.max(longest, most[site]);
    for (let i = start[site]; i < start[site + 1]; i += 1) {
      if (room[classes[i]] === 0) found.push(classes[i]);
      room[classes[i]] += blocks[i];
      freed += blocks[i];
    }
  }
  found.sort((a, b) => a - b);
  const quantile = (part) => {
    let below = 0;
    const at = found.find((number) => (below += room[number]) >= part * freed);
    return at === undefined ? 0 : Math.min(lifetimeOf(at), longest);
  };
  const [median, late] = freed === 1 ? [longest, longest] : [quantile(0.5), quantile(0.99)];
  found.forEach((number) => { room[number] = 0; });
  return { freed, median, late, longest, mean: freed > 0 ? sum / freed : 0 };
}

/** Returns the table, or a line that explains why there is none. */
function lifetimes(model, looks) {
  const line = (...parts) => [element("p", { class: "soft" }, ...parts)];
  if ("lifetime.classes" in model.columns) return lifetimesTable(model, looks);
  if (model.lifetimesProblem) return line(model.lifetimesProblem);
  const isTraced = model.head.traced || processes().some((one) => one.number === state.process
    && one.has_trace);
  if (!isTraced) {
    return line("Lifetimes are known from a trace: record with ",
      element("code", {}, "heaptide run --mode trace"), ".");
  }
  if (!server.there) return line("The trace could not be read when this page was written.");
  if (state.snapshot !== null) return line("Lifetimes are known at the end of the run, not in snapshots.");
  if (isRunning()) {
    const read = () => loadLifetimes(model);
    return line(element("button", { type: "button", class: "plain", click: read }, "Read the trace so far"));
  }
  loadLifetimes(model);
  return line("Reading the trace…");
}

/** Adds the lifetimes of blocks to a model, and displays them. */
async function loadLifetimes(model) {
  if (model.isLoadingLifetimes) return;
  model.isLoadingLifetimes = true;
  try {
    const asked = { ...server.part(), version: model.number };
    const answer = await server.ask("lifetimes", asked);
    const { head, bytes } = unframed(await answer.arrayBuffer());
    Object.assign(model.columns, columnsOf(head.columns, bytes));
  } catch (error) {
    model.lifetimesProblem = error.message;
  }
  model.isLoadingLifetimes = false;
  if (shown.model === model) tables.draw?.();
}

function lifetimesTable(model, looks) {
  const rows = model.recent("rows", 8, `lifetimes ${selectionOf(model).key}`, () => lifetimeRows(model));
  const { found, length } = rowsInOrder(rows, null, 0);
  const cell = (row) => ([key, title, , text, exact]) => {
    const value = rows.stats[key][row];
    const isNone = key === "own" || exact ? value === 0 : rows.stats.freed[row] === 0;
    const whole = exact ? exact(value) : `${count(Math.round(value))} ns`;
    return element("td", { "data-heading": title, title: isNone ? null : whole },
      isNone ? "" : text(Math.round(value)));
  };
  const line = (row) => element("tr", {}, ...lifetimeColumns.map(cell(row)),
    element("td", { class: "text" }, nameCell(looks, rows, row, model.item(rows.item(row)))));
  const head = [...lifetimeColumns.map(([key, title, meaning]) => heading(title, key, meaning)),
    heading(looks.text, "name")];
  return drawnRows(head, found.map(line), length);
}
