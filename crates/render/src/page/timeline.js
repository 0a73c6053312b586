// The chart of live and resident bytes over time, with windows, marks and the allocation rate.

const chart = { height: 180, rate: 40, left: 72, right: 14, top: 22, gap: 22 };

function timeline(section) {
  const { head } = shown.model;
  const { time_ns: times } = head.timeline;
  section.replaceChildren();
  chart.watch?.disconnect();
  timeline.draw = null;
  section.append(element("div", { class: "row" }, element("h2", {}, "Over time")));
  if (times.length < 2) {
    const why = "The program ended before the second sample of its memory was taken.";
    section.append(element("p", { class: "soft" }, why));
    return;
  }
  const series = seriesOf(head);
  const svg = element("svg", { id: "chart", role: "application", tabindex: 0,
    "aria-roledescription": "chart", "aria-label": `Memory over time, ${duration(head.duration_ns)
    }. Arrow keys move, with Shift they choose a range, Enter shows it.` });
  const names = element("p", { class: "row small", id: "areas" });
  const choices = areaChoices();
  section.firstChild.append(...series.map(legendOf), choices.group, windowChoice() ?? "");
  section.append(names, svg, element("p", { id: "range", class: "soft small" }));
  const draw = () => {
    choices.show(names);
    drawChart(svg, series);
  };
  chart.watch = new ResizeObserver(draw);
  chart.watch.observe(section);
  timeline.draw = draw;
  draw();
}

/** Returns a button that shows or hides a line of the chart. */
function legendOf(one) {
  const line = element("i", { style: `background: var(--${one.colour})` });
  const isShown = () => String(one.shown);
  const button = element("button", { type: "button", class: "legend", "aria-pressed": isShown() }, line,
    one.name);
  button.addEventListener("click", () => {
    one.shown = !one.shown;
    button.setAttribute("aria-pressed", isShown());
    timeline.draw();
  });
  return button;
}

/** Returns the list of windows, of which one can be selected as the range. */
function windowChoice() {
  const { windows } = shown.model.head;
  if (windows.length === 0) return null;
  const option = ({ name, begin_ns: begin, end_ns: end }, i) => element("option", { value: i },
    `${name}, ${duration(begin)} for ${duration(end - begin)}`);
  const select = element("select", { "aria-label": "Range of a window", change: () => {
    const window = windows[select.value];
    select.selectedIndex = 0;
    chooseWindow(window);
  } }, element("option", { value: "" }, "windows"), ...windows.map(option));
  return select;
}

function chooseWindow({ begin_ns: from, end_ns: to }) {
  if (from < to) change({ from, to });
}

function seriesOf({ timeline: samples, totals }) {
  const most = (values) => values.reduce((a, b) => Math.max(a, b), 0);
  const live = { name: "live", colour: "live", values: samples.live_bytes, shown: true, area: true };
  // At the scale of resident memory, the heap of a small program would be a flat line.
  const peak = Math.max(most(live.values), totals.peak_bytes);
  const resident = {
    name: "resident", colour: "resident", values: samples.resident_bytes, area: false,
    shown: most(samples.resident_bytes) <= 4 * peak,
  };
  return most(resident.values) === 0 ? [live] : [live, resident];
}

/** Returns round numbers below a limit: steps of 1, 2 or 5, for bytes in powers of two. */
function ticks(limit, wanted, base) {
  const rough = limit / wanted;
  const power = base ** Math.floor(Math.log(rough) / Math.log(base));
  const steps = base === 1024 ? [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024] : [1, 2, 5, 10];
  const step = (steps.find((step) => step * power >= rough) ?? base) * power;
  const all = [];
  for (let at = 0; at <= limit * 1.0001; at += step) all.push(at);
  return all;
}

function drawChart(svg, series) {
  const { head } = shown.model;
  const width = Math.max(320, svg.parentNode.clientWidth - 32);
  const times = head.timeline.time_ns;
  const end = Math.max(head.duration_ns, times[times.length - 1], 1);
  const lines = series.filter((one) => one.shown);
  const areas = areasShown();
  const known = [...lines.map((one) => one.values), ...(areas ? [areas.layers.at(-1).to] : [])];
  const highest = known.flat().reduce((a, b) => Math.max(a, b), 1);
  const top = Math.max(highest, series[0].shown ? head.totals.peak_bytes : 1) * 1.06;
  const bottom = chart.top + chart.height;
  const height = bottom + chart.gap + chart.rate + 22;
  const x = (time) => chart.left + (time / end) * (width - chart.left - chart.right);
  const y = (value) => bottom - (value / top) * chart.height;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("height", height);
  svg.replaceChildren(
    ...drawnAreas(areas, x, y), ...grid(x, y, width, bottom, height, end, top),
    ...drawnWindows(x, bottom), ...drawnRange(x, bottom),
    ...lines.flatMap((one) => drawnSeries(one, times, x, y, bottom)), ...drawnPeak(x, y, series),
    ...drawnRate(x, bottom + chart.gap, end), ...drawnMarks(x, bottom),
  );
  listenToChart(svg, { x, y, lines, height, end, times });
  rangeText();
}

/** Returns the selected range. */
function drawnRange(x, bottom) {
  if (state.from === null || state.to === null) return [];
  const [left, right] = [x(state.from), x(state.to)];
  return [element("rect", { x: left, width: Math.max(1, right - left), y: chart.top,
    height: bottom - chart.top + chart.gap + chart.rate, class: "range" })];
}

/** Shows the selected range below the chart, with a button that removes it. */
function rangeText() {
  const line = byId("range");
  if (state.from === null || state.to === null) {
    const window = shown.model.head.windows.length > 0 ? ", or click a window" : "";
    line.replaceChildren(`Drag over the chart to choose a range of time${window}.`);
    return;
  }
  const { timeline: samples } = shown.model.head;
  const at = (time) => {
    const next = samples.time_ns.findIndex((t) => t > time);
    return next < 0 ? samples.time_ns.length - 1 : Math.max(0, next - 1);
  };
  const [first, last] = [at(state.from), at(state.to)];
  const grown = samples.live_bytes[last] - samples.live_bytes[first];
  const isExact = shown.model.exact === "trace";
  const made = isExact ? shown.model.head.totals.allocations
    : samples.allocations[last] - samples.allocations[first];
  const { model } = shown;
  const exact = { trace: "Below is what was allocated in it, from the trace.",
    snapshots: `Below is what was allocated from ${duration(model.from ?? 0)} to ${
      duration(model.to ?? 0)}: between snapshots.` }[model.exact]
    ?? "Flame graph and tables are of the whole run.";
  line.replaceChildren(
    element("b", {}, `${duration(state.from)} to ${duration(state.to)}`),
    ` (${duration(state.to - state.from)}): live ${grown < 0 ? "−" : "+"}${bytes(Math.abs(grown))}, ${
      counted(Math.max(0, made), "allocation")}. ${exact} `,
    element("button", { type: "button", class: "plain small",
      click: () => change({ from: null, to: null }) }, "Whole run"));
}

function grid(x, y, width, bottom, height, end, top) {
  const line = (attributes) => element("line", { stroke: "var(--line)", ...attributes });
  const parts = [];
  for (const value of ticks(top, 5, 1024)) {
    parts.push(line({ x1: chart.left, x2: width - chart.right, y1: y(value), y2: y(value) }));
    const at = { x: chart.left - 8, y: y(value) + 4, "text-anchor": "end" };
    parts.push(element("text", at, value === 0 ? "0" : bytes(value)));
  }
  for (const time of ticks(end, Math.max(3, Math.floor(width / 130)), 10)) {
    const at = { x: x(time), y: height - 4, "text-anchor": time === 0 ? "start" : "middle" };
    parts.push(line({ x1: x(time), x2: x(time), y1: bottom, y2: bottom + 4 }));
    if (x(time) < width - 24) parts.push(element("text", at, duration(time)));
  }
  return parts;
}

function drawnSeries(one, times, x, y, bottom) {
  const samples = times.map((time, i) => [time, one.values[i]]);
  const known = one.area ? [...samples, ...knownOf(samples)].sort((a, b) => a[0] - b[0]) : samples;
  const drawn = one.area ? stepsOf(known) : known;
  const points = drawn.map(([time, value]) => `${x(time).toFixed(1)},${y(value).toFixed(1)}`);
  const colour = `var(--${one.colour})`;
  const parts = [];
  if (one.area && areaKind() === "none") {
    const [first, last] = [x(known[0][0]), x(known[known.length - 1][0])];
    const d = `M${first},${bottom}L${points.join("L")}L${last},${bottom}Z`;
    parts.push(element("path", { d, fill: colour, "fill-opacity": 0.16 }));
  }
  const looks = { fill: "none", stroke: colour, "stroke-width": 1.6, "stroke-linejoin": "round" };
  parts.push(element("path", { d: `M${points.join("L")}`, ...looks }));
  return parts;
}

/** Returns points of steps: each value holds until the next one. */
function stepsOf(points) {
  return points.flatMap(([time, value], i) => i === 0 ? [[time, value]] : [[time, points[i - 1][1]], [time, value]]);
}

/** Returns live bytes that are known in addition to samples: the peak, and the end unless the
 * counts cover only a part. */
function knownOf(samples) {
  const known = [[shown.model.head.peak_time_ns, shown.model.head.totals.peak_bytes]];
  const whole = !shown.model.head.facts.some(([name]) => name === "counts");
  const later = samples[samples.length - 1][0] < shown.model.head.duration_ns;
  if (whole && later) known.push([shown.model.head.duration_ns, shown.model.head.totals.live_bytes]);
  return shown.model.head.totals.peak_bytes > 0 ? known : [];
}

// Pixels that the label of the peak needs at most.
const PEAK_WIDTH = 110;

function drawnPeak(x, y, [live]) {
  if (!live.shown || shown.model.head.totals.peak_bytes === 0) return [];
  const [at, height] = [x(shown.model.head.peak_time_ns), y(shown.model.head.totals.peak_bytes)];
  const late = x(shown.model.head.duration_ns) - at < PEAK_WIDTH;
  const text = { x: at + (late ? -8 : 8), y: height - 6, "text-anchor": late ? "end" : "start" };
  return [
    element("circle", { cx: at, cy: height, r: 3.5, fill: "var(--peak)" }),
    element("text", { ...text, style: "fill: var(--peak); font-weight: 600" },
      `peak ${bytes(shown.model.head.totals.peak_bytes)}`),
  ];
}

function drawnWindows(x, bottom) {
  return shown.model.head.windows.flatMap((window) => {
    const [left, right] = [x(window.begin_ns), x(window.end_ns)];
    const wide = Math.max(1.5, right - left);
    const box = { x: left, y: chart.top, width: wide, height: bottom - chart.top };
    const name = chartTextWidth(window.name) + 8 < wide ? [element("text",
      { x: left + 4, y: chart.top + 12 }, window.name)] : [];
    return [element("rect", { ...box, fill: "var(--window)", class: "window" },
      element("title", {}, `window ${window.name}`)), ...name];
  });
}

/** Draws marks as lines, with names where there is room: right of their lines, or left of them near
 * the end. */
function drawnMarks(x, bottom) {
  const end = x(shown.model.head.duration_ns) + chart.right;
  let free = 0;
  return shown.model.head.marks.flatMap((mark) => {
    const at = x(mark.time_ns);
    const line = element("line", {
      x1: at, x2: at, y1: chart.top - 4, y2: bottom, stroke: "var(--soft)",
      "stroke-dasharray": "3 3", class: "mark",
    });
    const name = shortened(mark.name, 34);
    const wide = chartTextWidth(name);
    const late = at + wide > end;
    const left = late ? at - wide : at;
    if (left < free) return [line];
    free = left + wide + 10;
    const anchor = late ? "end" : "start";
    return [line, element("text", { x: at, y: chart.top - 8, "text-anchor": anchor }, name)];
  });
}

/** Returns the width of a text in the chart, in pixels. */
function chartTextWidth(text) {
  chart.pen ??= document.createElement("canvas").getContext("2d");
  chart.pen.font = `11px ${getComputedStyle(document.body).fontFamily}`;
  return chart.pen.measureText(text).width;
}

/** Draws allocations per second as bars. */
function drawnRate(x, top, end) {
  const { time_ns: times, allocations } = shown.model.head.timeline;
  const columns = 160;
  const rates = new Array(columns).fill(0);
  for (let i = 1; i < times.length; i += 1) {
    const made = Math.max(0, allocations[i] - allocations[i - 1]);
    const [from, to] = [times[i - 1], times[i]].map((time) => (time / end) * columns);
    const [first, last] = [Math.floor(from), Math.min(columns - 1, Math.floor(to))];
    for (let column = first; column <= last; column += 1) {
      const inside = Math.min(to, column + 1) - Math.max(from, column);
      rates[column] += made * (to > from ? inside / (to - from) : 1);
    }
  }
  const most = rates.reduce((a, b) => Math.max(a, b), 0);
  if (most === 0) return [];
  const second = (made) => made / (end / columns / 1e9);
  const wide = (x(end) - x(0)) / columns;
  const bars = rates.map((made, column) => element("rect", {
    x: x(0) + column * wide + 0.4, width: Math.max(0.6, wide - 0.8), fill: "var(--rate)",
    y: top + chart.rate - (made / most) * chart.rate, height: (made / most) * chart.rate,
    "fill-opacity": 0.75,
  }));
  const most_text = `${shortCount(Math.round(second(most)))}/s`;
  return [...bars,
    element("text", { x: chart.left - 8, y: top + 9, "text-anchor": "end" }, most_text),
    element("text", { x: chart.left - 8, y: top + 22, "text-anchor": "end" }, "allocs")];
}

