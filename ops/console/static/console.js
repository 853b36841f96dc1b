// What HTML alone cannot do: refresh on events, filter a table. Everything works without, once.
"use strict";

/** Fetches this view again and puts its fresh content into the section; returns the fresh one. */
async function renew(section) {
  const response = await fetch(location.href, { headers: { Accept: "text/html" } });
  if (!response.ok) return section;
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  const fresh = page.getElementById(section.id);
  // Not under the hands of somebody who fills in a form there.
  if (fresh && !section.contains(document.activeElement)) section.innerHTML = fresh.innerHTML;
  section.dispatchEvent(new CustomEvent("refreshed", { bubbles: true }));
  return fresh ?? section;
}

/** `<section id data-live="URL" data-events="a,b">`: renewed when the stream has an event. */
function follow(section) {
  const shown = document.querySelector("[data-connection]");
  let stream = null;
  let busy = false;
  let again = false;
  const refresh = async () => {
    if (busy) { again = true; return; }
    busy = true;
    try {
      await renew(section);
    } finally {
      busy = false;
      if (again) { again = false; refresh(); }
    }
  };
  const open = () => {
    stream = new EventSource(section.dataset.live);
    for (const name of section.dataset.events.split(",")) stream.addEventListener(name, refresh);
    if (!shown) return;
    stream.addEventListener("open", () => { shown.textContent = "live"; });
    stream.addEventListener("error", () => { shown.textContent = "connecting again …"; });
  };
  // A browser keeps few connections to a host: tabs that nobody looks at leave them to others.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) stream.close();
    else { open(); refresh(); }
  });
  addEventListener("pagehide", () => stream.close());
  open();
}

/** `<section id data-polls>`: renewed every second or so, until it has that attribute no more. */
async function poll(section) {
  for (let fresh = section; fresh.hasAttribute("data-polls");) {
    await new Promise((done) => { setTimeout(done, 1500); });
    fresh = await renew(section);
  }
}

/** `<input data-filter="TABLE_ID">` shows only the rows of the table that contain its words. */
function filter(input) {
  const rows = () => document.getElementById(input.dataset.filter).tBodies[0].rows;
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/);
    for (const row of rows()) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    }
  });
}

/** `<input type="checkbox" data-all="NAME">` checks all boxes of that name in its form. */
function checkAll(box) {
  box.addEventListener("change", () => {
    for (const each of document.querySelectorAll(`input[name="${box.dataset.all}"]`)) each.checked = box.checked;
  });
}

document.querySelectorAll("[data-live]").forEach(follow);
document.querySelectorAll("[data-polls]").forEach(poll);
document.querySelectorAll("[data-filter]").forEach(filter);
document.querySelectorAll("[data-all]").forEach(checkAll);

/** `<select data-fills="NAME">` puts the chosen value into the field of that name. */
function fill(select) {
  select.addEventListener("change", () => {
    const field = document.querySelector(`[name="${select.dataset.fills}"]`);
    if (select.value) field.value = select.value;
    field.focus();
  });
}
document.querySelectorAll("[data-fills]").forEach(fill);

// On a phone the navigation is one line; the current view stands in its middle.
const nav = document.querySelector(".side nav");
const current = nav?.querySelector("[aria-current]");
if (current) nav.scrollLeft = current.offsetLeft - (nav.clientWidth - current.offsetWidth) / 2;
// A drawing that is wider than a phone begins with what is in its middle.
for (const each of document.querySelectorAll(".drawing")) each.scrollLeft = (each.scrollWidth - each.clientWidth) / 2;
