"use strict";
// Names of classes and files are put in as text, never as markup. Nothing is fetched from anywhere else.

const HINTS = "1234567890abcdfhijklopqr"; // the key of each image of a page; other letters do something else
const AHEAD = 6, KEPT = 2000, PAGE = 24, SKIPPED = "skipped", LONGEST_PAUSE = 120;
const OF_THE_GRID = ["until", "rest", "unsure", "enlarge"];
const $ = (id) => document.getElementById(id);
const state = {
  about: null, mode: "grid", items: [], at: 0, only: null, skipped: false, busy: false, heat: false,
  page: [], coming: null, focus: 0, began: 0, seconds: 0, answers: 0, waiting: [],
  saving: Promise.resolve(true), unsaved: [], saves: 0, filling: null, drag: null, switching: false,
  window: [...crypto.getRandomValues(new Uint32Array(4))].map((part) => part.toString(16)).join("-"),
};

class Gone extends Error {}

async function ask(path, body) {
  const who = { page: state.window, reviewer: $("name").value.trim() };
  const options = body === undefined ? {} : {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ ...who, ...body }),
    keepalive: path === "answer", // it arrives even if the page is closed now
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

const whole = () => state.mode === "whole";
const inGrid = () => state.mode === "grid";
const current = () => state.items[state.at];
const count = (number, thing) => `${number.toLocaleString("en")} ${thing}${number === 1 ? "" : "s"}`;
const classes = (number) => number === 1 ? "1 class" : `${number.toLocaleString("en")} classes`;
const imageOf = (item) => `image/${item.row}`;
const smallOf = (item) => `small/${item.row}`;
const mapOf = (item) => `map/${item.row}/${item.class}`;
const named = (name) => {
  const strong = document.createElement("strong");
  strong.textContent = name;
  return strong;
};

function tell(text) { $("problem").hidden = !text; $("problem").textContent = text; }
function announce(text) { $("announce").textContent = text; }

// "a bus", "an aeroplane": names that are English nouns as far as one can see; other names stay as they are.
function article(name) {
  if (!/^[a-z]+( [a-z]+)*$/.test(name) || (name.endsWith("s") && !/(ss|us|is)$/.test(name))) return "";
  return /^[aeiou]/.test(name) && !/^(uni|us[ae]|eu|one)/.test(name) ? "an " : "a ";
}

function questionOf(item) {
  if (whole()) return "What is in this image?";
  const name = article(item.label) + item.label;
  return inGrid() ? `Which images show ${name}?` : `Is there ${name} in this image?`;
}

function nothingLeft() {
  if (state.skipped) return "No skipped question is left.";
  if (state.summary.ahead) return "Others are looking at all that is left.";
  if (state.only !== null) return "Nothing is left to ask about this class.";
  return "Nothing is left to ask about.";
}

function show() {
  const item = inGrid() ? state.page[0] : current();
  document.body.className = state.mode;
  for (const id of ["suggested", "whole", "many"]) $(id).hidden = true;
  $("stage").hidden = inGrid();
  $("grid").hidden = !inGrid();
  if (!inGrid()) $("grid").replaceChildren();
  $("image").hidden = !item;
  $("map").hidden = true;
  $("waiting").hidden = Boolean(item);
  $("known").textContent = "";
  for (const id of ["back", "next"]) $(id).hidden = inGrid();
  for (const id of OF_THE_GRID) $(id).hidden = !inGrid();
  $("heat").hidden = whole();
  disable("back", state.at === 0);
  disable("next", !item);
  for (const id of ["heat", ...OF_THE_GRID]) disable(id, !item);
  state.began = performance.now();
  if (!item) {
    $("question").textContent = nothingLeft();
    $("details").textContent = "";
    $("waiting").textContent = "";
    $("grid").replaceChildren();
    return;
  }
  if (inGrid()) return showGrid();
  if (whole()) showWhole(item);
  else showSuggested(item);
  $("image").alt = `Image ${item.image}`;
  load($("image"), imageOf(item));
  showHeat();
}

function load(image, address) {
  if (image.getAttribute("src") !== address) image.src = address;
}

function showSuggested(item) {
  $("question").replaceChildren("Is there ", article(item.label), named(item.label), " in this image?");
  const said = { yes: " You said yes.", no: " You said no.", skip: " You skipped it." }[item.answer] || "";
  const how = item.score === null
    ? "No score: the model could not read it."
    : `Score ${item.score.toFixed(2)}, about ${Math.round(100 * item.chance)} % likely.`;
  $("details").textContent = `${how} ${item.image}.${said}`;
  $("known").textContent = item.known.length ? `Labels it has: ${item.known.join(", ")}.` : "It has no label yet.";
  for (const word of ["yes", "no", "skip"]) $(word).classList.toggle("said", item.answer === word);
  $("suggested").hidden = false;
}

function showGrid() {
  const [first] = state.page, likely = state.page.filter((item) => markOf(item) === "yes").length;
  const unlikely = state.page.length - likely;
  $("question").replaceChildren("Which images show ", article(first.label), named(first.label), "?");
  $("details").textContent = `${count(state.page.length, "image")}, the likeliest first. ${!unlikely ? "All are taken for yes"
    : !likely ? "All are taken for no (✕)" : `${likely} are taken for yes, ${unlikely} for no (✕)`}: change what is wrong, then save.`;
  state.page.forEach((item, at) => {
    item.tile ??= tileOf(item);
    item.tile.querySelector("kbd").textContent = HINTS[at].toUpperCase();
    item.tile.setAttribute("aria-keyshortcuts", HINTS[at]);
  });
  $("grid").replaceChildren(...state.page.map((item) => item.tile));
  $("many").hidden = false;
  showMarks();
  showHeat();
  focusTile(0);
  for (const item of state.page) {
    const image = item.tile.querySelector("img");
    if (image.complete && !image.naturalWidth) cannotShow(item);  // it was tried before it was shown
  }
}

// What an image is taken for: what a person has said, else what is likelier.
const markOf = (item) => item.mark || (item.chance < 0.5 ? "no" : "yes");

function tileOf(item) {
  const tile = document.createElement("button"), shown = document.createElement("span");
  const image = document.createElement("img"), mark = document.createElement("b"), small = document.createElement("small");
  const key = document.createElement("kbd");
  tile.type = "button";
  tile.tabIndex = -1;
  shown.className = "shown";
  image.alt = "";
  image.draggable = false;
  image.src = smallOf(item);
  image.addEventListener("error", () => cannotShow(item));
  small.textContent = item.known.length ? `has ${item.known.join(", ")}` : "no label yet";
  tile.title = item.image;
  shown.append(image);
  key.setAttribute("aria-hidden", "true");
  tile.append(mark, shown, small, key);
  tile.addEventListener("pointerdown", (event) => {
    state.drag = event.pointerType === "touch" || event.shiftKey ? null : { from: item, word: null };
  });
  tile.addEventListener("pointerover", (event) => {
    if (!state.drag || !(event.buttons & 1) || (state.drag.from === item && !state.drag.word)) return;
    state.drag.word ??= markOf(state.drag.from) === "no" ? "yes" : "no";
    for (const one of [state.drag.from, item]) one.mark = state.drag.word;
    showMarks();
  });
  tile.addEventListener("click", (event) => {
    const at = state.page.indexOf(item), dragged = state.drag?.word;
    state.drag = null;
    if (dragged) return;
    focusTile(at);
    if (event.shiftKey) markFrom(at, "no");
    else setMark(at, markOf(item) === "no" ? "yes" : "no");
  });
  return tile;
}

function showMarks() {
  const words = { no: 0, skip: 0 };
  state.page.forEach((item, at) => {
    const tile = item.tile, word = markOf(item);
    if (word in words) words[word] += 1;
    tile.className = `tile ${word}`;
    tile.setAttribute("aria-pressed", String(word === "no"));
    tile.querySelector("b").textContent = { yes: "", no: "✕ no", skip: "? not sure" }[word];
    tile.setAttribute("aria-label", `Image ${at + 1} of ${state.page.length}: ${{ yes: "yes", no: "no", skip: "not sure" }[word]}, ${item.label}. ${tile.querySelector("small").textContent}`);
  });
  const yes = state.page.length - words.no - words.skip;
  $("saving").textContent = `Save ${yes} yes, ${words.no} no${words.skip ? `, ${words.skip} not sure` : ""}`;
}

function setMark(at, word) {
  state.page[at].mark = word;
  showMarks();
}

// Images are sorted: all from one on may be no, and all up to one yes.
function markFrom(at, word) {
  for (const item of word === "no" ? state.page.slice(at) : state.page.slice(0, at + 1)) item.mark = word;
  showMarks();
}

function focusTile(at) {
  const tiles = $("grid").children;
  if (!tiles.length) return;
  state.focus = Math.max(0, Math.min(at, tiles.length - 1));
  [...tiles].forEach((tile, place) => { tile.tabIndex = place === state.focus ? 0 : -1; });
  tiles[state.focus].focus({ preventScroll: state.focus === 0 });
}

function columns() {
  const tiles = [...$("grid").children], top = tiles[0].offsetTop;
  return tiles.filter((tile) => tile.offsetTop === top).length;
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
  $("heat").setAttribute("aria-pressed", String(state.heat));
  if (inGrid()) return showGridHeat();
  const item = current(), shown = state.heat && item && !whole() && !item.noMap;
  $("map").hidden = !shown;
  if (!shown) return;
  $("map").alt = `Heat map: where the model sees ${item.label}`;
  load($("map"), mapOf(item));
}

function showGridHeat() {
  state.page.forEach((item) => {
    const shown = item.tile.querySelector(".shown");
    if (shown.children.length > 1) shown.lastChild.remove();
    if (!state.heat) return;
    const map = document.createElement("img");
    map.alt = "";
    map.src = mapOf(item);
    map.addEventListener("error", () => map.remove());
    shown.append(map);
  });
}

function disable(id, off) {
  $(id).setAttribute("aria-disabled", String(Boolean(off)));  // it keeps the focus
}

function showSummary(summary) {
  state.summary = summary;
  disable("undo", !summary.can_undo);
  showGoal(summary.goal);
  if (whole()) {
    $("counts").textContent = `${count(summary.answered, "image")} done`;
    const sure = summary.error === null ? "" : ` ± ${summary.error.toFixed(2)} (standard error)`;
    $("gain").textContent = summary.answered
      ? `What it brings: so far an image has ${summary.mean.toFixed(2)}${sure} classes on average. A few dozen images are enough for most purposes; four times as many halve the error.`
      : "What it brings: the number of classes in an image, which training needs to know. A few dozen random images are enough.";
    return;
  }
  $("counts").textContent = `${summary.answered.toLocaleString("en")} answered: ${summary.yes} yes, ${summary.no} no, ${summary.skip} skipped`;
  const forThresholds = state.about.goal === "thresholds";
  const found = forThresholds
    ? "from which score on a label is suggested, and how often that is right. Nothing is learned from these images: they only check."
    : summary.found
      ? `you have found ${count(summary.found, "missing label")} of ${classes(summary.classes)}; training knew ${count(summary.known, "positive")} before.`
      : `training knows ${count(summary.known, "positive label")}; each yes adds one, each no spares the model a wrong guess.`;
  const coming = summary.ahead && !inGrid()  // a page of one class has another order, and its own counts
    ? ` Of the next ${summary.ahead} questions about ${Math.round(summary.expected)} are expected to be yes, by the scores and by your answers so far.`
    : "";
  $("gain").textContent = `What it brings: ${found}${coming}`;
}

function showGoal(goal) {
  $("goal").hidden = !goal;
  if (!goal) return;
  if (whole()) {
    $("goal").textContent = goal.more
      ? `${count(goal.more, "more image")} until the number of classes per image is known within ${Math.round(100 * goal.within)} %.`
      : `The number of classes per image is known within ${Math.round(100 * goal.within)} %.`;
    return;
  }
  const done = `${classes(goal.done)} can be trusted`;
  const never = goal.out_of_reach ? ` ${classes(goal.out_of_reach)} would need more validation images.` : "";
  $("goal").textContent = goal.more
    ? `${goal.more.toLocaleString("en")} more for trusted thresholds of ${classes(goal.classes)}; ${done}.${never}`
    : `Thresholds of ${done}.${never} Finish puts the answers to use.`;
}

function keepTime(answers) {
  state.seconds += Math.min((performance.now() - state.began) / 1000, LONGEST_PAUSE);
  state.answers += answers;
  showPace();
}

function showPace() {
  const each = state.seconds / Math.max(state.answers, 1), thing = whole() ? "image" : "answer";
  $("pace").textContent = state.answers
    ? `${each.toFixed(1)} seconds per ${thing}, ${Math.round(60 / Math.max(each, 0.01))} a minute.` : "";
}

async function fill() {
  if (inGrid()) return fillPage();
  if (state.items.length - state.at > AHEAD) return;
  const open = state.items.filter((item) => !item.answer).slice(-KEPT);
  const begun = state.items, saves = state.saves;
  const got = await ask("next", { count: AHEAD, class: state.only, skipped: state.skipped, without: entries(open) });
  if (begun !== state.items) return;  // the filter was changed meanwhile
  const here = new Set(state.items.filter((item) => !item.answer).map((item) => `${item.row} ${item.class}`));
  const fresh = got.questions.filter((item) => !here.has(`${item.row} ${item.class}`));
  if (state.skipped) for (const item of fresh) item.answer = null;
  state.items.push(...fresh);
  if (saves === state.saves) showSummary(got.summary);  // else that of the answers is newer
  preload();
}

// Questions that are not to be asked now: those that are shown, and those whose answers are on their way.
const entries = (items) => [...items, ...state.unsaved].map((item) => [item.row, item.class]);

// In the background: an answer does not wait for it.
function refill() {
  state.filling ??= fill().catch((error) => tell(error.message)).finally(() => { state.filling = null; });
  return state.filling;
}

async function nextPage(without) {
  const got = await ask("next", { count: PAGE, class: state.only, skipped: state.skipped, grid: true, without: entries(without) });
  for (const item of got.questions) {
    item.answer = null;
    item.tile = tileOf(item);  // its image is loaded now
    item.tile.querySelector("img").decode().catch(() => null);
  }
  return got;
}

// The page after this one is asked for as soon as this one is there.
async function fillPage() {
  let got = state.coming ? await state.coming.catch(() => null) : null;
  if (!got || !got.questions.length) {
    const saves = state.saves;
    got = await nextPage([]);
    if (saves === state.saves) showSummary(got.summary);
  }
  state.page = got.questions;
  state.coming = got.after || (state.page.length ? nextPage(state.page) : null);
  state.coming?.catch(() => null);  // it is said when its turn comes
}

// One after the other: a browser has few connections to a server, and an answer must not wait for images.
let loading = false;

async function preload() {
  if (loading) return;
  loading = true;
  for (let item; (item = state.items.slice(state.at, state.at + 1 + AHEAD).find((one) => !one.ahead));) {
    item.ahead = [];
    for (const address of [imageOf(item)].concat(whole() || !state.heat ? [] : [mapOf(item)])) {
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
    if (waits) state.waiting.push(task);
    return;
  }
  state.busy = true;
  showBusy();
  try {
    await task();
  } catch (error) {
    tell(error.message);
  } finally {
    state.busy = false;
    showBusy();
    const waiting = state.waiting.shift();
    if (waiting) work(waiting);
  }
}

function showBusy() {
  if (state.busy || state.unsaved.length) document.body.setAttribute("aria-busy", "true");
  else document.body.removeAttribute("aria-busy");
}

// Sends answers while the next images are looked at. What cannot be saved is shown again, by ``again``.
function keep(items, answers, again) {
  keepTime(items.length);
  state.unsaved = items;
  state.saves += 1;
  tell("");
  const done = () => { state.unsaved = []; state.saves += 1; };
  state.saving = ask("answer", { ...answers, only: state.only }).then((got) => {
    done();
    showSummary(got.summary);
    return true;
  }, (error) => {
    done();
    work(async () => {
      state.saving = Promise.resolve(true);  // what was not saved is shown: it can be answered again
      again();
      show();
      tell(error.message);
    }, true);
    return false;
  }).finally(showBusy);
}

async function restart() {
  await state.saving;
  state.items = [];
  state.page = [];
  state.coming = null;
  state.at = 0;
  await fill();
  show();
  const first = inGrid() ? state.page[0] : current();
  if (first) announce(questionOf(first));
}

const answer = (word) => work(async () => {
  const item = current();
  if (!item || state.mode !== "one" || !(await state.saving)) return;
  const before = item.answer;
  item.answer = word;
  keep([item], { row: item.row, class: item.class, answer: word }, () => {
    item.answer = before;
    if (!state.items.includes(item)) state.items.splice(state.at, 0, item);
    state.at = state.items.indexOf(item);
  });
  await goOn(`${word === "skip" ? "Skipped" : word === "yes" ? "Yes" : "No"}: ${item.label}.`);
});

const save = () => work(async () => {
  if (!inGrid() || !state.page.length || !(await state.saving)) return;
  const page = state.page, answers = page.map((item) => ({ row: item.row, class: item.class, answer: markOf(item) }));
  keep(page, { answers }, () => {
    const coming = state.coming;
    if (state.page.length) state.coming = Promise.resolve({ questions: state.page, after: coming });
    state.page = page;
  });
  await fillPage();
  if (!state.page.length && (await state.saving)) await fillPage();  // what is left is known then
  show();
  scrollTo(0, 0);
  announce(`${count(answers.length, "answer")} given. ${state.page.length ? questionOf(state.page[0]) : nothingLeft()}`);
});

const done = () => work(async () => {
  const item = current();
  if (!item) return;
  const present = [...$("classes").querySelectorAll("input:checked")].map((box) => Number(box.value));
  const got = await ask("answer", { row: item.row, present });
  item.answer = "done";
  item.present = present;
  tell("");
  keepTime(1);
  showSummary(got.summary);
  await goOn(`${classes(present.length)} kept.`);
  $("question").scrollIntoView({ block: "nearest" });
});

async function goOn(said) {
  state.at += 1;
  if (!current()) await refill();
  if (!current() && (await state.saving)) await fill();  // what is left is known then
  show();
  announce(`${said} ${current() ? questionOf(current()) : $("question").textContent}`);
  refill();
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
  if (!(await state.saving)) return;
  const got = await ask("undo", { only: state.only });
  showSummary(got.summary);
  if (!got.questions.length) return announce("There is nothing to undo.");
  tell("");
  if (inGrid()) {
    const now = state.page, coming = state.coming;
    for (const item of got.questions) item.mark = item.before;
    if (now.length) state.coming = Promise.resolve({ questions: now, after: coming });
    state.page = got.questions;
  } else {
    for (const question of got.questions) putBack(question);
  }
  show();
  announce(`Taken back. ${questionOf(got.questions[0])}`);
});

function putBack(question) {
  const same = (item) => item.row === question.row && item.class === question.class;
  const before = state.items.find(same);
  state.items = state.items.filter((item) => !same(item));
  state.at = Math.min(Math.max(0, state.at - (before ? 1 : 0)), state.items.length);
  if (before && before.present) question.present = before.present;
  state.items.splice(state.at, 0, question);
}

const toggleHeat = () => {
  state.heat = !state.heat;
  showHeat();
  announce(`Heat map ${state.heat ? "shown" : "hidden"}.`);
};

// Pressed again before the other mode is there, it would lead back at once.
const switchMode = () => {
  if (whole() || state.switching) return;
  state.switching = true;
  work(async () => {
    try {
      if (!(await state.saving)) return;
      state.mode = inGrid() ? "one" : "grid";
      state.heat = !inGrid();  // 24 maps take time
      history.replaceState(null, "", inGrid() ? "#" : "#one");
      showMode();
      await restart();
    } finally {
      state.switching = false;
    }
  }, true);
};

function showMode() {
  $("other").textContent = inGrid() ? "One at a time" : "Many at a time";
  $("mode").hidden = whole();
}

function enlarge() {
  const item = state.page[state.focus];
  if (!item) return;
  $("largest").src = imageOf(item);
  $("largest").alt = `Image ${item.image}`;
  $("large").showModal();
}

const finish = () => work(async () => {
  if (!(await state.saving)) return;
  const got = await ask("finish", {});
  const summary = got.summary;
  state.coming = null;
  for (const id of ["stage", "grid", "panel"]) $(id).hidden = true;
  $("end").hidden = false;
  const pace = state.answers ? ` This page took ${(state.seconds / 60).toFixed(1)} minutes for ${count(state.answers, whole() ? "image" : "answer")}.` : "";
  $("brought").textContent = `${whole() ? count(summary.answered, "image") : count(summary.answered, "answer")} in ${state.about.file}.${pace}`;
  $("trusted").hidden = got.trusted === undefined;
  if (got.trusted !== undefined) {
    $("trusted").textContent = `The thresholds were chosen again: ${got.trusted} of ${got.all_classes} can be trusted now, ${got.trusted_before} could before. Predictions of this run use them from now on.`;
  }
  const why = state.about.no_training;
  disable("train", why || !summary.answered);
  $("training").hidden = !why;
  if (why) $("training").textContent = `It cannot be trained here: ${why}.`;
  else showTraining(await ask("training"));
  $("end").focus();
});

const goBack = () => work(async () => {
  $("end").hidden = true;
  $("panel").hidden = false;
  await restart();
});

const train = () => work(async () => {
  if ($("train").getAttribute("aria-disabled") === "true") return;
  showTraining(await ask("train", {}));
});

const percent = (share) => (100 * share).toFixed(1);

function showTraining(status) {
  const running = status.state === "running";
  disable("train", running || state.about.no_training || !state.summary.answered);
  $("training").hidden = status.state === "none";
  $("progress").hidden = !running;
  $("change").hidden = status.state !== "done";
  if (running) {
    $("progress").max = status.epochs;
    if (status.epoch) $("progress").value = status.epoch;
    else $("progress").removeAttribute("value");
    $("training").textContent = status.epoch
      ? `Training ${status.run}: epoch ${status.epoch} of at most ${status.epochs}.` : `Training ${status.run} begins …`;
    setTimeout(async () => {
      try { showTraining(await ask("training")); } catch (error) { tell(error.message); }
    }, 1500);
  }
  if (status.state === "failed") $("training").textContent = `Training failed: ${status.error}`;
  if (status.state !== "done") return;
  const change = status.change;
  $("training").textContent = `The new run is in ${status.run}.`;
  const names = { test: "test", val: "validation" };
  const map = change.split === undefined ? ""
    : `Mean average precision on the ${names[change.split]} images: ${percent(change.before)} before, ${percent(change.after)} now${change.low <= 0 && change.high >= 0 ? " (the difference may be chance)" : ""}. ${change.complete ? ""
      : "Labels that nobody gave count as wrong there, so a model that finds more of them is not always higher. "}`;
  $("change").textContent = `${map}Thresholds that can be trusted: ${change.trusted_before} of ${change.classes} before, ${change.trusted_after} now.`;
}

async function cannotShow(item) {
  const here = inGrid() ? state.page.includes(item) : item === current() && $("image").getAttribute("src") === imageOf(item);
  if (!item || !here) return;
  try {
    await ask(inGrid() ? smallOf(item) : imageOf(item));
  } catch (error) {
    if (error instanceof Gone) return tell(error.message);
    if (error instanceof SyntaxError) {  // it was a moment's fault
      const shown = inGrid() ? item.tile.querySelector("img") : $("image");
      return load(shown, `${inGrid() ? smallOf(item) : imageOf(item)}?again`);
    }
    tell(`${item.image} cannot be shown and was passed over. (${error.message})`);
    if (inGrid()) {
      state.page = state.page.filter((other) => other.row !== item.row);
      if (!state.page.length) await fillPage();
      return show();
    }
    state.items = state.items.filter((other) => other.row !== item.row || other.answer);
    state.at = Math.min(state.at, state.items.length);
    await fill();
    show();
  }
}

function start(about) {
  state.about = about;
  state.mode = about.goal === "count" ? "whole" : location.hash === "#one" ? "one" : "grid";
  state.heat = state.mode === "one";
  $("run").textContent = about.run;
  document.title = `Review of ${about.run}`;
  $("kept").textContent = `Every answer is saved at once, in ${about.file}.`;
  $("name").value = about.reviewer || remembered() || "";
  $("who").classList.toggle("first", !$("name").value);
  if (!$("name").value) tell("Write your name first: it is kept with your answers.");
  $("filter").hidden = whole();
  showMode();
  if (!whole()) {
    $("only").replaceChildren(new Option("all classes", ""), new Option("what was skipped", SKIPPED),
      ...about.classes.map((name, number) => new Option(name, String(number))));
  }
  showSummary(about.summary);
}

function remembered() {
  try { return localStorage.getItem("reviewer"); } catch { return null; }
}

$("yes").addEventListener("click", () => answer("yes"));
$("no").addEventListener("click", () => answer("no"));
$("skip").addEventListener("click", () => answer("skip"));
$("save").addEventListener("click", save);
$("rest").addEventListener("click", () => markFrom(state.focus, "no"));
$("until").addEventListener("click", () => markFrom(state.focus, "yes"));
document.addEventListener("pointerup", () => setTimeout(() => { state.drag = null; }));  // after the click
$("unsure").addEventListener("click", () => toggleMark("skip"));
$("enlarge").addEventListener("click", enlarge);
$("mode").addEventListener("click", switchMode);
$("finish").addEventListener("click", finish);
$("more").addEventListener("click", goBack);
$("train").addEventListener("click", train);
$("undo").addEventListener("click", undo);
$("back").addEventListener("click", () => move(-1));
$("next").addEventListener("click", () => move(1));
$("heat").addEventListener("click", toggleHeat);
$("whole").addEventListener("submit", (event) => { event.preventDefault(); done(); });
$("name").addEventListener("change", () => {
  try { localStorage.setItem("reviewer", $("name").value.trim()); } catch { /* it is asked again */ }
  $("who").classList.remove("first");
  tell("");
});
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
$("image").addEventListener("error", () => cannotShow(current()));
$("map").addEventListener("error", () => {
  const item = current();
  if (!item || $("map").getAttribute("src") !== mapOf(item)) return;
  item.noMap = true;
  $("map").hidden = true;
});

function mark(at, rest) {
  if (at >= state.page.length) return;
  focusTile(at);
  if (rest) markFrom(at, "no");
  else toggleMark("no");
}

function toggleMark(word) {
  const item = state.page[state.focus];
  if (item) setMark(state.focus, markOf(item) !== word ? word : word === "no" ? "yes" : null);
}

const KEYS = {
  one: {
    y: () => answer("yes"), n: () => answer("no"), s: () => answer("skip"), u: undo, m: toggleHeat, g: switchMode,
    ArrowRight: () => move(1), ArrowLeft: () => move(-1),
  },
  whole: { u: undo, ArrowRight: () => move(1), ArrowLeft: () => move(-1) },
  grid: {
    " ": () => toggleMark("no"), n: () => toggleMark("no"), s: () => toggleMark("skip"), x: () => markFrom(state.focus, "no"),
    y: () => markFrom(state.focus, "yes"),
    e: enlarge, u: undo, m: toggleHeat, g: switchMode, Enter: save,
    ArrowRight: () => focusTile(state.focus + 1), ArrowLeft: () => focusTile(state.focus - 1),
    ArrowDown: () => focusTile(state.focus + columns()), ArrowUp: () => focusTile(state.focus - columns()),
  },
};
const HELD = new Set(["ArrowRight", "ArrowLeft", "ArrowDown", "ArrowUp"]);
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || $("large").open || $("panel").hidden) return;
  if (event.target.closest("select, input")) return;
  // Digits by their place: some keyboards want shift for them, which marks all that follow.
  const digit = inGrid() && /^(Digit|Numpad)\d$/.test(event.code);
  const key = digit ? event.code.slice(-1) : event.key.length === 1 ? event.key.toLowerCase() : event.key;
  // Enter and space press the button that has the focus, unless that is an image.
  if ([" ", "Enter"].includes(key) && event.target.closest("button:not(.tile)")) return;
  if (event.repeat && !(inGrid() && HELD.has(key))) return;
  const hint = inGrid() ? HINTS.indexOf(key) : -1;
  const task = hint >= 0 ? () => mark(hint, event.shiftKey) : KEYS[state.mode][key];
  if (!task) return;
  event.preventDefault();
  task();
});
work(async () => {
  start(await ask("about"));
  await restart();
});
