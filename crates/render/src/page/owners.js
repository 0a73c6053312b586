// The bar of owners: the functions or, without stacks, the scopes that the displayed metric is
// charged to, largest first.

/** Number of owners with a part of their own. */
const ownersInBar = 8;

/** Returns the rows of owners of the displayed process; null if it has neither stacks nor scopes. */
function ownerRows() {
  const { model } = shown;
  const looks = tableKinds.find(({ kind }) => kind === (hasStacks(model) ? "functions" : "scopes"));
  return looks.there(model) ? rowsOf(model, looks) : null;
}

/** Returns the owners with most of a metric, and the sum of all others. */
function largestOwners(rows, m) {
  const own = rows.own(m);
  const found = [];
  for (let row = 0; row < rows.length; row += 1) {
    if (own[row] > 0) found.push(row);
  }
  const values = Float64Array.from(found, (row) => own[row]).sort();
  const least = values[Math.max(0, values.length - ownersInBar)];
  const first = found.filter((row) => own[row] >= least)
    .sort((a, b) => own[b] - own[a] || a - b).slice(0, ownersInBar);
  const all = values.reduce((sum, value) => sum + value, 0);
  const rest = all - first.reduce((sum, row) => sum + own[row], 0);
  return { first, all, rest, others: found.length - first.length };
}

/** Draws the bar; hides the section if nothing has owners. */
function owners(section) {
  const m = measureShown();
  const rows = ownerRows();
  const { first, all, rest, others } = rows ? largestOwners(rows, m) : { first: [], all: 0 };
  section.hidden = first.length === 0;
  if (section.hidden) return;
  const own = rows.own(m);
  const colours = coloursOfOwners(first.map((row) => rows.item(row)));
  const parts = first.map((row) => {
    const item = shown.model.item(rows.item(row));
    const colour = colours.get(rows.item(row));
    return { name: item.name, short: item.short, value: own[row], colour };
  });
  if (others > 0) {
    parts.push({ short: counted(others, "other"), value: rest, colour: "var(--rest)" });
  }
  const text = (part) => `${amount(m, part.value)}, ${percent(part.value, all)}`;
  const box = (part) => element("i", { title: `${part.name ?? part.short}: ${text(part)}`,
    style: `width: ${((100 * part.value) / all).toFixed(3)}%; background: ${part.colour}` });
  const entry = (part) => {
    const swatch = element("i", { class: "swatch", style: `background: ${part.colour}` });
    const inside = [swatch, element("b", {}, part.short), element("span", {}, ` ${text(part)}`)];
    return part.name === undefined ? element("span", { class: "owner" }, ...inside)
      : element("button", { type: "button", class: "owner", title: `Search for ${part.name}`,
        click: () => change({ search: part.name }) }, ...inside);
  };
  section.replaceChildren(
    element("div", { class: "row" }, element("h2", {}, hasStacks(shown.model) ? "Owners" : "Scopes"),
      element("span", { class: "soft" }, `${amount(m, all)} ${words(m)}`)),
    element("div", { id: "bar", "aria-hidden": "true" }, ...parts.map(box)),
    element("div", { id: "owner-names" }, ...parts.map(entry)));
}
