// Reviewing by keyboard: j and k move, x chooses, a applies and d dismisses.
const form = document.querySelector("[data-review]");
const items = form ? [...form.querySelectorAll(".proposal")] : [];

function move(by) {
  const next = items.indexOf(document.activeElement?.closest(".proposal")) + by;
  items[Math.min(Math.max(next, 0), items.length - 1)]?.focus();
}

function settle(action) {
  const current = document.activeElement?.closest(".proposal");
  if (!form.querySelector("[name=ids]:checked") && current) current.querySelector("[name=ids]").checked = true;
  if (form.querySelector("[name=ids]:checked")) form.requestSubmit(form.querySelector(`[value=${action}]`));
}

addEventListener("keydown", (event) => {
  const typing = event.target.matches("input:not([type=checkbox]), textarea, select");
  if (!items.length || typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const box = document.activeElement?.closest(".proposal")?.querySelector("[name=ids]");
  const does = {
    j: () => move(1),
    k: () => move(-1),
    x: () => { if (box) box.checked = !box.checked; },
    a: () => settle("apply"),
    d: () => settle("dismiss"),
  }[event.key];
  if (does) { event.preventDefault(); does(); }
});
