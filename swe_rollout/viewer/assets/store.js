// All jobs of a store, and the search in their texts.

const JOB_COLUMNS = ["Job", "Begun#", "Episodes#", "", "Resolved#", "Mean reward#", "Masked#", "State"];

/** How long ago a time in seconds was. */
function age(at) {
  const past = Math.max(0, Date.now() / 1000 - at);
  const [unit, size] = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]].find(([, each]) => past >= 2 * each) ?? ["s", 1];
  return `${count(Math.floor(past / size))} ${unit} ago`;
}

/** What a job does, as far as its store shows it. */
function stateOf(job) {
  if (job.committed >= job.episodes) return el("span.good", "complete");
  const last = job.changed_s === null ? "" : `, last commit ${seconds(job.changed_s)} ago`;
  return job.begun || last ? `${plural(job.begun, "episode")} begun${last}` : el("span.dim", "not complete");
}

function jobLine(job) {
  const { summary } = job;
  const share = { width: `${(100 * job.committed) / Math.max(job.episodes, 1)}%` };
  return el("tr", el("td.name", el("a", { href: addressOf(job) }, job.name)),
    el("td.n", { title: new Date(1000 * job.begun_at).toLocaleString() }, age(job.begun_at)),
    el("td.n", `${count(job.committed)}/${count(job.episodes)}`), el("td", el("span.lane.progress", el("i.good", { style: share }))),
    ...(summary ? [summary.resolved, null, summary.masked] : [null, null, null]).map((each, i) => el("td.n", summary ? (i === 1 ? decimal(summary.mean_reward) : count(each)) : "…")),
    el("td", stateOf(job)));
}

/** The page of a store: its jobs, the newest first, whose names have all words of the filter. */
function storeView() {
  const box = el("div"), told = el("span.dim");
  const input = el("input", { type: "search", id: "filter", placeholder: "filter jobs by name", ariaLabel: "filter" });
  function draw() {
    const wanted = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const shown = page.jobs.filter((job) => job.is_there && wanted.every((word) => job.name.includes(word))).sort((a, b) => b.begun_at - a.begun_at || byName(a.name, b.name));
    const body = el("tbody");
    const list = some(body, shown, jobLine);
    told.textContent = plural(shown.length, "job");
    const none = page.jobs.length ? "No job has such a name." : page.listed ? `${page.store} has no job yet; jobs appear here when they begin.` : "Reading the store …";
    box.replaceChildren(shown.length ? el("div.wide", el("table.jobs", el("thead", el("tr", JOB_COLUMNS.map(heading))), body)) : el("p.dim", none), list.button());
  }
  input.addEventListener("input", draw);
  draw();
  return { node: el("div", (page.problems ?? []).map((each) => el("p.bad", each)), searchBox(null), el("p.tools", input, told), box), redraw: draw, focus: () => input.focus() };
}

/** A field that searches the texts of a job, or of all jobs. */
function searchBox(job) {
  const input = el("input", { type: "search", id: "search", placeholder: "search what was said, run, printed and patched", ariaLabel: "search texts", maxLength: 200 });
  const go = () => { if (input.value.trim()) location.hash = `#/search/${job ? job.index : "all"}/${encodeURIComponent(input.value.trim())}`; };
  input.addEventListener("keydown", (event) => { if (event.key === "Enter") go(); });
  return el("p.tools", input, el("button", { type: "button", on: { click: go } }, job || page.jobs.length === 1 ? "search" : "search all jobs"));
}

const MOST_HITS = 500;

/** Search jobs part by part, and show hits as they are found; `isShown` ends it. */
async function searchJobs(jobs, text, box, told, isShown) {
  let hits = 0, searched = 0;
  for (const job of jobs) {
    let last = "";
    while (last !== null) {
      const found = await fetched(`search/${job.index}/${encodeURIComponent(text)}${last && `/${last}`}`).then((answer) => answer.text()).then(unpacked);
      if (!isShown()) return;
      searched += found.searched;
      hits += found.hits.length;
      last = found.last;
      for (const hit of found.hits) box.append(hitView(job, hit));
      told.textContent = `${plural(hits, "place")} in ${plural(searched, "episode")} …`;
      if (hits >= MOST_HITS) { told.textContent = `The first ${count(hits)} places; search for more words to find fewer.`; return; }
    }
  }
  told.textContent = `${plural(hits, "place")} in ${plural(searched, "episode")}`;
}

function hitView(job, hit) {
  const place = hit.turn === null ? { patch: "/patch", prompt: "/prompt" }[hit.place] ?? "/tests" : `/${hit.turn}`;
  return el("p.hit", el("a", { href: `#/${job.index}/${encodeURIComponent(hit.instance)}/${hit.sample}${hit.place === "failure" ? "" : place}` }, `${job.name}/${hit.instance}/${hit.sample}`), el("span.dim", ` ${hit.place}`),
    el("code", hit.before, el("mark", hit.found), hit.after));
}

function searchView(jobs, text) {
  const box = el("div"), told = el("p.dim", "Searching …");
  const node = el("div", told, box);
  const isShown = () => node.isConnected || !document.body.dataset.ready;
  setTimeout(() => searchJobs(jobs, text, box, told, isShown).catch((error) => box.append(el("p.bad", error.message))));
  return node;
}
