// Functions that need a server: other processes and snapshots, time ranges, running programs,
// queries, source code.

const server = { there: false, recordings: [], control: false, live: true };

/** Returns the address of a request. */
server.address = (what, parameters) => {
  const query = new URLSearchParams({ token: server.token });
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== null && value !== "" && value !== undefined) query.set(name, value);
  }
  return `api/${what}?${query}`;
};

/** Sends a request. Errors have the text of the server's response. */
server.ask = async (what, parameters, options = {}) => {
  let answer;
  try {
    answer = await fetch(server.address(what, parameters), options);
  } catch {
    throw new Error("The server does not answer: `heaptide view` has ended.");
  }
  if (!answer.ok) throw new Error((await answer.text()).trim() || `The server answered with status ${answer.status}.`);
  return answer;
};
server.json = async (what, parameters) => (await server.ask(what, parameters)).json();

/** Requests the data of a process, for a snapshot or a time range. */
server.model = async (parameters) => {
  const answer = await server.ask("data", parameters);
  const model = dataFrom(await answer.arrayBuffer());
  const said = (name) => answer.headers.get(`x-heaptide-${name}`);
  const [from, to] = [said("from"), said("to")].map((ns) => (ns === null ? null : Number(ns)));
  Object.assign(model, { number: Number(said("version")), exact: said("exact"), from, to });
  return model;
};

/** Returns which process of a recording was chosen and why, unless the user chose another one. */
server.subject = () => {
  const has = ({ subject }) => subject && subject.number === state.process;
  return server.recordings.find(has)?.subject.text;
};

/** Returns the filter of the address, and the kind of memory that both sides of a comparison have. */
server.filter = () => `${state.filter}${shown.onlyHeap ? " --kind heap" : ""}`.trim();

/** Returns the parameters that identify the displayed part of the process. */
server.part = () => {
  const { process, snapshot, from, to } = state;
  const filter = server.filter();
  const range = from === null || to === null ? {} : { from, to };
  return { process, snapshot, filter, ...range };
};

/** Returns all processes of all recordings. */
function processes() {
  return server.recordings.flatMap((recording) =>
    recording.processes.map((process) => ({ ...process, recording })));
}

async function startServer() {
  server.there = true;
  server.token = new URLSearchParams(location.search).get("token") ?? "";
  const { recordings, control, version, moments } = await server.json("recordings", {});
  Object.assign(server, { recordings, control, version });
  // On the command line, the recording before comes first.
  const [now, before] = moments.slice(0, 2).reverse();
  if (state.process === null) {
    Object.assign(state, { process: now?.process ?? processes()[0]?.number ?? null,
      snapshot: now?.snapshot ?? null });
    if (before) state.compare = `${before.process}@${before.snapshot ?? ""}`;
  }
  await load();
  watchChanges();
}

/** Loads and draws what the address selects. */
async function load() {
  const number = (load.count = (load.count ?? 0) + 1);
  document.body.classList.add("loading");
  try {
    const [other, moment] = (state.compare ?? "").split("@");
    const both = async () => [await server.model(server.part()), other
      ? await server.model({ process: other, snapshot: moment, filter: server.filter() }) : null];
    shown.onlyHeap = false;
    let [model, before] = await both();
    if (number !== load.count) return;
    // The usual kind of memory depends on the process; a difference of two kinds would mean nothing.
    if (before && model.head.leaves_mappings !== before.head.leaves_mappings) {
      shown.onlyHeap = true;
      [model, before] = await both();
    }
    if (number !== load.count) return;
    Object.assign(shown, { model, other: before });
    drawAll();
    loadRest(model);
  } catch (error) {
    if (number === load.count) problem(error.message);
  } finally {
    if (number === load.count) document.body.classList.remove("loading");
  }
}

/** Loads what takes longer, and moves the rest of the page when it is drawn. */
async function loadRest(model) {
  document.body.setAttribute("aria-busy", "true");
  await Promise.all([loadOwners(model), loadFindings(model)]);
  if (shown.model === model) document.body.removeAttribute("aria-busy");
}

/** Returns whether a server will send live bytes by owner. */
function awaitsOwners() {
  const process = processes().find((one) => one.number === state.process);
  return Boolean(process?.has_trace) && !process.running && state.snapshot === null
    && state.filter === "";
}

/** Returns whether a server will send findings. */
function awaitsFindings() {
  return server.there && state.from === null
    && !processes().find((one) => one.number === state.process)?.running;
}

/** Requests live bytes by owner, which need a pass over the trace, after everything else is drawn. */
async function loadOwners(model) {
  if (!awaitsOwners()) return;
  try {
    server.owners ??= new Map();
    if (!server.owners.has(state.process)) {
      server.owners.set(state.process, await server.json("owners", { process: state.process }));
    }
    model.head.owners = server.owners.get(state.process);
  } catch {
    model.head.owners = null; // the chart has none then
  }
  if (shown.model !== model) return;
  timeline(byId("timeline"));
  owners(byId("owners")); // with the colours of the chart
}

/** Requests findings late, because they need the stacks as recorded, which the page does not have. */
async function loadFindings(model) {
  const { process, snapshot } = state;
  const filter = server.filter();
  if (!awaitsFindings()) return;
  try {
    model.head.findings = await server.json("findings", { process, snapshot, filter });
  } catch {
    model.head.findings = []; // the page has none then
  }
  if (shown.model === model) findings(byId("findings"));
}

/** Shows an error at the top of the page. */
function problem(text) {
  byId("problem")?.remove();
  byId("head").append(element("p", { id: "problem", class: "warnings", role: "alert" }, text));
}

/** Draws the selection of the process, the snapshot and the process to compare with. */
function drawSources() {
  const nav = byId("sources");
  const all = processes();
  nav.hidden = !server.there;
  if (nav.hidden) return;
  const current = all.find((one) => one.number === state.process) ?? all[0];
  const many = server.recordings.length > 1;
  const title = (one) => [many ? `${one.recording.name}: ` : "", one.title,
    one.running ? " (running)" : ""].join("");
  const moments = (one) => [["", one.running ? "now" : "the end"],
    ...one.snapshots.map(({ number, name, time_ns: time }) =>
      [String(number), `${name || `snapshot ${number}`}, ${duration(time)}`])];
  const option = (chosen) => ([value, text]) =>
    element("option", { value, selected: String(chosen ?? "") === value }, text);
  const select = (name, chosen, options, act) => element("label", {}, `${name} `,
    element("select", { change: (event) => act(event.target.value) }, ...options.map(option(chosen))));
  const others = all.flatMap((one) => moments(one).map(([moment, text]) =>
    [`${one.number}@${moment}`, `${all.length > 1 ? `${title(one)}, ` : ""}${text}`]))
    .filter(([value]) => value !== `${state.process}@${state.snapshot ?? ""}`);
  const parts = [];
  if (all.length > 1) {
    parts.push(select("Process", state.process, all.map((one) => [String(one.number), title(one)]),
      (value) => change({ process: Number(value), snapshot: null, from: null, to: null, zoom: "" })));
  }
  if (current && current.snapshots.length > 0) {
    parts.push(select("At", state.snapshot, moments(current),
      (value) => change({ snapshot: value === "" ? null : Number(value), from: null, to: null })));
  }
  if (others.length > 0) {
    parts.push(select("Compare with", state.compare ?? "", [["", "nothing"], ...others],
      (value) => change({ compare: value === "" ? null : value, zoom: "", view: "calls" })));
  }
  parts.push(filterBox());
  if (current?.running) parts.push(liveButton());
  if (current?.running && server.control) parts.push(...controlButtons(current));
  nav.replaceChildren(...parts);
}

/** Draws the input for filters, in the syntax of the command line. */
function filterBox() {
  const input = element("input", { type: "text", value: state.filter, spellcheck: "false",
    placeholder: "--focus parse --min-size 4K", id: "filter" });
  const form = element("form", { class: "filter", submit: (event) => {
    event.preventDefault();
    change({ filter: input.value.trim(), zoom: "" });
  } }, element("label", {}, "Filters ", input));
  return form;
}

function liveButton() {
  const button = element("button", { type: "button", class: "plain", "aria-pressed": String(server.live),
    title: "Whether the page follows the program" }, server.live ? "Pause" : "Follow");
  button.addEventListener("click", () => {
    server.live = !server.live;
    drawSources();
    if (server.live) load();
  });
  return button;
}

/** Draws the buttons that control a running program; only with --control. */
function controlButtons(process) {
  const actions = [["mark", "Mark…", "Sets a mark with a name"],
    ["snapshot", "Snapshot…", "Takes a snapshot with a name"], ["stop", "Off", "Stops recording"],
    ["start", "On", "Resumes recording"], ["reset", "Reset", "Resets the counters"]];
  const act = async (action) => {
    const asks = action === "mark" || action === "snapshot";
    const text = asks ? prompt(`Name of the ${action}`, "") : "";
    if (text === null) return;
    const body = JSON.stringify({ process: process.number, action, text });
    try {
      const answer = await server.ask("control", {}, { method: "POST", body,
        headers: { "content-type": "application/json" } });
      say((await answer.json()).done);
      await load();
    } catch (error) {
      problem(error.message);
    }
  };
  return [element("span", { class: "group" }, ...actions.map(([action, title, meaning]) =>
    choice(title, { title: meaning }, () => act(action))))];
}

/** Follows changes of running programs. */
function watchChanges() {
  const source = new EventSource(server.address("changes", {}));
  const isShown = (news) => news.process === state.process && state.snapshot === null;
  source.addEventListener("live", (event) => {
    const news = JSON.parse(event.data);
    if (server.live && isShown(news)) addSample(news);
  });
  source.addEventListener("tables", (event) => {
    if (server.live && isShown(JSON.parse(event.data)) && state.from === null) load();
  });
  source.addEventListener("recordings", async () => {
    server.recordings = (await server.json("recordings", {})).recordings;
    drawSources();
  });
  source.addEventListener("error", () => {
    if (source.readyState === EventSource.CLOSED) problem("The server has ended; the page shows its last data.");
  });
}

/** Appends a sample of a running program to the timeline. */
function addSample(news) {
  const { head } = shown.model;
  const { timeline: samples, totals } = head;
  const last = samples.time_ns.at(-1) ?? 0;
  if (news.time_ns <= last) return;
  samples.time_ns.push(news.time_ns);
  for (const name of ["live_bytes", "resident_bytes", "allocations"]) samples[name].push(news[name] ?? 0);
  head.duration_ns = Math.max(head.duration_ns, news.time_ns);
  totals.live_bytes = news.live_bytes;
  totals.allocations = news.allocations;
  if (news.live_bytes > totals.peak_bytes) {
    totals.peak_bytes = news.live_bytes;
    head.peak_time_ns = news.time_ns;
  }
  drawTotals();
  if (timeline.draw) timeline.draw();
  else timeline(byId("timeline"));
}

/** Example queries: what they show, whether they need a trace, and their text. */
const examples = [
  ["live bytes by owner", false,
    "SELECT owner, sum(live_bytes) GROUP BY owner ORDER BY sum#live_bytes DESC LIMIT 20"],
  ["allocations by thread and scope", false,
    "SELECT thread, path, sum(allocations) GROUP BY thread, path ORDER BY sum#allocations DESC"],
  ["size classes", false, "SELECT * FROM histogram"],
  ["lifetimes by function", true,
    "SELECT frame, count(), avg(lifetime_ns), max(lifetime_ns) FROM lifetimes GROUP BY frame "
    + "ORDER BY count DESC LIMIT 20"],
  ["the largest blocks", true,
    "SELECT size, time_ns, frame FROM events WHERE operation=allocate ORDER BY size DESC LIMIT 20"],
];

/** Draws a box for CalQL queries, with the result as a table or a file. */
function queryBox(section) {
  section.hidden = !server.there;
  if (section.hidden) return;
  const input = element("textarea", { id: "q", rows: 2, spellcheck: "false", "aria-label": "Query in CalQL",
    placeholder: examples[0][2] });
  input.value = state.q;
  const answer = element("div", { class: "scroll", "aria-live": "polite" });
  const file = element("a", { class: "plain", hidden: true, download: "query.csv" }, "CSV");
  const ask = async () => {
    change({ q: input.value.trim() });
    if (state.q === "") return answer.replaceChildren();
    try {
      answer.replaceChildren(answerTable(await server.json("query",
        { ...server.part(), q: state.q, format: "json" })));
      file.href = server.address("query", { ...server.part(), q: state.q, format: "csv" });
      file.hidden = false;
    } catch (error) {
      answer.replaceChildren(element("p", { class: "warnings", role: "alert" }, error.message));
      file.hidden = true;
    }
    return null;
  };
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) ask();
  });
  const hasTrace = processes().some((one) => one.number === state.process && one.has_trace);
  const usable = examples.filter(([, needsTrace]) => hasTrace || !needsTrace);
  const example = element("select", { "aria-label": "Example queries", change: () => {
    input.value = example.value;
    example.selectedIndex = 0;
    ask();
  } }, element("option", { value: "" }, "examples"),
  ...usable.map(([title, , text]) => element("option", { value: text }, title)));
  section.replaceChildren(element("div", { class: "row" }, element("h2", {}, "Query"), example,
    element("span", { class: "soft small" }, "CalQL, as in heaptide query; Ctrl+Enter runs it"),
    element("button", { type: "button", class: "plain push", click: ask }, "Answer"), file),
  input, answer);
  if (state.q !== "") ask();
}

/** Returns the rows of a result, which is a list of objects, or columns and rows. */
function answerTable(answer) {
  const rows = Array.isArray(answer) ? answer : answer.rows;
  const names = answer.columns ?? [...new Set(rows.flatMap((row) => Object.keys(row)))];
  const cells = (row) => (Array.isArray(row) ? row : names.map((name) => row[name]));
  const isNumber = (value) => typeof value === "number";
  const cell = (value) => element("td", { class: isNumber(value) || value === null ? null : "text" },
    value === null || value === undefined ? "" : isNumber(value) ? count(value) : String(value));
  const cut = answer.cut > 0
    ? element("p", { class: "soft" }, `${count(answer.cut)} more rows are in the CSV.`) : null;
  return element("div", {}, element("table", {},
    element("thead", {}, element("tr", {}, ...names.map((name, i) => element("th",
      { class: rows.some((row) => typeof cells(row)[i] === "string") ? "text" : null }, name)))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...cells(row).map(cell))))), cut);
}
