// The tables: sorted by a click, filtered by the search, with selectable columns.

/** `lines` is the number of lines of a function that are listed. */
const table = { rows: 40, lines: 3, open: new Set() };
/** Number of columns that are shown by default. */
const usualColumns = 5;

function columnsShown() {
  const { measures } = shown.model;
  const all = [...measures.keys()].filter((m) => measures[m].total > 0);
  if (state.columns === null) return all.filter((m) => m < usualColumns);
  const wanted = new Set(state.columns.split(","));
  return all.filter((m) => wanted.has(measures[m].name));
}

function tables(section) {
  const { model } = shown;
  const usable = tableKinds.filter((one) => one.there(model));
  section.replaceChildren();
  section.hidden = usable.length === 0;
  tables.draw = null;
  if (section.hidden) return;
  const buttons = usable.map(({ kind, title }) => choice(title, { "data-table": kind },
    () => change({ table: kind, sort: "own", order: "falling" })));
  const body = element("div", { class: "scroll" });
  const columns = element("details", { class: "columns push" }, element("summary", {}, "Columns"));
  section.append(element("div", { class: "row" }, element("h2", {}, "Tables"),
    element("span", { class: "group", id: "table-kinds" }, ...buttons), columns), body);
  tables.draw = () => {
    const looks = usable.find(({ kind }) => kind === state.table) ?? usable[0];
    usable.forEach((one, i) => buttons[i].setAttribute("aria-pressed", one === looks));
    columns.replaceChildren(columns.firstChild, columnChoices());
    columns.hidden = !looks.rows;
    body.replaceChildren(...(looks.rows ? drawnTable(looks) : looks.draw(model, looks)));
  };
  tables.draw();
}

function columnChoices() {
  const { measures } = shown.model;
  const chosen = new Set(columnsShown());
  const box = (m) => element("label", {}, element("input", { type: "checkbox", checked: chosen.has(m),
    change: (event) => {
      if (event.target.checked) chosen.add(m);
      else chosen.delete(m);
      change({ columns: [...chosen].sort((a, b) => a - b).map((of) => measures[of].name).join(",") });
    } }), ` ${words(m)}`);
  const usable = [...measures.keys()].filter((m) => measures[m].total > 0);
  return element("div", { class: "choices" }, ...usable.map(box));
}

/** Returns a heading that sorts the table. */
function heading(title, key, meaning) {
  const isSorted = state.sort === key;
  const arrow = isSorted ? (state.order === "falling" ? " ↓" : " ↑") : "";
  const sort = () => {
    const falling = isSorted ? state.order !== "falling" : key !== "name";
    change({ sort: key, order: falling ? "falling" : "rising" });
  };
  const order = isSorted ? (state.order === "falling" ? "descending" : "ascending") : null;
  return element("th", { "aria-sort": order, class: key === "name" ? "text" : null, title: meaning },
    element("button", { type: "button", click: sort }, title + arrow));
}

/** Returns the rows of a kind of table of a model, computed once per selection. */
function rowsOf(model, looks) {
  const key = `${looks.kind} ${selectionOf(model).key}`;
  return model.recent("rows", 8, key, () => looks.rows(model));
}

/** Returns the rows of the process compared with, and their numbers by name. */
function rowsBefore(looks) {
  const { other } = shown;
  if (!other || looks.kind === "stacks" || looks.kind === "sites") return null;
  return other.recent("rows by name", 4, `${looks.kind} ${selectionOf(other).key}`, () => {
    const rows = rowsOf(other, looks);
    const numbers = new Map();
    for (let row = 0; row < rows.length; row += 1) {
      const name = nameOfRow(other, rows, row);
      if (!numbers.has(name)) numbers.set(name, row);
    }
    return { rows, numbers };
  });
}

function nameOfRow(model, rows, row) {
  const facts = rows.stack ? [] : rows.facts?.(row) ?? [];
  return [model.item(rows.item(row)).name, ...facts.flat()].join("\0");
}

/** Returns the function that orders rows with equal values, such as those that own nothing. */
function secondKey(rows, m) {
  const inclusive = state.sort === "own" && rows.inclusive?.(m);
  return inclusive ? (row) => inclusive[row] : () => 0;
}

/** Returns the function that computes the value by which rows are sorted. */
function sortKey(rows, before, m) {
  const { model } = shown;
  const value = rows.inclusive ? rows.inclusive(m) : rows.own(m);
  if (rows.stats?.[state.sort]) return (row) => rows.stats[state.sort][row];
  switch (state.sort) {
    case "inclusive": return (row) => value[row];
    case "times": return rows.times ?? (() => 0);
    case "name": return (row) => model.item(rows.item(row)).name;
    case "change": return (row) => value[row] - (before?.(row) ?? 0);
    case "own": return (row) => rows.own(m)[row];
    default: {
      const named = model.measures.findIndex(({ name }) => name === state.sort);
      const of = rows.own(named < 0 ? m : named);
      return (row) => of[row];
    }
  }
}

/** Returns the rows that have a value and match the search, in order. */
function rowsInOrder(rows, before, m) {
  const { model } = shown;
  const searched = model.found(searchTest());
  const own = rows.own(m);
  const inclusive = rows.inclusive?.(m) ?? own;
  const branches = searched && rows.stack
    ? model.recent("through", 2, state.search, () => model.through((f) => searched[f])) : null;
  // Items of threads, scopes and labels can be created after the names were searched.
  const test = searchTest();
  const fits = (row) => {
    if (!searched) return true;
    const item = rows.item(row);
    if (searched[item] ?? test(model.item(item).name)) return true;
    return branches !== null && branches[model.branchOf[rows.stack(row)]] === 1;
  };
  const found = [];
  for (let row = 0; row < rows.length; row += 1) {
    if ((inclusive[row] !== 0 || own[row] !== 0 || before?.(row)) && fits(row)) found.push(row);
  }
  const keys = [sortKey(rows, before, m), secondKey(rows, m)];
  return { found: firstOf(found, ...keys), length: found.length };
}

/** Returns the rows to show of those found, in order. */
function firstOf(found, key, second = () => 0) {
  const sign = state.order === "falling" ? -1 : 1;
  if (state.sort === "name") {
    const names = new Map(found.map((row) => [row, key(row)]));
    const order = (a, b) => sign * names.get(a).localeCompare(names.get(b));
    return found.sort(order).slice(0, table.rows);
  }
  let first = found;
  if (found.length > table.rows) {
    const values = Float64Array.from(found, key).sort();
    const last = values[sign < 0 ? found.length - table.rows : table.rows - 1];
    first = found.filter((row) => sign * (key(row) - last) <= 0);
  }
  const order = (a, b) => sign * (key(a) - key(b) || second(a) - second(b)) || a - b;
  return first.sort(order).slice(0, table.rows);
}

function drawnTable(looks) {
  const { model } = shown;
  const m = measureShown();
  const rows = rowsOf(model, looks);
  const compared = rowsBefore(looks);
  const before = compared && ((row) => {
    const number = compared.numbers.get(nameOfRow(model, rows, row));
    const of = compared.rows;
    return number === undefined ? 0 : (of.inclusive ? of.inclusive(m) : of.own(m))[number];
  });
  const { found, length } = rowsInOrder(rows, before, m);
  const others = columnsShown().filter((of) => of !== m);
  const head = [
    heading(rows.inclusive ? `${words(m)}, itself` : words(m), "own", model.measures[m].description),
    rows.inclusive ? heading("inclusive", "inclusive", "with what it calls or contains") : null,
    before ? heading("change", "change", "against the process that this is compared with") : null,
    ...others.map((of) => heading(words(of), model.measures[of].name, model.measures[of].description)),
    looks.times ? heading(looks.times, "times") : null,
    heading(looks.text, "name"),
  ];
  const lines = found.map((row) => drawnRow(looks, rows, row, { m, others, before }));
  return drawnRows(head.filter(Boolean), lines, length);
}

/** Draws a table with these headings and rows; `length` is the number of all rows. */
function drawnRows(head, lines, length) {
  const parts = [element("table", {}, element("thead", {}, element("tr", {}, ...head)),
    element("tbody", {}, ...lines))];
  if (lines.length === 0) parts.push(element("p", { class: "soft" }, "No rows with a value."));
  if (length > lines.length) {
    const more = () => {
      table.rows *= 4;
      tables.draw();
    };
    parts.push(element("p", {}, element("button", { type: "button", class: "plain", click: more },
      `Show more of ${count(length)}`)));
  }
  return parts;
}

function drawnRow(looks, rows, row, { m, others, before }) {
  const { model } = shown;
  const item = model.item(rows.item(row));
  const all = model.total(selectionOf(model), m);
  const cell = (of, value, title) => element("td",
    { title: exactly(of, value), "data-heading": title ?? words(of) },
    value === 0 ? "" : amount(of, value));
  const share = (part, title) => {
    const made = cell(m, part, title);
    made.className = "share";
    made.style.setProperty("--part", `${((100 * part) / Math.max(1, all)).toFixed(2)}%`);
    if (part !== 0) made.append(element("i", {}, ` ${percent(part, all)}`));
    return made;
  };
  const value = (rows.inclusive ? rows.inclusive(m) : rows.own(m))[row];
  const name = element("td", { class: "text" }, nameCell(looks, rows, row, item));
  const cells = [
    rows.inclusive ? cell(m, rows.own(m)[row], "itself") : share(value),
    rows.inclusive ? share(value, "inclusive") : null,
    before ? element("td", { "data-heading": "change", title: exactly(m, value - before(row)),
      class: value > before(row) ? "grown" : value < before(row) ? "shrunk" : null },
    signed(m, value - before(row))) : null,
    ...others.map((of) => cell(of, rows.own(of)[row])),
    looks.times ? element("td", { "data-heading": looks.times }, count(rows.times(row))) : null,
    name,
  ];
  return element("tr", {}, ...cells.filter(Boolean));
}

/** Draws the name of a row, which opens a stack or a menu, and further facts about it. */
function nameCell(looks, rows, row, item) {
  const { model } = shown;
  const box = element("div", {});
  const facts = (rows.facts?.(row) ?? []).map(([name, value]) => `${name} ${value}`);
  const where = [...facts, (item.module ?? "").split("/").pop()].filter(Boolean).join("  ·  ");
  const isStack = rows.stack && rows.stack(row) !== 0;
  const act = (event) => {
    if (isStack) openStack(box, event.currentTarget, `${looks.kind} ${row}`, rows.stack(row));
    else openMenu(event.clientX, event.clientY, event.currentTarget, rowEntries(looks, item, row));
  };
  const button = element("button", { type: "button", click: act, title: item.name,
    class: item.own ? "link own" : "link", "aria-expanded": isStack ? "false" : null,
    "aria-haspopup": isStack ? null : "menu" }, item.short);
  box.append(button, element("span", { class: "where", title: item.module }, where ? `  ${where}` : ""));
  if (item.text) box.append(element("code", { class: "text" }, item.text));
  if (looks.kind === "functions") box.append(...functionLines(model, item));
  if (isStack && table.open.has(`${looks.kind} ${row}`)) {
    button.setAttribute("aria-expanded", "true");
    box.append(framesList(model, rows.stack(row)));
  }
  return box;
}

/** Draws the source lines of a function that owns memory at several, if it owns a hundredth. */
function functionLines(model, { id, kind }) {
  const m = measureShown();
  const all = kind === "function" ? model.linesByFunction(m).get(id) ?? [] : [];
  const sum = all.reduce((sum, [, value]) => sum + value, 0);
  const lines = sum >= model.total(selectionOf(model), m) / 100 ? all : [];
  const { columns } = model;
  const line = ([frame, value]) => {
    const file = model.text(columns["frame.file"][frame]).split("/").pop();
    const number = columns["frame.line"][frame];
    return element("div", { class: "line" },
      element("span", { class: "where" }, `${file}${number ? `:${number}` : ""}  ${amount(m, value)}`),
      element("code", { class: "text" }, model.sourceText(frame)));
  };
  const more = lines.length > table.lines ? [element("div", { class: "where" },
    counted(lines.length - table.lines, "more line"))] : [];
  return [...lines.slice(0, table.lines).map(line), ...more];
}

function openStack(box, button, key, stack) {
  const open = box.querySelector(".frames");
  button.setAttribute("aria-expanded", String(!open));
  if (open) {
    open.remove();
    table.open.delete(key);
  } else {
    table.open.add(key);
    box.append(framesList(shown.model, stack));
  }
}

function rowEntries(looks, item, row) {
  if (item.kind === "scope path") {
    return row === 0 ? [] : [["Only this scope", () => change({ scope: item.name, zoom: "" })]];
  }
  return [...itemEntries(item), ["Copy the name", () => copy(item.name)]];
}

/** Draws blocks by classes of sizes. */
function sizes(model) {
  const all = model.head.sizes;
  const most = all.reduce((max, size) => Math.max(max, size.requested), 1);
  const between = (size) => (size.min === size.max ? count(size.min) : `${count(size.min)} – ${count(size.max)}`);
  const cell = (name, value) => element("td", { "data-heading": name }, value);
  const row = (size) => element("tr", {}, cell("bytes", between(size)),
    element("td", { class: "share", "data-heading": "blocks requested", title: count(size.requested),
      style: `--part: ${((100 * size.requested) / most).toFixed(2)}%` }, shortCount(size.requested)),
    cell("given", shortCount(size.usable)), cell("freed", shortCount(size.freed)),
    cell("live", shortCount(Math.max(0, size.usable - size.freed))), element("td", { class: "text" }));
  const head = ["bytes", "blocks requested", "given", "freed", "live", ""];
  return [element("table", { class: "sizes" }, element("thead", {}, element("tr", {},
    ...head.map((title) => element("th", {}, title)))), element("tbody", {}, ...all.map(row)))];
}
