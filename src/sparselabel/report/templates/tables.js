"use strict";
// Sorts tables by a click on a heading and filters the classes; without it everything is there all the same.
const valueOf = (row, place) => {
  const cell = row.cells[place];
  const value = parseFloat(cell.dataset.value ?? cell.textContent);
  return cell.classList.contains("n") ? (Number.isNaN(value) ? -Infinity : value) : cell.textContent.trim();
};
const compare = (a, b) => (typeof a === "number" ? a - b : a.localeCompare(b, undefined, { numeric: true }));

for (const table of document.querySelectorAll("table[data-sort]")) {
  [...table.tHead.rows[0].cells].forEach((heading, place) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      // Numbers are wanted from the largest, names from A.
      const first = heading.classList.contains("n") ? "descending" : "ascending";
      const other = first === "ascending" ? "descending" : "ascending";
      const order = heading.getAttribute("aria-sort") === first ? other : first;
      for (const one of table.tHead.rows[0].cells) one.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", order);
      const sign = order === "ascending" ? 1 : -1;
      const rows = [...table.tBodies[0].rows];
      rows.sort((a, b) => sign * compare(valueOf(a, place), valueOf(b, place)));
      table.tBodies[0].append(...rows);
    });
  });
}

for (const input of document.querySelectorAll("input[data-filter]")) {
  const rows = [...document.getElementById(input.dataset.filter).tBodies[0].rows];
  const told = document.querySelector(`[data-count="${input.dataset.filter}"]`);
  input.closest(".filter").hidden = false;
  input.addEventListener("input", () => {
    const wanted = input.value.trim().toLocaleLowerCase();
    for (const row of rows) row.hidden = !row.cells[0].textContent.toLocaleLowerCase().includes(wanted);
    told.textContent = wanted ? `${rows.filter((row) => !row.hidden).length} of ${rows.length}` : "";
  });
}
