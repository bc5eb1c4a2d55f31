// Read the data of the page, show what the address asks for, and obey keys.

const KEYS = [
  ["j k", "next and previous turn, or row of the table"], ["J K", "next and previous episode"],
  ["Enter", "open the episode of the row"], ["/", "filter the table"], ["s", "search texts, on a served page"], ["x", "mark the row, to compare two"], ["c", "compare the marked two, or this episode with the next"],
  ["o", "fold and unfold the turn"], ["t p v", "tokens, patch, tests"], ["u", "up: to the job"], ["d", "dark, light"], ["?", "these keys"], ["Esc", "close, leave the filter"],
];
const marked = new Set();
const records = new Map();
let page = null, view = null, route = {};

const encoded = (row) => `${encodeURIComponent(row.instance)}/${row.sample}`;

/** The address of a job or an episode in this page. */
function addressOf(job, row) {
  return row ? `#/${job.index}/${encoded(row)}` : `#/${job.index}`;
}

/** The address of the present episode, at a turn or a section. */
const here = ({ turn, section }) => `${addressOf(route.job, route.row)}/${turn === undefined ? section : turn}`;

function comparison(jobs, first, second) {
  const [a, b] = Array.isArray(jobs) ? jobs : [jobs, jobs];
  return `#/compare/${a.index}/${encoded(first)}/${b.index}/${encoded(second)}`;
}

function rowOf(job, instance, sample) {
  return job?.rows.find((row) => row.instance === decodeURIComponent(instance ?? "") && String(row.sample) === sample);
}

async function recordOf(row) {
  if (!records.has(row)) {
    if (records.size > 8) records.delete(records.keys().next().value);
    const there = document.getElementById(row.blob);
    const text = there ? there.textContent : await (await fetched(row.blob)).text();
    records.set(row, await unpacked(text));
  }
  return records.get(row);
}

async function fetched(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
  return answer;
}

/** Wait until a job's rows are read, or until one of them is there. */
async function rowsRead(job, find) {
  while (page.is_served && !find() && (job.complete === false || job.more)) {
    if (!(await followJob(job))) await new Promise((done) => setTimeout(done, QUICK_MS));
  }
  return find();
}

async function show() {
  const parts = location.hash.split("/").slice(1);
  const same = route.row && parts[0] !== "compare" && route.job === page.jobs[parts[0]] && route.row === rowOf(route.job, parts[1], parts[2]);
  if (!same) {
    try {
      await navigate(parts);
    } catch (error) {
      draw("Not shown", el("p.bad", error.message));
    }
  }
  const last = route.row && parts[3];
  if (last) reach(/^\d+$/.test(last) ? view.turn(Number(last)) : document.getElementById(last));
}

async function navigate(parts) {
  if (page.store && !page.listed && parts[0]) await followStore();
  if (parts[0] === "search") {
    const jobs = parts[1] === "all" ? page.jobs.filter((job) => job.is_there || !page.store) : [page.jobs[parts[1]]].filter(Boolean);
    const text = decodeURIComponent(parts[2] ?? "");
    route = { text };
    view = null;
    return draw(`“${text}” in ${parts[1] === "all" ? page.store || "all jobs" : jobs[0]?.name ?? ""}`, searchView(jobs, text));
  }
  if (parts[0] === "compare") {
    const jobs = [page.jobs[parts[1]], page.jobs[parts[4]]];
    if (!jobs.every(Boolean)) throw new Error("There is no such job.");
    const rows = [await rowsRead(jobs[0], () => rowOf(jobs[0], parts[2], parts[3])), await rowsRead(jobs[1], () => rowOf(jobs[1], parts[5], parts[6]))];
    if (!rows.every((row) => row?.blob)) throw new Error("This file does not hold these two episodes.");
    const found = [await recordOf(rows[0]), await recordOf(rows[1])];
    route = { jobs, rows };
    view = null;
    return draw(`${rows[0].name} · ${rows[1].name}`, comparisonView(jobs, rows, found));
  }
  if (!parts.length || !parts[0]) {
    if (page.store) {
      route = {};
      view = storeView();
      return draw(page.store, view.node);
    }
    if (page.jobs.length > 1) {
      route = {};
      view = null;
      return draw(page.jobs.map((job) => job.name).join(" · "), jobsView(page.jobs));
    }
    parts = ["0"];
  }
  const job = page.jobs[parts[0]];
  if (!job) throw new Error("This file holds no such job.");
  if (parts[1] === undefined) {
    route = { job };
    view = jobView(job, marked);
    return draw(job.name, view.node);
  }
  const row = await rowsRead(job, () => rowOf(job, parts[1], parts[2]));
  if (!row?.blob) throw new Error("This file does not hold that episode.");
  const record = await recordOf(row);
  route = { job, row };
  view = episodeView(job, row, record);
  draw(row.name, view.node, el("p.dim", record.policy, " · ", record.finished_at));
}

function draw(title, node, under = "") {
  const isBelow = route.row || route.rows || route.text !== undefined || (page.store && route.job);
  const top = page.store || page.jobs.map((job) => job.name).join(" · ");
  const up = isBelow ? [el("a", { href: "#/" }, top), " / ", page.store && route.row ? [el("a", { href: addressOf(route.job) }, route.job.name), " / "] : ""] : "";
  document.title = visible(title);
  document.getElementById("top").replaceChildren(el("h1", up, title), el("div", under));
  document.getElementById("main").replaceChildren(node);
  scrollTo(0, 0);
}

function reach(node) {
  if (!node) return;
  document.querySelectorAll(".turn.here, .turns .here").forEach((each) => each.classList.remove("here"));
  node.classList.add("here");
  const number = node.id.replace("turn-", "");
  document.querySelector(`.turns a[data-turn="${CSS.escape(number)}"]`)?.classList.add("here");
  node.scrollIntoView({ block: "start" });
}

/** The turn after or before the marked one, else the first of the screen. */
function step(by) {
  if (view?.move) return view.move(by);
  const all = [...document.querySelectorAll(".turn")];
  if (!view?.turn) {
    const top = (each) => each.getBoundingClientRect().top;
    return reach(by > 0 ? all.find((each) => top(each) > 24) : all.reverse().find((each) => top(each) < -8));
  }
  const now = document.querySelector(".turn.here");
  const next = now ? Number(now.id.replace("turn-", "")) + by : 0;
  const numbers = all.map((each) => Number(each.id.replace("turn-", "")));
  const node = view.turn(next) ?? document.getElementById(`turn-${by > 0 ? Math.max(...numbers) : Math.min(...numbers)}`);
  reach(node);
}

/** The episode after or before this one that the file holds. */
function sibling(by) {
  const held = route.job.rows.filter((row) => row.blob !== null);
  return held[held.indexOf(route.row) + by];
}

function toggle() {
  const box = document.querySelector(".turn.here") ?? document.getElementById("main");
  const folds = [...box.querySelectorAll("details")];
  const open = folds.some((each) => !each.open);
  folds.forEach((each) => { each.open = open; });
}

function theme() {
  const dark = document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "light" : "dark";
}

const go = (section) => route.row && reach(document.getElementById(section));

const ACTS = {
  j: () => step(1), k: () => step(-1),
  J: () => route.row && sibling(1) && (location.hash = addressOf(route.job, sibling(1))),
  K: () => route.row && sibling(-1) && (location.hash = addressOf(route.job, sibling(-1))),
  Enter: () => view?.enter?.(),
  "/": () => view?.focus?.(),
  x: () => view?.mark?.(),
  c: () => (route.row ? sibling(1) && (location.hash = comparison(route.job, route.row, sibling(1))) : view?.open?.()),
  o: toggle, t: () => go("tokens"), p: () => go("patch"), v: () => go("tests"), d: theme,
  s: () => document.getElementById("search")?.focus(),
  u: () => { location.hash = route.row && (page.store || page.jobs.length > 1) ? addressOf(route.job) : "#/"; },
  "?": () => document.getElementById("help").showModal(),
};

function obey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.getElementById("help").open) return;
  if (event.target.matches("input[type=search]")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (event.key === "Enter" && event.target.matches("a, button, summary, input")) return;
  const act = ACTS[event.key];
  if (!act) return;
  event.preventDefault();
  act();
}

async function begin() {
  document.getElementById("help").append(el("h2", "Keys"), el("table", el("tbody", KEYS.map(([key, does]) => el("tr", el("td", el("kbd", key)), el("td", does))))), el("form", { method: "dialog" }, el("button", "close")));
  document.getElementById("keys").addEventListener("click", () => ACTS["?"]());
  page = await unpacked(document.getElementById("page").textContent);
  page.jobs.forEach((job, index) => { job.index = index; prepare(job.rows); });
  addEventListener("hashchange", show);
  addEventListener("keydown", obey);
  if (page.start && !location.hash) history.replaceState(null, "", page.start);
  await show();
  document.body.dataset.ready = "true";
  performance.mark("ready");
  if (page.is_served) follow();
}

begin().catch((error) => document.getElementById("main").replaceChildren(el("p.bad", `This page can't be shown: ${error.message}`)));
