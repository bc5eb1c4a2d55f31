// Small plots of the episodes of a job. Pointing at a bar names it, and a click filters the table.

const SHORT_COUNT = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 2 });

/** Bars with a count each, over an axis: `{bars: [{label, from, to, count, query}], ticks: [{at, label}]}`; `at` is a share of the width. */
function barPlot(title, { bars, ticks, note = "" }, onPick) {
  const top = Math.max(1, ...bars.map((bar) => bar.count));
  const width = 260, height = 112, left = 10 + 6 * count(top).length, floor = 92, tall = 72;
  const wide = width - left - 4, x = (share) => left + wide * share;
  const text = (at, y, anchor, value, kind = "") => svg("text", { x: at, y, "text-anchor": anchor, class: kind }, visible(value));
  const drawn = bars.flatMap((bar) => {
    const high = bar.count ? Math.max(2, (tall * bar.count) / top) : 0, size = wide * (bar.to - bar.from);
    const name = svg("title", {}, visible(`${bar.label}: ${plural(bar.count, "episode")}`));
    const mark = svg("rect", { x: x(bar.from) + 1, y: floor - high, width: Math.max(size - 2, 1), height: high }, name);
    if (bar.query && onPick) mark.addEventListener("click", () => onPick(bar.query));
    const told = bar.count < 1000 ? String(bar.count) : SHORT_COUNT.format(bar.count);
    const fits = bar.count && size >= 5 * told.length;
    return fits ? [mark, text(x((bar.from + bar.to) / 2), floor - high - 3, "middle", told, "count")] : [mark];
  });
  const axis = [svg("line", { x1: left, x2: width - 4, y1: floor, y2: floor }), svg("line", { x1: left, x2: left, y1: floor - tall, y2: floor }),
    text(left - 4, floor - tall + 4, "end", count(top)), text(left - 4, floor, "end", "0")];
  const marks = ticks.flatMap(({ at, label }) => [svg("line", { x1: x(at), x2: x(at), y1: floor, y2: floor + 3 }),
    text(x(at), floor + 13, at < 0.06 ? "start" : at > 0.94 ? "end" : "middle", label)]);
  const shown = bars.length ? svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title }, ...axis, ...drawn, ...marks) : el("p.dim", "None.");
  return el("figure", el("figcaption", el("span", title), note ? el("span.note", note) : ""), shown);
}

/** Names with a count each, the most frequent first, as lines. */
function namePlot(title, counts, onPick, empty) {
  const sorted = [...counts].sort((a, b) => b[1].count - a[1].count).slice(0, 12);
  const top = Math.max(1, ...sorted.map(([, each]) => each.count));
  const lines = sorted.map(([name, each]) => el("button.line", { type: "button", on: { click: () => onPick?.(each.query) } },
    el("span", words(name)), el("span.lane", el(`i.${each.kind}`, { style: { width: `${(100 * each.count) / top}%` } })), el("span.n", count(each.count))));
  return el("figure", el("figcaption", title), lines.length ? lines : el("p.dim", empty));
}

/** The step of an axis with about `parts` parts: 1, 2 or 5 times a power of ten. */
function niceStep(span, parts) {
  const rough = span / parts, power = 10 ** Math.floor(Math.log10(rough));
  return power * [1, 2, 5, 10].find((each) => each * power >= rough * 0.999);
}

const FEW_VALUES = 6;

/** Count values over the range that they have: a bar for each of a few values, else equally wide bins. */
function histogram(rows, value, field, onText, isWhole = false) {
  const known = rows.map(value).filter((each) => typeof each === "number" && Number.isFinite(each));
  if (!known.length) return { bars: [], ticks: [] };
  const mean = known.reduce((sum, each) => sum + each, 0) / known.length;
  const note = `mean ${onText(mean)} · ${plural(known.length, "episode")}`;
  const values = [...new Set(known)].sort((a, b) => a - b);
  if (values.length <= FEW_VALUES) {
    const bars = values.map((each, i) => ({
      label: onText(each), from: (i + 0.15) / values.length, to: (i + 0.85) / values.length,
      count: known.filter((one) => one === each).length, query: `${field}=${each}`,
    }));
    return { bars, ticks: bars.map((bar) => ({ at: (bar.from + bar.to) / 2, label: bar.label })), note };
  }
  let step = niceStep(values.at(-1) - values[0], 16);
  if (isWhole) step = Math.max(1, step);
  const first = Math.floor(values[0] / step), number = Math.floor(values.at(-1) / step) - first + 1;
  const edge = (i) => Number(((first + i) * step).toPrecision(12));
  const counts = new Array(number).fill(0);
  for (const each of known) counts[Math.min(number - 1, Math.max(0, Math.floor(each / step) - first))] += 1;
  const bars = counts.map((each, i) => ({
    label: `${onText(edge(i))} to ${onText(edge(i + 1))}`, from: i / number, to: (i + 1) / number, count: each,
    query: `${field}>=${edge(i)} ${field}<${edge(i + 1)}`,
  }));
  const every = Math.ceil(number / 4);
  const ticks = Array.from({ length: Math.floor(number / every) + 1 }, (_, i) => ({ at: (i * every) / number, label: onText(edge(i * every)) }));
  return { bars, ticks, note };
}

function counted(rows, key, kind, query) {
  const found = new Map();
  for (const row of rows) {
    const name = key(row);
    if (!name) continue;
    const each = found.get(name) ?? { count: 0, kind: kind(row), query: query(row) };
    each.count += 1;
    found.set(name, each);
  }
  return found;
}

/** The names of the terms that rewards of several terms have, in the order of the first. */
function termsOf(rows) {
  return [...new Set(rows.flatMap((row) => Object.keys(row.terms ?? {})))].slice(0, 12);
}

/** All plots of a job. */
function plotsView(rows, onPick) {
  const plain = (value) => decimal(value, 2), whole = (value) => count(Math.round(value));
  const plot = (title, field, onText, isWhole) => barPlot(title, histogram(rows, (row) => row[field], field, onText, isWhole), onPick);
  return el("div.plots",
    plot("Reward", "reward", plain),
    termsOf(rows).map((name) => barPlot(`Term ${name}`, histogram(rows, (row) => row.terms?.[name], `term:${name.toLowerCase()}`, plain), onPick)),
    plot("Turns", "turns", whole, true),
    plot("Tokens", "tokens", whole, true),
    plot("Seconds", "total_s", plain),
    namePlot("Verdicts", counted(rows, (row) => row.verdict, (row) => row.kind, (row) => `verdict=${row.verdict.replaceAll(" ", "_")}`), onPick, "None."),
    namePlot("Ended by", counted(rows, (row) => row.ended, () => "plain", (row) => `ended=${row.ended}`), onPick, "None."),
    namePlot("Failures by owner", counted(rows, (row) => row.owner && `${row.owner}: ${row.failure}`, () => "warn", (row) => `failure=${row.failure}`), onPick, "No episode failed."),
  );
}
