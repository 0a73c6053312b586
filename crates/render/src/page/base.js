// Common parts of the page: formats of numbers, elements, the tooltip.

/** Returns an element; attributes that are functions become listeners, children are elements or
 * text. */
function element(tag, attributes = {}, ...children) {
  const made = tag === "svg" || element.drawn.has(tag)
    ? document.createElementNS("http://www.w3.org/2000/svg", tag)
    : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}
element.drawn = new Set(["g", "path", "line", "rect", "circle", "text", "clipPath", "title"]);

function byId(id) {
  return document.getElementById(id);
}

/** Formats a number with three significant digits. */
function digits(value) {
  const decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return value.toFixed(decimals);
}

function scaled(value, step, units) {
  let unit = 0;
  value /= step;
  while (value >= 999.5 && unit + 1 < units.length) {
    value /= step;
    unit += 1;
  }
  return `${digits(value)} ${units[unit]}`;
}

function bytes(n) {
  if (Math.abs(n) < 1024) return `${n} B`;
  const size = scaled(Math.abs(n), 1024, ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"]);
  return n < 0 ? `−${size}` : size;
}

function count(n) {
  return n.toLocaleString("en-US");
}

/** Formats a count and its noun. */
function counted(n, noun) {
  return `${count(n)} ${noun}${n === 1 ? "" : "s"}`;
}

function shortCount(n) {
  return n < 100000 ? count(n) : scaled(n, 1000, ["k", "M", "G", "T", "P"]);
}

function duration(ns) {
  if (ns === 0) return "0 s";
  if (ns < 1000) return `${ns} ns`;
  if (ns < 999.5e3) return `${digits(ns / 1e3)} µs`;
  if (ns < 999.5e6) return `${digits(ns / 1e6)} ms`;
  if (ns < 59.95e9) return `${digits(ns / 1e9)} s`;
  const seconds = Math.round(ns / 1e9);
  const two = (n) => String(n).padStart(2, "0");
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${two(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${two(Math.floor((seconds % 3600) / 60))} min`;
}

function percent(part, whole) {
  if (whole === 0) return "–";
  const share = (100 * part) / whole;
  if (part === 0) return "0%";
  if (part === whole) return "100%";
  if (share < 0.05) return "<0.1%";
  return share >= 99.95 ? ">99.9%" : `${share.toFixed(1)}%`;
}

/** Returns a text with at most a number of characters, the last one "…" if there are more. */
function shortened(text, most) {
  const letters = [...text];
  return letters.length <= most ? text : `${letters.slice(0, most - 1).join("")}…`;
}

/** Returns a test of names for a search text: a regular expression, or literal text if it is not a
 * valid one. */
function testFor(text) {
  if (text === "") return null;
  const low = text.toLowerCase();
  const plain = (name) => name.toLowerCase().includes(low);
  try {
    const expression = new RegExp(text, "i");
    return (name) => plain(name) || expression.test(name);
  } catch {
    return plain;
  }
}

const tip = byId("tip");

/** Shows the tooltip beside the pointer. */
function showTip(event, ...children) {
  tip.replaceChildren(...children.filter((child) => child !== null));
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  showTip.size = { width, height };
  moveTip(event);
}

/** Moves the tooltip to the pointer without changing its contents. */
function moveTip(event) {
  const { width, height } = showTip.size;
  const left = event.clientX + 16 + width > innerWidth ? event.clientX - width - 12 : event.clientX + 16;
  const below = event.clientY + 18;
  const top = below + height > innerHeight ? event.clientY - height - 12 : below;
  tip.style.transform = `translate(${Math.max(4, left)}px, ${Math.max(4, top)}px)`;
}

function hideTip() {
  tip.hidden = true;
}

/** Returns a button of a group, of which one is pressed. */
function choice(text, attributes, choose) {
  return element("button", { type: "button", click: choose, ...attributes }, text);
}
