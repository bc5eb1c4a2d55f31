// Tokens of an episode: who wrote each, how likely it was, and which weights sampled it.

const AUTHORS = { prompt: "prompt", sampled: "sampled by the policy", delta: "written by the harness" };
const SHADES = [-0.1, -0.7, -2.3, -4.6]; // probability 0.9, 0.5, 0.1, 0.01
const TOKENS_AT_ONCE = 2000;

function branchesOf(record) {
  const further = record.branches ?? record.earlier_branches ?? [];
  const main = { ...record.tokens, index: 0, segments: record.segments, texts: record.texts };
  return [main, ...further.map((each, i) => ({ index: i + 1, ...each, ...each.tokens, texts: record.texts }))];
}

function branchTitle(branch) {
  if (!branch.index) return "Branch 0: the task";
  return `Branch ${branch.index}: ${branch.kind === "sub_agent" ? "sub-agent" : "goes on with another history"}`;
}

function branchName(branch) {
  const from = !branch.index || branch.parent === undefined ? "" : `, from branch ${branch.parent} at token ${count(branch.parent_length)}`;
  return `${branchTitle(branch)}${from}`;
}

/** The text of a token; undefined where no tokenizer was at hand. */
const pieceOf = (branch, at) => branch.odd?.[at] ?? branch.texts?.[branch.ids[at]];

function versionOf(record, segment, at) {
  const turn = record.turns.find((each) => each.index === segment.turn && (each.branch ?? 0) === segment.branch);
  const span = turn?.weight_versions?.find((each) => at - segment.start >= each.start && at - segment.start < each.end);
  return span?.version ?? segment.weight_version;
}

/** All tokens of one run, the first of many at once. */
function segmentView(record, branch, segment) {
  const box = el("div.tokens");
  const sampled = segment.kind === "sampled";
  const positions = Array.from({ length: segment.end - segment.start }, (_, i) => segment.start + i);
  const list = some(box, positions, (at) => {
    const text = pieceOf(branch, at);
    const logprob = branch.logprobs[at];
    const shade = logprob === null || logprob === undefined ? 0 : SHADES.filter((edge) => logprob < edge).length;
    const kind = sampled ? `b.sampled.p${shade}` : "b.given";
    const shown = text === undefined ? `${branch.ids[at]}` : text === "" ? "·" : text.replaceAll("\n", "⏎\n");
    return el(text === undefined ? `${kind}.id` : kind, { data: { at } }, shown);
  }, TOKENS_AT_ONCE);
  box.addEventListener("mouseover", ({ target }) => {
    if (!target.dataset.at || target.title) return;
    const at = Number(target.dataset.at);
    target.title = tokenFacts(record, branch, { ...segment, branch: branch.index }, at).map(visible).join("\n");
  });
  return [box, list.button()];
}

function tokenFacts(record, branch, segment, at) {
  const text = pieceOf(branch, at), logprob = branch.logprobs[at];
  const version = versionOf(record, segment, at);
  return [
    `id ${branch.ids[at]}${text === undefined ? "" : ` ${JSON.stringify(text)}`}`,
    `${AUTHORS[segment.kind]}, mask ${segment.kind === "sampled" ? 1 : 0}`,
    logprob === null || logprob === undefined ? "" : `logprob ${decimal(logprob, 4)} (${decimal(Math.exp(logprob) * 100, 1)} %)`,
    version ? `weights ${version}` : "",
    `position ${at} · turn ${segment.turn} · branch ${segment.branch}`,
  ].filter(Boolean);
}

function meanLogprob(branch, segment) {
  const known = branch.logprobs.slice(segment.start, segment.end).filter((each) => each !== null);
  return known.length ? known.reduce((sum, each) => sum + each, 0) / known.length : null;
}

/** The strip of a branch, as wide as its tokens, and each run behind a fold. */
function branchView(record, branch) {
  const total = branch.ids.length;
  if (!total) return el("p.dim", "No token was sampled.");
  const trained = branch.segments.filter((each) => each.kind === "sampled").reduce((sum, each) => sum + each.end - each.start, 0);
  const runs = el("div");
  const folds = branch.segments.map((segment) => fold(
    [
      `turn ${segment.turn} · ${AUTHORS[segment.kind]} · ${plural(segment.end - segment.start, "token")}`,
      segment.kind === "sampled" ? ` · mean logprob ${decimal(meanLogprob(branch, segment), 3)}` : "",
      segment.weight_version ? ` · weights ${segment.weight_version}` : "",
    ],
    () => segmentView(record, branch, segment),
  ));
  const strip = el("div.strip", branch.segments.slice(0, 2000).map((segment, i) => el(
    segment.kind === "sampled" ? "i.sampled" : "i",
    {
      style: { flexGrow: String(segment.end - segment.start) },
      title: `turn ${segment.turn} · ${AUTHORS[segment.kind]} · ${plural(segment.end - segment.start, "token")}`,
      on: { click: () => { folds[i].open = true; folds[i].scrollIntoView({ block: "center" }); } },
    },
  )));
  const list = some(runs, folds, (each) => each);
  return [
    el("p.dim", `${count(trained)} of ${plural(total, "token")} sampled (${Math.round((100 * trained) / total)} %); the rest is masked`),
    strip, runs, list.button(),
  ];
}

function tokensView(record) {
  if (record.chat) return [el("p.dim", "This episode has no tokens: a chat API played it, or its record was dumped without them.")];
  const branches = branchesOf(record);
  const shades = ["≥ 90 %", "≥ 50 %", "≥ 10 %", "≥ 1 %", "less"];
  const key = el("p.key", el("b.given", "masked"), shades.map((name, i) => el(`b.sampled.p${i}`, name)));
  const note = record.no_texts ? [el("p.dim", `Ids are shown in place of text: ${record.no_texts}`)] : [];
  const shown = branches.flatMap((branch) => [branches.length > 1 ? el("h4", branchName(branch)) : "", branchView(record, branch)]);
  return [key, ...note, ...shown.flat()];
}
