// j and k go from turn to turn, J and K from episode to episode, o folds and unfolds.
(() => {
  const go = (selector, step) => {
    const all = [...document.querySelectorAll(selector)];
    if (!all.length) return;
    const top = (each) => each.getBoundingClientRect().top;
    const next = step > 0
      ? all.find((each) => top(each) > 24)
      : all.reverse().find((each) => top(each) < -8);
    if (!next) return;
    document.querySelectorAll(".here").forEach((each) => each.classList.remove("here"));
    next.classList.add("here");
    next.scrollIntoView({ block: "start" });
  };
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    switch (event.key) {
      case "j": go(".turn", 1); break;
      case "k": go(".turn", -1); break;
      case "J": go("h2", 1); break;
      case "K": go("h2", -1); break;
      case "o": {
        const here = document.querySelector(".turn.here") ?? document;
        const folds = [...here.querySelectorAll("details")];
        const open = folds.some((each) => !each.open);
        folds.forEach((each) => { each.open = open; });
        break;
      }
      default: return;
    }
    event.preventDefault();
  });
})();
