// Choosing jobs on the list: all of a page at once, and how many are chosen. Everything works
// without it; nothing is sent from here.
"use strict";
{
  const form = document.getElementById("relay-jobs");
  const all = form && form.querySelector("[data-relay-all]");
  if (all) {
    const boxes = Array.from(form.querySelectorAll("tbody input[type=checkbox]"));
    const chosen = form.querySelector("[data-relay-chosen]");
    const buttons = form.querySelectorAll("button[formaction]");
    const show = () => {
      const n = boxes.filter((box) => box.checked).length;
      all.checked = n > 0 && n === boxes.length;
      all.indeterminate = n > 0 && n < boxes.length;
      chosen.textContent = n ? `${chosen.dataset.some} ${n}` : chosen.dataset.none;
      buttons.forEach((button) => { button.disabled = n === 0; });
      boxes.forEach((box) => box.closest("tr").classList.toggle("relay-chosen", box.checked));
    };
    all.hidden = chosen.hidden = false;
    all.addEventListener("change", () => {
      boxes.forEach((box) => { box.checked = all.checked; });
      show();
    });
    form.addEventListener("change", show);
    // A page that comes back from the browser's cache keeps its ticks.
    window.addEventListener("pageshow", show);
    show();
  }
}
