// Builds the page: heading, totals, selections, and the parts of the other files.

function card(name, value, exact, more) {
  return element("div", { class: "card", title: exact },
    element("span", {}, name), element("b", {}, value), element("span", {}, more));
}

/** Returns the line below the value of a card; in a comparison, the value before. */
function before(text, more) {
  return shown.other ? `was ${text(shown.other.head.totals)}` : more;
}

function drawTotals() {
  const { head } = shown.model;
  const t = head.totals;
  const size = (n) => `${count(n)} bytes`;
  const slack = Math.max(0, t.usable_bytes - t.requested_bytes);
  const cards = [
    card("Peak", bytes(t.peak_bytes), size(t.peak_bytes),
      before((of) => bytes(of.peak_bytes), `after ${duration(head.peak_time_ns)}`)),
    card(isRunning() ? "Live now" : "Live at the end", bytes(t.live_bytes), size(t.live_bytes),
      before((of) => bytes(of.live_bytes), counted(t.live_blocks, "block"))),
    card("Allocations", count(t.allocations), count(t.allocations),
      before((of) => count(of.allocations), counted(t.frees, "free"))),
    card("Temporary", percent(t.temporary, t.allocations), count(t.temporary),
      before((of) => percent(of.temporary, of.allocations), `${shortCount(t.temporary)} blocks`)),
    card("Allocated", bytes(t.usable_bytes), size(t.usable_bytes),
      before((of) => bytes(of.usable_bytes), `${bytes(t.requested_bytes)} requested`)),
    card("Slack", percent(slack, t.usable_bytes), size(slack), bytes(slack)),
    card("Largest", bytes(t.largest_bytes), size(t.largest_bytes), "one request"),
    card("Freed elsewhere", shortCount(t.cross_thread_frees), count(t.cross_thread_frees),
      "by another thread"),
  ];
  byId("totals").replaceChildren(...cards);
}

function drawHead() {
  const { head } = shown.model;
  const parts = [element("h1", {}, head.title)];
  if (head.mode !== "stacks") {
    const lacks = { scopes: "there are no stacks", counters: "there are no stacks and no scopes" };
    parts.push(element("p", { class: "soft" },
      `Recorded with --mode ${head.mode}: ${lacks[head.mode]}.`));
  }
  if (shown.onlyHeap) {
    parts.push(element("p", { class: "soft", id: "only-heap" }, "Both sides show the heap: what one of "
      + "the programs mapped itself is address space that it did not use."));
  }
  if (shown.other && (head.sampled || shown.other.head.sampled)) {
    parts.push(element("p", { class: "soft" }, "Blocks were sampled: changes of rows may be errors of "
      + "the estimates. heaptide diff shows only those that are none."));
  }
  byId("head").replaceChildren(...parts);
  drawAnswer();
  const loads = server.there ? "This page loads from heaptide view on this machine only."
    : "This page is self-contained.";
  const small = head.small_losses.length > 0 ? ` Losses: ${head.small_losses.join("; ")}.` : "";
  byId("foot").textContent = `Written by heaptide ${head.version}. ${loads}${small}`;
}

/** Draws what holds the memory, the choice of the process, and facts about it. */
function drawAnswer() {
  const { head } = shown.model;
  const fact = ([name, value]) => element("span", {}, `${name} `, element("b", {}, value));
  const parts = [];
  if (head.sentence) {
    // Names are between backticks.
    const texts = head.sentence.split("`");
    const part = (text, i) => (i % 2 === 1 ? element("code", {}, text) : text);
    parts.push(element("p", { id: "sentence" },
      ...(texts.length % 2 === 1 ? texts.map(part) : [head.sentence])));
  }
  if (head.warnings.length > 0) {
    const lines = head.warnings.map((warning) => element("li", {}, warning));
    parts.push(element("ul", { class: "warnings" }, ...lines));
  }
  const subject = server.there ? server.subject() : head.subject;
  if (subject) parts.push(element("p", { class: "facts", id: "subject" }, fact(["subject", subject])));
  parts.push(element("p", { class: "facts" }, ...head.facts.map(fact)));
  const answer = byId("answer");
  answer.hidden = false;
  answer.replaceChildren(...parts);
}

/** Draws the selection of metrics, and the search. */
function drawChoices() {
  const { measures } = shown.model;
  const usual = measures.slice(0, usualColumns);
  const buttons = usual.map((measure, m) => choice(words(m),
    { title: `${measure.name}, ${measure.description}: ${exactly(m, measure.total)}`,
      disabled: measure.total === 0, "aria-pressed": String(m === measureShown()) },
    () => change({ measure: measure.name })));
  const others = element("select", { "aria-label": "More metrics",
    change: (event) => change({ measure: event.target.value }) },
  element("option", { value: "", selected: measureShown() < usualColumns, disabled: true }, "more…"),
  ...measures.slice(usualColumns).map((measure, i) => element("option", { value: measure.name,
    disabled: measure.total === 0, selected: measureShown() === i + usualColumns },
  words(i + usualColumns))));
  const search = byId("search") ?? element("input", { type: "search", id: "search", spellcheck: "false",
    placeholder: "Search functions and scopes", "aria-label": "Search functions and scopes",
    input: (event) => change({ search: event.target.value.trim() }) });
  if (document.activeElement !== search) search.value = state.search;
  const group = element("span", { class: "group", id: "measures" }, ...buttons);
  const row = byId("choices");
  if (search.isConnected) row.replaceChild(group, byId("measures"));
  else row.replaceChildren(group, others, search);
}

/** Draws everything of the displayed process. */
function drawAll() {
  document.title = `${shown.model.head.title} · Heaptide`;
  // Nothing is shown until all parts have their places, so that none of them moves.
  document.querySelector("main").hidden = false;
  byId("foot").hidden = false;
  drawHead();
  drawSources();
  drawTotals();
  owners(byId("owners"));
  timeline(byId("timeline"));
  findings(byId("findings"));
  drawChoices();
  flames(byId("flames"));
  tables(byId("tables"));
  if (!drawAll.hasQueries) queryBox(byId("query"));
  drawAll.hasQueries = true;
}

/** Redraws what a change of the address affects. */
function drawChange(news) {
  const isOf = (...names) => names.some((name) => name in news);
  if (isOf("process", "snapshot", "compare", "filter", "from", "to") && server.there) {
    load();
    return;
  }
  if (isOf("from", "to", "areas")) timeline.draw?.();
  if (Object.keys(news).every((name) => name === "q" || name === "areas")) return;
  if (Object.keys(news).length === 1 && isOf("zoom")) {
    flames.draw?.();
    return;
  }
  drawChoices();
  if (!isOf("sort", "order", "columns", "table")) owners(byId("owners"));
  const isOfTable = isOf("table", "sort", "order", "columns") && !isOf("search");
  if (!isOfTable) flames.draw?.();
  if (isOf("table", "search", "measure")) table.rows = 40;
  tables.draw?.();
}

/** Announces a text to screen readers. */
function say(text) {
  byId("said").textContent = text;
}

function keys() {
  addEventListener("keydown", (event) => {
    const isTyping = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName ?? "");
    if (event.key === "Escape" && menu.hidden && state.zoom !== "") change({ zoom: "" });
    if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      byId("search")?.focus();
    }
  });
}

async function start() {
  stateFromAddress();
  onChange(drawChange);
  keys();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    flame.theme = null;
    flames.draw?.();
  });
  // On screen, a canvas contains only the visible rows; for printing, it contains all.
  for (const [event, isWhole] of [["beforeprint", true], ["afterprint", false]]) {
    addEventListener(event, () => {
      flame.whole = isWhole;
      redrawFlames();
    });
  }
  addEventListener("hashchange", () => {
    const before = { ...state };
    stateFromAddress();
    const news = Object.fromEntries(Object.entries(state).filter(([name, value]) => before[name] !== value));
    if (Object.keys(news).length > 0) drawChange(news);
  });
  try {
    const model = await dataInside();
    if (model === null) {
      await startServer();
    } else {
      shown.model = model;
      drawAll();
    }
  } catch (error) {
    problem(error.message);
    throw error;
  }
}

start();
