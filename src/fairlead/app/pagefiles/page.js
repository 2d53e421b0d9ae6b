// The node in a browser. Each document that the daemon sends is the whole state; the page is drawn from the last one.
"use strict";

const LIST_LIMIT = 4194304;
const ARC = 0.5; // how far an arc's control points rise, of its width
const SEGMENTS = 32; // more slots than this are drawn as shares of a bar
const REASONS = 8; // why slots are left out; more are counted
const HEALTHS = ["healthy", "suspect", "unhealthy", "probation"];
const token = new URLSearchParams(location.search).get("token");
const $ = (selector) => document.querySelector(selector);
const state = { document: null, view: "tiles", picked: new Set(), health: new Map(), live: "waiting", opened: null };

// --- Small tools ---------------------------------------------------------------------------------------------------

function stored(key, fallback) {
  try { return localStorage.getItem(key) || fallback; } catch { return fallback; }
}
function store(key, value) {
  try { localStorage.setItem(key, value); } catch { /* a browser may forbid it; the choice then lasts for this visit */ }
}
function tokened(path) {
  return token ? `${path}${path.includes("?") ? "&" : "?"}token=${encodeURIComponent(token)}` : path;
}
function words() { return WORDS[state.language]; }
function word(key) { return words()[key]; }

/** An element with properties and children. Text is always text, never markup. */
function make(name, properties = {}, ...children) {
  const svg = ["svg", "path", "circle", "text", "rect", "line", "title", "g"].includes(name);
  const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key === "onclick") element.addEventListener("click", value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value !== undefined && value !== "") element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}
function bytes(count) {
  if (!count) return "";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const power = Math.min(units.length - 1, Math.floor(Math.log2(count) / 10));
  return `${+(count / 1024 ** power).toFixed(1)} ${units[power]}`;
}
function clock(seconds) { return new Date(seconds * 1000).toLocaleTimeString(state.language === "zh" ? "zh-CN" : "en-GB"); }
/** With the date, where it was not today. */
function when(seconds) {
  const at = new Date(seconds * 1000), today = at.toDateString() === new Date().toDateString();
  return today ? clock(seconds) : `${at.toLocaleDateString(state.language === "zh" ? "zh-CN" : "en-GB")} ${clock(seconds)}`;
}
function called(device) { return device.index || device.id; }
function byIndex(one, other) {
  return called(one).localeCompare(called(other), "en", { numeric: true });
}

// --- Parts of the page ---------------------------------------------------------------------------------------------

/** One segment for each slot; of many, one for each kind, as wide as its share. */
function slotBar(counts, label) {
  const bar = make("span", { class: "slots", role: "img", "aria-label": label });
  const total = Object.values(counts).reduce((sum, count) => sum + count, 0);
  for (const [kind, count] of Object.entries(counts)) {
    if (total <= SEGMENTS) for (let n = 0; n < count; n++) bar.append(make("i", { class: kind }));
    else if (count) {
      const part = make("i", { class: kind });
      part.style.flexGrow = count;
      bar.append(part);
    }
  }
  return bar;
}
function countsOf(slots, held, usable, retired = 0) {
  return { held: Math.min(held, slots), bad: usable ? 0 : slots - Math.min(held, slots), free: usable ? slots - Math.min(held, slots) : 0, retired };
}

function drawResources(status) {
  const cards = status.resources.map((resource) => {
    const registered = resource.phase === "streaming";
    const { held, free } = resource, bad = resource.slots - resource.healthy;
    const shown = Math.min(held, resource.slots - free); // a slot that is held may be retired, or unhealthy
    const said = status.holders_known ? `${held} ${word("held")}, ${free} ${word("free")}, ${bad} ${word("unhealthySlots")}` : `${word("holdersUnknown")}: ${status.holders_problem}`;
    return make("article", { class: "card" },
      make("header", {},
        make("h3", {}, resource.name),
        make("span", { class: `pill ${registered ? "good" : "warn"}` }, registered ? word("registered") : word("notRegistered")(resource.phase))),
      make("p", { class: "big" }, status.holders_known ? String(held) : "–", " ", make("small", {}, word("ofSlots")(resource.slots))),
      slotBar({ held: shown, free, bad: resource.slots - shown - free, retired: resource.retired }, said),
      make("p", {}, [status.holders_known ? said : "", resource.unit_bytes ? `1 = ${bytes(resource.unit_bytes)}` : "", word("listOf")(bytes(resource.list_bytes), bytes(LIST_LIMIT))].filter(Boolean).join(" · ")),
      status.holders_known ? null : make("p", {}, said),
      resource.reason && !registered ? make("p", {}, resource.reason) : null,
      resource.note ? make("p", {}, resource.note) : null);
  });
  $("#resources").replaceChildren(...(cards.length ? cards : [make("p", {}, word("nothing"))]));
}

function drawDoctor(doctor) {
  const line = $("#doctor");
  line.hidden = !doctor;
  if (!doctor) return;
  const found = ["errors", "warnings", "notes"].filter((kind) => doctor[kind]).map((kind) => word(kind)(doctor[kind]));
  line.className = doctor.errors ? "bad" : doctor.warnings ? "warn" : "";
  line.textContent = word("doctor")(clock(doctor.at_s), found.join(", ") || word("nothingFound"), doctor.codes.join(", "));
}

function healthOf({ health }) { return make("span", { class: `health ${health}` }, word(health)); }

function tile(device) {
  const usable = device.health === "healthy" || device.health === "suspect";
  const [first, ...others] = device.holders;
  const who = first ? `${first.split("/")[1]}${others.length ? ` ${word("more")(others.length)}` : ""}` : "";
  const said = `${device.held} ${word("held")} / ${device.slots}`;
  return make("button", {
    type: "button", class: `tile ${device.health} ${state.picked.has(device.id) ? "picked" : ""}`, "data-device": device.id, onclick: () => showDetail(device.id),
  },
    make("span", { class: "name" }, make("b", {}, called(device)), healthOf(device)),
    make("span", { class: "model" }, [device.model || device.vendor || device.id, bytes(device.memory_bytes)].filter(Boolean).join(" · ")),
    device.resource ? slotBar(countsOf(device.slots, device.held, usable), said) : make("span", { class: "model" }, word("notOffered")),
    who ? make("span", { class: "who", title: device.holders.join("\n") }, who) : null,
    device.cause ? make("span", { class: "cause" }, device.cause) : null);
}

function drawTiles(devices) {
  const panels = new Map();
  for (const device of devices) {
    const key = device.numa_nodes.length ? word("numa")(device.numa_nodes.join(", ")) : word("noNuma");
    panels.set(key, [...(panels.get(key) || []), device]);
  }
  return make("div", { class: "numa" }, ...[...panels].sort(([one], [other]) => one.localeCompare(other, "en", { numeric: true })).map(([title, own]) =>
    make("section", { class: "panel", "aria-label": title }, make("h3", {}, title), make("div", { class: "tiles" }, ...own.map(tile)))));
}

function table(heads, rows, caption) {
  return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    make("table", {}, make("thead", {}, make("tr", {}, ...heads.map((head) => make("th", { scope: "col" }, head)))), make("tbody", {}, ...rows)));
}

function drawTable(devices) {
  const heads = ["device", "health", "resource", "slots", "holders", "model", "memory", "pci", "id"].map(word);
  return table(heads, devices.map((device) => make("tr", {},
    make("th", { scope: "row" }, called(device)),
    make("td", {}, healthOf(device), device.cause ? make("div", { class: "cause" }, device.cause) : null),
    make("td", { class: "mono" }, device.resource || word("notOffered")),
    make("td", {}, `${device.held} / ${device.slots}`),
    make("td", {}, device.holders.join(", ")),
    make("td", {}, device.model), make("td", {}, bytes(device.memory_bytes)), make("td", { class: "mono" }, device.pci_address), make("td", { class: "mono" }, device.id))), word("table"));
}

/** Devices in a row, links as arcs above them; one bar where every pair is joined alike. */
function drawLinks(devices, links) {
  if (!links.length) return make("p", {}, devices.length > 64 ? word("tooMany") : word("noLinks"));
  const step = 96, place = new Map(devices.map((device, n) => [device.id, 60 + n * step]));
  const known = links.filter(([one, other]) => place.has(one) && place.has(other));
  const scores = known.map(([, , score]) => score), best = Math.max(...scores);
  const alike = Math.min(...scores) > 0.95 * best && devices.length > 2 && known.length === (devices.length * (devices.length - 1)) / 2;
  const width = 120 + (devices.length - 1) * step, tall = alike ? 90 : 20 + 0.75 * ARC * Math.max(...known.map(([one, other]) => Math.abs(place.get(one) - place.get(other))));
  const parts = [];
  if (alike) {
    parts.push(make("rect", { x: 40, y: 30, width: width - 80, height: 12, rx: 6 }), make("text", { x: width / 2, y: 20, class: "soft" }, word("fabric")));
    for (const x of place.values()) parts.push(make("line", { x1: x, y1: 42, x2: x, y2: tall }));
  } else {
    for (const [one, other, score] of known.sort((a, b) => a[2] - b[2])) {
      const from = place.get(one), to = place.get(other), rise = tall - Math.abs(to - from) * ARC;
      const lit = state.picked.has(one) && state.picked.has(other);
      parts.push(make("path", { d: `M${from} ${tall} C${from} ${rise} ${to} ${rise} ${to} ${tall}`, "stroke-width": 1 + (6 * score) / best, class: lit ? "lit" : "" }, make("title", {}, `${one} – ${other}: ${score}`)));
    }
  }
  for (const device of devices) {
    const x = place.get(device.id);
    parts.push(make("circle", { cx: x, cy: tall + 24, r: 22, class: device.health }, make("title", {}, device.id)), make("text", { x, y: tall + 29 }, called(device)),
      make("text", { x, y: tall + 64, class: "soft" }, device.numa_nodes.length ? word("numa")(device.numa_nodes[0]) : ""));
  }
  const heads = [word("device"), ...devices.map(called)];
  const score = new Map(known.flatMap(([one, other, value]) => [[`${one}\n${other}`, value], [`${other}\n${one}`, value]]));
  const rows = devices.map((one) => make("tr", {}, make("th", { scope: "row" }, called(one)),
    ...devices.map((other) => make("td", {}, one === other ? "·" : String(score.get(`${one.id}\n${other.id}`) ?? "–")))));
  return make("div", {}, make("svg", { class: "arcs", viewBox: `0 0 ${width} ${tall + 80}`, role: "img", "aria-label": word("linksOf") }, ...parts), make("p", { class: "legend" }, word("linksOf")), table(heads, rows, word("linksOf")));
}

function drawDevices(status, links) {
  const devices = [...status.devices].sort(byIndex);
  const focused = document.activeElement?.dataset?.device;
  const drawn = !devices.length ? make("p", {}, word("noDevices")) : state.view === "tiles" ? drawTiles(devices) : state.view === "table" ? drawTable(devices) : drawLinks(devices, links);
  $("#devices").replaceChildren(drawn);
  if (focused) $(`[data-device="${CSS.escape(focused)}"]`)?.focus();
  for (const button of document.querySelectorAll("[data-view]")) button.setAttribute("aria-pressed", String(button.dataset.view === state.view));
  const sample = (kind) => make("span", {}, make("span", { class: "slots", "aria-hidden": "true" }, make("i", { class: kind })), word({ held: "held", free: "free", bad: "unhealthySlots" }[kind]));
  $("#legend").replaceChildren(...(state.view === "tiles" ? ["held", "free", "bad"].map(sample) : []));
}

function timeOf(at_s, form) { return make("time", { datetime: new Date(at_s * 1000).toISOString() }, form(at_s)); }

function drawFacts(facts) {
  const list = $("#facts");
  list.replaceChildren(...[...facts].reverse().map((fact) => {
    const { seq, at_s, event, ...keys } = fact;
    const text = Object.entries(keys).filter(([, value]) => value !== "" && value !== null).map(([key, value]) => `${key}=${Array.isArray(value) ? value.join(" ") : value}`).join("  ");
    return make("li", { class: event }, timeOf(at_s, clock), " ", make("b", {}, event), " ", text);
  }));
}

function drawProblems(status) {
  $("#problems").hidden = !status.problems.length;
  $("#problems ul").replaceChildren(...status.problems.map((problem) => make("li", {}, problem)));
}

function drawChoices(status) {
  const select = $("#resource"), names = status.resources.map((resource) => resource.name);
  if ([...select.options].map((option) => option.value).join() === names.join()) return;
  const before = select.value;
  select.replaceChildren(...names.map((name) => make("option", { value: name }, name)));
  if (names.includes(before)) select.value = before;
}

function announce(status) {
  const changed = status.devices.filter((device) => state.health.has(device.id) && state.health.get(device.id) !== device.health);
  state.health = new Map(status.devices.map((device) => [device.id, device.health]));
  if (changed.length) $("#news").textContent = changed.map((device) => word("nowHealth")(called(device), word(device.health))).join(". ");
}

// --- One device ----------------------------------------------------------------------------------------------------

function showDetail(id) {
  const dialog = $("#detail");
  state.opened = { id, seen: null, turn: 0 };
  dialog.replaceChildren(
    make("div", { class: "bar" }, make("h2", { id: "detail-title" }), make("button", { type: "button", onclick: () => dialog.close() }, word("close"))),
    make("dl"),
    make("h3", { id: "history-title" }, word("history")), make("p", { class: "legend" }, word("historyOf")),
    make("ol", { id: "history", tabindex: "0", "aria-labelledby": "history-title" }));
  drawDetail();
  dialog.showModal();
}

/** Of the device that is open, if one is. The elements that may have the focus stay. */
function drawDetail() {
  const { status, facts } = state.document, opened = state.opened;
  const device = opened && status.devices.find((one) => one.id === opened.id);
  if (opened && !device) $("#detail dl").replaceChildren(make("dt", {}, word("health")), make("dd", {}, word("happened")["device-gone"]));
  if (!device) return;
  const known = [
    ["health", healthOf(device)], ["cause", device.cause], ["cured", device.cured_by.join(", ")], ["since", device.since_s ? when(device.since_s) : ""],
    ["resource", device.resource || word("notOffered")], ["rule", device.rule], ["slots", `${device.held} / ${device.slots}`], ["holders", device.holders.join(", ")],
    ["id", device.id], ["model", [device.vendor, device.model].filter(Boolean).join(" ")], ["memory", bytes(device.memory_bytes)], ["pci", device.pci_address],
    ["nodes", device.nodes.join(", ")], ["parent", device.parent || ""], ["backend", device.backend],
  ].filter(([, value]) => value !== "");
  $("#detail-title").textContent = `${word("device")} ${called(device)}`;
  $("#detail dl").replaceChildren(...known.flatMap(([key, value]) => [make("dt", {}, word(key)), make("dd", {}, value)]));
  const newest = facts.at(-1)?.seq;
  if (opened.seen !== newest) askHistory(opened, newest);
}

async function askHistory(opened, newest) {
  const turn = opened.turn + 1;
  let lines;
  Object.assign(opened, { turn, seen: newest });
  try {
    const reply = await (await fetch(tokened(`history.json?${new URLSearchParams({ device: opened.id })}`))).json();
    if (reply.error) throw new Error(reply.error);
    lines = reply.facts.length ? reply.facts.map(happening) : [make("li", {}, word("noHistory"))];
  } catch (error) {
    opened.seen = null; // the next document asks again
    lines = [make("li", { class: "cause" }, error instanceof TypeError ? word("lost") : error.message)];
  }
  if (state.opened === opened && opened.turn === turn) $("#history").replaceChildren(...lines);
}

/** Without its sign. */
function plainHealth(health) { return word(health).slice(2); }

/** A fact as a line. Causes and reasons are the daemon's own words. */
function happening(fact) {
  const { seq, at_s, event, device, devices, backend, model, pid, cause, reason, order, resource, slots, was, until, until_s, ...others } = fact;
  const what = HEALTHS.includes(event) ? healthOf({ health: event }) : make("b", {}, Object.hasOwn(word("happened"), event) ? word("happened")[event] : event);
  const told = [
    order, cause, reason, resource, Array.isArray(slots) ? word("slotsGiven")(countOf(slots)) : "",
    was ? word("was")(HEALTHS.includes(was) ? plainHealth(was) : was) : "", until ? word("until")(until) : "", until_s ? word("until")(when(until_s)) : "",
    ...Object.entries(others).filter(([, value]) => value !== "" && value !== null).map(([key, value]) => `${key}=${value}`),
  ];
  return make("li", { class: event }, timeOf(at_s, when), " ", what, " ", told.filter(Boolean).join(" · "));
}

/** The journal names a few items of a long list, and says how many more there are. */
function countOf(items) {
  const more = /^and (\d+) more$/.exec(items.at(-1) ?? "");
  return more ? items.length - 1 + Number(more[1]) : items.length;
}

// --- Everything ----------------------------------------------------------------------------------------------------

function draw() {
  const dark = document.documentElement.dataset.theme === "dark";
  document.documentElement.lang = state.language === "zh" ? "zh-CN" : "en";
  for (const element of document.querySelectorAll("[data-word]")) element.textContent = word(element.dataset.word);
  for (const element of document.querySelectorAll("[data-label]")) element.setAttribute("aria-label", word(element.dataset.label));
  $("#language").textContent = word("language");
  $("#language").setAttribute("aria-label", word("otherLanguage"));
  $("#theme").textContent = dark ? word("light") : word("dark");
  $("#live").textContent = word(state.live);
  $("#live").className = `pill ${{ live: "good", waiting: "", lost: "bad" }[state.live]}`;
  if (!state.document) return;
  const { status, links, facts } = state.document;
  document.title = `Fairlead: ${status.resources.map((resource) => `${resource.name} ${resource.held}/${resource.slots}`).join(", ") || status.instance}`;
  $("#about").textContent = word("about")(status);
  drawDoctor(status.doctor);
  drawProblems(status);
  drawResources(status);
  drawDevices(status, links);
  drawFacts(facts);
  drawChoices(status);
  drawDetail();
}

function receive(text) {
  state.document = JSON.parse(text);
  state.live = "live";
  announce(state.document.status);
  draw();
}

/** How many slots each reason keeps from the container, the most frequent first. */
function leftOut(slots) {
  if (!slots.length) return [];
  const counts = new Map();
  for (const { why } of slots) counts.set(why, (counts.get(why) || 0) + 1);
  const reasons = [...counts].sort(([, one], [, other]) => other - one), rest = reasons.slice(REASONS);
  const lines = reasons.slice(0, REASONS).map(([why, count]) => make("li", {}, `${count}: ${whyNot(why)}`));
  if (rest.length) lines.push(make("li", {}, `${rest.reduce((sum, [, count]) => sum + count, 0)}: ${word("otherReasons")}`));
  return [make("p", { id: "left-out" }, word("leftOut")(slots.length)), make("ul", { class: "reasons", "aria-labelledby": "left-out" }, ...lines)];
}
function whyNot(why) {
  if (why === "in use") return word("inUse");
  const health = HEALTHS.find((one) => why.startsWith(`${one}: `));
  return health ? `${plainHealth(health)}${why.slice(health.length)}` : why;
}

async function ask(event) {
  event.preventDefault();
  const query = new URLSearchParams({ resource: $("#resource").value, count: $("#count").value });
  const answer = $("#answer");
  try {
    const reply = await (await fetch(tokened(`explain.json?${query}`))).json();
    if (reply.error) throw new Error(reply.error);
    const given = reply.devices.filter((device) => device.picked);
    state.picked = new Set(reply.slots.length >= reply.count ? given.map((device) => device.device) : []);
    const rows = reply.devices.map((device) => make("tr", {}, make("th", { scope: "row" }, device.index || device.device), make("td", {}, device.picked ? `● ${device.picked}` : "–"), make("td", {}, String(device.score)), make("td", {}, device.why)));
    answer.replaceChildren(
      make("p", {}, reply.slots.length && reply.slots.length >= reply.count ? word("wouldGet")(reply.slots.length, given.length) : word("wouldWait")),
      rows.length ? table([word("device"), word("picked"), word("score"), word("why")], rows, word("why")) : "",
      ...[reply.assignment?.pod, reply.assignment?.reason, ...reply.notes, reply.fallback].filter(Boolean).map((note) => make("p", {}, note)),
      ...leftOut(reply.left_out));
  } catch (error) {
    state.picked = new Set();
    answer.replaceChildren(make("p", { class: "cause" }, error.message));
  }
  draw();
}

function start() {
  state.language = stored("fairlead-language", navigator.language.startsWith("zh") ? "zh" : "en");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  document.documentElement.dataset.theme = stored("fairlead-theme", dark.matches ? "dark" : "light");
  $("#language").addEventListener("click", () => { state.language = state.language === "zh" ? "en" : "zh"; store("fairlead-language", state.language); draw(); });
  $("#theme").addEventListener("click", () => {
    const theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    document.documentElement.dataset.theme = theme; store("fairlead-theme", theme); draw();
  });
  for (const button of document.querySelectorAll("[data-view]")) button.addEventListener("click", () => { state.view = button.dataset.view; draw(); });
  for (const link of document.querySelectorAll("[data-tokened]")) link.href = tokened(link.getAttribute("href"));
  $("#ask").addEventListener("submit", ask);
  $("#detail").addEventListener("close", () => { state.opened = null; });
  const source = new EventSource(tokened("events"));
  source.addEventListener("message", (event) => receive(event.data));
  source.addEventListener("error", () => { state.live = "lost"; draw(); });
  draw();
}

start();
