// A stack expanded to its frames, with source lines if a server provides them.

/** Returns the frames of a stack as a list, innermost first. */
function framesList(model, stack) {
  const frames = model.framesOf(stack);
  const owner = model.stackOwner[stack];
  const lines = frames.map((frame) => {
    const item = model.item(frame.function);
    const where = frame.file ? `${frame.file.split("/").pop()}${frame.line ? `:${frame.line}` : ""}`
      : (item.module ?? "").split("/").pop();
    const place = element("span", { class: "where", title: frame.file
      ? `${frame.file}${frame.line ? `:${frame.line}` : ""}` : item.module },
    ` ${where}${frame.inlined ? " (inlined)" : ""}`);
    const text = model.sourceText(frame.frame);
    const line = element("li", { class: item.own ? "own" : null },
      element("button", { type: "button", class: "link", title: item.name,
        click: (event) => openMenu(event.clientX, event.clientY, event.currentTarget, itemEntries(item)) },
      item.short), place, text ? element("code", { class: "text" }, text) : "");
    if (frame.stack === owner) line.append(element("span", { class: "badge" }, "owner"));
    if (server.there && frame.file && frame.line) line.append(sourceButton(line, frame.frame));
    return line;
  });
  const text = () => frames.map((frame) => {
    const place = frame.file ? `  ${frame.file}:${frame.line}` : "";
    return `${model.item(frame.function).name}${place}`;
  }).join("\n");
  return element("div", { class: "frames" }, element("ol", {}, ...lines),
    element("button", { type: "button", class: "plain small", click: () => copy(text()) },
      "Copy the stack"));
}

function sourceButton(line, frame) {
  const button = element("button", { type: "button", class: "plain small source-button",
    "aria-expanded": "false" }, "source");
  button.addEventListener("click", async () => {
    const open = line.querySelector(".source");
    if (open) {
      open.remove();
      button.setAttribute("aria-expanded", "false");
      return;
    }
    button.setAttribute("aria-expanded", "true");
    line.append(await sourceLines(frame));
  });
  return button;
}

/** Returns the source lines around that of a frame. */
async function sourceLines(frame) {
  try {
    const { process, snapshot } = state;
    const filter = server.filter();
    const version = shown.model.number;
    const source = await server.json("source", { process, snapshot, filter, frame, version });
    const rows = source.lines.map((text, i) => {
      const number = source.first + i;
      return element("div", { class: number === source.line ? "this" : null },
        element("span", { class: "number" }, String(number)), text || " ");
    });
    if (source.changed) {
      rows.unshift(element("div", { class: "soft" }, "The file has changed since it was recorded."));
    }
    return element("pre", { class: "source", title: source.file, tabindex: 0 }, ...rows);
  } catch (error) {
    return element("p", { class: "source soft" }, error.message);
  }
}
