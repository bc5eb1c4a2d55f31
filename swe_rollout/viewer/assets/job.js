// A job: its numbers, plots, tasks, and the table of its episodes.

const COLUMNS = [
  ["Episode", "name"], ["Verdict", "verdict"], ["Reward", "reward"], ["Ended by", "ended"], ["Turns", "turns"],
  ["Tokens", "tokens"], ["Sampled", "sampled"], ["Engine s", "engine_s"], ["Tools s", "tools_s"], ["Total s", "total_s"], ["Findings", "findings"],
];
const NUMBERS = new Set(["sample", "reward", "turns", "tokens", "sampled", "engine_s", "tools_s", "grade_s", "start_s", "total_s", "findings", "attempt"]);
const COMPARED = /^(term:[^<>=]+|[a-z_]+)(>=|<=|=|>|<)(.*)$/;

/** A test of rows for `word turns>10 verdict=resolved -word`: all must hold. */
function filterOf(query) {
  const tests = query.toLowerCase().split(/\s+/).filter(Boolean).map((word) => {
    const not = word.length > 1 && word.startsWith("-");
    const test = wordTest(not ? word.slice(1) : word);
    return not ? (row) => !test(row) : test;
  });
  return (row) => tests.every((test) => test(row));
}

function wordTest(word) {
  const [, field, how, wanted] = word.match(COMPARED) ?? [];
  if (NUMBERS.has(field) || field?.startsWith("term:")) {
    const number = Number(wanted);
    const compare = { "=": (a) => a === number, ">": (a) => a > number, "<": (a) => a < number, ">=": (a) => a >= number, "<=": (a) => a <= number }[how];
    return (row) => typeof row[field] === "number" && wanted !== "" && compare(row[field]);
  }
  if (["verdict", "ended", "failure", "owner", "instance"].includes(field) && how === "=") {
    return (row) => (row[field] ?? "").toLowerCase().replaceAll(" ", "_") === wanted;
  }
  return (row) => row.search.includes(word);
}

function prepare(rows) {
  for (const row of rows) {
    row.name = `${row.instance}/${row.sample}`;
    row.search = [row.name, row.verdict, row.ended, row.owner, row.failure, row.message].join(" ").toLowerCase();
    for (const [name, score] of Object.entries(row.terms ?? {})) row[`term:${name.toLowerCase()}`] = score;
  }
}

/** Names that differ in numbers sort by them: `a/2` before `a/10`. */
const byName = new Intl.Collator("en", { numeric: true }).compare;

function sorted(rows, field, down) {
  const sign = down ? -1 : 1;
  const value = (row) => row[field];
  return [...rows].sort((a, b) => {
    if (value(a) === null || value(b) === null) return (value(a) === null) - (value(b) === null);
    return sign * (typeof value(a) === "number" ? value(a) - value(b) : byName(value(a), value(b)));
  });
}

function jobFacts(job) {
  const { summary } = job;
  if (!summary) return "";
  const masked = summary.masked ? ` (${summary.masked} of ${summary.committed} masked)` : "";
  return facts([
    ["committed", `${count(summary.committed)}/${count(summary.episodes)}`],
    ["resolved", count(summary.resolved)], ["unresolved", count(summary.unresolved)],
    summary.tampered && ["tampered", count(summary.tampered)],
    summary.unproven && ["unproven", `${count(summary.unproven)} of those resolved`],
    ["masked", count(summary.masked)], ["mean reward", `${decimal(summary.mean_reward)}${masked}`],
  ]);
}

/** What failed, the most frequent first. */
function failuresView(job) {
  const groups = job.summary?.failure_groups ?? [];
  if (!groups.length) return "";
  const body = el("tbody");
  const example = (each) => {
    const row = job.rows.find((one) => each.example.endsWith(`/${one.name}`));
    return row ? el("a", { href: addressOf(job, row) }, row.name) : each.example;
  };
  const line = (each) => el("tr", el("td.n", count(each.count)), el("td", each.owner), el("td", `${each.type}: ${each.message}`), el("td", example(each)), el("td", each.fix));
  const list = some(body, groups, line, 20);
  return fold(plural(job.summary.masked, "masked episode"), () => [
    el("div.wide", el("table", el("thead", el("tr", ["Failed#", "Owner", "Message", "For example", "What to do"].map(heading))), body)), list.button(),
  ], true);
}

/** What is not committed yet: read, or played by a process whose episodes have a journal. */
function runningView(job) {
  if (job.complete === false) return el("p.dim", `Reading the store: ${plural(job.rows.length, "episode")} so far …`);
  const running = job.running ?? [];
  if (!running.length) return "";
  const more = job.running_count - running.length;
  return fold(`${plural(job.running_count, "episode")} begun and not committed`, () => [
    el("p.running", running.map(([name, saved]) => el("span", el("code", name), el("span.dim", ` saved ${plural(saved, "time")}`))), more ? `… and ${count(more)} more` : ""),
    el("p.dim", "An episode is saved about once a turn. It is in the table when it is committed."),
  ], running.length <= 20);
}

function damageView(job) {
  const damaged = job.damaged ?? [];
  return [
    ...damaged.slice(0, 20).map((each) => el("p.warn", each)),
    damaged.length > 20 ? el("p.warn", `… and ${count(damaged.length - 20)} more`) : "",
  ];
}

/** The head of a column; the name of one with numbers ends in `#`. */
const heading = (name) => el(name.endsWith("#") ? "th.n" : "th", name.replace("#", ""));

/** Tasks with their samples; groups whose rewards differ have a signal for the trainer. */
function groupsOf(rows) {
  const groups = new Map();
  for (const row of rows) {
    if (!groups.has(row.instance)) groups.set(row.instance, []);
    groups.get(row.instance).push(row);
  }
  return [...groups].map(([instance, members]) => {
    members.sort((a, b) => a.sample - b.sample);
    const rewards = members.map((row) => row.reward).filter((each) => each !== null);
    return {
      instance, members, graded: rewards.length, resolved: members.filter((row) => row.kind === "good").length,
      mean: rewards.length ? rewards.reduce((sum, each) => sum + each, 0) / rewards.length : null,
      signal: rewards.some((each) => each !== rewards[0]),
    };
  });
}

function groupsView(job) {
  const groups = groupsOf(job.rows), body = el("tbody");
  const chip = (row) => el(`a.chip.${row.kind}`, { href: addressOf(job, row), title: `sample ${row.sample}: ${words(row.ended)}` }, row.sample);
  const line = (group) => el("tr", el("td.name", group.instance), el("td", group.members.slice(0, 64).map(chip), group.members.length > 64 ? ` … ${count(group.members.length)}` : ""),
    el("td.n", `${group.resolved}/${group.members.length}`), el("td.n", decimal(group.mean)), el("td", group.signal ? "yes" : el("span.dim", "no")));
  const list = some(body, groups, line, 50);
  const told = `${count(groups.filter((each) => each.signal).length)} of ${plural(groups.length, "group")} with signal: their rewards differ`;
  return fold(["Tasks · ", told], () => [
    el("div.wide", el("table", el("thead", el("tr", ["Task", "Samples", "Resolved#", "Mean reward#", "Signal"].map(heading))), body)), list.button(),
  ], groups.length <= 50);
}

/** The page of a job. `marked` are the rows to compare. */
function jobView(job, marked) {
  const box = el("div.table.wide"), told = el("span.dim");
  const input = el("input", { type: "search", id: "filter", placeholder: "filter: word, turns>10, verdict=resolved, -word", ariaLabel: "filter" });
  const compare = el("button", { type: "button", hidden: true, title: "c" }, "compare");
  const order = (job.order ??= { field: "", down: false, at: -1 }); // kept when the page is drawn again
  let shown = [], list = null, body = null;

  function draw() {
    const found = job.rows.filter(filterOf(input.value));
    shown = order.field ? sorted(found, order.field, order.down) : found;
    body = el("tbody");
    list = some(body, shown, line);
    const head = COLUMNS.map(([title, name]) => el(NUMBERS.has(name) ? "th.n" : "th",
      { ariaSort: order.field === name ? (order.down ? "descending" : "ascending") : "none" },
      el("button", { type: "button", on: { click: () => { order.down = order.field === name && !order.down; order.field = name; order.at = -1; draw(); } } }, title, order.field === name ? (order.down ? " ↓" : " ↑") : "")));
    box.replaceChildren(el("table.episodes", el("thead", el("tr", el("th", ""), head)), body), list.button());
    while (order.at >= body.rows.length && list.left()) list.more();
    body.rows[order.at]?.classList.add("here");
    told.textContent = `${count(shown.length)} of ${plural(job.rows.length, "episode")}`;
  }
  function line(row) {
    const tick = el("input", { type: "checkbox", checked: marked.has(row), ariaLabel: `compare ${row.name}`, on: { change: () => mark(row) } });
    const cell = ([, name]) => {
      if (name === "name") return el("td.name", row.blob === null ? row.name : el("a", { href: addressOf(job, row) }, row.name));
      if (name === "verdict") return el("td.verdict", outcome(row), row.message ? el("div.message", { title: row.message }, `${row.failure}: ${row.message}`) : "");
      if (name === "ended") return el("td", words(row.ended));
      if (name === "reward") return el("td.n", { title: Object.entries(row.terms ?? {}).map(([term, score]) => `${term} ${decimal(score, 4)}`).join("\n") }, decimal(row.reward, 4));
      return el("td.n", name.endsWith("_s") ? seconds(row[name]) : count(row[name]));
    };
    return el("tr", el("td", tick), COLUMNS.map(cell));
  }
  function mark(row) {
    if (row.blob === null) return;
    if (!marked.delete(row)) marked.add(row);
    while (marked.size > 2) marked.delete(marked.values().next().value);
    compare.hidden = marked.size !== 2;
    [...body.rows].forEach((each, i) => { each.querySelector("input").checked = marked.has(shown[i]); });
  }
  function open() {
    if (marked.size === 2) location.hash = comparison(job, ...marked);
  }
  function pick(query) {
    input.value = query;
    order.at = -1;
    draw();
  }
  input.addEventListener("input", () => { order.at = -1; draw(); });
  compare.addEventListener("click", open);
  compare.hidden = marked.size !== 2;
  draw();
  const lost = job.rows.filter((row) => row.blob === null).length;
  return {
    node: el("div", jobFacts(job), failuresView(job), runningView(job), damageView(job), page.is_served ? searchBox(job) : "",
      job.summary?.committed > job.rows.length && page.is_served && job.complete && !job.more ? el("p.dim", `The table has the first ${count(job.rows.length)} of ${count(job.summary.committed)} episodes.`) : "",
      lost ? [el("p.dim", `${plural(lost, "episode")} are in the table only, to keep this file small. All of them:`), command(`swe-rollout view ${quoted(job.address)} --serve`)] : "",
      plotsView(job.rows, pick), groupsView(job),
      el("h2", "Episodes"), el("p.tools", input, told, compare), box),
    redraw: draw,
    focus: () => input.focus(),
    open,
    move(step) {
      order.at = Math.max(0, Math.min(shown.length - 1, order.at + step));
      while (order.at >= body.rows.length && list.left()) list.more();
      body.querySelector(".here")?.classList.remove("here");
      body.rows[order.at]?.classList.add("here");
      body.rows[order.at]?.scrollIntoView({ block: "nearest" });
    },
    enter: () => { if (shown[order.at]?.blob != null) location.hash = addressOf(job, shown[order.at]); },
    mark: () => { if (shown[order.at]) mark(shown[order.at]); },
  };
}
