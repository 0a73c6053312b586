// Checks that tests run inside the page: contrast, names, focus, overlaps, blank pictures. Each
// returns a list of problems.
window.checks = {};

/** Returns a colour as red, green, blue and opacity. */
checks.colour = (text) => {
  const [r, g, b, a = 1] = text.match(/[\d.]+/g)?.map(Number) ?? [0, 0, 0, 0];
  return [r, g, b, a];
};

/** Returns a colour blended over an opaque one. */
checks.over = ([r, g, b, a], [r2, g2, b2]) =>
  [r * a + r2 * (1 - a), g * a + g2 * (1 - a), b * a + b2 * (1 - a), 1];

checks.luminance = (colour) => {
  const part = (value) => (value / 255 <= 0.03928 ? value / 255 / 12.92
    : ((value / 255 + 0.055) / 1.055) ** 2.4);
  const [r, g, b] = colour.map(part);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};

/** Returns the contrast ratio of WCAG 2. */
checks.ratio = (a, b) => {
  const [light, dark] = [a, b].map(checks.luminance).sort((x, y) => y - x);
  return (light + 0.05) / (dark + 0.05);
};

/** Returns the possible backgrounds of an element: its own and its ancestors', including bars. */
checks.grounds = (element) => {
  const layers = [];
  for (let at = element; at; at = at.parentElement) layers.unshift(getComputedStyle(at));
  let grounds = [checks.colour(getComputedStyle(document.body).backgroundColor)];
  for (const style of layers) {
    grounds = grounds.map((ground) => checks.over(checks.colour(style.backgroundColor), ground));
    const bar = style.backgroundImage.match(/rgba?\([^)]*\)/);
    if (bar) grounds.push(checks.over(checks.colour(bar[0]), grounds[0]));
  }
  return grounds;
};

checks.isShown = (element) => element.checkVisibility({ checkVisibilityCSS: true, checkOpacity: true })
  && element.closest(".unseen, #tip, details:not([open]) > :not(summary)") === null;

/** Returns the name of an element for messages. */
checks.called = (element) => [element.tagName.toLowerCase(), element.id && `#${element.id}`,
  element.className && `.${element.getAttribute("class")}`,
  ` "${(element.textContent ?? "").trim().slice(0, 30)}"`].filter(Boolean).join("");

/** Returns the visible texts of the whole page, each with its element. */
checks.texts = () => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const texts = [];
  while (walker.nextNode()) {
    const { currentNode: node } = walker;
    const element = node.parentElement;
    if (node.textContent.trim() === "" || !checks.isShown(element)) continue;
    if (element.closest("script, style, noscript, option, title")) continue;
    texts.push({ node, element });
  }
  return texts;
};

/** Finds texts with less contrast than 4.5, or 3 if large. Disabled elements are exempt. */
checks.contrast = (within = document.body) => {
  const wrong = [];
  for (const { element } of checks.texts()) {
    if (!within.contains(element) || element.closest(":disabled")) continue;
    const style = getComputedStyle(element);
    const isDrawn = element instanceof SVGElement;
    const size = parseFloat(style.fontSize);
    const isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    // Text in a chart is outlined in this colour.
    const grounds = isDrawn ? [checks.colour(style.stroke)] : checks.grounds(element);
    for (const ground of grounds) {
      const ink = checks.over(checks.colour(isDrawn ? style.fill : style.color), ground);
      const ratio = checks.ratio(ink, ground);
      if (ratio < (isLarge ? 3 : 4.5)) wrong.push(`${checks.called(element)}: ${ratio.toFixed(2)}`);
    }
  }
  return [...new Set(wrong)];
};

/** Finds boxes of the flame graph whose names have too little contrast, for any search. */
checks.boxes = () => {
  const to = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const pixel = (colour) => {
    to.fillStyle = colour;
    to.fillRect(0, 0, 1, 1);
    return [...to.getImageData(0, 0, 1, 1).data];
  };
  const style = getComputedStyle(document.documentElement);
  const [ink, rest, panel] = ["--ink", "--rest", "--panel"].map((name) => pixel(style.getPropertyValue(name)));
  const numbers = [...new Array(shown.model.functions).keys()];
  const colours = [rest, ...numbers.map((number) => pixel(colourOf(number, isDark())))];
  const wrong = [];
  for (const colour of colours) {
    for (const alpha of [1, 0.45, 0.3]) {
      const ground = checks.over([...colour.slice(0, 3), alpha], panel);
      const ratio = checks.ratio(ink, ground);
      if (ratio < 4.5) wrong.push(`${colour} at ${alpha}: ${ratio.toFixed(2)}`);
    }
  }
  return wrong.slice(0, 5);
};

checks.controls = () => [...document.querySelectorAll(
  "button, input, select, textarea, summary, a[href], [tabindex]")].filter(checks.isShown);

/** Finds controls without a name, and those without a visible edge. */
checks.names = () => checks.controls().flatMap((one) => {
  const wrong = [];
  const label = one.labels?.length > 0 ? one.labels[0].textContent : "";
  const name = one.getAttribute("aria-label") || label || one.textContent || one.title;
  if (name.trim() === "") wrong.push(`${checks.called(one)} has no name`);
  const style = getComputedStyle(one);
  const hasEdge = parseFloat(style.borderTopWidth) > 0 && one.closest(".group") === null;
  if (hasEdge && !one.disabled && one.type !== "checkbox") {
    const [ground] = checks.grounds(one.parentElement);
    const ratio = checks.ratio(checks.over(checks.colour(style.borderTopColor), ground), ground);
    if (ratio < 3) wrong.push(`${checks.called(one)}: edge ${ratio.toFixed(2)}`);
  }
  return wrong;
});

/** Stores the focused element, and checks that its focus is visible. */
checks.reached = new Set();
checks.reach = () => {
  const at = document.activeElement;
  if (at === null || at === document.body) return "";
  checks.reached.add(at);
  const { outlineStyle, outlineWidth } = getComputedStyle(at);
  const isVisible = outlineStyle !== "none" && parseFloat(outlineWidth) > 0;
  if (!isVisible) return `${checks.called(at)} has the focus, which is not visible`;
  return checks.isRingWhole(at) ? "" : `${checks.called(at)}: its focus ring is cut off`;
};

/** Returns whether nothing cuts off the outline of an element, which must be one rectangle. */
checks.isRingWhole = (at) => {
  const { outlineOffset, outlineWidth } = getComputedStyle(at);
  const wide = parseFloat(outlineOffset) + parseFloat(outlineWidth);
  const { left, right, top, bottom } = at.getBoundingClientRect();
  if (at.getClientRects().length > 1) return false;
  for (let above = at.parentElement; above !== document.body; above = above.parentElement) {
    if (getComputedStyle(above).overflowX === "visible") continue;
    const clip = above.getBoundingClientRect();
    // Half a pixel is lost to rounding. A list that scrolls can show a part of a control.
    const isScrolled = above.scrollHeight > above.clientHeight + 1;
    if (left - wide < clip.left - 0.5 || right + wide > clip.right + 0.5) return false;
    if (isScrolled) continue;
    if (top - wide < clip.top - 0.5 || bottom + wide > clip.bottom + 0.5) return false;
  }
  return left - wide >= -0.5 && right + wide <= document.documentElement.clientWidth + 0.5;
};
checks.unreached = () => checks.controls()
  .filter((one) => !one.disabled && one.tabIndex >= 0 && !checks.reached.has(one)).map(checks.called);

/** Returns the rectangles of a text that are not cut off. */
checks.rectangles = ({ node, element }) => {
  const range = document.createRange();
  range.selectNodeContents(node);
  const clips = [];
  for (let at = element; at && at !== document.body; at = at.parentElement) {
    if (getComputedStyle(at).overflowX !== "visible" && !(at instanceof SVGElement)) {
      clips.push(at.getBoundingClientRect());
    }
  }
  const cut = (rect) => clips.reduce((all, clip) => ({
    left: Math.max(all.left, clip.left), right: Math.min(all.right, clip.right),
    top: Math.max(all.top, clip.top), bottom: Math.min(all.bottom, clip.bottom),
  }), rect);
  return [...range.getClientRects()].map(cut)
    .filter((rect) => rect.right - rect.left > 1 && rect.bottom - rect.top > 1);
};

/** Finds overlapping texts. */
checks.overlaps = () => {
  scrollTo(0, 0);
  const all = checks.texts().flatMap((text) =>
    checks.rectangles(text).map((rect) => ({ ...text, left: rect.left, right: rect.right,
      // Lines may touch, since letters are lower than their line.
      top: rect.top + 3, bottom: rect.bottom - 3 })));
  all.sort((a, b) => a.top - b.top);
  const wrong = [];
  all.forEach((one, i) => {
    for (let j = i + 1; j < all.length && all[j].top < one.bottom; j += 1) {
      const other = all[j];
      const wide = Math.min(one.right, other.right) - Math.max(one.left, other.left);
      if (wide > 2 && one.node !== other.node) {
        wrong.push(`${checks.called(one.element)} on ${checks.called(other.element)}`);
      }
    }
  });
  return wrong.slice(0, 5);
};

/** Returns the pixels of a canvas, read from a copy, so that the canvas stays on the GPU. */
checks.pixels = (canvas) => {
  const { width, height } = canvas;
  const copy = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  return copy.getImageData(0, 0, width, height).data;
};

/** Finds pictures that are blank, or whose first row does not fill the width. */
checks.blank = () => [...document.querySelectorAll(".stage canvas")].flatMap((canvas) => {
  const { width, height } = canvas;
  if (width < 100 || height < 19) return [`${canvas.id}: ${width} × ${height}`];
  const data = checks.pixels(canvas);
  const colours = new Set();
  let [filled, first] = [0, 0];
  for (let at = 0; at < data.length; at += 4) {
    const isFilled = data[at + 3] > 0;
    filled += isFilled ? 1 : 0;
    if (isFilled && at < 4 * width) first += 1;
    if (at % 68 === 0) colours.add((data[at] << 16) | (data[at + 1] << 8) | data[at + 2]);
  }
  const isOne = canvas.id === "canvas" && document.querySelectorAll(".stage").length === 1;
  if (isOne && first < 0.95 * width) return [`${canvas.id}: ${first} of ${width} in its first row`];
  if (colours.size < 4 || filled < 4 * width) return [`${canvas.id}: ${colours.size} colours`];
  return [];
});
