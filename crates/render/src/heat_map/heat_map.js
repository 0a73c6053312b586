"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const isBytes = (metric) => metric.endsWith("bytes");
const all = data.by === "process" ? "processes" : `${data.by}s`;
const element = (id) => document.getElementById(id);

/** Formats a size or count, rounded. */
function amount(metric, value) {
  if (!isBytes(metric)) return Math.round(value).toLocaleString("en");
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  let size = Math.abs(value);
  while (size >= 1024 && unit < units.length - 1) { size /= 1024; unit += 1; }
  const digits = unit === 0 ? 0 : size < 10 ? 2 : size < 100 ? 1 : 0;
  return `${value < 0 ? "-" : ""}${size.toFixed(digits)} ${units[unit]}`;
}

/** Returns the rows of the map: the places as a whole, then their owners. */
function rows() {
  const whole = data.spreads[0];
  const values = data.places.map((place) => place[data.metric]);
  const first = { name: `all: ${data.metric}`, metric: data.metric, median: whole.median, values };
  const owners = data.owners.map((owner) => ({
    name: owner.owner, metric: data.owner_metric, median: owner.median, values: owner.values,
  }));
  return [first, ...owners];
}

const ROW = 22;
const GAP = 10;
const HEAD = 18;
const map = { rows: rows(), order: data.places.map((_, at) => at), row: 0, column: 0 };

/** Returns the deviation of a value from the median, from -1 (far below) to 1 (far above). */
function beside(row, value) {
  if (row.median === 0) return value === 0 ? 0 : 1;
  if (value === 0) return -1;
  return Math.max(-1, Math.min(1, Math.log2(value / row.median) / 2));
}

function mix(from, to, part) {
  const at = (index) => Math.round(from[index] + (to[index] - from[index]) * part);
  return `rgb(${at(0)}, ${at(1)}, ${at(2)})`;
}

function palette() {
  const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
  return isDark
    ? { none: [34, 43, 54], less: [84, 160, 255], more: [255, 118, 84] }
    : { none: [238, 241, 245], less: [24, 98, 190], more: [200, 50, 20] };
}

function colourOf(row, value, colours) {
  if (element("colour").value === "share") {
    const most = row.values.reduce((a, b) => Math.max(a, b), 0);
    return mix(colours.none, colours.more, most === 0 ? 0 : value / most);
  }
  const side = beside(row, value);
  return mix(colours.none, side < 0 ? colours.less : colours.more, Math.abs(side));
}

/** Computes the columns of the map. Several places share a column if there are more places than
 * pixels. */
function layout() {
  const canvas = element("map");
  const width = canvas.parentElement.clientWidth;
  const left = Math.min(320, Math.round(width * 0.34));
  const room = width - left - GAP;
  const share = Math.ceil(map.order.length / room);
  return { width, left: left + GAP, room, share, columns: Math.ceil(map.order.length / share) };
}

/** Returns the place of a column whose value deviates most from the median. */
function placeAt(row, column, share) {
  const places = map.order.slice(column * share, (column + 1) * share);
  const away = (at) => Math.abs(beside(row, row.values[at]));
  return places.reduce((best, at) => (away(at) > away(best) ? at : best), places[0]);
}

function draw() {
  const canvas = element("map");
  const { width, left, room, share, columns } = layout();
  const height = HEAD + map.rows.length * ROW;
  const scale = devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  canvas.style.height = `${height}px`;
  const style = getComputedStyle(document.body);
  const variable = (name) => style.getPropertyValue(name).trim();
  const context = canvas.getContext("2d");
  const colours = palette();
  context.scale(scale, scale);
  context.font = "12px system-ui, sans-serif";
  context.textBaseline = "middle";
  const across = room / columns;
  map.rows.forEach((row, index) => {
    const y = HEAD + index * ROW;
    context.fillStyle = variable("--ink");
    context.fillText(cut(context, row.name, left - GAP), 0, y + ROW / 2);
    for (let column = 0; column < columns; column += 1) {
      context.fillStyle = colourOf(row, row.values[placeAt(row, column, share)], colours);
      const gap = across > 6 ? 1 : 0;
      context.fillRect(left + column * across, y + 1, Math.max(across - gap, 0.5), ROW - 2);
    }
  });
  labels(context, { left, across, columns, share }, variable("--soft"));
  context.strokeStyle = variable("--accent");
  context.lineWidth = 2;
  const x = left + Math.floor(map.column / share) * across;
  context.strokeRect(x, HEAD + map.row * ROW, Math.max(across, 3), ROW);
}

/** Draws as many names of places above the map as fit. */
function labels(context, { left, across, columns, share }, colour) {
  context.fillStyle = colour;
  let free = -Infinity;
  for (let column = 0; column < columns; column += 1) {
    const name = data.places[map.order[column * share]].name;
    const text = name.replace(/^rank /, "");
    const x = left + column * across;
    const wide = context.measureText(text).width;
    if (x < free || x + wide > left + columns * across) continue;
    context.fillText(text, x, HEAD / 2);
    free = x + wide + 12;
  }
}

/** Returns a name that fits, shortened in the middle. */
function cut(context, name, room) {
  if (context.measureText(name).width <= room) return name;
  let [low, high] = [1, name.length];
  const short = (count) => `${name.slice(0, Math.ceil(count / 2))}…${name.slice(-Math.floor(count / 2) || name.length)}`;
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (context.measureText(short(middle)).width <= room) low = middle; else high = middle - 1;
  }
  return short(low);
}

/** Describes the cell under the pointer. */
function tell() {
  const row = map.rows[map.row];
  const at = map.order[map.column];
  const place = data.places[at];
  const value = row.values[at];
  const ratio = row.median > 0 ? `, ${(value / row.median).toFixed(2)} times the median` : "";
  const host = place.host ? ` on ${place.host}` : "";
  const median = amount(row.metric, row.median);
  element("cell").textContent =
    `${place.name}${host}: ${amount(row.metric, value)}${ratio} of ${median} in ${row.name}`;
}

function point(row, column) {
  map.row = Math.max(0, Math.min(map.rows.length - 1, row));
  map.column = Math.max(0, Math.min(map.order.length - 1, column));
  tell();
  draw();
}

function sort() {
  const whole = map.rows[0].values;
  map.order = data.places.map((_, at) => at);
  if (element("order").value === "value") map.order.sort((a, b) => whole[b] - whole[a]);
  draw();
}

function table(id, heads, lines) {
  const make = (tag, text) => Object.assign(document.createElement(tag), { textContent: text });
  const line = (tag, cells) => {
    const row = document.createElement("tr");
    row.append(...cells.map((cell) => make(tag, cell)));
    return row;
  };
  const head = document.createElement("thead");
  head.append(line("th", heads));
  const body = document.createElement("tbody");
  body.append(...lines.map((cells) => line("td", cells)));
  element(id).append(head, body);
}

function tables() {
  const number = (metric, value) => amount(metric, value);
  const byName = new Map(data.places.map((place, at) => [place.name, at]));
  table("spreads", ["median", "lower quartile", "upper quartile", "least", "most", "outlying", "metric, and where most"],
    data.spreads.map((one) => {
      const of = (name) => number(one.metric, data.places[byName.get(name)][one.metric]);
      return [number(one.metric, one.median), number(one.metric, one.lower_quartile),
        number(one.metric, one.upper_quartile), of(one.least_in), of(one.most_in),
        String(one.outlying.length), `${one.metric}, ${one.most_in}`];
    }));
  const outlying = data.spreads[0].outlying;
  element("places-head").textContent =
    outlying.length === 0 ? `No ${data.by} stands out by ${data.metric}` : `Outlying by ${data.metric}`;
  if (outlying.length > 0) {
    table("places", [data.metric, "of median", data.by], outlying.map((name) => {
      const place = data.places[byName.get(name)];
      const median = data.spreads[0].median;
      const ratio = median > 0 ? (place[data.metric] / median).toFixed(2) : "-";
      return [number(data.metric, place[data.metric]), ratio, name + (place.host ? ` on ${place.host}` : "")];
    }));
  }
  table("owners", ["above median", "median", "most", "outlying", "owner, and where most"],
    data.owners.map((one) => [number(data.owner_metric, one.above_median), number(data.owner_metric, one.median),
      number(data.owner_metric, one.values[byName.get(one.most_in)]), String(one.outlying.length),
      `${one.owner}, ${one.most_in}`]));
}

function start() {
  element("title").textContent = JSON.parse(element("name").textContent);
  document.title = `${element("title").textContent}: ${all}`;
  const fact = (text) => Object.assign(document.createElement("span"), { textContent: text });
  element("facts").append(fact(`${data.places.length} ${data.places.length === 1 ? data.by : all}`), fact(`metric: ${data.metric}`));
  element("map-head").textContent = `Owners by ${data.by}`;
  const legend = document.createElement("i");
  const paint = () => {
    const { none, less, more } = palette();
    const isShare = element("colour").value === "share";
    legend.style.background = `linear-gradient(to right, ${mix(isShare ? none : less, none, 0)}, ${mix(none, none, 0)}, ${mix(more, more, 0)})`;
    const [low, high] = isShare ? ["0", "largest of the row"] : ["a quarter of the median", "four times"];
    element("legend").replaceChildren(fact(low), legend, fact(high));
    draw();
  };
  const canvas = element("map");
  canvas.setAttribute("aria-label", `Heat map of ${map.rows.length} rows and ${data.places.length} ${all}`);
  const under = (event) => {
    const box = canvas.getBoundingClientRect();
    const { left, room, share, columns } = layout();
    const column = Math.floor((event.clientX - box.left - left) / (room / columns));
    const row = Math.floor((event.clientY - box.top - HEAD) / ROW);
    if (column < 0 || row < 0 || row >= map.rows.length) return;
    const at = map.order.indexOf(placeAt(map.rows[row], Math.min(column, columns - 1), share));
    point(row, at);
  };
  canvas.addEventListener("pointermove", under);
  canvas.addEventListener("pointerdown", under);
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!step) return;
    event.preventDefault();
    point(map.row + step[0], map.column + step[1]);
  });
  element("colour").addEventListener("change", paint);
  element("order").addEventListener("change", sort);
  new ResizeObserver(draw).observe(canvas.parentElement);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
  tables();
  paint();
}
start();
