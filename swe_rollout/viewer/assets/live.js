// A served page follows the store: it asks for what is new while it is looked at.

const QUICK_MS = 300, SLOW_MS = 2000;

/** Jobs of the store: known ones get their new numbers, and keep their rows. Returns whether anything is new. */
async function followStore() {
  const news = await (await fetched("jobs")).text().then(unpacked);
  const isNew = JSON.stringify(news) !== page.listed;
  page.listed = JSON.stringify(news);
  page.problems = news.problems;
  page.jobs.forEach((job) => { job.is_there = false; });
  for (const each of news.jobs) {
    const known = page.jobs[each.index] ?? { rows: [], complete: false, generation: 0 };
    page.jobs[each.index] = Object.assign(known, each, { is_there: true });
  }
  for (let i = 0; i < page.jobs.length; i += 1) page.jobs[i] ??= { index: i, name: "", rows: [], complete: false, generation: 0, is_there: false };
  return isNew;
}

/** Rows of a job that are not here yet; returns whether anything is new. */
async function followJob(job) {
  const news = await (await fetched(`rows/${job.index}/${job.generation ?? 0}/${job.rows.length}`)).text().then(unpacked);
  const before = JSON.stringify([job.complete, job.summary, job.damaged, job.running, page.comparison]);
  if (news.generation !== (job.generation ?? 0)) job.rows = [];
  prepare(news.rows);
  job.rows.push(...news.rows);
  const { generation, complete, more, summary, damaged, running, running_count } = news;
  Object.assign(job, { generation, complete, more, summary, damaged, running, running_count });
  page.comparison = news.comparison ?? page.comparison;
  return news.rows.length > 0 || before !== JSON.stringify([complete, summary, damaged, running, page.comparison]);
}

/** Draw the page of the route again, where the reader is. */
async function redrawn() {
  if (document.getElementById("search")?.value || document.querySelector("dialog[open]")) return;
  const filter = document.getElementById("filter"), typed = filter?.value ?? "", focused = document.activeElement === filter;
  const folds = () => [...document.querySelectorAll("main details")].map((each) => [each.firstChild.textContent.replace(/[\d,]+/g, ""), each]);
  const at = scrollY, open = new Map(folds().map(([name, each]) => [name, each.open]));
  await navigate(location.hash.split("/").slice(1));
  for (const [name, each] of folds()) if (open.has(name)) each.open = open.get(name);
  if (typed && view?.redraw) {
    document.getElementById("filter").value = typed;
    view.redraw();
  }
  if (focused) view?.focus?.();
  scrollTo(0, at);
}

async function followOnce() {
  const isList = page.store && !route.job && !route.rows && !route.text;
  if (isList) {
    if ((await followStore()) && !route.job) await redrawn();
    return page.listed && page.jobs.length ? SLOW_MS : QUICK_MS;
  }
  if (route.row || route.rows || route.text !== undefined) return SLOW_MS;
  const jobs = route.job ? [route.job] : page.jobs;
  let isNew = false;
  for (const job of jobs) isNew = (await followJob(job)) || isNew;
  if (isNew && jobs.every((job) => job === route.job || !route.job)) await redrawn();
  return jobs.some((job) => job.complete === false || job.more) ? QUICK_MS : SLOW_MS;
}

async function follow() {
  const problem = el("p.bad");
  for (;;) {
    let pause = SLOW_MS;
    try {
      if (!document.hidden) pause = await followOnce();
      problem.remove();
    } catch (error) {
      problem.textContent = `The server is gone: ${error.message}. Start it again, and open the address that it prints.`;
      document.getElementById("top").append(problem);
    }
    await new Promise((done) => setTimeout(done, pause));
  }
}
