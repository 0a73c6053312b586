// Puts the page together: heading, totals, choices, and the parts of the other files.

function card(name, value, exact, more) {
  return element("div", { class: "card", title: exact },
    element("span", {}, name), element("b", {}, value), element("span", {}, more));
}

function totals() {
  const t = data.totals;
  const size = (n) => `${count(n)} bytes`;
  const slack = Math.max(0, t.usable_bytes - t.requested_bytes);
  const cards = [
    card("Peak", bytes(t.peak_bytes), size(t.peak_bytes), `after ${duration(data.peak_time_ns)}`),
    card("Live at the end", bytes(t.live_bytes), size(t.live_bytes),
      counted(t.live_blocks, "block")),
    card("Allocations", count(t.allocations), count(t.allocations), counted(t.frees, "free")),
    card("Temporary", percent(t.temporary, t.allocations), count(t.temporary),
      `${shortCount(t.temporary)} blocks`),
    card("Allocated", bytes(t.usable_bytes), size(t.usable_bytes),
      `${bytes(t.requested_bytes)} requested`),
    card("Slack", percent(slack, t.usable_bytes), size(slack), bytes(slack)),
    card("Largest", bytes(t.largest_bytes), size(t.largest_bytes), "one request"),
    card("Freed elsewhere", shortCount(t.cross_thread_frees), count(t.cross_thread_frees),
      "by another thread"),
  ];
  byId("totals").append(...cards);
}

function head() {
  const fact = ([name, value]) => element("span", {}, `${name} `, element("b", {}, value));
  byId("head").append(element("h1", {}, data.title),
    element("p", { class: "facts" }, ...data.facts.map(fact)));
  if (data.warnings.length > 0) {
    const lines = data.warnings.map((warning) => element("li", {}, warning));
    byId("head").append(element("ul", { class: "warnings" }, ...lines));
  }
  if (data.mode !== "stacks") {
    const lacks = { scopes: "there are no stacks", counters: "there are no stacks and no scopes" };
    byId("head").append(element("p", { class: "soft" },
      `Recorded with --mode ${data.mode}: ${lacks[data.mode]}.`));
  }
  byId("foot").append(`Written by heaptide ${data.version}. This page loads nothing from anywhere.`);
}

function choices() {
  const buttons = data.measures.map((measure, index) => choice(words(index),
    { title: `${measure.name}: ${exactly(index, measure.total)}`, disabled: measure.total === 0 },
    () => change({ measure: index })));
  const search = element("input", { type: "search", id: "search", spellcheck: "false",
    placeholder: "Search functions and scopes", "aria-label": "Search functions and scopes",
    input: (event) => change({ search: testFor(event.target.value.trim()) }) });
  byId("choices").append(element("span", { class: "group" }, ...buttons), search);
  const usable = data.measures.filter((measure) => measure.total > 0);
  const first = usable.find((measure) => measure.name === data.first) ?? usable[0];
  state.measure = Math.max(0, data.measures.indexOf(first));
  onChange(() => buttons.forEach((button, index) =>
    button.setAttribute("aria-pressed", index === state.measure)));
}

head();
totals();
timeline(byId("timeline"));
memoryOverTime(byId("memory"));
choices();
flames(byId("flames"));
tables(byId("tables"));
