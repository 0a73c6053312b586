// The tables: functions, stacks, types, scopes, labels, threads and sizes; sorted by a click, cut by a search.

const table = { kind: "functions", sort: "own", falling: true, rows: 40 };

const kinds = [
  ["functions", "Functions", { both: true, text: "function" }],
  ["stacks", "Stacks", { both: false, text: "stack, innermost function first" }],
  ["types", "Types", { both: false, text: "allocated type" }],
  ["scopes", "Scopes", { both: true, text: "scope", times: "entered" }],
  ["labels", "Labels", { both: false, text: "label" }],
  ["lanes", "Threads", { both: false, text: "name", times: "threads" }],
  ["sizes", "Sizes", null],
];

/** Whether a table says anything: one row of everything says no more than the totals. */
function hasRows(kind) {
  if (kind === "sizes") return data.tables.sizes.length > 0;
  const { rows } = data.tables[kind];
  if (kind === "functions" || kind === "stacks") return data.mode === "stacks";
  return kind === "scopes" || kind === "labels" ? rows.length > 1 : rows.length > 0;
}

function tables(section) {
  const usable = kinds.filter(([kind]) => hasRows(kind));
  if (usable.length === 0) {
    section.remove();
    return;
  }
  table.kind = usable[0][0];
  const buttons = usable.map(([kind, title]) => choice(title, {}, () => {
    Object.assign(table, { kind, sort: "own", falling: true, rows: 40 });
    draw();
  }));
  const body = element("div", { class: "scroll" });
  section.append(element("div", { class: "row" }, element("h2", {}, "Tables"),
    element("span", { class: "group" }, ...buttons)), body);

  function draw() {
    usable.forEach(([kind], i) => buttons[i].setAttribute("aria-pressed", kind === table.kind));
    const looks = kinds.find(([kind]) => kind === table.kind)[2];
    body.replaceChildren(...(looks ? rowsOf(looks, draw) : sizes()));
  }
  onChange(draw);
}

/** A heading that sorts. */
function heading(title, key, draw) {
  const sorted = table.sort === key;
  const arrow = sorted ? (table.falling ? " ↓" : " ↑") : "";
  const sort = () => {
    table.falling = sorted ? !table.falling : key !== "name";
    table.sort = key;
    draw();
  };
  const state = sorted ? (table.falling ? "descending" : "ascending") : null;
  const button = element("button", { type: "button", click: sort }, title + arrow);
  return element("th", { "aria-sort": state, class: key === "name" ? "text" : null }, button);
}

const keys = {
  own: (row) => row.own[state.measure],
  inclusive: (row) => row.inclusive[state.measure],
  times: (row) => row.times ?? 0,
  name: (row) => wholeName(data.names[row.name]),
};
const others = () => data.measures.map((_, m) => m).filter((m) => m !== state.measure);

function compare(a, b) {
  const key = keys[table.sort] ?? ((row) => row.own[table.sort]);
  const [one, other] = [key(a), key(b)];
  const order = typeof one === "string" ? one.localeCompare(other) : one - other;
  return table.falling ? -order : order;
}

function rowsOf(looks, draw) {
  const { rows, left_out: leftOut } = data.tables[table.kind];
  const searched = searchedNames();
  const fits = (row) => !searched || searched[row.name] || row.frames?.some((n) => searched[n]);
  const value = (row) => (looks.both ? row.inclusive : row.own)[state.measure];
  const found = rows.filter((row) => fits(row) && value(row) > 0).sort(compare);
  const head = [
    heading(looks.both ? `${words(state.measure)}, itself` : words(state.measure), "own", draw),
    ...(looks.both ? [heading("inclusive", "inclusive", draw)] : []),
    ...others().map((m) => heading(words(m), m, draw)),
    ...(looks.times ? [heading(looks.times, "times", draw)] : []),
    heading(looks.text, "name", draw),
  ];
  const shown = found.slice(0, table.rows).map((row) => drawnRow(row, looks));
  const parts = [element("table", {}, element("thead", {}, element("tr", {}, ...head)),
    element("tbody", {}, ...shown))];
  if (found.length > table.rows) {
    const more = () => {
      table.rows *= 4;
      draw();
    };
    parts.push(element("p", {}, element("button", { type: "button", class: "plain", click: more },
      `Show more of ${count(found.length)}`)));
  }
  if (found.length === 0) parts.push(element("p", { class: "soft" }, "Nothing here."));
  if (found.some((row) => isOwn(row))) {
    parts.push(element("p", { class: "soft small" },
      element("span", { class: "own" }, "Bold"), ": the program's own code."));
  }
  if (leftOut > 0) {
    parts.push(element("p", { class: "soft small" },
      `${count(leftOut)} rows that are small by every measure are left out.`));
  }
  return parts;
}

/** A cell whose heading a narrow screen shows beside it. */
function share(heading, value) {
  const whole = data.measures[state.measure].total;
  const part = whole === 0 ? 0 : Math.min(100, (100 * value) / whole);
  return element("td", { class: "share", "data-heading": heading, style: `--part: ${part.toFixed(2)}%`,
    title: exactly(state.measure, value) },
  ...(value === 0 ? [] : [amount(state.measure, value), element("i", {}, percent(value, whole))]));
}

function drawnRow(row, looks) {
  const cell = (heading, text) => element("td", { "data-heading": heading }, ...(text ? [text] : []));
  const other = (m) => cell(words(m), row.own[m] === 0 ? "" : amount(m, row.own[m]));
  const own = looks.both ? "itself" : words(state.measure);
  return element("tr", {}, share(own, row.own[state.measure]),
    ...(looks.both ? [share("inclusive", row.inclusive[state.measure])] : []), ...others().map(other),
    ...(looks.times ? [cell(looks.times, row.times ? count(row.times) : "")] : []), nameCell(row));
}

/** Whether a row, or any frame of its stack, is of the program's own code. */
function isOwn(row) {
  return [row.name, ...(row.frames ?? [])].some((name) => data.names[name].own);
}

function nameCell(row) {
  const name = data.names[row.name];
  const where = place(name);
  const kind = row.kind && row.kind !== "heap" ? ` (${row.kind.replaceAll("_", " ")})` : "";
  if (!row.frames) {
    const search = () => {
      byId("search").value = name.short;
      const whole = wholeName(name);
      change({ search: (other) => other === whole });
      byId("flames")?.scrollIntoView({ behavior: "smooth" });
    };
    const link = element("button", { type: "button", class: name.own ? "link own" : "link", click: search,
      title: [wholeName(name), where].join("\n") }, name.short);
    const module = name.module ? `  ${name.module.split("/").pop()}` : "";
    return element("td", { class: "text" }, link,
      element("span", { class: "where" }, kind + module));
  }
  const line = (number) => element("li", { title: wholeName(data.names[number]) },
    element("span", { class: data.names[number].own ? "own" : null }, data.names[number].short), element("span", { class: "where" }, `  ${place(data.names[number])}`));
  const details = element("details", {}, element("summary", { title: where, class: name.own ? "own" : null }, name.short));
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length === 1) {
      details.append(element("ol", { class: "frames" }, ...row.frames.map(line)));
    }
  });
  return element("td", { class: "text" }, details);
}

/** The classes of sizes, with bars. */
function sizes() {
  const all = data.tables.sizes;
  const most = all.reduce((most, size) => Math.max(most, size.requested, size.usable), 1);
  const bar = (heading, value) => element("td", { class: "share", "data-heading": heading, title: count(value),
    style: `--part: ${((100 * value) / most).toFixed(2)}%` }, ...(value === 0 ? [] : [shortCount(value)]));
  const row = (size) => element("tr", {},
    element("td", { class: "size", "data-heading": "bytes" },
      size.min === size.max ? bytes(size.min) : `${count(size.min)} – ${count(size.max)}`),
    bar("requested", size.requested), bar("given", size.usable), bar("freed", size.freed),
    element("td", { "data-heading": "live" }, shortCount(Math.max(0, size.usable - size.freed))),
    element("td", { class: "text" }));
  const head = ["bytes", "blocks requested", "given", "freed", "live", ""];
  return [element("table", {}, element("thead", {}, element("tr", {},
    ...head.map((title) => element("th", {}, title)))), element("tbody", {}, ...all.map(row)))];
}
