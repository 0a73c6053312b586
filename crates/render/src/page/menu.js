// The menu of a box or row.

const menu = byId("menu");
let menuFrom = null;

function closeMenu() {
  if (menu.hidden) return;
  menu.hidden = true;
  menuFrom?.focus();
}

/** Opens a menu at a position of the window; entries are pairs of a text and an action. */
function openMenu(x, y, from, entries) {
  menuFrom = from;
  const act = (action) => () => {
    closeMenu();
    action();
  };
  menu.replaceChildren(...entries.map(([text, action]) =>
    element("button", { type: "button", role: "menuitem", click: act(action) }, text)));
  menu.hidden = false;
  const { width, height } = menu.getBoundingClientRect();
  menu.style.left = `${Math.max(4, Math.min(x, innerWidth - width - 4))}px`;
  menu.style.top = `${Math.max(4, Math.min(y, innerHeight - height - 4))}px`;
  hideTip();
  menu.firstChild.focus();
}

menu.addEventListener("keydown", (event) => {
  const entries = [...menu.children];
  const at = entries.indexOf(document.activeElement);
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step) entries[(at + step + entries.length) % entries.length].focus();
  else if (event.key === "Escape" || event.key === "Tab") closeMenu();
  else return;
  event.preventDefault();
  event.stopPropagation();
});
addEventListener("pointerdown", (event) => {
  if (!menu.hidden && !menu.contains(event.target)) closeMenu();
});

/** Opens the menu of a box of the flame graph. */
function flameMenu(x, y, node, from) {
  const { tree } = flame;
  const item = shown.model.item(tree.item[node]);
  const zoom = ["Zoom to it", () => zoomTo(node)];
  const stack = ["Copy the stack", () => copy(stackText(tree, node))];
  openMenu(x, y, from, [zoom, ...itemEntries(item), stack,
    ["Copy the name", () => copy(item.name)]]);
}

/** Returns the menu entries of an item, each of which restricts the page by a value of the address. */
function itemEntries(item) {
  if (item.kind === "function") {
    return [
      ["Only stacks that contain it", () => change({ focus: item.name, zoom: "" })],
      ["Leave it out", () => change({ hide: [...hidden(), item.name].join("\n"), zoom: "" })],
      ["Search for it", () => change({ search: item.name })],
      [state.own === "" ? "Own code only" : "All code",
        () => change({ own: state.own === "" ? "1" : "", zoom: "" })],
    ];
  }
  if (item.kind === "line") return itemEntries(shown.model.item(item.function));
  const isSelectable = ["thread", "label", "type"].includes(item.kind);
  if (isSelectable) return [[`Only this ${item.kind}`, () => change({ [item.kind]: item.name, zoom: "" })]];
  if (item.kind === "scope") {
    return [["Only this scope", () => change({ scope: shown.model.scopeText(item.id), zoom: "" })]];
  }
  return [];
}

/** Returns the functions of a box, innermost first. */
function stackText(tree, node) {
  const names = tree.path(node).map((item) => shown.model.item(item).name);
  return (state.view === "callers" && !shown.other ? names : names.reverse()).join("\n");
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Browsers may deny pages from files direct access to the clipboard.
    const area = element("textarea", { class: "unseen" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  say("Copied.");
}
