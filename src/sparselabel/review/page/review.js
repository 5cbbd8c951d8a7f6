"use strict";
// Names of classes and files are put in as text, never as markup. Nothing is fetched from anywhere else.

const AHEAD = 6, KEPT = 2000, SKIPPED = "skipped";
const $ = (id) => document.getElementById(id);
const state = { about: null, items: [], at: 0, only: null, skipped: false, busy: false, heat: true, whole: false };

class Gone extends Error {}

async function ask(path, body) {
  const options = body === undefined ? {} : {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  };
  let reply;
  try {
    reply = await fetch(path, options);
  } catch {
    throw new Gone("The program does not answer any more. Start it again in the terminal (sparselabel review …) and open the new address: all answers so far are kept.");
  }
  const content = await reply.json();
  if (!reply.ok) throw new Error(content.error);
  return content;
}

const current = () => state.items[state.at];
const count = (number, thing) => `${number.toLocaleString("en")} ${thing}${number === 1 ? "" : "s"}`;
const imageOf = (item) => `image/${item.row}`;
const mapOf = (item) => `map/${item.row}/${item.class}`;

function tell(text) { $("problem").hidden = !text; $("problem").textContent = text; }
function announce(text) { $("announce").textContent = text; }

function questionOf(item) {
  return state.whole ? "What is in this image?" : `Is there ${item.label} in this image?`;
}

function show() {
  const item = current();
  for (const id of ["suggested", "whole"]) $(id).hidden = true;
  $("image").hidden = !item;
  $("map").hidden = true;
  $("waiting").hidden = Boolean(item);
  disable("back", state.at === 0);
  disable("next", !item);
  disable("heat", !item || state.whole);
  $("heat").hidden = state.whole;
  if (!item) {
    $("question").textContent = state.skipped ? "No skipped question is left."
      : state.only === null ? "Nothing is left to ask about." : "Nothing is left to ask about this class.";
    $("details").textContent = "";
    $("waiting").textContent = "";
    return;
  }
  if (state.whole) showWhole(item);
  else showSuggested(item);
  $("image").alt = `Training image ${item.image}`;
  load($("image"), imageOf(item));
  showHeat();
}

function load(image, address) {
  if (image.getAttribute("src") !== address) image.src = address;
}

function showSuggested(item) {
  const name = document.createElement("strong");
  name.textContent = item.label;
  $("question").replaceChildren("Is there ", name, " in this image?");
  const said = { yes: " You said yes.", no: " You said no.", skip: " You skipped it." }[item.answer] || "";
  const how = item.score === null
    ? "No score: the model could not read it."
    : `Score ${item.score.toFixed(2)}, about ${Math.round(100 * item.chance)} % likely.`;
  $("details").textContent = `${how} ${item.image}.${said}`;
  for (const word of ["yes", "no", "skip"]) $(word).classList.toggle("said", item.answer === word);
  $("suggested").hidden = false;
}

function showWhole(item) {
  $("question").textContent = questionOf(item);
  $("details").textContent = `Tick all that is there. ${item.image}`;
  $("find").value = "";
  $("classes").replaceChildren(...item.classes.map(([number, ticked]) => {
    const label = document.createElement("label"), box = document.createElement("input");
    label.className = "choice";
    box.type = "checkbox";
    box.value = number;
    box.checked = item.present ? item.present.includes(number) : ticked;
    label.append(box, state.about.classes[number]);
    return label;
  }));
  $("whole").hidden = false;
}

function showHeat() {
  const item = current(), shown = state.heat && item && !state.whole && !item.noMap;
  $("heat").setAttribute("aria-pressed", String(state.heat));
  $("map").hidden = !shown;
  if (!shown) return;
  $("map").alt = `Heat map: where the model sees ${item.label}`;
  load($("map"), mapOf(item));
}

function disable(id, off) {
  $(id).setAttribute("aria-disabled", String(Boolean(off)));  // it keeps the focus
}

function showSummary(summary) {
  disable("undo", !summary.can_undo);
  if (state.whole) {
    $("counts").textContent = `${count(summary.answered, "image")} done`;
    const sure = summary.error === null ? "" : ` ± ${summary.error.toFixed(2)} (standard error)`;
    $("gain").textContent = summary.answered
      ? `What it brings: so far an image has ${summary.mean.toFixed(2)}${sure} classes on average. A few dozen images are enough for most purposes; four times as many halve the error.`
      : "What it brings: the number of classes in an image, which methods like en and role need. A few dozen random images are enough.";
    return;
  }
  $("counts").textContent = `${summary.answered.toLocaleString("en")} answered: ${summary.yes} yes, ${summary.no} no, ${summary.skip} skipped`;
  const found = summary.found
    ? `you have found ${count(summary.found, "missing label")} of ${summary.classes === 1 ? "1 class" : `${summary.classes} classes`}; training knew ${count(summary.known, "positive")} before.`
    : `training knows ${count(summary.known, "positive label")}; each yes adds one, each no spares the model a wrong guess.`;
  const coming = summary.ahead
    ? ` Of the next ${summary.ahead} questions about ${Math.round(summary.expected)} are expected to be yes, by the scores and by your answers so far.`
    : "";
  $("gain").textContent = `What it brings: ${found}${coming}`;
}

async function fill() {
  if (state.items.length - state.at > AHEAD) return;
  const open = state.items.filter((item) => !item.answer).slice(-KEPT).map((item) => [item.row, item.class]);
  const begun = state.items;
  const got = await ask("next", { count: AHEAD, class: state.only, skipped: state.skipped, without: open });
  if (begun !== state.items) return;  // the filter was changed meanwhile
  const here = new Set(state.items.filter((item) => !item.answer).map((item) => `${item.row} ${item.class}`));
  const fresh = got.questions.filter((item) => !here.has(`${item.row} ${item.class}`));
  if (state.skipped) for (const item of fresh) item.answer = null;
  state.items.push(...fresh);
  showSummary(got.summary);
  preload();
}

// One after the other: a browser has few connections to a server, and an answer must not wait for images.
let loading = false;

async function preload() {
  if (loading) return;
  loading = true;
  for (let item; (item = state.items.slice(state.at, state.at + 1 + AHEAD).find((one) => !one.ahead));) {
    item.ahead = [];
    for (const address of [imageOf(item)].concat(state.whole ? [] : [mapOf(item)])) {
      const image = new Image();
      item.ahead.push(image);
      image.src = address;
      try { await image.decode(); } catch { /* it is said when its turn comes */ }
    }
  }
  loading = false;
}

// A key pressed meanwhile is dropped, as nobody has seen what it would answer; a filter chosen meanwhile waits.
async function work(task, waits = false) {
  if (state.busy) {
    if (waits) state.waiting = task;
    return;
  }
  state.busy = true;
  document.body.setAttribute("aria-busy", "true");
  try {
    await task();
  } catch (error) {
    tell(error.message);
  } finally {
    state.busy = false;
    document.body.removeAttribute("aria-busy");
    const waiting = state.waiting;
    state.waiting = null;
    if (waiting) work(waiting);
  }
}

async function restart() {
  state.items = [];
  state.at = 0;
  await fill();
  show();
  if (current()) announce(questionOf(current()));
}

const answer = (word) => work(async () => {
  const item = current();
  if (!item || state.whole) return;
  const got = await ask("answer", { row: item.row, class: item.class, answer: word, only: state.only });
  item.answer = word;
  tell("");
  showSummary(got.summary);
  await goOn(`${word === "skip" ? "Skipped" : word === "yes" ? "Yes" : "No"}: ${item.label}.`);
});

const done = () => work(async () => {
  const item = current();
  if (!item) return;
  const present = [...$("classes").querySelectorAll("input:checked")].map((box) => Number(box.value));
  const got = await ask("answer", { row: item.row, present });
  item.answer = "done";
  item.present = present;
  tell("");
  showSummary(got.summary);
  await goOn(`${present.length === 1 ? "1 class" : `${present.length} classes`} kept.`);
  $("question").scrollIntoView({ block: "nearest" });
});

async function goOn(said) {
  state.at += 1;
  if (!current()) await fill();
  show();
  announce(`${said} ${current() ? questionOf(current()) : $("question").textContent}`);
  await fill();
}

const move = (step) => work(async () => {
  const to = state.at + step;
  if (to < 0 || to > state.items.length) return;
  state.at = to;
  if (!current()) await fill();
  show();
  announce(current() ? questionOf(current()) : $("question").textContent);
  await fill();
});

const undo = () => work(async () => {
  const got = await ask("undo", { only: state.only });
  showSummary(got.summary);
  if (!got.question) return announce("There is nothing to undo.");
  const same = (item) => item.row === got.question.row && item.class === got.question.class;
  const before = state.items.find(same);
  state.items = state.items.filter((item) => !same(item));
  state.at = Math.min(Math.max(0, state.at - (before ? 1 : 0)), state.items.length);
  if (before && before.present) got.question.present = before.present;
  state.items.splice(state.at, 0, got.question);
  tell("");
  show();
  announce(`Taken back. ${questionOf(got.question)}`);
});

const toggleHeat = () => {
  state.heat = !state.heat;
  showHeat();
  announce(`Heat map ${state.heat ? "shown" : "hidden"}.`);
};

async function cannotShow() {
  const item = current();
  if (!item || $("image").getAttribute("src") !== imageOf(item)) return;
  try {
    await ask(imageOf(item));
  } catch (error) {
    if (error instanceof Gone) return tell(error.message);
    if (error instanceof SyntaxError) return load($("image"), `${imageOf(item)}?again`);  // it was a moment's fault
    state.items = state.items.filter((other) => other.row !== item.row || other.answer);
    state.at = Math.min(state.at, state.items.length);
    tell(`${item.image} cannot be shown and was passed over. (${error.message})`);
    await fill();
    show();
  }
}

function start(about) {
  state.about = about;
  state.whole = about.mode === "whole";
  $("run").textContent = about.run;
  document.title = `Review of ${about.run}`;
  $("kept").textContent = `Every answer is saved at once, by ${about.reviewer}, in ${about.file}.`;
  $("filter").hidden = state.whole;
  if (!state.whole) {
    $("only").replaceChildren(new Option("all classes", ""), new Option("what was skipped", SKIPPED),
      ...about.classes.map((name, number) => new Option(name, String(number))));
  }
  showSummary(about.summary);
}

$("yes").addEventListener("click", () => answer("yes"));
$("no").addEventListener("click", () => answer("no"));
$("skip").addEventListener("click", () => answer("skip"));
$("undo").addEventListener("click", undo);
$("back").addEventListener("click", () => move(-1));
$("next").addEventListener("click", () => move(1));
$("heat").addEventListener("click", toggleHeat);
$("whole").addEventListener("submit", (event) => { event.preventDefault(); done(); });
$("find").addEventListener("input", () => {
  const wanted = $("find").value.trim().toLocaleLowerCase();
  for (const label of $("classes").children) label.hidden = !label.textContent.toLocaleLowerCase().includes(wanted);
});
$("find").addEventListener("keydown", (event) => { if (event.key === "Enter") event.preventDefault(); });
$("only").addEventListener("change", () => {
  const value = $("only").value;
  state.skipped = value === SKIPPED;
  state.only = value === "" || state.skipped ? null : Number(value);
  $("only").blur(); // or keys would go on choosing classes instead of answering
  work(restart, true);
});
$("image").addEventListener("error", cannotShow);
$("map").addEventListener("error", () => {
  const item = current();
  if (!item || $("map").getAttribute("src") !== mapOf(item)) return;
  item.noMap = true;
  $("map").hidden = true;
});
const KEYS = {
  y: () => answer("yes"), n: () => answer("no"), s: () => answer("skip"), u: undo, m: toggleHeat,
  ArrowRight: () => move(1), ArrowLeft: () => move(-1),
};
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
  if (event.target.closest("select, input")) return;
  const task = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (!task) return;
  event.preventDefault();
  task();
});
work(async () => {
  start(await ask("about"));
  await restart();
});
