// Rates: how far each stage came between two events.
"use strict";
{
  let before = new Map();
  const note = () => {
    const now = performance.now();
    const seen = new Map();
    for (const row of document.querySelectorAll("[data-stage]")) {
      const cursor = Number(row.dataset.cursor);
      const last = before.get(row.dataset.stage);
      seen.set(row.dataset.stage, { cursor, now });
      if (!last) continue;
      const rate = (cursor - last.cursor) / ((now - last.now) / 1000);
      row.querySelector("[data-rate]").textContent = `${rate.toFixed(rate > 0 && rate < 10 ? 1 : 0)}/s`;
    }
    before = seen;
  };
  addEventListener("refreshed", note);
  note();
}
