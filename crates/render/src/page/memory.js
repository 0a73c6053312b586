// The chart of resident memory by what it consists of, as areas on top of each other.

const areas = { height: 230, left: 72, right: 14, top: 12, foot: 22 };
const areaColours = ["#1f6feb", "#7fb0f7", "#9fd4c4", "#5b8a8f", "#f2b134", "#d98324", "#8a63d2",
  "#c3a6ee", "#d1431f", "#0f9d7a", "#8d99a8", "#c9d0d8", "#6b4e00"];

function memoryOverTime(section) {
  const { time_ns: times, parts } = shown.model.head.memory;
  section.replaceChildren();
  areas.watch?.disconnect();
  section.hidden = times.length < 2;
  if (section.hidden) return;
  const svg = element("svg", { id: "memory-chart", role: "img",
    "aria-label": "Resident memory over time" });
  const there = parts.map((part, index) =>
    ({ ...part, colour: areaColours[index % areaColours.length] }))
    .filter((part) => part.values.some((value) => value > 0));
  const legend = there.map((part) => element("span", { class: "legend" },
    element("i", { style: `background: ${part.colour}; height: 10px` }), part.name));
  section.append(element("div", { class: "row" }, element("h2", {}, "Resident memory"), ...legend),
    svg);
  const draw = () => drawAreas(svg, times, there);
  areas.watch = new ResizeObserver(draw);
  areas.watch.observe(section);
  draw();
}

/** For each part the sums up to it, by account, with what lies below. */
function stacked(times, parts) {
  let below = times.map(() => 0);
  return parts.map((part) => {
    const from = below;
    below = below.map((sum, i) => sum + part.values[i]);
    return { ...part, from, to: below };
  });
}

function drawAreas(svg, times, parts) {
  const width = Math.max(320, svg.parentNode.clientWidth - 32);
  const end = Math.max(shown.model.head.duration_ns, times[times.length - 1], 1);
  const layers = stacked(times, parts);
  const top = layers[layers.length - 1].to.reduce((a, b) => Math.max(a, b), 1) * 1.06;
  const bottom = areas.top + areas.height;
  const height = bottom + areas.foot;
  const x = (time) => areas.left + (time / end) * (width - areas.left - areas.right);
  const y = (value) => bottom - (value / top) * areas.height;
  const point = (value, i) => `${x(times[i]).toFixed(1)},${y(value).toFixed(1)}`;
  const drawn = layers.map((layer) => {
    const back = layer.from.map(point).reverse();
    return element("path", { d: `M${layer.to.map(point).join("L")}L${back.join("L")}Z`,
      fill: layer.colour, "fill-opacity": 0.85, class: "area" });
  });
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("height", height);
  svg.replaceChildren(...grid(x, y, width, bottom, height, end, top), ...drawn);
  hoverAreas(svg, x, times, parts, height, end);
}

/** The numbers of the account nearest to the pointer. */
function hoverAreas(svg, x, times, parts, height, end) {
  const line = element("line", { y1: areas.top, y2: height - areas.foot, stroke: "var(--ink)",
    "stroke-opacity": 0.5, visibility: "hidden" });
  svg.append(line);
  const row = (name, value) => element("div", {}, `${name}: `, element("b", {}, value));
  svg.onpointermove = (event) => {
    const box = svg.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
    const time = ((at - x(0)) / (x(end) - x(0))) * end;
    const away = times.map((t) => Math.abs(t - time));
    const nearest = away.indexOf(Math.min(...away));
    line.setAttribute("x1", x(times[nearest]));
    line.setAttribute("x2", x(times[nearest]));
    line.setAttribute("visibility", "visible");
    const all = parts.reduce((sum, part) => sum + part.values[nearest], 0);
    const there = parts.filter((part) => part.values[nearest] > 0).reverse();
    showTip(event, row("at", duration(times[nearest])), row("resident", bytes(all)),
      ...there.map((part) => row(part.name, bytes(part.values[nearest]))));
  };
  svg.onpointerleave = () => {
    line.setAttribute("visibility", "hidden");
    hideTip();
  };
}
