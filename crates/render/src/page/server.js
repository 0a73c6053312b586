// What a server adds: other processes and moments, ranges of time, running programs, queries, source.

const server = { there: false, exact: null, recordings: [], control: false, live: true };

/** Asks the server. Errors have its own words. */
server.ask = async (what, parameters, options = {}) => {
  const query = new URLSearchParams({ token: server.token });
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== null && value !== "" && value !== undefined) query.set(name, value);
  }
  let answer;
  try {
    answer = await fetch(`api/${what}?${query}`, options);
  } catch {
    throw new Error("The server does not answer: `heaptide view` has ended.");
  }
  if (!answer.ok) throw new Error((await answer.text()).trim() || `The server says ${answer.status}.`);
  return answer;
};
server.json = async (what, parameters) => (await server.ask(what, parameters)).json();

/** The data of a process, at a moment, of a range. */
server.model = async (parameters) => {
  const answer = await server.ask("data", parameters);
  server.exact = answer.headers.get("x-heaptide-exact");
  const model = dataFrom(await answer.arrayBuffer());
  server.model.made = (server.model.made ?? 0) + 1;
  model.number = server.model.made;
  return model;
};

/** All processes of all recordings. */
function processes() {
  return server.recordings.flatMap((recording) =>
    recording.processes.map((process) => ({ ...process, recording })));
}

async function startServer() {
  server.there = true;
  server.token = new URLSearchParams(location.search).get("token") ?? "";
  const { recordings, control, version } = await server.json("recordings", {});
  Object.assign(server, { recordings, control, version });
  state.process ??= processes()[0]?.number ?? null;
  await load();
  watchChanges();
}

/** Loads what the address names, and draws it. */
async function load() {
  const number = (load.count = (load.count ?? 0) + 1);
  document.body.classList.add("loading");
  try {
    const { process, snapshot, from, to, filter } = state;
    const range = from !== null && to !== null ? { from, to } : {};
    const model = await server.model({ process, snapshot, filter, ...range });
    const [other, moment] = (state.compare ?? "").split("@");
    const before = other ? await server.model({ process: other, snapshot: moment, filter }) : null;
    if (number !== load.count) return;
    Object.assign(shown, { model, other: before });
    drawAll();
  } catch (error) {
    if (number === load.count) problem(error.message);
  } finally {
    if (number === load.count) document.body.classList.remove("loading");
  }
}

/** Says what went wrong at the top of the page. */
function problem(text) {
  byId("problem")?.remove();
  byId("head").append(element("p", { id: "problem", class: "warnings", role: "alert" }, text));
}

/** The choice of process, moment and what it is compared with. */
function drawSources() {
  const nav = byId("sources");
  const all = processes();
  nav.hidden = !server.there;
  if (nav.hidden) return;
  const current = all.find((one) => one.number === state.process) ?? all[0];
  const many = server.recordings.length > 1;
  const title = (one) => `${many ? `${one.recording.name}: ` : ""}${one.title}${one.running ? " (running)" : ""}`;
  const moments = (one) => [["", one.running ? "now" : "the end"],
    ...one.snapshots.map((of) => [String(of.number), `${of.name || `snapshot ${of.number}`}, ${duration(of.time_ns)}`])];
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
  nav.replaceChildren(...parts);
}

/** Filters in the words of the command line. */
function filterBox() {
  const input = element("input", { type: "text", value: state.filter, spellcheck: "false",
    placeholder: "--only parse --thread worker", id: "filter" });
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

/** Follows running programs. */
function watchChanges() {
  const source = new EventSource(`api/changes?${new URLSearchParams({ token: server.token })}`);
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
    if (source.readyState === EventSource.CLOSED) problem("The server has ended: this is what it sent last.");
  });
}

/** Puts a moment of a running program to the timeline. */
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
  totals.peak_bytes = Math.max(totals.peak_bytes, news.live_bytes);
  drawTotals();
  timeline(byId("timeline"));
}

const queries = [
  ["Owners", "SELECT owner, sum(live_bytes) GROUP BY owner ORDER BY sum#live_bytes DESC LIMIT 20"],
];

/** A box for queries in CalQL, with the answer as a table or a file. */
function queryBox(section) {
  section.hidden = !server.there;
  if (section.hidden) return;
  const input = element("textarea", { id: "q", rows: 2, spellcheck: "false", "aria-label": "Query in CalQL",
    placeholder: queries[0][1] });
  input.value = state.q;
  const answer = element("div", { class: "scroll", "aria-live": "polite" });
  const file = element("a", { class: "plain", hidden: true, download: "query.csv" }, "CSV");
  const ask = async () => {
    change({ q: input.value.trim() });
    if (state.q === "") return answer.replaceChildren();
    try {
      answer.replaceChildren(answerTable(await server.json("query",
        { process: state.process, q: state.q, format: "json" })));
      const parameters = { token: server.token, process: state.process, q: state.q, format: "csv" };
      file.href = `api/query?${new URLSearchParams(parameters)}`;
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
  section.replaceChildren(element("div", { class: "row" }, element("h2", {}, "Query"),
    element("span", { class: "soft small" }, "CalQL, as heaptide query takes it; Ctrl+Enter answers"),
    element("button", { type: "button", class: "plain push", click: ask }, "Answer"), file),
  input, answer);
  if (state.q !== "") ask();
}

/** Rows of an answer: a list of objects, or columns and rows. */
function answerTable(answer) {
  const rows = Array.isArray(answer) ? answer : answer.rows;
  const names = answer.columns ?? [...new Set(rows.flatMap((row) => Object.keys(row)))];
  const cells = (row) => (Array.isArray(row) ? row : names.map((name) => row[name]));
  const isNumber = (value) => typeof value === "number";
  const cell = (value) => element("td", { class: isNumber(value) ? null : "text" },
    value === null || value === undefined ? "" : isNumber(value) ? count(value) : String(value));
  const cut = answer.cut > 0 ? element("p", { class: "soft" }, `${count(answer.cut)} more rows are in the CSV.`) : null;
  return element("div", {}, element("table", {},
    element("thead", {}, element("tr", {}, ...names.map((name) => element("th", {}, name)))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...cells(row).map(cell))))), cut);
}
