// Two episodes, or two jobs, side by side.

/** Two episodes: outcomes, then turn by turn, then patches and tests. */
function comparisonView(jobs, rows, records) {
  const side = (make) => rows.map((row, i) => el("div.side", make(row, records[i], jobs[i])));
  const line = (title, make) => el("section", title ? el("h2", title) : "", el("div.sides", side(make)));
  const heads = line("", (row, record, job) => [
    el("h2", row.blob === null ? row.name : el("a", { href: addressOf(job, row) }, jobs[0] === jobs[1] ? row.name : `${job.name}: ${row.name}`)),
    episodeFacts(row, record), failureView(record),
  ]);
  const most = Math.max(...records.map((record) => record.turns.length));
  const first = divergence(records);
  const told = first === null ? "Both sampled the same text." : `They sampled the same text before turn ${first}.`;
  const longest = Math.max(...records.map(longestTurn));
  const turns = el("div");
  const list = some(turns, Array.from({ length: most }, (_, i) => i), (i) => el("div.sides", side((_, record) =>
    record.turns[i] ? turnView(record, record.turns[i], longest) : el("p.dim", `no turn ${i}`))), 50);
  return el("div.comparison", heads,
    el("section", el("h2", "Turns"), el("p.dim", told), turns, list.button()),
    line("Patch", (_, record) => patchView(record.patch)),
    line("Tests", (_, record) => testsView(record.verdict)),
    line("Integrity", (_, record) => findingsView(record.verdict)));
}

/** The first turn whose sampled text differs; null: none does. */
function divergence([a, b]) {
  const most = Math.max(a.turns.length, b.turns.length);
  for (let i = 0; i < most; i += 1) if (a.turns[i]?.text !== b.turns[i]?.text) return i;
  return null;
}

/** Two jobs: numbers and what of them is more than chance, settings, plots, and their tasks. */
function jobsView(jobs) {
  const found = page.comparison;
  const heads = el("div.sides", jobs.map((job) => el("div.side",
    el("h2", el("a", { href: addressOf(job) }, job.address)), jobFacts(job), damageView(job), plotsView(job.rows))));
  return el("div.comparison", heads, found
    ? [numbersView(found), settingsView(found), tasksView(jobs, found)] : el("p.dim", "Reading both jobs …"));
}

const sized = (value) => (value === null ? "–" : Math.abs(value) >= 100 ? Math.round(value).toLocaleString("en") : decimal(value));
const signed = (value) => (value === null ? "–" : `${value > 0 ? "+" : ""}${sized(value)}`);

/** Means of both jobs; the change is over the tasks that both have. */
function numbersView(found) {
  const rows = found.quantities.map(({ name, before, after, paired, verdict }) => el("tr",
    el("td.name", name.replaceAll("_", " ")), el("td.n", sized(before)), el("td.n", sized(after)), el("td.n", signed(paired.mean)),
    el("td.n", paired.interval ? paired.interval.map(signed).join(" … ") : "–"), el("td.n", String(paired.pairs)), el("td", verdict)));
  const names = ["Mean of", "First#", "Second#", "Change#", "95 % interval#", "Tasks of both#", "This is"];
  const flips = Object.entries(found.flips).map(([flip, count]) => `${count} ${flip}`).join(" · ");
  return el("section", el("h2", "What changed"), el("p.dim", `Tasks: ${flips || "none"}`),
    el("div.wide", el("table", el("thead", el("tr", names.map(heading))), el("tbody", rows))));
}

function settingsView(found) {
  if (!found.settings.length) return el("p.dim", "The settings are the same.");
  const rows = found.settings.map(({ path, before, after }) => el("tr",
    el("td.name", path), el("td", before ?? "unset"), el("td", after ?? "unset")));
  return el("section", el("h2", "Settings that differ"),
    el("div.wide", el("table", el("thead", el("tr", ["Setting", "First", "Second"].map(heading))), el("tbody", rows))));
}

function tasksView(jobs, found) {
  const first = jobs.map((job) => new Map(groupsOf(job.rows).map((group) => [group.instance, group.members[0]])));
  const told = (side) => (side ? `${side.resolved}/${side.samples}` : "–");
  const kind = (change) => (change > 0 ? "td.n.good" : change < 0 ? "td.n.bad" : "td.n");
  const body = el("tbody");
  const list = some(body, found.tasks, ({ instance, flip, before, after, change }) => {
    const pair = first.map((rows) => rows.get(instance));
    return el("tr", el("td.name", instance),
      [before, after].flatMap((side) => [el("td.n", told(side)), el("td.n", decimal(side?.mean_reward ?? null))]),
      el(kind(change), signed(change)), el("td", flip),
      el("td", pair.every((row) => row && row.blob !== null) ? el("a", { href: comparison(jobs, ...pair) }, "compare") : ""));
  });
  const names = ["Task", "Resolved#", "Mean reward#", "Resolved#", "Mean reward#", "Change#", "Task is", "First samples"];
  return el("section", el("h2", "Tasks, by the change of their mean reward"),
    el("div.wide", el("table", el("thead", el("tr", names.map(heading))), body)), list.button());
}
