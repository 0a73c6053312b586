// Stacked areas in the chart over time: live bytes by owner, or resident memory by kind.

const areaColours = ["#1f6feb", "#7fb0f7", "#9fd4c4", "#5b8a8f", "#f2b134", "#d98324", "#8a63d2",
  "#c3a6ee", "#d1431f", "#0f9d7a", "#8d99a8", "#c9d0d8", "#6b4e00"];
/** Colours of owners: enough for the chart and the bar if they have no owner in common. */
const ownerColours = [...areaColours.slice(0, 10), "#b5487f", "#6b4e00", "#e68fb6", "#3f51a3",
  "#a3b13d", "#7a3b2e", "#4cc0d9", "#d6b98c"];

/** Returns the colours of owners, by the names of rows of the bar: owners of the chart have theirs in
 * its order, and others of the bar follow. */
function coloursOfOwners(others) {
  const inChart = shown.model.head.owners?.owners ?? [];
  const charted = inChart.map(({ function: number }) => number).filter((number) => number !== null);
  const numbers = [...charted, ...others.filter((number) => !charted.includes(number))];
  return new Map(numbers.map((number, i) => [number, ownerColours[i % ownerColours.length]]));
}

/** The kinds of areas: a value of the address, a title and a description. */
const areaKinds = [
  ["none", "Sum", "one line of all live bytes"],
  ["owners", "Owners", "live bytes by the owners with most"],
  ["kinds", "Kinds of memory", "resident memory by what it consists of"],
];

/** Returns the times and parts of a kind of areas; null if the recording does not have them. */
function areasOf(kind) {
  const { owners, memory } = shown.model.head;
  if (kind === "owners" && owners) {
    // The last one represents all others.
    const colours = coloursOfOwners([]);
    const last = owners.owners.length - 1;
    const colour = (one, i) => (i === last ? "var(--rest)" : colours.get(one.function) ?? "var(--soft)");
    return { times: owners.time_ns,
      parts: owners.owners.map((one, i) => ({ ...one, colour: colour(one, i) })) };
  }
  if (kind === "kinds" && memory.time_ns.length > 1) {
    const parts = memory.parts.map((part, i) => ({ ...part, colour: areaColours[i % 13] }));
    return { times: memory.time_ns,
      parts: parts.filter((part) => part.values.some((value) => value > 0)) };
  }
  return null;
}

/** Returns the selected kind of areas, or a default if the recording does not have it. */
function areaKind() {
  const has = (kind) => areasOf(kind) !== null;
  if (state.areas === "none" || has(state.areas)) return state.areas;
  return has("owners") ? "owners" : "none";
}

/** Adds to each part its lower and upper edge: the sums of the parts below it, without and with it. */
function stacked({ times, parts }) {
  let below = times.map(() => 0);
  return parts.map((part) => {
    const from = below;
    below = below.map((sum, i) => sum + part.values[i]);
    return { ...part, from, to: below };
  });
}

/** Returns the areas to draw, as layers; null if there are none. */
function areasShown() {
  const areas = areasOf(areaKind());
  return areas && areas.parts.length > 0 ? { ...areas, layers: stacked(areas) } : null;
}

function drawnAreas(areas, x, y) {
  if (!areas) return [];
  const { times, layers } = areas;
  const at = (value, i) => `${x(times[i]).toFixed(1)},${y(value).toFixed(1)}`;
  // As in the line of live bytes, each value holds until the next one.
  const edge = (values) => stepsOf(values.map((value, i) => [i, value]))
    .map(([i, value]) => at(value, i));
  return layers.map((layer) => {
    const back = edge(layer.from).reverse();
    return element("path", { d: `M${edge(layer.to).join("L")}L${back.join("L")}Z`,
      fill: layer.colour, "fill-opacity": 0.8, class: "area" });
  });
}

/** Returns the buttons that select the areas, and a function that shows the selection and the names
 * of parts. */
function areaChoices() {
  // What a server sends later has its place from the start.
  const isAwaited = (kind) => kind === "owners" && shown.model.head.owners === undefined
    && server.there && awaitsOwners();
  const usable = areaKinds.filter(([kind]) =>
    kind === "none" || areasOf(kind) !== null || isAwaited(kind));
  const buttons = usable.map(([kind, title, meaning]) => choice(title,
    { title: meaning, "data-areas": kind, disabled: isAwaited(kind) }, () => change({ areas: kind })));
  const group = element("span", { class: "group", id: "area-kinds", hidden: usable.length < 2 }, ...buttons);
  const show = (names) => {
    const kind = areaKind();
    buttons.forEach((button) => button.setAttribute("aria-pressed", button.dataset.areas === kind));
    const name = (part) => element("span", { class: "legend", title: part.name },
      element("i", { style: `background: ${part.colour}; height: 10px` }),
      shortened(part.name, 34));
    const parts = areasOf(kind)?.parts ?? [];
    names.hidden = parts.length === 0 && !isAwaited("owners");
    names.replaceChildren(...parts.map(name));
  };
  return { group, show };
}

/** Returns the parts at a time, largest first. */
function areasAt(time) {
  const areas = areasOf(areaKind());
  if (!areas || areas.times.length === 0) return [];
  const next = areas.times.findIndex((t) => t > time);
  const at = next < 0 ? areas.times.length - 1 : Math.max(0, next - 1);
  const pairs = areas.parts.map(({ name, values }) => [name, values[at]]);
  return pairs.filter(([, value]) => value > 0).sort((a, b) => b[1] - a[1]).slice(0, 8);
}
