// The flame graph, outermost functions at the top. It is drawn on a canvas, which is fast for any
// number of boxes.

/** Boxes narrower than `least` pixels are merged; a pane is at most `highest` pixels high. */
const flame = { row: 19, least: 1, highest: 720, panes: [], hovered: null, chosen: null, tree: null };

const flameViews = [
  ["calls", "Calls", "callers above what they call"],
  ["callers", "Callers", "functions that allocate at the top, their callers below"],
];
const flameGroups = [
  ["", "everything", () => true],
  ["thread", "threads", (model) => model.columns["lane.name"].length > 1],
  ["scope", "scopes", (model) => model.columns["scope.name"].length > 1],
  ["label", "labels", (model) => model.columns["label.name"].length > 0],
  ["type", "types", (model) => model.columns["type.name"].length > 0],
];

/** Returns the displayed tree. */
function treeShown() {
  const { model, other } = shown;
  const m = measureShown();
  const key = `${selectionOf(model).key} ${state.by} ${state.hide} ${state.own}`;
  if (other) return model.recent("compared", 2, `${other.number} ${key}`, () => comparedTree(model, other));
  if (state.view !== "callers") return callTree(model);
  return model.recent("callers", 8, `${m} ${state.zoom} ${key}`, () => callerTree(model, m));
}

function zoomPath() {
  return state.zoom === "" ? [] : state.zoom.split(".").map((word) => shown.model.itemOf(word));
}

function flames(section) {
  const { model } = shown;
  section.replaceChildren();
  section.hidden = model.branchParent.length < 2 && model.columns["scope.name"].length < 2;
  if (section.hidden) return;
  if (!hasStacks(model) && state.by === "") state.by = "scope";
  const views = flameViews.map(([view, title, meaning]) => choice(title, { title: meaning },
    () => change({ view, zoom: "" })));
  const groups = flameGroups.filter(([, , there]) => there(model));
  const by = element("select", { "aria-label": "Flame graph grouped by",
    change: (event) => change({ by: event.target.value, zoom: "" }) },
  ...groups.map(([name, title]) => element("option", { value: name, selected: name === state.by },
    title)));
  const own = choice("Own code",
    { class: "plain", title: "Hides functions outside the program's own code" },
    () => change({ own: state.own === "" ? "1" : "", zoom: "" }));
  const back = element("button", { type: "button", class: "plain", click: () => change({ zoom: "" }) },
    "Show all");
  const pair = shown.other === null ? [] : [["merged", "Merged", "both in one picture"],
    ["both", "Side by side", "two pictures of one scale"]].map(([word, title, meaning]) =>
    choice(title, { title: meaning, "data-pair": word }, () => change({ pair: word })));
  const found = element("span", { class: "soft", id: "found" });
  const legend = element("span", { class: "soft small push", id: "flame-legend" });
  section.append(
    element("div", { class: "row" }, element("h2", {}, "Flame graph"),
      hasStacks(model) ? element("span", { class: "group", id: "flame-views" }, ...views) : null,
      groups.length > 1 ? element("label", { class: "soft" }, "by ", by) : null,
      pair.length > 0 ? element("span", { class: "group", id: "flame-pair" }, ...pair) : null,
      hasStacks(model) ? own : null, back, found, legend),
    element("div", { id: "chips", class: "row" }),
    element("div", { id: "stages" }));
  flame.panes = [];
  flames.draw = () => {
    views.forEach((button, i) => {
      button.setAttribute("aria-pressed", flameViews[i][0] === state.view);
      button.disabled = shown.other !== null && flameViews[i][0] === "callers";
    });
    by.value = state.by;
    pair.forEach((button) => button.setAttribute("aria-pressed", button.dataset.pair === state.pair));
    own.setAttribute("aria-pressed", state.own !== "");
    back.hidden = state.zoom === "";
    flame.tree = treeShown();
    flame.root = flame.tree.at(zoomPath());
    flame.hovered = null;
    drawChips();
    setPanes(byId("stages"));
    flame.panes.forEach(drawPane);
    const m = measureShown();
    found.textContent = foundText(flame.tree, m);
    legend.replaceChildren(...flameLegend());
    flame.panes.forEach(namePane);
  };
  flames.draw();
  // Precomputes what the first pointer over a box would otherwise wait for.
  window.requestIdleCallback?.(() => sumsOfLines().forEach((m) => flame.tree.sum(m)));
}

/** Creates the required panes: one, or two for a comparison side by side. */
function setPanes(stages) {
  const sides = shown.other !== null && state.pair === "both" ? ["before", "now"] : ["merged"];
  if (sides.join() === flame.panes.map((pane) => pane.side).join()) return;
  flame.panes.forEach((pane) => pane.watch.disconnect());
  const canvasOf = (side) => element("canvas", { id: side === "before" ? "canvas-before" : "canvas",
    tabindex: 0, role: "application", "aria-roledescription": "flame graph" });
  flame.panes = sides.map((side) => {
    const outline = (kind) => element("div", { class: `outline ${kind}`, hidden: true });
    const [canvas, hover, mark] = [canvasOf(side), outline("hover"), outline("mark")];
    const sheet = element("div", { class: "sheet" }, canvas, hover, mark);
    const stage = element("div", { class: "stage" }, sheet);
    const title = element("p", { class: "small", hidden: side === "merged" });
    return { side, canvas, hover, mark, sheet, stage, title, boxes: [], levels: [] };
  });
  stages.replaceChildren(...flame.panes.map(({ title, stage }) => element("div", {}, title, stage)));
  stages.classList.toggle("two", sides.length > 1);
  flame.panes.forEach(listenToPane);
}

/** Describes a pane to screen readers, and names its side. */
function namePane(pane) {
  const m = measureShown();
  const all = (pane.side === "before" ? flame.tree.sumBefore : flame.tree.sum).call(flame.tree, m)[0];
  const name = { before: "Before", now: "Now", merged: "Flame graph" }[pane.side];
  pane.title.replaceChildren(element("b", {}, name), ` ${amount(m, all)}`);
  pane.canvas.setAttribute("aria-label", `${name}, ${state.view} by ${words(m)}, ${
    exactly(m, all)} in all. Arrow keys move, Enter zooms, Escape shows all.`);
}

function redrawFlames() {
  flame.panes.forEach(drawPane);
}

function outlineFlames() {
  flame.panes.forEach(drawOutlines);
}

function flameLegend() {
  const swatch = (colour, text) => [element("i", { class: "swatch", style: `background: ${colour}` }),
    `${text} `];
  if (shown.other && state.pair !== "both") {
    return [...swatch("var(--more)", "more than before"), ...swatch("var(--less)", "less"),
      ...swatch("var(--rest)", "the same")];
  }
  if (!hasStacks(shown.model)) return [];
  return swatch("var(--own)", "the program's own code");
}

/** Draws the active restrictions, each as a button that removes it. */
function drawChips() {
  const chip = (text, news) => element("button", { type: "button", class: "chip",
    "aria-label": `Remove: ${text}`, title: `${text} — click to remove`,
    click: () => change({ ...news, zoom: "" }) },
  text, element("span", { "aria-hidden": "true" }, " ×"));
  const of = (name) => (state[name] === "" ? [] : [chip(`${name}: ${state[name]}`, { [name]: "" })]);
  const chips = [
    ...(state.focus === "" ? [] : [chip(`only through ${state.focus}`, { focus: "" })]),
    ...["thread", "scope", "label", "type"].flatMap(of),
    ...hidden().map((name) => chip(`without ${name}`,
      { hide: hidden().filter((one) => one !== name).join("\n") })),
  ];
  const row = byId("chips");
  row.replaceChildren(...chips);
  row.hidden = chips.length === 0;
}

function listenToPane(pane) {
  const { canvas, stage } = pane;
  canvas.addEventListener("pointermove", (event) => hoverFlames(pane, event));
  canvas.addEventListener("pointerleave", () => {
    flame.hovered = null;
    hideTip();
    outlineFlames();
  });
  canvas.addEventListener("click", (event) => {
    const box = boxAt(pane, event);
    if (box && box.node >= 0) zoomTo(box.node);
  });
  canvas.addEventListener("contextmenu", (event) => {
    const box = boxAt(pane, event);
    if (!box || box.node <= 0 || flame.tree.item[box.node] < ROOT) return;
    event.preventDefault();
    flameMenu(event.clientX, event.clientY, box.node, canvas);
  });
  canvas.addEventListener("keydown", (event) => flameKey(event, pane));
  canvas.addEventListener("focus", () => {
    if (!canvas.matches(":focus-visible")) return;
    flame.chosen ??= flame.root;
    outlineFlames();
  });
  canvas.addEventListener("blur", () => {
    flame.chosen = null;
    outlineFlames();
  });
  stage.addEventListener("scroll", () => drawPane(pane));
  // Querying the width at each drawing would force a layout of the whole page.
  pane.width = stage.clientWidth;
  pane.watch = new ResizeObserver(([{ contentRect }]) => {
    if (Math.round(contentRect.width) === pane.width) return;
    pane.width = Math.round(contentRect.width);
    drawPane(pane);
  });
  pane.watch.observe(stage);
}

/** Outlines the hovered box, and shows its numbers beside the pointer. */
function hoverFlames(pane, event) {
  const box = boxAt(pane, event);
  if (!box) {
    flame.hovered = null;
    pane.under = null;
    hideTip();
  } else if (box === pane.under && !tip.hidden) {
    moveTip(event);
    return;
  } else {
    flame.hovered = box.node >= 0 ? box.node : null;
    pane.under = box;
    showTip(event, ...(box.node >= 0 ? boxLines(box.node) : smallerLines(box)));
  }
  outlineFlames();
}

function zoomTo(node) {
  if (flame.tree.item[node] < ROOT) return;
  change({ zoom: flame.tree.path(node).map((item) => shown.model.wordOf(item)).join(".") });
}

/** Handles keys that move the selected box: to the caller, to the largest callee, or to the next
 * box. */
function flameKey(event, pane) {
  const { tree } = flame;
  const at = flame.chosen === null ? undefined : boxOf(pane, flame.chosen);
  const inside = (node) => pane.boxes.filter((box) => box.node > 0 && tree.parent[box.node] === node)
    .sort((a, b) => a.x - b.x);
  const beside = (step) => {
    const row = pane.levels[at.level].filter((box) => box.node >= 0);
    return row[row.indexOf(at) + step]?.node;
  };
  const moves = {
    ArrowUp: () => (at && at.node !== 0 ? tree.parent[at.node] : undefined),
    ArrowDown: () => (at ? inside(at.node)[0]?.node : flame.root),
    ArrowLeft: () => (at ? beside(-1) : undefined),
    ArrowRight: () => (at ? beside(1) : undefined),
  };
  if (event.key in moves) {
    const next = moves[event.key]();
    if (next !== undefined) choose(pane, next);
  } else if (event.key === "Enter" && at) {
    const path = tree.path(at.node);
    zoomTo(at.node);
    choose(pane, flame.tree.at(path));
  } else if ((event.key === "ContextMenu" || (event.key === "F10" && event.shiftKey)) && at?.node) {
    const frame = pane.sheet.getBoundingClientRect();
    flameMenu(frame.left + at.x + 8, frame.top + at.level * flame.row + 8, at.node, pane.canvas);
  } else {
    return;
  }
  event.preventDefault();
}

/** Outlines the box of a node, scrolls to it and announces it. */
function choose(pane, node) {
  flame.chosen = node;
  outlineFlames();
  if (!pane.mark.hidden) pane.mark.scrollIntoView({ block: "nearest" });
  say(boxText(node));
}

/** Returns the box at the pointer. */
function boxAt(pane, event) {
  const frame = pane.sheet.getBoundingClientRect();
  const [x, y] = [event.clientX - frame.left, event.clientY - frame.top];
  const level = pane.levels[Math.floor(y / flame.row)] ?? [];
  return level.find((box) => x >= box.x && x < box.x + Math.max(1, box.width));
}

function boxText(node) {
  const m = measureShown();
  const sum = flame.tree.sum(m);
  return `${itemText(flame.tree.item[node])}: ${amount(m, sum[node])}, ${percent(sum[node], sum[0])}`;
}

function smallerLines(box) {
  const m = measureShown();
  const part = percent(box.value, flame.tree.width(m)[0]);
  return [element("b", {}, itemText(ROOT - box.branches)),
    element("div", {}, `${words(m)}: ${amount(m, box.value)}, ${part}; too narrow to draw: zoom in`)];
}

function boxLines(node) {
  const { tree } = flame;
  const item = tree.item[node] >= 0 ? shown.model.item(tree.item[node]) : null;
  const cell = (text) => element("td", {}, text);
  const line = (m) => {
    const [all, own] = [tree.sum(m)[node], tree.own(m)[node]];
    const before = tree.sumBefore ? tree.sumBefore(m)[node] : null;
    return element("tr", { class: m === measureShown() ? "chosen" : null }, cell(words(m)),
      cell(amount(m, all)), cell(percent(all, tree.sum(m)[0])),
      before === null ? cell(own > 0 ? `${amount(m, own)} itself` : "")
        : cell(`${signed(m, all - before)} (was ${amount(m, before)})`));
  };
  return [element("b", {}, item ? item.name : itemText(tree.item[node])),
    item?.module ? element("div", { class: "soft" }, item.module) : null,
    element("table", {}, ...sumsOfLines().map(line))];
}

/** Returns the metrics to show beside the pointer. */
function sumsOfLines() {
  const { measures } = shown.model;
  return [...measures.keys()].filter((m) => m < usualColumns && measures[m].total > 0);
}

/** Describes the value of the boxes that match the search, without double counting, in the whole
 * tree, including those hidden by zoom or too small to draw. */
function foundText(tree, m) {
  const searched = shown.model.found(searchTest());
  if (!searched) return "";
  const sum = tree.sum(m);
  const inside = new Uint8Array(tree.parent.length);
  const seen = new Set(flame.panes.flatMap((pane) => pane.boxes.map((box) => box.node)));
  let [value, hits, unseen] = [0, 0, 0];
  for (let i = 1; i < inside.length; i += 1) {
    const below = inside[tree.parent[i]] === 1;
    const hit = tree.item[i] >= 0 && searched[tree.item[i]] && sum[i] > 0;
    if (hit) {
      hits += 1;
      if (!seen.has(i)) unseen += 1;
      if (!below) value += sum[i];
    }
    inside[i] = hit || below ? 1 : 0;
  }
  const away = unseen > 0 ? `, ${count(unseen)} of them not in view: below the tinted boxes` : "";
  const boxes = hits === 1 ? "1 box" : `${count(hits)} boxes`;
  return `found: ${amount(m, value)}, ${percent(value, sum[0])}, in ${boxes}${away}`;
}
