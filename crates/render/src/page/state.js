// The state of the page, which is kept in the address, so that a reload or a shared link shows the
// same.

/** The parameters of the address, with their defaults and how they are parsed. */
const settings = {
  process: [null, Number], snapshot: [null, Number], compare: [null, String],
  measure: [null, String], view: ["calls", String], pair: ["merged", String], by: ["", String], zoom: ["", String],
  search: ["", String], table: [null, String], sort: ["own", String], order: ["falling", String],
  columns: [null, String], focus: ["", String], hide: ["", String], own: ["", String],
  thread: ["", String], scope: ["", String], label: ["", String], type: ["", String],
  areas: [null, String], from: [null, Number], to: [null, Number], filter: ["", String], q: ["", String],
};

const state = {};
const listeners = [];
/** The displayed process, and the one it is compared with: models, or null. Whether both show the
 * heap only, because one of them would. */
const shown = { model: null, other: null, onlyHeap: false };

function stateFromAddress() {
  const words = new URLSearchParams(location.hash.slice(1));
  for (const [name, [usual, read]] of Object.entries(settings)) {
    const word = words.get(name);
    state[name] = word === null ? usual : read(word);
    if (Number.isNaN(state[name])) state[name] = usual;
  }
}

function stateToAddress() {
  const words = new URLSearchParams();
  for (const [name, [usual]] of Object.entries(settings)) {
    if (state[name] !== usual && state[name] !== null) words.set(name, state[name]);
  }
  const hash = words.toString();
  // Browsers may forbid this in a frame.
  try {
    history.replaceState(null, "", hash === "" ? location.pathname + location.search : `#${hash}`);
  } catch { /* it works without */ }
}

/** Registers a function that is called whenever the state changes. */
function onChange(listener) {
  listeners.push(listener);
}

function change(news) {
  Object.assign(state, news);
  stateToAddress();
  for (const listener of listeners) listener(news);
}

/** Returns the index of the displayed metric. */
function measureShown() {
  const { measures, first } = shown.model.head;
  const named = (name) => measures.findIndex((measure) => measure.name === name);
  const usable = (m) => m >= 0 && measures[m].total > 0;
  const wanted = [named(state.measure), named(first), ...measures.keys()];
  return wanted.find(usable) ?? 0;
}

/** Returns the selected sites of a model. */
function selectionOf(model) {
  return model.select(state);
}

/** Returns the names of hidden functions. */
function hidden() {
  return state.hide === "" ? [] : state.hide.split("\n");
}

const wordsOf = {
  at_peak_bytes: "at peak", live_bytes: "live at the end", usable_bytes: "allocated bytes",
  allocations: "allocations", temporary: "temporary", at_peak_blocks: "blocks at peak",
  live_blocks: "live blocks", requested_bytes: "requested bytes",
  cross_thread_frees: "freed by others",
};

function words(m) {
  const { name } = shown.model.measures[m];
  return name === "live_bytes" && isRunning() ? "live now" : wordsOf[name] ?? name;
}

/** Returns whether the displayed process was still running when it was read. */
function isRunning() {
  return shown.model.head.facts.some(([name, value]) => name === "ended" && value.startsWith("still"));
}

/** Formats a value of a metric. */
function amount(m, value) {
  return shown.model.measures[m].bytes ? bytes(value) : shortCount(value);
}

/** Formats a value of a metric without rounding. */
function exactly(m, value) {
  return shown.model.measures[m].bytes ? `${count(value)} bytes` : count(value);
}

/** Formats a difference with its sign. */
function signed(m, value) {
  const sign = value > 0 ? "+" : value < 0 ? "−" : "±";
  return `${sign}${amount(m, Math.abs(value))}`;
}

/** Returns the test of names for the search text; the same function until the text changes. */
function searchTest() {
  if (searchTest.text !== state.search) {
    searchTest.text = state.search;
    searchTest.test = testFor(state.search);
  }
  return searchTest.test ?? null;
}
