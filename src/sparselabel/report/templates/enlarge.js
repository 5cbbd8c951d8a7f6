"use strict";
// A click or Enter on an image shows it large; a hint says where a table can be moved sideways.
const large = document.getElementById("large");
for (const image of document.querySelectorAll(".card img")) {
  image.tabIndex = 0;
  image.setAttribute("role", "button");
  image.classList.add("enlarges");
  const open = () => {
    const [shown, text] = [large.querySelector("img"), large.querySelector("p")];
    [shown.src, shown.alt] = [image.src, image.alt];
    const file = image.closest(".card").querySelector(".file").textContent;
    const about = image.parentElement.innerText.split("\n").map((line) => line.trim()).filter((line) => line);
    text.textContent = [file, ...about.filter((line) => line !== file)].join(", ");
    large.showModal();
  };
  image.addEventListener("click", open);
  image.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      open();
    }
  });
}
large.addEventListener("click", (event) => {
  if (event.target !== large.querySelector("p")) large.close();
});

const regions = [...document.querySelectorAll(".scroll")];
const mark = () => {
  for (const region of regions) region.classList.toggle("more", region.scrollWidth > region.clientWidth + 1);
};
addEventListener("resize", mark);
document.addEventListener("toggle", mark, true);
mark();
