// Findings as text: what a change of the program would save, and the numbers that support it.

/** Draws the findings of the displayed process below one line, so that nothing moves when a server
 * sends them; hides the section if there are none and none are awaited. */
function findings(section) {
  const found = shown.model.head.findings ?? [];
  const isAwaited = shown.model.head.findings === undefined && awaitsFindings();
  section.hidden = found.length === 0 && !isAwaited && !findings.wasAwaited;
  findings.wasAwaited = isAwaited;
  const list = found.map((one) => element("details", { class: "finding" },
    element("summary", {}, element("b", {}, one.subject), ` ${one.what} `,
      element("span", { class: "soft" }, `${one.place ? `${one.place}, ` : ""}saves up to ${one.saves}`)),
    element("ul", {}, ...one.evidence.map((sentence) => element("li", {}, sentence))),
    element("p", {}, one.advice),
    element("p", { class: "soft" }, `${one.rule}, ${one.certainty}; omit it with `,
      element("code", {}, `--suppress '${one.suppression.replaceAll("'", "'\\''")}'`)),
    one.owner === null ? null : element("button", { type: "button", class: "plain",
      click: () => change({ search: one.owner }) }, "Show in graph and tables")));
  const title = [element("h2", {}, isAwaited ? "Findings" : titleOf(found)),
    element("span", { class: "soft small" }, isAwaited ? "looking for savings…"
      : found.length > 0 ? "what a change would save, most first" : "")];
  section.replaceChildren(found.length === 0 ? element("div", { class: "row title" }, ...title)
    : element("details", { id: "finding-list" },
      element("summary", { class: "title" }, ...title), ...list));
}

function titleOf(found) {
  return found.length === 0 ? "No findings" : counted(found.length, "finding");
}
