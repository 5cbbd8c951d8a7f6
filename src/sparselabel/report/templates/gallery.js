"use strict";
// Shows images a screen at a time, as they are scrolled to; names are set as text, never as markup.
const { images } = JSON.parse(document.getElementById("data").textContent);
const STEP = 60, NONE = "\u0000", NO_LABEL = "no label"; // no class is called as the first
const by = (id) => document.getElementById(id);
const make = (tag, text, parent, name) => {
  const element = document.createElement(tag);
  if (text !== null) element.textContent = text;
  if (name) element.className = name;
  parent.append(element);
  return element;
};
const counts = new Map();
for (const image of images) for (const [label] of image.labels) counts.set(label, (counts.get(label) ?? 0) + 1);
const without = images.filter((image) => !image.labels.length).length;
// The folders that all images are in are not repeated below each.
const paths = images.map((image) => image.name.split("/"));
let inside = 0;
while (paths.length && paths.every((path) => inside + 1 < path.length && path[inside] === paths[0][inside])) inside += 1;
let chosen = null, shown = [], drawn = 0;

const scoreOf = (image, label) => image.labels.find(([name]) => name === label)?.[1] ?? 0;
const plain = (text) => text.toLocaleLowerCase();

const draw = () => {
  for (const image of shown.slice(drawn, drawn + STEP)) {
    const figure = make("figure", null, by("images"));
    const link = make("a", null, figure);
    link.href = image.file;
    link.target = "_blank";
    link.rel = "noopener";
    const small = make("img", null, link);
    small.loading = "lazy";
    small.decoding = "async";
    small.width = image.wide;
    small.height = image.high;
    small.alt = image.labels.map(([label]) => label).join(", ") || NO_LABEL;
    small.src = image.small;
    const caption = make("figcaption", null, figure);
    const list = make("ul", null, caption);
    for (const [label, score] of image.labels) {
      const item = make("li", null, list);
      make("b", label, item);
      make("span", String(Math.round(100 * score)), item);
    }
    if (!image.labels.length) make("li", NO_LABEL, list, "soft");
    const file = make("bdi", image.name.split("/").slice(inside).join("/"), make("span", null, caption, "file"));
    file.parentElement.title = image.name;
  }
  drawn = Math.min(drawn + STEP, shown.length);
};

const update = () => {
  const words = plain(by("words").value.trim());
  shown = images.filter((image) =>
    (chosen === null || (chosen === NONE ? !image.labels.length : image.labels.some(([label]) => label === chosen))) &&
    (!words || plain(image.name).includes(words) || image.labels.some(([label]) => plain(label).includes(words))));
  if (chosen !== null && chosen !== NONE) shown.sort((a, b) => scoreOf(b, chosen) - scoreOf(a, chosen));
  for (const button of by("labels").children) button.setAttribute("aria-pressed", String(button.dataset.label === chosen));
  by("count").textContent = `${shown.length.toLocaleString("en")} of ${images.length.toLocaleString("en")} shown` +
    (chosen !== null && chosen !== NONE ? `, the surest ${chosen} first` : "");
  by("images").replaceChildren();
  drawn = 0;
  draw();
};

const offer = (label, count) => {
  const button = make("button", `${label === NONE ? NO_LABEL : label} `, by("labels"));
  button.type = "button";
  button.dataset.label = label;
  make("span", count.toLocaleString("en"), button);
  button.addEventListener("click", () => { chosen = chosen === label ? null : label; update(); });
};
for (const [label, count] of [...counts].sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0]))) {
  offer(label, count);
  make("option", null, by("names")).value = label;
}
if (without) offer(NONE, without);
by("words").addEventListener("input", update);
const watcher = new IntersectionObserver((entries) => {
  if (!entries.some((entry) => entry.isIntersecting) || drawn >= shown.length) return;
  draw();
  watcher.unobserve(by("end")); // and again: the end may still be on the screen
  watcher.observe(by("end"));
}, { rootMargin: "800px" });
update();
watcher.observe(by("end"));
