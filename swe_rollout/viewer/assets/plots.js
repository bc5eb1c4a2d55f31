// Small plots of the episodes of a job. Pointing at a bar names it, and a click filters the table.

/** Bars with a count each: `[{label, count, kind, query}]`. */
function barPlot(title, bars, onPick) {
  const width = 260, height = 90, floor = 74;
  const top = Math.max(1, ...bars.map((bar) => bar.count));
  const step = width / Math.max(bars.length, 1);
  const drawn = bars.map((bar, i) => {
    const tall = bar.count ? Math.max(2, (64 * bar.count) / top) : 0;
    const name = svg("title", {}, visible(`${bar.label}: ${plural(bar.count, "episode")}`));
    const mark = svg("rect", { x: i * step + 1, y: floor - tall, width: Math.max(step - 2, 1), height: tall, class: bar.kind ?? "" }, name);
    if (bar.query && onPick) mark.addEventListener("click", () => onPick(bar.query));
    return mark;
  });
  const text = (x, anchor, value) => svg("text", { x, y: height - 3, "text-anchor": anchor }, visible(value));
  const ends = bars.length ? [text(0, "start", bars[0].label), ...(bars.length > 1 ? [text(width, "end", bars.at(-1).label)] : [])] : [];
  const base = svg("line", { x1: 0, x2: width, y1: floor, y2: floor });
  return el("figure", el("figcaption", title), svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title }, base, ...drawn, ...ends));
}

/** Names with a count each, the most frequent first, as lines. */
function namePlot(title, counts, onPick, empty) {
  const sorted = [...counts].sort((a, b) => b[1].count - a[1].count).slice(0, 12);
  const top = Math.max(1, ...sorted.map(([, each]) => each.count));
  const lines = sorted.map(([name, each]) => el("button.line", { type: "button", on: { click: () => onPick?.(each.query) } },
    el("span", words(name)), el("span.lane", el(`i.${each.kind}`, { style: { width: `${(100 * each.count) / top}%` } })), el("span.n", count(each.count))));
  return el("figure", el("figcaption", title), lines.length ? lines : el("p.dim", empty));
}

/** Count values in at most `bins` equally wide bins. */
function histogram(rows, field, onText, bins = 20) {
  const known = rows.filter((row) => row[field] !== null);
  if (!known.length) return [];
  let low = Infinity, high = -Infinity;
  for (const row of known) { low = Math.min(low, row[field]); high = Math.max(high, row[field]); }
  const number = low === high ? 1 : bins, wide = (high - low) / number || 1;
  const counts = new Array(number).fill(0);
  for (const row of known) counts[Math.min(number - 1, Math.floor((row[field] - low) / wide))] += 1;
  return counts.map((each, i) => {
    const from = low + i * wide, to = from + wide, last = i === number - 1;
    const query = low === high ? `${field}=${low}` : `${field}>=${from} ${field}${last ? "<=" : "<"}${last ? high : to}`;
    return { label: low === high ? onText(low) : `${onText(from)}–${onText(Math.min(to, high))}`, count: each, query };
  });
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

/** All plots of a job. */
function plotsView(rows, onPick) {
  const plain = (value) => decimal(value, 2), whole = (value) => count(Math.round(value));
  return el("div.plots",
    barPlot("Reward", histogram(rows, "reward", plain, 10), onPick),
    barPlot("Turns", histogram(rows, "turns", whole), onPick),
    barPlot("Tokens", histogram(rows, "tokens", whole), onPick),
    barPlot("Seconds", histogram(rows, "total_s", whole), onPick),
    namePlot("Verdicts", counted(rows, (row) => row.verdict, (row) => row.kind, (row) => `verdict=${row.verdict.replaceAll(" ", "_")}`), onPick, "None."),
    namePlot("Ended by", counted(rows, (row) => row.ended, () => "plain", (row) => `ended=${row.ended}`), onPick, "None."),
    namePlot("Failures by owner", counted(rows, (row) => row.owner && `${row.owner}: ${row.failure}`, () => "warn", (row) => `failure=${row.failure}`), onPick, "No episode failed."),
  );
}
