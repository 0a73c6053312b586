// The flame graph: outermost at the top, drawn to a canvas so that tens of thousands of boxes move.

const flame = { row: 19, least: 0.5, view: "calls", graphs: {}, boxes: [], hovered: null };

const views = [
  ["calls", "Calls", "callers above what they call"],
  ["callers", "Callers", "functions that allocate at the top, their callers below"],
  ["scopes", "Scopes", "scopes above those inside them"],
];

/** A flame graph with sums and children, made when it is first looked at. */
function graphOf(view) {
  if (flame.graphs[view]) return flame.graphs[view];
  const { parent, name, own } = data.flames[view];
  const sums = own.map((values) => {
    const sum = Float64Array.from(values);
    for (let i = parent.length - 1; i > 0; i -= 1) sum[parent[i]] += sum[i];
    return sum;
  });
  const children = parent.map(() => []);
  for (let i = 1; i < parent.length; i += 1) children[parent[i]].push(i);
  const graph = { parent, name, own, sums, children, ordered: -1, root: 0 };
  flame.graphs[view] = graph;
  return graph;
}

/** Orders children by the measure shown, the largest first. */
function order(graph) {
  if (graph.ordered === state.measure) return;
  const sum = graph.sums[state.measure];
  const last = (i) => (graph.name[i] < 0 ? -1 : sum[i]);
  for (const children of graph.children) children.sort((a, b) => last(b) - last(a));
  graph.ordered = state.measure;
}

function flames(section) {
  const usable = views.filter(([view]) => data.flames[view].parent.length > 1);
  if (usable.length === 0) {
    section.remove();
    return;
  }
  flame.view = usable[0][0];
  const canvas = element("canvas", { id: "canvas", tabindex: 0, role: "img" });
  const buttons = usable.map(([view, title, meaning]) => choice(title, { title: meaning }, () => {
    flame.view = view;
    draw();
  }));
  const back = element("button", { type: "button", class: "plain", click: () => zoom(0) },
    "Show all");
  const found = element("span", { class: "soft", id: "found" });
  const cut = element("span", { class: "soft small push" });
  section.append(element("div", { class: "row" }, element("h2", {}, "Flame graph"),
    element("span", { class: "group" }, ...buttons), back, found, cut),
  element("div", { id: "stage" }, canvas));

  function zoom(to) {
    graphOf(flame.view).root = to;
    draw();
  }

  function draw() {
    const graph = graphOf(flame.view);
    order(graph);
    usable.forEach(([view], i) => buttons[i].setAttribute("aria-pressed", view === flame.view));
    back.hidden = graph.root === 0;
    drawFlames(canvas, graph);
    found.textContent = foundText(graph);
    const rest = graph.name.filter((name) => name < 0).reduce((sum, name) => sum - name, 0);
    cut.textContent = rest === 0 ? "" : `${count(rest)} branches too small to draw are grouped`;
    canvas.setAttribute("aria-label",
      `${flame.view} by ${words(state.measure)}, ${exactly(state.measure, graph.sums[state.measure][0])}`);
  }

  canvas.addEventListener("pointermove", (event) => {
    const box = boxAt(canvas, event);
    if (box?.node !== flame.hovered) {
      flame.hovered = box?.node ?? null;
      drawFlames(canvas, graphOf(flame.view));
    }
    if (box) showTip(event, ...boxLines(graphOf(flame.view), box.node));
    else hideTip();
  });
  canvas.addEventListener("pointerleave", () => {
    flame.hovered = null;
    hideTip();
    drawFlames(canvas, graphOf(flame.view));
  });
  canvas.addEventListener("click", (event) => {
    const box = boxAt(canvas, event);
    if (box && graphOf(flame.view).name[box.node] >= 0) zoom(box.node);
  });
  addEventListener("keydown", (event) => {
    if (event.key === "Escape") zoom(0);
  });
  new ResizeObserver(draw).observe(section);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  onChange(draw);
}

/** The boxes there is room for: those above the root of the zoom, and what grows from it. */
function layOut(graph, width) {
  const sum = graph.sums[state.measure];
  const above = [];
  for (let at = graph.root; at !== 0; at = graph.parent[at]) above.unshift(graph.parent[at]);
  const boxes = above.map((node, level) => ({ node, level, x: 0, width, above: true }));
  if (sum[graph.root] === 0) return boxes;
  const todo = [{ node: graph.root, level: above.length, x: 0, width, above: false }];
  const scale = width / sum[graph.root];
  while (todo.length > 0) {
    const box = todo.pop();
    boxes.push(box);
    let x = box.x;
    for (const child of graph.children[box.node]) {
      const wide = sum[child] * scale;
      if (wide >= flame.least) {
        todo.push({ node: child, level: box.level + 1, x, width: wide, above: false });
      }
      x += wide;
    }
  }
  return boxes;
}

/** A colour for a name: a hue for each module, a shade for each function. */
function colourOf(number, dark) {
  const cache = dark ? colourOf.dark : colourOf.light;
  if (cache.has(number)) return cache.get(number);
  const hash = (text) => {
    let value = 2166136261;
    for (let i = 0; i < text.length; i += 1) value = Math.imul(value ^ text.charCodeAt(i), 16777619);
    return (value >>> 8) / 16777216;
  };
  const name = data.names[number];
  const hue = 165 + 150 * hash(name.module || "none") + 50 * (hash(name.short) - 0.5);
  const light = (dark ? 34 : 70) + 12 * (hash(`${name.short}.`) - 0.5);
  const colour = `hsl(${hue.toFixed(0)} ${dark ? 42 : 62}% ${light.toFixed(0)}%)`;
  cache.set(number, colour);
  return colour;
}
colourOf.dark = new Map();
colourOf.light = new Map();

function drawFlames(canvas, graph) {
  const width = canvas.parentNode.clientWidth;
  const boxes = layOut(graph, width);
  const rows = boxes.reduce((most, box) => Math.max(most, box.level), 0) + 1;
  const height = rows * flame.row;
  const ratio = devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  const to = canvas.getContext("2d");
  to.scale(ratio, ratio);
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const style = getComputedStyle(document.documentElement);
  const [ink, rest] = ["--ink", "--rest"].map((name) => style.getPropertyValue(name));
  to.font = `12px ${style.getPropertyValue("--mono")}`;
  to.textBaseline = "middle";
  const searched = searchedNames();
  const letter = to.measureText("m").width;
  for (const box of boxes) {
    const number = graph.name[box.node];
    const y = box.level * flame.row;
    to.globalAlpha = box.above ? 0.45 : searched && !searched[number] ? 0.3 : 1;
    to.fillStyle = number < 0 || box.node === 0 ? rest : searched?.[number] ? "#f2992e" : colourOf(number, dark);
    to.fillRect(box.x, y, Math.max(0.4, box.width - (box.width > 3 ? 1 : 0)), flame.row - 1);
    if (box.node === flame.hovered) {
      to.globalAlpha = 1;
      to.strokeStyle = ink;
      to.strokeRect(box.x + 0.5, y + 0.5, Math.max(1, box.width - 2), flame.row - 2);
    }
    const room = Math.floor((box.width - 8) / letter);
    if (room < 2) continue;
    const text = named(number).short;
    to.globalAlpha = box.above || (searched && !searched[number]) ? 0.7 : 1;
    to.fillStyle = searched?.[number] ? "#1b1203" : ink;
    to.fillText(text.length <= room ? text : `${text.slice(0, room - 1)}…`, box.x + 4,
      y + flame.row / 2);
  }
  to.globalAlpha = 1;
  flame.boxes = boxes;
}

function boxAt(canvas, event) {
  const frame = canvas.getBoundingClientRect();
  const [x, y] = [event.clientX - frame.left, event.clientY - frame.top];
  const level = Math.floor(y / flame.row);
  return flame.boxes.find((box) => box.level === level && x >= box.x && x < box.x + box.width);
}

function boxLines(graph, node) {
  const name = named(graph.name[node]);
  const where = place(name);
  const rows = data.measures.map((measure, m) => {
    const total = graph.sums[m][node];
    const cell = (text) => element("td", {}, text);
    return element("tr", { class: m === state.measure ? "chosen" : null }, cell(words(m)),
      cell(amount(m, total)), cell(percent(total, graph.sums[m][0])),
      cell(graph.own[m][node] > 0 ? `${amount(m, graph.own[m][node])} itself` : ""));
  });
  return [element("b", {}, wholeName(name)),
    where === "" ? null : element("div", { class: "soft" }, where), element("table", {}, ...rows)];
}

/** How much goes through what is searched for, nothing counted twice. */
function foundText(graph) {
  const searched = searchedNames();
  if (!searched) return "";
  const sum = graph.sums[state.measure];
  const inside = new Uint8Array(graph.parent.length);
  let value = 0;
  for (let i = 0; i < graph.parent.length; i += 1) {
    const below = i > 0 && inside[graph.parent[i]] === 1;
    const hit = graph.name[i] >= 0 && searched[graph.name[i]];
    if (hit && !below) value += sum[i];
    inside[i] = hit || below ? 1 : 0;
  }
  const more = graph.name.some((number) => number < 0) ? "at least " : "";
  return `found: ${more}${amount(state.measure, value)}, ${percent(value, sum[0])}`;
}
