// Uploads a file by the API, with its progress: forms with data-upload.
"use strict";

/** Sends a body; shows how much has arrived. Returns the status and the answer as JSON. */
function send(url, type, body, bar) {
  return new Promise((done) => {
    const request = new XMLHttpRequest();
    request.open("POST", url);
    request.setRequestHeader("Content-Type", type);
    request.responseType = "json";
    request.upload.addEventListener("progress", (event) => {
      bar.max = event.total;
      bar.value = event.loaded;
    });
    request.upload.addEventListener("load", () => bar.removeAttribute("value"));
    request.addEventListener("loadend", () => done([request.status, request.response]));
    bar.hidden = false;
    request.send(body);
  });
}

/** What went wrong, for a person. */
function problemOf(status, answer) {
  if (status === 0) return "The connection was cut off: the service refused the file or is away. Nothing is doubled if it is sent again.";
  return answer?.detail ?? `The service answered with status ${status}.`;
}

/** How many turns of a scope are stored; null for who may not see it. */
async function stored(scope) {
  const response = await fetch(`/api/stats?${new URLSearchParams({ scope })}`);
  return response.ok ? (await response.json()).turns : null;
}

/** Shows how many of the new turns are stored, until all are or none has come for a while. */
async function followTurns(scope, before, sent, bar, told) {
  bar.max = sent;
  for (let idle = 0, last = -1; idle < 10;) {
    const now = (await stored(scope)) - before;
    bar.value = now;
    told.textContent = `${now} of ${sent} new turns are stored.`;
    if (now >= sent) break;
    idle = now === last ? idle + 1 : 0;
    last = now;
    await new Promise((done) => { setTimeout(done, 1000); });
  }
  bar.hidden = true;
}

function line(parent, tag, text) {
  parent.append(Object.assign(document.createElement(tag), { textContent: text }));
}

/** Says what became of a file: what was read, what was refused and why, where the turns are. */
function tell(answer, result) {
  const { format, accepted, known, conflicts, erased, refused, refused_parts: bad, notes } = answer;
  line(result, "p", `Read as ${format}: ${accepted} turns are in the log; ${known} of them had been published before${conflicts ? `, ${conflicts} have the id of another turn and are refused` : ""}${erased ? `; ${erased} more were erased before and stay so` : ""}.`);
  for (const note of notes) line(result, "p", note);
  if (bad) line(result, "p", `${bad} parts were refused${bad > 10 ? "; the first ten:" : ":"}`);
  for (const each of refused.slice(0, 10)) line(result, "p", `${each.where}: ${each.why}`);
  for (const scope of Object.keys(answer.scopes).slice(0, 10)) {
    const link = document.createElement("a");
    link.href = `/sessions?${new URLSearchParams({ scope })}`;
    link.textContent = `Sessions of ${scope}`;
    result.append(link);
  }
}

async function sendChat(form, file, bar, told) {
  const fields = form.elements;
  const query = new URLSearchParams({ name: file.name, modified: new Date(file.lastModified).toISOString() });
  for (const name of ["scope", "me", "timezone", "date_order"]) if (fields[name].value.trim()) query.set(name, fields[name].value.trim());
  const scope = query.get("scope");
  const before = scope && await stored(scope);
  let status, answer;
  while ([status, answer] = await send(`${form.dataset.upload}?${query}`, "application/octet-stream", file, bar), status === 429) {
    told.textContent = `Waiting to send it: ${answer.detail}.`;
    await new Promise((done) => { setTimeout(done, 2000); });
  }
  if (status !== 202) return problemOf(status, answer);
  const result = form.querySelector("output");
  result.replaceChildren();
  tell(answer, result);
  if (typeof before === "number" && answer.new) await followTurns(scope, before, answer.new, bar, told);
  return "";
}

async function sendDocument(form, file, bar) {
  const { scope, title } = form.elements;
  const text = await file.text();
  if (/[\0\uFFFD]/.test(text)) return "This file is no text in UTF-8. Save it as text, Markdown or HTML.";
  const body = { text, name: file.name, title: title.value };
  if (scope.value) body.scope = scope.value;
  const [status, answer] = await send(form.dataset.upload, "application/json", JSON.stringify(body), bar);
  if (!answer?.id) return problemOf(status, answer);
  location.assign(`/documents/${answer.id}`);
  return "";
}

function upload(form) {
  const bar = form.querySelector("progress");
  const told = form.querySelector("[role=status]");
  const button = form.querySelector("button");
  const zone = form.elements.timezone;
  if (zone && !zone.value) zone.value = Intl.DateTimeFormat().resolvedOptions().timeZone ?? "";
  form.addEventListener("submit", async (event) => {
    const [file] = form.elements.file.files;
    if (!file && form.method === "post") return; // a pasted text or a URL
    event.preventDefault();
    const limit = Number(form.dataset.limit);
    let wrong = "";
    if (!file) wrong = "Choose a file.";
    else if (file.size === 0) wrong = `${file.name} is empty.`;
    else if (file.size > limit) wrong = `${file.name} has ${(file.size / 2 ** 20).toFixed(1)} MiB, and ${(limit / 2 ** 20).toFixed(0)} MiB are allowed (${form.dataset.setting}). The command line takes larger files.`;
    button.disabled = true;
    told.textContent = "";
    wrong ||= await (form.elements.title ? sendDocument : sendChat)(form, file, bar, told);
    button.disabled = false;
    if (wrong) bar.hidden = true;
    told.textContent ||= wrong;
    told.className = wrong ? "problem" : "about";
  });
}
document.querySelectorAll("[data-upload]").forEach(upload);
