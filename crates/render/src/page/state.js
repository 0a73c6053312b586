// What is shown, which the address keeps: so a reload or a link to somebody else shows the same.

/** The words of the address, what they are without it, and how they are read. */
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
/** The process that is shown, and the one it is compared with: models, or null. */
const shown = { model: null, other: null };

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
  // A page in a frame may not be allowed to.
  try {
    history.replaceState(null, "", hash === "" ? location.pathname + location.search : `#${hash}`);
  } catch { /* it works without */ }
}

/** Calls a function whenever what is shown changes. */
function onChange(listener) {
  listeners.push(listener);
}

function change(news) {
  Object.assign(state, news);
  stateToAddress();
  for (const listener of listeners) listener(news);
}

/** The index of the measure shown. */
function measureShown() {
  const { measures, first } = shown.model.head;
  const named = (name) => measures.findIndex((measure) => measure.name === name);
  const usable = (m) => m >= 0 && measures[m].total > 0;
  const wanted = [named(state.measure), named(first), ...measures.keys()];
  return wanted.find(usable) ?? 0;
}

/** The sites that are shown, of a model. */
function selectionOf(model) {
  return model.select(state);
}

/** Functions that are hidden, by name. */
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

/** Whether the process shown had not ended when it was read. */
function isRunning() {
  return shown.model.head.facts.some(([name, value]) => name === "ended" && value.startsWith("still"));
}

/** A value of a measure. */
function amount(m, value) {
  return shown.model.measures[m].bytes ? bytes(value) : shortCount(value);
}

/** The same to the last byte. */
function exactly(m, value) {
  return shown.model.measures[m].bytes ? `${count(value)} bytes` : count(value);
}

/** A difference, with its sign. */
function signed(m, value) {
  const sign = value > 0 ? "+" : value < 0 ? "−" : "±";
  return `${sign}${amount(m, Math.abs(value))}`;
}

/** The test of names for what is searched for; the same one as long as the text is. */
function searchTest() {
  if (searchTest.text !== state.search) {
    searchTest.text = state.search;
    searchTest.test = testFor(state.search);
  }
  return searchTest.test ?? null;
}
