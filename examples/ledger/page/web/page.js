// The page is a client like any other: it sends POST /v1/transfers under a key,
// and sends the same bytes again until it has an answer.

const answerWait = 20_000; // milliseconds; later counts as a lost connection
const retryFirst = 250;
const retryMost = 4_000;
const retries = 30;
const floodSize = 20;
const attemptsShown = 60;
const keysShown = 20;
const queryLongest = 2_500; // a server reads 4 kB of address and headers
const pollIdle = 2_000;
const pollBusy = 250;

const el = (id) => document.getElementById(id);
const sleep = (milliseconds) => new Promise((wake) => setTimeout(wake, milliseconds));

const form = el("transfer");
const fields = { from: el("from"), to: el("to"), amount: el("amount"), key: el("key"), apiKey: el("api-key") };
const firstUnder = new Map(); // key → the request that was first sent under it
const running = new Map(); // key → how many requests wait for their answer
const keys = []; // newest first
const before = new Map(); // account → its balance when the last action began
const inPlace = new Map(); // place → the HTML that is in it
let busy = false;

// ---- money: integers in the minor unit, never floats

const decimalsOf = (currency) => Number(account((a) => a.currency === currency)?.decimals ?? 2);

function parseMoney(text, decimals) {
  const [whole, part = ""] = text.split(".");
  return part.length > decimals ? NaN : Number(whole + part.padEnd(decimals, "0"));
}

function digits(minor, decimals) {
  const text = String(Math.abs(minor)).padStart(decimals + 1, "0");
  const cut = text.length - decimals;
  return (minor < 0 ? "−" : "") + text.slice(0, cut) + (decimals ? "." + text.slice(cut) : "");
}

const money = (minor, currency) => `${digits(minor, decimalsOf(currency))} ${currency}`;

// ---- what the server shows: accounts, and the records of the keys

const accounts = () => [...el("accounts").querySelectorAll(".account")].map((card) => card.dataset);
const account = (condition) => accounts().find(condition);
const balanceOf = (id) => Number(account((a) => a.id === id)?.balance);

let asked = 0;
let shown = 0;

// refresh swaps in what the server renders. It returns whether it could.
async function refresh() {
  if (!fields.apiKey.value) {
    return false;
  }
  const turn = ++asked;
  let answer;
  try {
    const response = await fetch(`/page/live?${keysQuery()}`, {
      headers: { Authorization: `Bearer ${fields.apiKey.value}` }, cache: "no-store",
      signal: AbortSignal.timeout(answerWait),
    });
    answer = { status: response.status, html: await response.text() };
  } catch {
    answer = { status: 0 };
  }
  el("live").hidden = answer.status !== 200;
  if (answer.status === 401) {
    inPlace.delete("accounts");
    el("accounts").replaceChildren(element("p", "note", "No tenant has this API key."));
  }
  if (answer.status === 200 && turn > shown) { // else a later answer overtook this one
    shown = turn;
    swap(new DOMParser().parseFromString(answer.html, "text/html"));
  }
  return answer.status === 200;
}

const keysQuery = () => new URLSearchParams(keys.map((key) => ["key", key])).toString();

function swap(fresh) {
  for (const row of fresh.querySelectorAll("[data-key]")) {
    row.firstElementChild.prepend(dot(row.dataset.key));
    const missing = row.querySelector(".none");
    if (missing && running.get(row.dataset.key)) {
      missing.className = "badge inflight";
      missing.textContent = "in flight";
    }
  }
  for (const time of fresh.querySelectorAll("time")) { // the server writes UTC
    time.textContent = (time.className === "day" ? day : clock)(new Date(time.dateTime));
  }
  for (const part of fresh.querySelectorAll("[data-live]")) {
    const name = part.dataset.live;
    if (inPlace.get(name) !== part.innerHTML) {
      inPlace.set(name, part.innerHTML);
      el(name).replaceChildren(...part.childNodes);
    }
  }
  showChanges();
  offerAccounts();
}

// showChanges marks the balances that the last action changed.
function showChanges() {
  for (const { dataset } of el("accounts").querySelectorAll(".account")) {
    const change = Number(dataset.balance) - before.get(dataset.id);
    if (change) { // neither 0 nor NaN
      dataset.change = (change > 0 ? "+" : "") + digits(change, Number(dataset.decimals));
    } else {
      delete dataset.change;
    }
  }
}

// offerAccounts keeps the two lists of the form, and what is chosen in them.
function offerAccounts() {
  const ids = accounts().map((a) => a.id);
  if (ids.join() === [...fields.from.options].map((option) => option.value).join()) {
    return;
  }
  const source = account((a) => !a.available)?.id ?? ids[0];
  const choices = { from: source, to: ids.find((id) => id !== source) };
  for (const [name, first] of Object.entries(choices)) {
    const chosen = fields[name].value || first;
    fields[name].replaceChildren(...ids.map((id) => new Option(id, id, false, id === chosen)));
  }
}

// ---- sending

// send makes one attempt and returns how it ended. A crash is only ever asked
// for by the first attempt.
async function send(request, crash) {
  const attempt = { request, row: listAttempt(request) };
  const { key, ...payload } = request;
  if (!firstUnder.has(key)) {
    firstUnder.set(key, request);
  }
  running.set(key, (running.get(key) ?? 0) + 1);
  const headers = {
    Authorization: `Bearer ${fields.apiKey.value}`, "Idempotency-Key": key, "Content-Type": "application/json",
  };
  if (crash) {
    headers["Ledger-Demo-Crash"] = crash;
  }
  try {
    const response = await fetch("/v1/transfers", {
      method: "POST", headers, body: JSON.stringify(payload), cache: "no-store", signal: AbortSignal.timeout(answerWait),
    });
    const body = await response.json();
    Object.assign(attempt, { status: response.status, title: body.title, detail: body.detail, kind: kindOf(response, body) });
  } catch {
    attempt.kind = "lost"; // also when the answer breaks off in the middle
  }
  running.set(key, running.get(key) - 1);
  showAnswer(attempt);
  return attempt;
}

function kindOf(response, body) {
  const is = (problem) => body.type?.endsWith(`#${problem}`);
  switch (true) {
    case response.headers.get("Idempotency-Replayed") === "true": return "replayed";
    case response.ok: return "executed";
    case is("request-in-flight"): return "inflight";
    case is("idempotency-key-reused"): return "other";
    case response.status >= 500: return "unavailable";
    case response.status === 401 || is("idempotency-key-invalid"): return "refused";
    default: return "rejected";
  }
}

const unanswered = new Set(["lost", "inflight", "unavailable"]);

// pursue sends the same request until it has an answer, and waits longer after
// each attempt.
async function pursue(request, crash) {
  const attempts = [await send(request, crash)];
  for (let wait = retryFirst; unanswered.has(attempts.at(-1).kind) && attempts.length < retries; wait = Math.min(2 * wait, retryMost)) {
    tell(`${capital(chain(attempts))}: nobody knows yet. Sending the same request again …`, "", "waiting", attempts);
    await sleep(wait);
    attempts.push(await send(request));
  }
  return attempts;
}

// ---- the actions: each returns its attempts, and what they show

const actions = {
  async send(request) {
    return { request, attempts: await pursue(request) };
  },

  async again(request) {
    request = firstUnder.get(request.key) ?? request;
    const first = firstUnder.has(request.key) ? [] : await pursue(request);
    return { request, attempts: [...first, ...await pursue(request)] };
  },

  async flood(request) {
    request = underFreshKey(request);
    const attempts = await Promise.all(Array.from({ length: floodSize }, () => send(request)));
    const answered = attempts.some((a) => !unanswered.has(a.kind));
    return { request, tone: "executed", attempts: answered ? attempts : [...attempts, ...await pursue(request)] };
  },

  async change(request) {
    const first = firstUnder.has(request.key) ? [] : await pursue(request);
    request = firstUnder.get(request.key);
    const more = { ...request, amount: request.amount + 10 ** decimalsOf(request.currency) };
    return { request, attempts: [...first, ...await pursue(more)] };
  },

  // A bounded account pays more than it may, gets the money, and asks again.
  async overdraw(request) {
    const payer = account((a) => a.available);
    const source = payer && account((a) => !a.available && a.currency === payer.currency);
    if (!source) {
      return { request, attempts: [], verdict: "This takes an account with a limit and one without, in the same currency." };
    }
    request = { key: newKey(), from: payer.id, to: source.id, amount: Number(payer.available) + request.amount, currency: payer.currency };
    const refusal = await pursue(request);
    const income = await pursue({ ...request, key: newKey(), from: source.id, to: payer.id });
    const again = await pursue(request);
    const attempts = [...refusal, ...income, ...again];
    if (refusal.at(-1).kind !== "rejected" || again.at(-1).kind !== "replayed") {
      return { request, attempts };
    }
    return {
      request, attempts, why: reasons.rejected, tone: "rejected",
      verdict: `Rejected, and the refusal replayed: ${payer.id} could not pay ${money(request.amount, request.currency)}, ` +
        "and the same request is still refused now that the money is there.",
    };
  },

  "crash-before": (request) => crash(request, "before-commit"),
  "crash-after": (request) => crash(request, "after-commit"),
};

async function crash(request, when) {
  request = underFreshKey(request);
  const attempts = await pursue(request, when);
  const last = attempts.at(-1);
  const findings = {
    executed: "the crash had undone everything, and now it has happened, once",
    replayed: last.status < 400 ? "it had happened before the crash, once" : "it had been refused before the crash",
  };
  return { request, attempts, lead: capital(chain(attempts)), finding: findings[last.kind] };
}

// underFreshKey is for what only a first request can show.
function underFreshKey(request) {
  if (!firstUnder.has(request.key)) {
    return request;
  }
  fields.key.value = newKey();
  return { ...request, key: fields.key.value };
}

// ---- what happened, in one sentence

const labels = {
  executed: "executed", replayed: "replayed", rejected: "rejected", inflight: "in flight", other: "other payload",
  lost: "connection lost", unavailable: "unavailable", refused: "refused",
};
const tallies = { ...labels, inflight: "told that the first was still in flight", other: "refused as another payload", lost: "lost with the connection" };

const reasons = {
  executed: "The transfer, both balances and the answer under this key were committed in one transaction: all of it, or nothing.",
  replayed: "The key had its answer, so the ledger sent that answer again, byte for byte, and moved nothing.",
  rejected: "A refusal is recorded like a success. Whoever was told no may have paid in another way since, and a late duplicate must not pay again. A new attempt takes a new key.",
  inflight: "One request holds the key until its transaction ends. A duplicate that comes earlier is told so with 409, and may ask again.",
  other: "A key stands for one request. With another amount it is refused with 422, and the first answer stays what it was.",
  lost: "Without an answer nobody can tell. The same request under the same key is always safe to send again.",
  unavailable: "Nothing is known yet. The same request under the same key is always safe to send again.",
  refused: "Nothing was recorded: the key is still free.",
};

function chain(attempts) {
  const words = attempts.map((a) => (a.status ? `${a.status}\u00a0${labels[a.kind]}` : labels[a.kind]));
  return words.filter((word, i) => word !== words[i - 1]).join(" → ");
}

function tally(attempts) {
  if (attempts.length === 1) {
    return capital(tallies[attempts[0].kind]);
  }
  const counts = Object.keys(labels).map((kind) => [attempts.filter((a) => a.kind === kind).length, kind]);
  return counts.filter(([count]) => count).map(([count, kind]) => `${count} ${tallies[kind]}`).join(", ");
}

// movement says what the payee's balance did, as it was seen before and after.
function movement({ to, amount, currency }) {
  const change = balanceOf(to) - before.get(to);
  switch (change) {
    case 0: return `the balance of ${to} did not change`;
    case amount: return `the balance of ${to} changed once, by ${money(amount, currency)}`;
    default: return `the balance of ${to} went from ${money(before.get(to), currency)} to ${money(balanceOf(to), currency)}`;
  }
}

function conclude(story, known) {
  const last = story.attempts.at(-1);
  if (story.verdict || !last) {
    return tell(story.verdict, story.why ?? "", story.tone ?? "waiting", story.attempts);
  }
  const moved = known ? movement(story.request) : "the balance is not known yet";
  const lead = story.lead ?? tally(story.attempts);
  const verdict = story.finding ? `${lead}: ${story.finding}. ${capital(moved)}.` : `${lead}: ${moved}.`;
  const detail = last.kind === "rejected" || last.kind === "refused" ? `${capital(last.title ?? "")}. ` : "";
  const telling = story.attempts.find((a) => a.kind === "inflight") ?? last;
  tell(verdict, detail + reasons[telling.kind], story.tone ?? last.kind, story.attempts);
}

// tell shows a sentence, the reason, and a bead for each attempt.
function tell(verdict, why, tone, attempts = []) {
  const beads = element("div", "beads");
  beads.ariaHidden = "true"; // the sentence says it too
  beads.append(...attempts.map((a) => element("i", a.kind)));
  el("outcome").dataset.tone = tone;
  el("outcome").replaceChildren(beads, element("p", "verdict", verdict), element("p", "why", why));
  el("outcome").scrollIntoView({ block: "nearest" });
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

// ---- what was sent

function listAttempt({ key, amount, currency }) {
  if (!keys.includes(key)) {
    keys.unshift(key);
  }
  while (keys.length > keysShown || keysQuery().length > queryLongest) {
    keys.pop();
  }
  el("sent").querySelector(".empty")?.remove();
  const row = element("tr");
  const name = element("td", "key", key);
  name.title = key;
  name.prepend(dot(key));
  const answer = element("td");
  answer.append(element("span", "badge inflight", "waiting"));
  row.append(element("td", "clock", clock(new Date())), name, element("td", "number", digits(amount, decimalsOf(currency))), answer);
  el("sent").prepend(row);
  while (el("sent").rows.length > attemptsShown) {
    el("sent").lastElementChild.remove();
  }
  return row;
}

function showAnswer({ row, kind, status, detail }) {
  const badge = element("span", `badge ${kind}`, status ? `${status} ${labels[kind]}` : labels[kind]);
  badge.title = detail ?? "";
  row.lastElementChild.replaceChildren(badge);
}

function element(tag, className = "", text = "") {
  const made = document.createElement(tag);
  made.className = className;
  made.textContent = text;
  return made;
}

// dot has the colour of its key, so that the two lists can be read together.
function dot(key) {
  const made = element("i", "dot");
  const number = [...key].reduce((sum, letter) => (sum * 31 + letter.charCodeAt(0)) % 3600, 7);
  made.style.setProperty("--hue", number / 10);
  return made;
}

const clock = (date) => date.toLocaleTimeString("en-GB");
const day = (date) => date.toLocaleString("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });

// ---- the form

function newKey() {
  const letters = "abcdefghjkmnpqrstuvwxyz23456789"; // none that looks like another
  return "pay-" + [...crypto.getRandomValues(new Uint8Array(8))].map((byte) => letters[byte % letters.length]).join("");
}

// readForm returns the request that the form asks for. If there is something
// wrong with it, the browser shows what, and it returns null.
function readForm() {
  const currency = account((a) => a.id === fields.from.value)?.currency ?? "EUR";
  const amount = parseMoney(fields.amount.value, decimalsOf(currency));
  fields.amount.setCustomValidity(amount > 0 ? "" : `An amount above 0 with at most ${decimalsOf(currency)} decimals`);
  fields.to.setCustomValidity(fields.from.value === fields.to.value ? "Another account than the one that pays" : "");
  return form.reportValidity() ? { key: fields.key.value, from: fields.from.value, to: fields.to.value, amount, currency } : null;
}

// act runs one action at a time. Its button keeps the focus.
async function act(name) {
  const request = busy ? null : readForm();
  if (!request) {
    return;
  }
  setBusy(true);
  try {
    tell("Sending …", "", "waiting");
    await refresh();
    for (const { id, balance } of accounts()) {
      before.set(id, Number(balance));
    }
    showChanges();
    const story = await actions[name](request);
    conclude(story, await refresh());
  } finally {
    setBusy(false);
  }
}

function setBusy(value) {
  busy = value;
  form.setAttribute("aria-busy", value);
  for (const button of form.querySelectorAll("[data-action]")) {
    button.setAttribute("aria-disabled", value);
  }
}

async function poll() {
  for (;;) {
    if (!document.hidden) {
      await refresh();
    }
    await sleep(busy ? pollBusy : pollIdle);
  }
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  act("send");
});
form.addEventListener("click", (event) => {
  const button = event.target.closest("button[type=button][data-action]");
  if (button) {
    act(button.dataset.action);
  }
});
el("new-key").addEventListener("click", () => {
  fields.key.value = newKey();
});
fields.apiKey.addEventListener("change", refresh);
for (const place of document.querySelectorAll("[data-origin]")) {
  place.textContent = location.origin;
}
fields.key.value = newKey();
el("controls").disabled = false;
poll();
