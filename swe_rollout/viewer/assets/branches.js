// The tree of an episode's branches: sub-agents, and agents that went on with another history.

/** How deep each branch is below the main one; a parent always has a lower number. */
function depthsOf(branches) {
  const depths = [];
  for (const { index, parent } of branches) depths[index] = index && parent < index ? (depths[parent] ?? 0) + 1 : Math.min(index, 1);
  return depths;
}

/** Branches in the order of the tree: each behind its parent, in the order of their numbers. */
function treeOf(branches) {
  const children = new Map();
  for (const branch of branches.slice(1)) {
    const parent = branch.parent < branch.index ? branch.parent : 0;
    children.set(parent, [...(children.get(parent) ?? []), branch]);
  }
  const ordered = [], next = [branches[0]];
  while (next.length) {
    const branch = next.pop();
    ordered.push(branch);
    next.push(...(children.get(branch.index) ?? []).reverse());
  }
  return ordered;
}

const sampledOf = (branch) => branch.segments.filter((each) => each.kind === "sampled").reduce((sum, each) => sum + each.end - each.start, 0);

function branchTree(record) {
  const branches = branchesOf(record), depths = depthsOf(branches);
  const turns = Map.groupBy ? Map.groupBy(record.turns, (turn) => turn.branch ?? 0) : new Map(branches.map(({ index }) => [index, record.turns.filter((turn) => (turn.branch ?? 0) === index)]));
  const box = el("div.tree");
  const line = (branch) => {
    const own = turns.get(branch.index) ?? [];
    const opened = branchesOf(record)[branch.parent]?.segments.filter((each) => each.start < branch.parent_length).at(-1);
    const from = branch.index && opened ? ` · opened by branch ${branch.parent} after turn ${opened.turn}` : "";
    const links = own.slice(0, 60).map((turn) => [el("a", { href: here({ turn: turn.index }) }, turn.index), " "]);
    return el("div", { style: { paddingLeft: `${1.5 * Math.min(depths[branch.index], 12)}rem` } },
      el("strong", branch.index ? "└ " : "", branchTitle(branch)),
      el("span.dim", `${from} · ${plural(branch.ids.length, "token")}, ${count(sampledOf(branch))} sampled · ${plural(own.length, "turn")} `), links, own.length > 60 ? "…" : "");
  };
  const list = some(box, treeOf(branches), line, 100);
  return [box, list.button()];
}
