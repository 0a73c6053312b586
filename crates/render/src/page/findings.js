// Findings as text: what a change of the program would save, and the numbers that support it.

/** Draws the findings of the displayed process; hides the section if there are none. */
function findings(section) {
  const found = shown.model.head.findings ?? [];
  section.hidden = found.length === 0;
  const list = found.map((one) => element("details", { class: "finding" },
    element("summary", {}, element("b", {}, one.subject), ` ${one.what} `,
      element("span", { class: "soft" }, `${one.place ? `${one.place}, ` : ""}saves up to ${one.saves}`)),
    element("ul", {}, ...one.evidence.map((sentence) => element("li", {}, sentence))),
    element("p", {}, one.advice),
    element("p", { class: "soft" }, `${one.rule}, ${one.certainty}; omit it with `,
      element("code", {}, `--suppress '${one.suppression.replaceAll("'", "'\\''")}'`)),
    one.owner === null ? null : element("button", { type: "button", class: "plain",
      click: () => change({ search: one.owner }) }, "Show in graph and tables")));
  section.replaceChildren(element("div", { class: "row" },
    element("h2", {}, counted(found.length, "finding")),
    element("span", { class: "soft small" }, "what a change would save, most first")), ...list);
}
