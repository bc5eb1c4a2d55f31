// Elements, text, numbers and blobs. Text of a record becomes text nodes, and nothing else.

const SHOWN_AT_ONCE = 200;

/** Make an element: `el("td.n", {title}, child, …)`; strings become text. */
function el(kind, ...rest) {
  const [tag, ...classes] = kind.split(".");
  const made = document.createElement(tag || "div");
  if (classes.length) made.className = classes.join(" ");
  for (const part of rest.flat(Infinity)) {
    if (part === null || part === undefined || part === false || part === "") continue;
    if (part instanceof Node) made.append(part);
    else if (typeof part === "object") assign(made, part);
    else made.append(visible(String(part)));
  }
  return made;
}

function assign(made, properties) {
  for (const [name, value] of Object.entries(properties)) {
    if (name === "style") Object.assign(made.style, value);
    else if (name === "on") for (const [event, act] of Object.entries(value)) made.addEventListener(event, act);
    else if (name === "data") Object.assign(made.dataset, value);
    else if (name in made) made[name] = typeof value === "string" ? visible(value) : value;
    else made.setAttribute(name, value);
  }
}

/** Make an element of SVG; attributes are numbers and words of this page. */
function svg(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const CONTROLS = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;
const COLOURS = /\x1b\[[0-9;]*m/g;

/** Show control characters and marks of direction; terminal colours are removed. */
function visible(text) {
  return text.replaceAll("\r\n", "\n").replace(COLOURS, "").replace(CONTROLS, (found) => {
    const code = found.charCodeAt(0);
    return code < 32 ? String.fromCharCode(0x2400 + code) : `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
  });
}

const count = (value) => (value ?? 0).toLocaleString("en-US");
const decimal = (value, digits = 2) =>
  value === null || value === undefined ? "–" : String(Number(value.toFixed(digits)));
/** A duration. */
const seconds = (value) => {
  const ms = Math.round(1000 * Math.max(value ?? 0, 0)), all = Math.round(ms / 1000);
  if (ms && ms < 1000) return `${ms} ms`;
  if (all < 60) return `${ms < 9950 ? Math.round(ms / 100) / 10 : all} s`;
  const [size, unit, less, rest] = all < 3600 ? [60, "min", 1, "s"] : all < 86400 ? [3600, "h", 60, "min"] : [86400, "d", 3600, "h"];
  const more = Math.floor((all % size) / less);
  return `${Math.floor(all / size)} ${unit}${more ? ` ${more} ${rest}` : ""}`;
};
const words = (value) => String(value ?? "").replaceAll("_", " ");
const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

/** A line that folds; its content is made when it is first opened. */
function fold(label, content, open = false) {
  const made = el("details", el("summary", label));
  let filled = false;
  const fill = () => {
    if (filled || !made.open) return;
    filled = true;
    made.append(...[content()].flat());
  };
  made.addEventListener("toggle", fill);
  made.open = open;
  fill();
  return made;
}

const pre = (text, kind = "") => el(kind ? `pre.${kind}` : "pre", text ?? "");

/** Named values in a row. */
const facts = (pairs) =>
  el("dl.facts", pairs.filter(Boolean).map(([name, value]) => el("div", el("dt", name), el("dd", value))));

/** Put items into a parent, the first of many at once, the others on demand. */
function some(parent, items, make, step = SHOWN_AT_ONCE) {
  let next = 0;
  const more = () => {
    parent.append(...items.slice(next, next + step).map(make));
    next = Math.min(items.length, next + step);
  };
  more();
  return {
    more,
    left: () => items.length - next,
    button() {
      const pressed = el("button", { type: "button" });
      const label = () => {
        pressed.textContent = `show ${count(Math.min(step, this.left()))} more of ${count(items.length)}`;
        pressed.hidden = !this.left();
      };
      pressed.addEventListener("click", () => { more(); label(); });
      label();
      return pressed;
    },
  };
}

/** A button that copies a command. */
function command(text) {
  const code = el("code", text);
  const button = el("button", { type: "button", title: "copy" }, "copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "copied";
    } catch {
      getSelection().selectAllChildren(code);
      button.textContent = "selected";
    }
  });
  return el("p.command", code, button);
}

/** Unpack base64 of raw DEFLATE of JSON. */
async function unpacked(base64) {
  const bytes = Uint8Array.from(atob(base64.trim()), (each) => each.charCodeAt(0));
  return JSON.parse(new TextDecoder().decode(await inflated(bytes)));
}

async function inflated(bytes) {
  if (typeof DecompressionStream === "undefined") return inflate(bytes);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}
