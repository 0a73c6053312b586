// The boxes of the flame graph: layout, colours, painting. A pane shows one picture; a comparison
// side by side has two, at the same scale.

/** Returns the widths of nodes in a pane, and the largest width of the zoomed root in any pane. */
function widths(tree, m, side) {
  if (side === "merged") return [tree.width(m), tree.width(m)[flame.root]];
  const [now, before] = [tree.sum(m), tree.sumBefore(m)];
  return [side === "now" ? now : before, Math.max(now[flame.root], before[flame.root])];
}

/** Returns the boxes that are wide enough to draw: the ancestors of the zoomed root, and its
 * descendants. */
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
    // Children are sorted by their width in the merged picture, where they can be wider.
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

/** Returns one box for children that are too narrow to draw. */
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

/** Hashes a text to a number between 0 and 1. */
function hash(text) {
  let value = 2166136261;
  for (let i = 0; i < text.length; i += 1) value = Math.imul(value ^ text.charCodeAt(i), 16777619);
  return (value >>> 8) / 16777216;
}

/** Returns the colour of an item: the hue by module, the shade by function; own code has its own
 * hue. */
function colourOf(number, dark) {
  return (coloursOf(dark)[number] ??= colourOfItem(shown.model.item(number), dark));
}

/** Returns the cached colours, by item. */
function coloursOf(dark) {
  return shown.model.once(dark ? "dark colours" : "light colours", () => []);
}

function colourOfItem(item, dark) {
  const part = hash(item.short);
  const hue = item.own ? 32 + 16 * part
    : 165 + 140 * hash(item.module || item.kind) + 30 * (part - 0.5);
  // Lightness that gives text the contrast required by WCAG AA.
  const light = (dark ? (item.own ? 22 : 26) : 73) + (dark ? 8 : 11) * (hash(`${item.short}.`) - 0.5);
  return hex(Math.round(hue), item.own ? 75 : dark ? 36 : 48, Math.round(light));
}

/** Returns a colour by hue, saturation and lightness in the form that a canvas parses fastest. */
function hex(hue, saturation, light) {
  const most = (saturation / 100) * Math.min(light / 100, 1 - light / 100);
  const part = (n) => {
    const k = (n + hue / 30) % 12;
    const value = light / 100 - most * Math.max(-1, Math.min(k - 3, 9 - k, 1));
    return Math.round(255 * value).toString(16).padStart(2, "0");
  };
  return `#${part(0)}${part(8)}${part(4)}`;
}

/** Returns the colour of a difference, more intense for a larger share of the whole. */
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

/** Returns the colours and the font of the page. */
function theme() {
  const style = getComputedStyle(document.documentElement);
  const [ink, rest, mono] = ["--ink", "--rest", "--mono"].map((name) => style.getPropertyValue(name));
  return { dark: isDark(), ink, rest, font: `12px ${mono}`, letter: 0 };
}

/** Computes the layout of a pane, unless it is up to date. */
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

/** Returns the box of a node in a pane. */
function boxOf(pane, node) {
  pane.places ??= new Map(pane.boxes.filter((box) => box.node >= 0).map((box) => [box.node, box]));
  return pane.places.get(node);
}

/** Paints the visible rows of a pane. The canvas is only as high as these, regardless of the depth
 * of stacks. */
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

/** Returns the context of an empty canvas of this size. */
function prepared(canvas, width, height) {
  const ratio = devicePixelRatio || 1;
  const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
  const to = canvas.getContext("2d");
  if (canvas.width !== wide || canvas.height !== high) {
    // Setting the size clears the canvas and reallocates it. Setting the font looks it up each
    // time.
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

/** Returns the drawing properties that all boxes of a pane share. */
function lookOfBoxes(pane) {
  const look = flame.theme ??= theme();
  look.letter ||= pane.canvas.getContext("2d").measureText("m").width;
  const { tree } = flame;
  const isDifference = shown.other !== null && pane.side === "merged";
  const m = measureShown();
  const known = coloursOf(look.dark);
  const colour = isDifference ? (node) => differenceColour(tree, node, m, look.dark)
    : (node, number) => known[number] ?? colourOf(number, look.dark);
  const searched = shown.model.found(searchTest());
  return { ...look, colour, searched, leads: leadsOf(pane, searched) };
}

/** Returns for each node whether a match below it is not drawn; null without a search. */
function leadsOf(pane, searched) {
  if (!searched) return null;
  const known = pane.leads;
  if (known?.laid === pane.laid && known.searched === searched) return known.nodes;
  const { tree } = flame;
  const sum = tree.sum(measureShown());
  const drawn = new Set(pane.boxes.map((box) => box.node));
  const nodes = new Uint8Array(tree.parent.length);
  // Parents precede their children.
  for (let i = nodes.length - 1; i > 0; i -= 1) {
    const isAway = sum[i] > 0 && tree.item[i] >= 0 && searched[tree.item[i]] && !drawn.has(i);
    if (isAway || nodes[i] === 1) nodes[tree.parent[i]] = 1;
  }
  pane.leads = { laid: pane.laid, searched, nodes };
  return nodes;
}

function drawBox(to, box, { colour, searched, leads, ink, rest, letter }) {
  const number = box.node < 0 ? ROOT - box.branches : flame.tree.item[box.node];
  const hit = searched && number >= 0 && searched[number];
  const isLead = leads !== null && !hit && box.node >= 0 && leads[box.node] === 1;
  const alpha = box.above || isLead ? 0.45 : searched && !hit ? 0.3 : 1;
  if (to.globalAlpha !== alpha) to.globalAlpha = alpha;
  to.fillStyle = hit || isLead ? "#f2992e" : number < 0 ? rest : colour(box.node, number);
  const y = box.level * flame.row;
  to.fillRect(box.x, y, Math.max(0.4, box.width - (box.width > 3 ? 1 : 0)), flame.row - 1);
  const room = Math.floor((box.width - 8) / letter);
  if (room < 2) return;
  const text = itemText(number);
  to.globalAlpha = 1;
  to.fillStyle = hit ? "#1b1203" : ink;
  to.fillText(text.length <= room ? text : `${text.slice(0, room - 1)}…`, box.x + 4, y + flame.row / 2);
}

/** Outlines the hovered box and the one selected by keys. The outlines are elements above the
 * canvas, so nothing is repainted. */
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

/** Returns the text of a box. */
function itemText(number) {
  if (number === ROOT) return "everything";
  if (number >= 0) return shown.model.item(number).short;
  const branches = ROOT - number;
  return branches === 1 ? "… 1 smaller branch" : `… ${count(branches)} smaller branches`;
}

