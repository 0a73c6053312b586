// Pointer and keys in the chart over time: the values at a time, and the selection of a range.

/** Indices of the sample under the cursor, and of the one from which keys extend a range. */
const cursor = { at: null, from: null };

/** Adds listeners for pointer and keys to the chart that was just drawn. */
function listenToChart(svg, view) {
  const shows = cursorOf(svg, view);
  hoverChart(svg, view, shows);
  brush(svg, view);
  svg.onkeydown = (event) => chartKey(event, view, shows);
  svg.onblur = () => {
    Object.assign(cursor, { at: null, from: null });
    shows.hide();
  };
  // A redraw while keys are used keeps the cursor.
  if (cursor.at !== null && document.activeElement === svg) shows.place(cursor.at, cursor.from);
}

/** Adds the cursor: a line at a sample, a dot on each line of the chart, and the range up to it. */
function cursorOf(svg, { x, y, lines, height, times }) {
  const line = element("line", { y1: chart.top, y2: height - 18, stroke: "var(--ink)",
    "stroke-opacity": 0.5 });
  const range = element("rect", { class: "range", y: chart.top, height: chart.height });
  const dots = lines.map((one) => element("circle", { r: 3.5, fill: `var(--${one.colour})` }));
  const all = element("g", { visibility: "hidden" }, range, line, ...dots);
  svg.append(all);
  const place = (at, from) => {
    line.setAttribute("x1", x(times[at]));
    line.setAttribute("x2", x(times[at]));
    dots.forEach((dot, i) => {
      dot.setAttribute("cx", x(times[at]));
      dot.setAttribute("cy", y(lines[i].values[at]));
    });
    const [left, right] = [at, from ?? at].map((i) => x(times[i])).sort((a, b) => a - b);
    range.setAttribute("x", left);
    range.setAttribute("width", right - left);
    all.setAttribute("visibility", "visible");
  };
  return { place, hide: () => all.setAttribute("visibility", "hidden") };
}

/** Returns the time at the pointer. */
function timeAt(svg, { x, end }, event) {
  const box = svg.getBoundingClientRect();
  const at = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
  return Math.min(end, Math.max(0, ((at - x(0)) / (x(end) - x(0))) * end));
}

/** Shows the values at a time beside the pointer. */
function hoverChart(svg, view, shows) {
  const { times, lines } = view;
  svg.onpointermove = (event) => {
    const time = timeAt(svg, view, event);
    const next = times.findIndex((t) => t > time);
    const after = next < 0 ? times.length - 1 : next;
    const isBefore = after > 0 && time - times[after - 1] < times[after] - time;
    const nearest = isBefore ? after - 1 : after;
    shows.place(nearest, null);
    showTip(event, ...momentLines(nearest, time, lines));
  };
  svg.onpointerleave = () => {
    shows.hide();
    hideTip();
  };
}

/** Selects a range by dragging; the page changes when the pointer is released. A click selects the
 * window at the pointer. */
function brush(svg, view) {
  const { x, end } = view;
  const at = (event) => Math.round(timeAt(svg, view, event));
  svg.onpointerdown = (event) => {
    if (event.button !== 0) return;
    const start = at(event);
    const box = element("rect", { class: "range", y: chart.top, height: chart.height });
    const place = (to) => {
      const [left, right] = [x(Math.min(start, to)), x(Math.max(start, to))];
      box.setAttribute("x", left);
      box.setAttribute("width", right - left);
    };
    svg.append(box);
    svg.setPointerCapture(event.pointerId);
    const move = (news) => place(at(news));
    svg.addEventListener("pointermove", move);
    const done = (news) => {
      svg.removeEventListener("pointermove", move);
      box.remove();
      const to = at(news);
      const [from, until] = [Math.min(start, to), Math.max(start, to)];
      const window = windowAt(to, end);
      if (until - from > end / 400) change({ from, to: until });
      else if (window) chooseWindow(window);
    };
    svg.addEventListener("pointerup", done, { once: true });
    svg.addEventListener("pointercancel", () => box.remove(), { once: true });
  };
}

/** Returns the shortest window at a time, with a tolerance of a few pixels; undefined if there is
 * none. */
function windowAt(time, end) {
  const near = end / 300;
  const long = (window) => window.end_ns - window.begin_ns;
  return shown.model.head.windows
    .filter((window) => window.begin_ns - near <= time && time <= window.end_ns + near)
    .sort((a, b) => long(a) - long(b))[0];
}

/** Handles keys: arrows move to the next sample; with Shift they extend a range, which Enter
 * selects. */
function chartKey(event, { times, lines }, shows) {
  const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20, Home: -times.length,
    End: times.length }[event.key];
  if (step !== undefined) {
    const before = cursor.at ?? 0;
    cursor.at = Math.min(times.length - 1, Math.max(0, cursor.at === null && step > 0 ? 0 : before + step));
    cursor.from = event.shiftKey ? cursor.from ?? before : null;
    shows.place(cursor.at, cursor.from);
    say(momentLines(cursor.at, times[cursor.at], lines).map((line) => line.textContent).join(", "));
  } else if (event.key === "Enter" && cursor.from !== null && cursor.from !== cursor.at) {
    const [from, to] = [cursor.from, cursor.at].map((at) => times[at]).sort((a, b) => a - b);
    cursor.from = null;
    change({ from, to });
  } else {
    return;
  }
  event.preventDefault();
}

function momentLines(index, time, lines) {
  const { head } = shown.model;
  const row = (name, value) => element("div", {}, `${name}: `, element("b", {}, value));
  const near = head.duration_ns / 150;
  const windows = head.windows.filter((w) => w.begin_ns - near <= time && time <= w.end_ns + near);
  const marks = head.marks.filter((mark) => Math.abs(mark.time_ns - time) <= near);
  return [
    row("at", duration(head.timeline.time_ns[index])),
    ...lines.map((one) => row(one.name, bytes(one.values[index]))),
    ...areasAt(time).map(([name, value]) => row(name, bytes(value))),
    row("allocations so far", count(head.timeline.allocations[index])),
    ...windows.map((w) => row(`window ${w.name}`,
      `${count(w.allocations)} allocations, live ${bytes(w.live_bytes)}, peak ${bytes(w.peak_bytes)}`)),
    ...marks.map((mark) => row(`mark ${mark.name}`, bytes(mark.live_bytes))),
  ];
}
