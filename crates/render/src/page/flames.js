// The flame graph: outermost at the top, drawn to a canvas so that any number of boxes moves.

/** Boxes narrower than `least` pixels are merged. */
const flame = { row: 19, least: 1, boxes: [], levels: [], hovered: null, chosen: null, tree: null };

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

/** The tree that is shown. */
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
  const canvas = element("canvas", { id: "canvas", tabindex: 0, role: "application",
    "aria-roledescription": "flame graph" });
  const views = flameViews.map(([view, title, meaning]) => choice(title, { title: meaning },
    () => change({ view, zoom: "" })));
  const groups = flameGroups.filter(([, , there]) => there(model));
  const by = element("select", { "aria-label": "Flame graph grouped by",
    change: (event) => change({ by: event.target.value, zoom: "" }) },
  ...groups.map(([name, title]) => element("option", { value: name, selected: name === state.by },
    title)));
  const own = choice("Own code",
    { class: "plain", title: "Leaves out functions that are not of the program's own code" },
    () => change({ own: state.own === "" ? "1" : "", zoom: "" }));
  const back = element("button", { type: "button", class: "plain", click: () => change({ zoom: "" }) },
    "Show all");
  const found = element("span", { class: "soft", id: "found" });
  const legend = element("span", { class: "soft small push", id: "flame-legend" });
  section.append(
    element("div", { class: "row" }, element("h2", {}, "Flame graph"),
      hasStacks(model) ? element("span", { class: "group", id: "flame-views" }, ...views) : null,
      groups.length > 1 ? element("label", { class: "soft" }, "by ", by) : null,
      hasStacks(model) ? own : null, back, found, legend),
    element("div", { id: "chips", class: "row" }),
    element("div", { id: "stage" }, canvas));
  listenToFlames(canvas);
  flames.draw = () => {
    views.forEach((button, i) => {
      button.setAttribute("aria-pressed", flameViews[i][0] === state.view);
      button.disabled = shown.other !== null && flameViews[i][0] === "callers";
    });
    by.value = state.by;
    own.setAttribute("aria-pressed", state.own !== "");
    back.hidden = state.zoom === "";
    flame.tree = treeShown();
    flame.root = flame.tree.at(zoomPath());
    flame.hovered = null;
    drawChips();
    drawFlames(canvas);
    const m = measureShown();
    found.textContent = foundText(flame.tree, m);
    legend.replaceChildren(...flameLegend());
    canvas.setAttribute("aria-label", `Flame graph, ${state.view} by ${words(m)}, ${
      exactly(m, flame.tree.sum(m)[0])} in all. Arrow keys move, Enter zooms, Escape shows all.`);
  };
  flames.draw();
}

function flameLegend() {
  const swatch = (colour, text) => [element("i", { class: "swatch", style: `background: ${colour}` }),
    `${text} `];
  if (shown.other) {
    return [...swatch("var(--more)", "more than before"), ...swatch("var(--less)", "less"),
      ...swatch("var(--rest)", "the same")];
  }
  if (!hasStacks(shown.model)) return [];
  return swatch("var(--own)", "the program's own code");
}

/** The restrictions of the picture, each as a button that removes it. */
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

function listenToFlames(canvas) {
  canvas.addEventListener("pointermove", (event) => {
    const box = boxAt(canvas, event);
    const node = box && box.node >= 0 ? box.node : null;
    if (node !== flame.hovered) {
      flame.hovered = node;
      drawFlames(canvas);
    }
    if (!box) hideTip();
    else showTip(event, ...(node === null ? smallerLines(box) : boxLines(node)));
  });
  canvas.addEventListener("pointerleave", () => {
    flame.hovered = null;
    hideTip();
    drawFlames(canvas);
  });
  canvas.addEventListener("click", (event) => {
    const box = boxAt(canvas, event);
    if (box && box.node >= 0) zoomTo(box.node);
  });
  canvas.addEventListener("contextmenu", (event) => {
    const box = boxAt(canvas, event);
    if (!box || box.node <= 0 || flame.tree.item[box.node] < ROOT) return;
    event.preventDefault();
    flameMenu(event.clientX, event.clientY, box.node, canvas);
  });
  canvas.addEventListener("keydown", (event) => flameKey(event, canvas));
  canvas.addEventListener("focus", () => {
    if (!canvas.matches(":focus-visible")) return;
    flame.chosen ??= flame.root;
    drawFlames(canvas);
  });
  canvas.addEventListener("blur", () => {
    flame.chosen = null;
    drawFlames(canvas);
  });
  flame.watch?.disconnect();
  // Asking for the width at each drawing would have the browser lay out the whole page.
  flame.width = canvas.parentNode.clientWidth;
  flame.watch = new ResizeObserver(([{ contentRect }]) => {
    if (Math.round(contentRect.width) === flame.width) return;
    flame.width = Math.round(contentRect.width);
    drawFlames(canvas);
  });
  flame.watch.observe(canvas.parentNode);
}

function zoomTo(node) {
  if (flame.tree.item[node] < ROOT) return;
  change({ zoom: flame.tree.path(node).map((item) => shown.model.wordOf(item)).join(".") });
}

/** Keys move a chosen box: up to the caller, down to the largest callee, aside to the next box. */
function flameKey(event, canvas) {
  const { tree, boxes } = flame;
  const at = boxes.find((box) => box.node === flame.chosen);
  const inside = (node) => boxes.filter((box) => box.node > 0 && tree.parent[box.node] === node)
    .sort((a, b) => a.x - b.x);
  const beside = (step) => {
    const row = (flame.levels[at.level] ?? []).filter((box) => box.node >= 0);
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
    if (next !== undefined) {
      flame.chosen = next;
      drawFlames(canvas);
      say(boxText(next));
    }
  } else if (event.key === "Enter" && at) {
    const path = tree.path(at.node);
    zoomTo(at.node);
    flame.chosen = flame.tree.at(path);
    drawFlames(canvas);
  } else if ((event.key === "ContextMenu" || (event.key === "F10" && event.shiftKey)) && at?.node) {
    const frame = canvas.getBoundingClientRect();
    flameMenu(frame.left + at.x + 8, frame.top + at.level * flame.row + 8, at.node, canvas);
  } else {
    return;
  }
  event.preventDefault();
}

/** The boxes there is room for: those above the root of the zoom, and what grows from it. */
function layOut(tree, m, width) {
  const wide = tree.width(m);
  const above = [];
  for (let at = flame.root; at !== 0; at = tree.parent[at]) above.unshift(tree.parent[at]);
  const boxes = above.map((node, level) => ({ node, level, x: 0, width, above: true }));
  if (!(wide[flame.root] > 0)) return boxes;
  const todo = [{ node: flame.root, level: above.length, x: 0, width, above: false }];
  const scale = width / wide[flame.root];
  while (todo.length > 0) {
    const box = todo.pop();
    boxes.push(box);
    const children = tree.children(box.node, m);
    const level = box.level + 1;
    let { x } = box;
    let i = 0;
    for (; i < children.length && wide[children[i]] * scale >= flame.least; i += 1) {
      const room = wide[children[i]] * scale;
      todo.push({ node: children[i], level, x, width: room, above: false });
      x += room;
    }
    const smaller = smallerBox(tree, m, children.subarray(i), scale);
    if (smaller.width >= flame.least) boxes.push({ ...smaller, level, x });
  }
  return boxes;
}

/** One box for children that are too narrow to draw. */
function smallerBox(tree, m, children, scale) {
  const wide = tree.width(m);
  let [value, branches] = [0, 0];
  for (const node of children) {
    value += wide[node];
    if (wide[node] > 0) branches += tree.item[node] < ROOT ? ROOT - tree.item[node] : 1;
  }
  return { node: -1, branches, value, width: value * scale, above: false };
}

/** A number between 0 and 1 for a text. */
function hash(text) {
  let value = 2166136261;
  for (let i = 0; i < text.length; i += 1) value = Math.imul(value ^ text.charCodeAt(i), 16777619);
  return (value >>> 8) / 16777216;
}

/** A hue for each module, a shade for each function; own code has a hue of its own. */
function colourOf(number, dark) {
  const known = shown.model.once(dark ? "dark colours" : "light colours", () => []);
  return (known[number] ??= colourOfItem(shown.model.item(number), dark));
}

function colourOfItem(item, dark) {
  const part = hash(item.short);
  const hue = item.own ? 32 + 16 * part
    : 165 + 140 * hash(item.module || item.kind) + 30 * (part - 0.5);
  // Dark enough, or light enough, for the contrast of text that WCAG AA asks for.
  const light = (dark ? (item.own ? 22 : 26) : 73) + (dark ? 8 : 11) * (hash(`${item.short}.`) - 0.5);
  return `hsl(${hue.toFixed(0)} ${item.own ? 75 : dark ? 36 : 48}% ${light.toFixed(0)}%)`;
}

/** The colour of a difference: the more of the whole it is, the stronger. */
function differenceColour(tree, node, m, dark) {
  const [now, before] = [tree.sum(m), tree.sumBefore(m)];
  const difference = now[node] - before[node];
  const whole = Math.max(now[0], before[0], 1);
  const strength = Math.min(1, Math.sqrt(Math.abs(difference) / whole) * 1.6);
  if (strength < 0.01) return dark ? "#3b4653" : "#c9d0d8";
  const hue = difference > 0 ? 12 : 212;
  const light = dark ? 28 + 16 * strength : 90 - 30 * strength;
  return `hsl(${hue} ${(30 + 50 * strength).toFixed(0)}% ${light.toFixed(0)}%)`;
}

/** The colours and the font of the page. */
function theme() {
  const style = getComputedStyle(document.documentElement);
  const [ink, rest, mono] = ["--ink", "--rest", "--mono"].map((name) => style.getPropertyValue(name));
  return { dark: matchMedia("(prefers-color-scheme: dark)").matches, ink, rest, mono };
}

function drawFlames(canvas) {
  const { tree } = flame;
  if (!tree || !canvas.isConnected) return;
  const m = measureShown();
  const { width } = flame;
  const boxes = layOut(tree, m, width);
  const height = (boxes.reduce((most, box) => Math.max(most, box.level), 0) + 1) * flame.row;
  const ratio = devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  const to = canvas.getContext("2d");
  to.scale(ratio, ratio);
  const { dark, ink, rest, mono } = flame.theme ??= theme();
  to.font = `12px ${mono}`;
  to.textBaseline = "middle";
  const letter = to.measureText("m").width;
  const searched = shown.model.found(searchTest());
  for (const box of boxes) {
    const number = box.node < 0 ? ROOT - box.branches : tree.item[box.node];
    const hit = searched && number >= 0 && searched[number];
    const faint = box.above || (searched && !hit);
    const alpha = box.above ? 0.45 : searched && !hit ? 0.3 : 1;
    if (to.globalAlpha !== alpha) to.globalAlpha = alpha;
    to.fillStyle = number < 0 ? rest : hit ? "#f2992e"
      : shown.other ? differenceColour(tree, box.node, m, dark) : colourOf(number, dark);
    const y = box.level * flame.row;
    to.fillRect(box.x, y, Math.max(0.4, box.width - (box.width > 3 ? 1 : 0)), flame.row - 1);
    if (box.node >= 0 && (box.node === flame.hovered || box.node === flame.chosen)) {
      to.globalAlpha = 1;
      to.strokeStyle = ink;
      to.lineWidth = box.node === flame.chosen ? 2 : 1;
      to.strokeRect(box.x + 0.5, y + 0.5, Math.max(1, box.width - 2), flame.row - 2);
    }
    const room = Math.floor((box.width - 8) / letter);
    if (room < 2) continue;
    const text = itemText(number);
    to.globalAlpha = faint ? 0.75 : 1;
    to.fillStyle = hit ? "#1b1203" : ink;
    to.fillText(text.length <= room ? text : `${text.slice(0, room - 1)}…`, box.x + 4,
      y + flame.row / 2);
  }
  to.globalAlpha = 1;
  flame.boxes = boxes;
  flame.levels = [];
  for (const box of boxes) (flame.levels[box.level] ??= []).push(box);
  flame.levels.forEach((level) => level.sort((a, b) => a.x - b.x));
}

/** The text of a box. */
function itemText(number) {
  if (number === ROOT) return "everything";
  if (number >= 0) return shown.model.item(number).short;
  const branches = ROOT - number;
  return branches === 1 ? "1 smaller branch" : `${count(branches)} smaller branches`;
}

function boxAt(canvas, event) {
  const frame = canvas.getBoundingClientRect();
  const [x, y] = [event.clientX - frame.left, event.clientY - frame.top];
  const level = flame.levels[Math.floor(y / flame.row)] ?? [];
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
  const measures = [...shown.model.measures.keys()].filter((m) => m < 5 && shown.model.measures[m].total > 0);
  return [element("b", {}, item ? item.name : itemText(tree.item[node])),
    item?.module ? element("div", { class: "soft" }, item.module) : null,
    element("table", {}, ...measures.map(line))];
}

/** How much goes through what is searched for, nothing counted twice, in all of the tree: also where
 * a zoom or small boxes hide it. */
function foundText(tree, m) {
  const searched = shown.model.found(searchTest());
  if (!searched) return "";
  const sum = tree.sum(m);
  const inside = new Uint8Array(tree.parent.length);
  const seen = new Set(flame.boxes.map((box) => box.node));
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
  const away = unseen > 0 ? `, ${count(unseen)} of them not in view` : "";
  const boxes = hits === 1 ? "1 box" : `${count(hits)} boxes`;
  return `found: ${amount(m, value)}, ${percent(value, sum[0])}, in ${boxes}${away}`;
}
