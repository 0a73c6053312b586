// The chart of live and resident bytes over time, with windows, marks and the rate of allocations.

const chart = { height: 230, rate: 46, left: 72, right: 14, top: 22, gap: 22 };

function timeline(section) {
  const { time_ns: times } = data.timeline;
  section.append(element("div", { class: "row" }, element("h2", {}, "Over time")));
  if (times.length < 2) {
    const why = "The program ended before the second sample of its memory was taken.";
    section.append(element("p", { class: "soft" }, why));
    return;
  }
  const series = seriesOf(data.timeline);
  const svg = element("svg", { id: "chart", role: "img", "aria-label": "Memory over time" });
  const draw = () => drawChart(svg, series);
  const legend = series.map((one) => {
    const line = element("i", { style: `background: var(--${one.colour})` });
    const button = element("button", { type: "button", class: "legend", "aria-pressed": String(one.shown) },
      line, one.name);
    button.addEventListener("click", () => {
      one.shown = !one.shown;
      button.setAttribute("aria-pressed", one.shown);
      draw();
    });
    return button;
  });
  section.firstChild.append(...legend);
  section.append(svg);
  new ResizeObserver(draw).observe(section);
  draw();
}

function seriesOf(samples) {
  const most = (values) => values.reduce((a, b) => Math.max(a, b), 0);
  const live = { name: "live", colour: "live", values: samples.live_bytes, shown: true, area: true };
  // Beside what is resident, the heap of a small program would be a line on the ground.
  const peak = Math.max(most(live.values), data.totals.peak_bytes);
  const resident = {
    name: "resident", colour: "resident", values: samples.resident_bytes, area: false,
    shown: most(samples.resident_bytes) <= 4 * peak,
  };
  return most(resident.values) === 0 ? [live] : [live, resident];
}

/** Round numbers below a limit: steps of 1, 2 or 5, for bytes in powers of two. */
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
  const width = Math.max(320, svg.parentNode.clientWidth - 32);
  const times = data.timeline.time_ns;
  const end = Math.max(data.duration_ns, times[times.length - 1], 1);
  const shown = series.filter((one) => one.shown);
  const highest = shown.flatMap((one) => one.values).reduce((a, b) => Math.max(a, b), 1);
  const top = Math.max(highest, series[0].shown ? data.totals.peak_bytes : 1) * 1.06;
  const bottom = chart.top + chart.height;
  const height = bottom + chart.gap + chart.rate + 22;
  const x = (time) => chart.left + (time / end) * (width - chart.left - chart.right);
  const y = (value) => bottom - (value / top) * chart.height;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("height", height);
  svg.replaceChildren(
    ...grid(x, y, width, bottom, height, end, top), ...drawnWindows(x, bottom),
    ...shown.flatMap((one) => drawnSeries(one, times, x, y, bottom)), ...drawnPeak(x, y, series),
    ...drawnRate(x, bottom + chart.gap, end), ...drawnMarks(x, bottom),
  );
  hover(svg, x, y, shown, height, end);
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
  const points = known.map(([time, value]) => `${x(time).toFixed(1)},${y(value).toFixed(1)}`);
  const colour = `var(--${one.colour})`;
  const parts = [];
  if (one.area) {
    const [first, last] = [x(known[0][0]), x(known[known.length - 1][0])];
    const d = `M${first},${bottom}L${points.join("L")}L${last},${bottom}Z`;
    parts.push(element("path", { d, fill: colour, "fill-opacity": 0.16 }));
  }
  const looks = { fill: "none", stroke: colour, "stroke-width": 1.6, "stroke-linejoin": "round" };
  parts.push(element("path", { d: `M${points.join("L")}`, ...looks }));
  return parts;
}

/** What is known of live bytes beside the samples: the peak, and the end where all is of one run. */
function knownOf(samples) {
  const known = [[data.peak_time_ns, data.totals.peak_bytes]];
  const whole = !data.facts.some(([name]) => name === "figures");
  const later = samples[samples.length - 1][0] < data.duration_ns;
  if (whole && later) known.push([data.duration_ns, data.totals.live_bytes]);
  return data.totals.peak_bytes > 0 ? known : [];
}

function drawnPeak(x, y, [live]) {
  if (!live.shown || data.totals.peak_bytes === 0) return [];
  const [at, height] = [x(data.peak_time_ns), y(data.totals.peak_bytes)];
  const late = data.peak_time_ns > data.duration_ns * 0.75;
  const text = { x: at + (late ? -8 : 8), y: height - 6, "text-anchor": late ? "end" : "start" };
  return [
    element("circle", { cx: at, cy: height, r: 3.5, fill: "var(--peak)" }),
    element("text", { ...text, style: "fill: var(--peak); font-weight: 600" },
      `peak ${bytes(data.totals.peak_bytes)}`),
  ];
}

function drawnWindows(x, bottom) {
  return data.windows.flatMap((window) => {
    const [left, right] = [x(window.begin_ns), x(window.end_ns)];
    const wide = Math.max(1.5, right - left);
    const box = { x: left, y: chart.top, width: wide, height: bottom - chart.top };
    const name = window.name.length * 6.2 < wide ? [element("text",
      { x: left + 4, y: chart.top + 12 }, window.name)] : [];
    return [element("rect", { ...box, fill: "var(--window)", class: "window" }), ...name];
  });
}

/** Marks as lines, and the names of those that have room. */
function drawnMarks(x, bottom) {
  let free = 0;
  return data.marks.flatMap((mark) => {
    const at = x(mark.time_ns);
    const line = element("line", {
      x1: at, x2: at, y1: chart.top - 4, y2: bottom, stroke: "var(--soft)",
      "stroke-dasharray": "3 3", class: "mark",
    });
    if (at < free) return [line];
    const wide = mark.name.length * 6.4;
    free = at + wide + 10;
    const late = at + wide > x(data.duration_ns) + chart.right;
    const anchor = late ? "end" : "start";
    return [line, element("text", { x: at, y: chart.top - 8, "text-anchor": anchor }, mark.name)];
  });
}

/** Allocations a second, as bars of the columns of the chart. */
function drawnRate(x, top, end) {
  const { time_ns: times, allocations } = data.timeline;
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

/** What was at a moment, beside the pointer. */
function hover(svg, x, y, shown, height, end) {
  const times = data.timeline.time_ns;
  const line = element("line", { y1: chart.top, y2: height - 18, stroke: "var(--ink)",
    "stroke-opacity": 0.5, visibility: "hidden" });
  const dots = shown.map((one) => element("circle",
    { r: 3.5, fill: `var(--${one.colour})`, visibility: "hidden" }));
  svg.append(line, ...dots);
  svg.onpointermove = (event) => {
    const box = svg.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
    const time = ((at - x(0)) / (x(end) - x(0))) * end;
    let nearest = 0;
    times.forEach((t, i) => {
      if (Math.abs(t - time) < Math.abs(times[nearest] - time)) nearest = i;
    });
    line.setAttribute("x1", x(times[nearest]));
    line.setAttribute("x2", x(times[nearest]));
    dots.forEach((dot, i) => {
      dot.setAttribute("cx", x(times[nearest]));
      dot.setAttribute("cy", y(shown[i].values[nearest]));
    });
    [line, ...dots].forEach((part) => part.setAttribute("visibility", "visible"));
    showTip(event, ...momentLines(nearest, time, shown));
  };
  svg.onpointerleave = () => {
    [line, ...dots].forEach((part) => part.setAttribute("visibility", "hidden"));
    hideTip();
  };
}

function momentLines(index, time, shown) {
  const row = (name, value) => element("div", {}, `${name}: `, element("b", {}, value));
  const near = data.duration_ns / 150;
  const windows = data.windows.filter((w) => w.begin_ns - near <= time && time <= w.end_ns + near);
  const marks = data.marks.filter((mark) => Math.abs(mark.time_ns - time) <= near);
  return [
    row("at", duration(data.timeline.time_ns[index])),
    ...shown.map((one) => row(one.name, bytes(one.values[index]))),
    row("allocations so far", count(data.timeline.allocations[index])),
    ...windows.map((w) => row(`window ${w.name}`,
      `${count(w.allocations)} allocations, live ${bytes(w.live_bytes)}, peak ${bytes(w.peak_bytes)}`)),
    ...marks.map((mark) => row(`mark ${mark.name}`, bytes(mark.live_bytes))),
  ];
}
