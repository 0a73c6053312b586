// The boxes of the flame graph: where they are, their colours, and how they are painted. A pane is a
// picture; a comparison side by side has two, of one scale.

/** How wide nodes are in a pane, and what the root of the zoom has in the widest of all panes. */
function widths(tree, m, side) {
  if (side === "merged") return [tree.width(m), tree.width(m)[flame.root]];
  const [now, before] = [tree.sum(m), tree.sumBefore(m)];
  return [side === "now" ? now : before, Math.max(now[flame.root], before[flame.root])];
}

/** The boxes there is room for: those above the root of the zoom, and what grows from it. */
function layOut(tree, m, width, side) {
  const [wide, whole] = widths(tree, m, side);
  const above = [];
  for (let at = flame.root; at !== 0; at = tree.parent[at]) above.unshift(tree.parent[at]);
  const boxes = above.map((node, level) => ({ node, level, x: 0, width, above: true }));
  if (!(wide[flame.root] > 0)) return boxes;
  const order = tree.width(m);
  const scale = width / whole;
  const todo = [{ node: flame.root, level: above.length, x: 0, width: wide[flame.root] * scale,
    above: false }];
  while (todo.length > 0) {
    const box = todo.pop();
    boxes.push(box);
    const children = tree.children(box.node, m);
    const level = box.level + 1;
    let { x } = box;
    let i = 0;
    // The order is that of the merged picture, in which a child may be wider.
    const narrow = [];
    for (; i < children.length && order[children[i]] * scale >= flame.least; i += 1) {
      const room = wide[children[i]] * scale;
      if (room < flame.least) {
        narrow.push(children[i]);
        continue;
      }
      todo.push({ node: children[i], level, x, width: room, above: false });
      x += room;
    }
    const smaller = smallerBox(tree, wide, children.subarray(i), narrow, scale);
    if (smaller.width >= flame.least) boxes.push({ ...smaller, level, x });
  }
  return boxes;
}

/** One box for children that are too narrow to draw. */
function smallerBox(tree, wide, children, narrow, scale) {
  let [value, branches] = [0, 0];
  const add = (node) => {
    value += wide[node];
    if (wide[node] > 0) branches += tree.item[node] < ROOT ? ROOT - tree.item[node] : 1;
  };
  children.forEach(add);
  narrow.forEach(add);
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
  return (coloursOf(dark)[number] ??= colourOfItem(shown.model.item(number), dark));
}

/** The colours that are known by item. */
function coloursOf(dark) {
  return shown.model.once(dark ? "dark colours" : "light colours", () => []);
}

function colourOfItem(item, dark) {
  const part = hash(item.short);
  const hue = item.own ? 32 + 16 * part
    : 165 + 140 * hash(item.module || item.kind) + 30 * (part - 0.5);
  // Dark enough, or light enough, for the contrast of text that WCAG AA asks for.
  const light = (dark ? (item.own ? 22 : 26) : 73) + (dark ? 8 : 11) * (hash(`${item.short}.`) - 0.5);
  return hex(Math.round(hue), item.own ? 75 : dark ? 36 : 48, Math.round(light));
}

/** A colour of hue, saturation and lightness as the canvas reads it fastest. */
function hex(hue, saturation, light) {
  const most = (saturation / 100) * Math.min(light / 100, 1 - light / 100);
  const part = (n) => {
    const k = (n + hue / 30) % 12;
    const value = light / 100 - most * Math.max(-1, Math.min(k - 3, 9 - k, 1));
    return Math.round(255 * value).toString(16).padStart(2, "0");
  };
  return `#${part(0)}${part(8)}${part(4)}`;
}

/** The colour of a difference: the more of the whole it is, the stronger. */
function differenceColour(tree, node, m, dark) {
  const [now, before] = [tree.sum(m), tree.sumBefore(m)];
  const difference = now[node] - before[node];
  const whole = Math.max(now[0], before[0], 1);
  const strength = Math.min(1, Math.sqrt(Math.abs(difference) / whole) * 1.6);
  if (strength < 0.01) return dark ? "#3b4653" : "#c9d0d8";
  const hue = difference > 0 ? 12 : 212;
  const light = dark ? 25 + 10 * strength : 90 - 30 * strength;
  return hex(hue, 30 + 50 * strength, light);
}

function isDark() {
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

/** The colours and the font of the page. */
function theme() {
  const style = getComputedStyle(document.documentElement);
  const [ink, rest, mono] = ["--ink", "--rest", "--mono"].map((name) => style.getPropertyValue(name));
  return { dark: isDark(), ink, rest, font: `12px ${mono}`, letter: 0 };
}

/** Lays out a pane, unless that has been done for the same. */
function layOutPane(pane) {
  const { tree, root } = flame;
  const [m, { width, side }] = [measureShown(), pane];
  const laid = pane.laid;
  if (laid && laid.tree === tree && laid.root === root && laid.m === m && laid.width === width) return;
  pane.laid = { tree, root, m, width };
  pane.boxes = layOut(tree, m, width, side);
  pane.places = null;
  pane.levels = [];
  for (const box of pane.boxes) (pane.levels[box.level] ??= []).push(box);
  pane.levels.forEach((level) => level.sort((a, b) => a.x - b.x));
  pane.sheet.style.height = `${pane.levels.length * flame.row}px`;
}

/** The box of a node in a pane. */
function boxOf(pane, node) {
  pane.places ??= new Map(pane.boxes.filter((box) => box.node >= 0).map((box) => [box.node, box]));
  return pane.places.get(node);
}

/** Paints the rows of a pane that are in view: the canvas is no higher than that, whatever the depth
 * of the stacks is. */
function drawPane(pane) {
  const { canvas, stage } = pane;
  if (!flame.tree || !canvas.isConnected) return;
  layOutPane(pane);
  const all = pane.levels.length * flame.row;
  const height = flame.whole ? all : Math.min(all, flame.highest);
  const top = flame.whole ? 0 : Math.max(0, Math.min(stage.scrollTop, all - height));
  const to = prepared(canvas, pane.width, height);
  to.translate(0, -top);
  const look = lookOfBoxes(pane);
  const last = Math.min(pane.levels.length, Math.ceil((top + height) / flame.row));
  for (let level = Math.floor(top / flame.row); level < last; level += 1) {
    for (const box of pane.levels[level] ?? []) drawBox(to, box, look);
  }
  to.globalAlpha = 1;
  drawOutlines(pane);
}

/** The canvas in this size, empty. */
function prepared(canvas, width, height) {
  const ratio = devicePixelRatio || 1;
  const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
  const to = canvas.getContext("2d");
  if (canvas.width !== wide || canvas.height !== high) {
    // This empties it, and takes memory for it. A font is looked up for each time that it is set.
    canvas.width = wide;
    canvas.height = high;
    canvas.style.height = `${height}px`;
    to.font = (flame.theme ??= theme()).font;
    to.textBaseline = "middle";
  } else {
    to.resetTransform();
    to.clearRect(0, 0, wide, high);
  }
  to.setTransform(ratio, 0, 0, ratio, 0, 0);
  return to;
}

/** What all boxes of a picture share. */
function lookOfBoxes(pane) {
  const look = flame.theme ??= theme();
  look.letter ||= pane.canvas.getContext("2d").measureText("m").width;
  const { tree } = flame;
  const isDifference = shown.other !== null && pane.side === "merged";
  const m = measureShown();
  const known = coloursOf(look.dark);
  const colour = isDifference ? (node) => differenceColour(tree, node, m, look.dark)
    : (node, number) => known[number] ?? colourOf(number, look.dark);
  return { ...look, colour, searched: shown.model.found(searchTest()) };
}

function drawBox(to, box, { colour, searched, ink, rest, letter }) {
  const number = box.node < 0 ? ROOT - box.branches : flame.tree.item[box.node];
  const hit = searched && number >= 0 && searched[number];
  const alpha = box.above ? 0.45 : searched && !hit ? 0.3 : 1;
  if (to.globalAlpha !== alpha) to.globalAlpha = alpha;
  to.fillStyle = number < 0 ? rest : hit ? "#f2992e" : colour(box.node, number);
  const y = box.level * flame.row;
  to.fillRect(box.x, y, Math.max(0.4, box.width - (box.width > 3 ? 1 : 0)), flame.row - 1);
  const room = Math.floor((box.width - 8) / letter);
  if (room < 2) return;
  const text = itemText(number);
  to.globalAlpha = 1;
  to.fillStyle = hit ? "#1b1203" : ink;
  to.fillText(text.length <= room ? text : `${text.slice(0, room - 1)}…`, box.x + 4, y + flame.row / 2);
}

/** Puts frames around the box under the pointer and the one that keys have chosen: elements above the
 * canvas, so that nothing is painted again. */
function drawOutlines(pane) {
  const place = (outline, node) => {
    const box = node === null ? undefined : boxOf(pane, node);
    outline.hidden = box === undefined;
    if (!box) return;
    outline.style.transform = `translate(${box.x}px, ${box.level * flame.row}px)`;
    outline.style.width = `${Math.max(2, box.width - 1)}px`;
  };
  place(pane.hover, flame.hovered);
  place(pane.mark, flame.chosen);
}

/** The text of a box. */
function itemText(number) {
  if (number === ROOT) return "everything";
  if (number >= 0) return shown.model.item(number).short;
  const branches = ROOT - number;
  return branches === 1 ? "1 smaller branch" : `${count(branches)} smaller branches`;
}

