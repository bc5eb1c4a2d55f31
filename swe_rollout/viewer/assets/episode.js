// One episode: outcome, prompt, turns, patch, tests, time and tokens.

const GOOD_TESTS = ["PASSED", "XFAIL"];
const LONG_LINES = 12;

/** How an episode ended, in its colour. */
const outcome = (row) => el(`span.${row.kind}`, words(row.verdict));

function episodeFacts(row, record) {
  return facts([
    ["verdict", outcome(row)],
    ["reward", row.reward === null ? "none" : decimal(row.reward, 4)],
    ["ended by", words(row.ended)],
    ["turns", count(row.turns)],
    ["tokens", count(row.tokens)],
    ["sampled", count(row.sampled)],
    row.attempt > 1 && ["attempt", row.attempt],
    record.forked_from && ["forked from", `${record.forked_from.episode}, turn ${record.forked_from.turn}`],
    record.forked_from && ["inherited", `${count(record.forked_from.tokens)} tokens, ${count(record.forked_from.sampled)} sampled${record.forked_from.trained ? "" : ", not trained"}`],
    ["total", seconds(row.total_s)],
  ]);
}

/** The terms of the reward, and what each adds to it. */
function termsView(record) {
  const terms = record.reward_terms ?? [];
  if (!terms.length) return [el("p.dim", "There is no reward.")];
  const row = (term) => el("tr", el("td.name", term.name), ...[term.score, term.weight, term.score * term.weight].map((each) => el("td.n", decimal(each, 4))));
  const sum = terms.reduce((total, term) => total + term.score * term.weight, 0);
  const body = el("tbody");
  const list = some(body, terms, row, 50);
  body.append(el("tr", el("td.name", el("strong", "reward")), el("td"), el("td"), el("td.n", el("strong", decimal(sum, 4)))));
  return [el("table.terms", el("thead", el("tr", ["Term", "Score#", "Weight#", "Adds#"].map(heading))), body), list.button(), ...judgesView(record)];
}

/** What models said that gave a score. */
function judgesView(record) {
  const judged = (record.reward_terms ?? []).filter((term) => term.model || term.answer);
  return judged.map((term) => fold(`${term.name} ${decimal(term.score, 4)}, by ${term.model}`, () => pre(term.answer)));
}

function failureView(record) {
  const { failure } = record;
  if (record.stop_evidence) return [el("p.warn", `The policy ended its own sandbox. ${record.stop_evidence}`)];
  if (!failure) return [];
  const again = failure.retryable ? "it may be retried" : "a retry would not help";
  const said = el("p.warn", `${failure.type} (owner: ${failure.boundary}), attempt ${record.attempt}; ${again}: ${failure.message}`);
  return failure.trace ? [said, pre(failure.trace)] : [said];
}

/** The messages a branch begins with: system, tools, the task. */
function promptView(record, job) {
  const messages = record.prompts ?? record.chat?.messages?.filter((each) => each.role !== "assistant") ?? [];
  const shown = messages.map((message) => fold(
    [el("strong", message.role), ` · ${plural(message.text.length, "character")}`, message.branch ? ` · branch ${message.branch}` : ""],
    () => pre(message.text), message.role === "user" && !message.branch,
  ));
  if (!shown.length) shown.push(el("p.dim", "The record has no messages of the prompt; its tokens are below."));
  for (const branch of branchesOf(record)) {
    const [first] = branch.segments;
    if (first?.kind !== "prompt") continue;
    const name = branch.index ? ` of branch ${branch.index}` : "";
    shown.push(fold(`the prompt${name} as the policy read it, with its tools · ${plural(first.end - first.start, "token")}`, () => segmentView(record, branch, first)));
  }
  const tools = (Array.isArray(job.tools) ? job.tools : []).map((each) => (typeof each === "string" ? each : JSON.stringify(each)));
  if (tools.length) shown.push(el("p", el("span.dim", "tools "), tools.map((each) => [el("code", each), " "])));
  return shown;
}

/** Widths of a turn's bar: the engine's time and the tools'. */
function latencyBar(turn, longest) {
  const share = (value) => ({ width: `${(100 * value) / longest}%` });
  const title = `engine ${seconds(turn.engine_s)}, tools ${seconds(turn.tools_s)}`;
  return el("span.latency", { title },
    el("i.engine", { style: share(turn.engine_s) }), el("i.tools", { style: share(turn.tools_s) }));
}

const longestTurn = (record) => Math.max(1e-6, ...record.turns.map((turn) => turn.engine_s + turn.tools_s));

function turnFacts(record, turn) {
  return [
    turn.index < (record.forked_from?.turn ?? 0) ? "inherited" : "",
    turn.branch ? `branch ${turn.branch}` : "",
    plural(turn.completion_tokens, "token"),
    `prompt ${count(turn.request.length)}, ${count(turn.cached_tokens)} cached`,
    `engine ${seconds(turn.engine_s)}`,
    `tools ${seconds(turn.tools_s)}`,
    turn.finish_reason === "stop" ? "" : `ended by ${turn.finish_reason}`,
    ...turn.weight_versions.map((span) => `weights ${span.version}`),
  ].filter(Boolean).join(" · ");
}

function turnView(record, turn, longest) {
  const made = el("section.turn", { id: `turn-${turn.index}`, tabIndex: -1 },
    el("h3", `Turn ${turn.index}`, latencyBar(turn, longest), el("span.dim", turnFacts(record, turn))));
  if (turn.message) made.append(el("div.label", "the agent program said"), pre(turn.message));
  const calls = turn.tool_calls, results = turn.observations;
  if (turn.words === null) made.append(pre(turn.text, "said"));
  else if (turn.words.trim()) made.append(pre(turn.words, "said"));
  for (let i = 0; i < Math.max(calls.length, results.length); i += 1) {
    if (calls[i]) made.append(callView(calls[i]));
    made.append(results[i] ? resultView(results[i]) : el("p.dim", "not executed"));
  }
  made.append(fold("as sampled", () => pre(turn.text)));
  const branch = branchesOf(record).find((each) => each.index === (turn.branch ?? 0));
  const segment = branch?.segments.find((each) => each.kind === "sampled" && each.turn === turn.index);
  if (segment) made.append(fold(`tokens · ${plural(segment.end - segment.start, "sampled token")}`, () => segmentView(record, branch, segment)));
  return made;
}

/** A call, decoded: text arguments as text, the others as JSON. */
function callView(call) {
  if (call.status !== "ok") {
    return el("div.call", el("p.warn", `${words(call.status)}: ${call.problem}`), pre(call.raw));
  }
  const pairs = Object.entries(call.arguments);
  const shown = ([name, value]) => {
    const short = typeof value === "string" ? value : JSON.stringify(value);
    if (pairs.length > 1 && short.length <= 100 && !short.includes("\n")) {
      return el("div", el("span.label", name, " "), el("code", short));
    }
    const label = pairs.length > 1 || typeof value !== "string" ? el("div.label", name) : "";
    return [label, pre(typeof value === "string" ? value : JSON.stringify(value, null, 2))];
  };
  return el("div.call", el("div.name", el("code", call.name), call.id ? el("span.dim", ` ${call.id}`) : ""), pairs.map(shown));
}

function resultView(result) {
  const lines = result.text.split("\n").length;
  const told = [
    result.exit_code === null ? "" : `exit ${result.exit_code}`,
    result.timed_out ? "timed out" : "",
    result.truncated ? "truncated" : "",
    seconds(result.duration_s),
    plural(lines, "line"),
  ].filter(Boolean).join(" · ");
  const bad = (result.exit_code ?? 0) !== 0 || result.timed_out;
  return fold(el(bad ? "span.bad" : "span", told), () => pre(result.text), lines <= LONG_LINES);
}

function patchView(patch) {
  if (!patch) return [el("p.dim", "Nothing was changed.")];
  const box = el("pre.patch");
  const kind = (line) => {
    if (/^(diff |index |--- |\+\+\+ )/.test(line)) return "span.dim";
    return line.startsWith("+") ? "span.add" : line.startsWith("-") ? "span.del" : line.startsWith("@@") ? "span.hunk" : "span";
  };
  const list = some(box, patch.split("\n"), (line) => el(kind(line), `${line}\n`), 2000);
  return [box, list.button()];
}

/** The patch, and the task's reference fix beside it, which only a served page can read. */
function patchesView(job, row, record) {
  if (!page.is_served) return patchView(record.patch);
  const gold = el("div.side", el("p.dim", "Reading the task's fix …"));
  fetched(`gold/${job.index}/${encoded(row)}`).then((answer) => answer.text()).then(unpacked)
    .then(({ patch, why }) => [el("h4", "Reference fix (gold)"), ...(patch ? patchView(patch) : [el("p.dim", `Not shown: ${why}`)])])
    .catch((error) => [el("p.bad", error.message)]).then((shown) => gold.replaceChildren(...shown));
  return el("div.sides", el("div.side", el("h4", "This episode"), patchView(record.patch)), gold);
}

function testsView(verdict) {
  if (!verdict) return [el("p.dim", "Not graded; there is no reward.")];
  const lists = [["to fix", verdict.report.fail_to_pass], ["to keep passing", verdict.report.pass_to_pass], ["beside these", verdict.report.others ?? {}]];
  const shown = lists.filter(([name, tests], i) => i < 2 || Object.keys(tests).length).map(([name, tests]) => {
    const all = Object.entries(tests);
    const good = all.filter(([, status]) => GOOD_TESTS.includes(status)), bad = all.filter(([, status]) => !GOOD_TESTS.includes(status));
    const label = [`${plural(all.length, "test")} ${name}: `, el("span.good", `${good.length} pass`), bad.length ? [", ", el("span.bad", `${bad.length} do not`)] : ""];
    return fold(label, () => {
      const body = el("tbody");
      const list = some(body, [...bad, ...good], ([test, status]) => el("tr", el("td", test), el(GOOD_TESTS.includes(status) ? "td.good" : "td.bad", status)));
      return [el("table", el("thead", el("tr", el("th", "Test"), el("th", "Status"))), body), list.button()];
    }, bad.length > 0);
  });
  return [...shown, fold("End of the test log", () => pre(verdict.log_tail))];
}

function findingsView(verdict) {
  const unproven = verdict?.unproven ? [`unproven: ${verdict.unproven}`] : [];
  const findings = [...(verdict?.integrity ?? []), ...unproven];
  if (!findings.length) return [el("p.dim", verdict ? "No finding." : "Not graded.")];
  return [el("ul", findings.map((finding) => el("li.warn", finding)))];
}

/** Start, turns and grading one after the other, as wide as they took. */
function timeView(record) {
  const { timing } = record;
  const steps = [["start", timing.start_s, "start"]];
  for (const turn of record.turns) {
    steps.push([`turn ${turn.index}: engine`, turn.engine_s, "engine", turn.index]);
    turn.observations.forEach((result, i) => steps.push([`turn ${turn.index}: ${turn.tool_calls[i]?.name || "call"}`, result.duration_s, "tools", turn.index]));
  }
  steps.push(["grading", timing.grade_s, "grade"]);
  const told = steps.reduce((sum, [, length]) => sum + length, 0);
  const total = Math.max(timing.total_s, told, 1e-6);
  if (total > told) steps.push(["everything else", total - told, "other"]);
  let at = 0;
  const box = el("div.waterfall");
  const list = some(box, steps, ([name, length, kind, turn]) => {
    const bar = el(`i.${kind}`, { style: { marginLeft: `${(100 * at) / total}%`, width: `${Math.max((100 * length) / total, 0.15)}%` } });
    at += length;
    const label = turn === undefined ? el("span", name) : el("a", { href: here({ turn }) }, name);
    return el("div", label, el("span.lane", bar), el("span.n", seconds(length)));
  });
  const key = facts([["start", seconds(timing.start_s)], ["engine", seconds(timing.engine_s)], ["tools", seconds(timing.tools_s)], ["grading", seconds(timing.grade_s)], ["total", seconds(timing.total_s)]]);
  return [key, el("p.dim", "Steps are drawn one after the other, in the order of the record."), box, list.button()];
}

function aboutView(record) {
  const pairs = [
    ["episode", record.episode], ["attempt", record.attempt], ["seed", record.seed ?? "none"],
    ["finished at", record.finished_at], ["spec digest", record.spec_digest], ["task digest", record.instance_digest || "none"],
    ...Object.entries(record.token_path ?? {}), ...Object.entries(record.software),
  ];
  return el("table", el("tbody", pairs.map(([name, value]) => el("tr", el("td.dim", words(name)), el("td", String(value))))));
}

function commandsView(job, row) {
  const address = `${job.address}/${row.instance}/${row.sample}`;
  return ["view", "regrade", "replay"].map((verb) => command(`swe-rollout ${verb} ${quoted(address)}`));
}

const quoted = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`);

/** The page of an episode, with its turns on the left. */
function episodeView(job, row, record) {
  const longest = longestTurn(record);
  const turns = el("div"), index = el("nav.turns", { ariaLabel: "turns" });
  const depths = depthsOf(branchesOf(record));
  const link = (turn) => el("a", { href: here({ turn: turn.index }), data: { turn: turn.index }, style: { marginLeft: `${0.6 * Math.min(depths[turn.branch ?? 0] ?? 0, 6)}rem` } },
    el("span", `${turn.index}`), latencyBar(turn, longest), el("code", turn.tool_calls.map((call) => call.name || words(call.status)).join(" ") || "–"));
  some(index, record.turns, link, 5000);
  const list = some(turns, record.turns, (turn) => turnView(record, turn, longest), 100);
  const section = (id, title, ...content) => el("section", { id }, el("h2", title), content);
  const sections = [
    section("prompt", "Prompt", promptView(record, job)),
    ...(branchesOf(record).length > 1 ? [section("branches", "Branches", branchTree(record))] : []),
    section("turns", "Turns", record.turns.length ? [turns, list.button()] : el("p.dim", "No turn was sampled.")),
    section("patch", "Patch", patchesView(job, row, record)),
    section("reward", "Reward", termsView(record)),
    section("tests", "Tests", testsView(record.verdict)),
    section("integrity", "Integrity", findingsView(record.verdict)),
    section("time", "Time", timeView(record)),
    section("tokens", "Tokens", tokensView(record)),
    section("about", "About this record", commandsView(job, row), fold("versions and digests", () => aboutView(record)), fold("the record as JSON", () => pre(JSON.stringify(record, null, 1).slice(0, 200_000)))),
  ];
  const jump = el("p.jump", sections.map((each) => el("a", { href: here({ section: each.id }) }, each.firstChild.textContent)));
  return {
    node: el("div.episode", index, el("div.body", failureView(record), episodeFacts(row, record), jump, sections)),
    /** Show a turn, making those before it. */
    turn(number) {
      while (!document.getElementById(`turn-${number}`) && list.left()) list.more();
      return document.getElementById(`turn-${number}`);
    },
  };
}
