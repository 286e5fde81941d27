"use strict";
(() => {
  const root = document.documentElement;
  const all = (selector, of = document) => [...of.querySelectorAll(selector)];
  const parts = () => all(".part");
  const tabs = () => all(".tabs a");
  const search = document.querySelector(".filter");

  // A table that goes on to the right fades out there.
  const fade = (box) => box.classList.toggle("more", box.scrollLeft + box.clientWidth < box.scrollWidth - 1);
  const fadeAll = () => all(".scroll").forEach(fade);

  // Tabs: the address says which part is shown, or where in it.
  const show = (scroll) => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const part = target?.closest(".part") ?? parts()[0];
    parts().forEach((one) => {
      one.hidden = one !== part;
      one.setAttribute("role", "tabpanel");
    });
    tabs().forEach((tab) => {
      tab.setAttribute("role", "tab");
      tab.setAttribute("aria-controls", tab.hash.slice(1));
      const selected = tab.hash === `#${part?.id}`;
      tab.setAttribute("aria-selected", selected);
      tab.tabIndex = selected ? 0 : -1;
    });
    fadeAll();
    if (target?.matches("details")) target.open = true;
    if (scroll && target && target !== part) target.scrollIntoView({ block: "center", inline: "center" });
    else if (scroll && target && scrollY > 200) scrollTo(0, 0);
  };
  const alongTabs = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const here = tabs().indexOf(document.activeElement);
    if (!step || here < 0) return;
    event.preventDefault();
    const next = tabs()[(here + step + tabs().length) % tabs().length];
    next.focus();
    next.click();
  };

  // Sorting: up, down, as it was. What is no number comes last.
  const order = { none: "ascending", ascending: "descending", descending: "none" };
  const sort = (header, direction) => {
    const table = header.closest("table");
    const body = table.tBodies[0];
    const column = header.cellIndex;
    all("th[aria-sort]", table).forEach((one) => one.setAttribute("aria-sort", "none"));
    header.setAttribute("aria-sort", direction);
    const sign = direction === "descending" ? -1 : 1;
    const value = (row) => row.cells[column].dataset.v;
    const text = (row) => row.cells[column].textContent.trim();
    const compare = (a, b) => {
      if (direction === "none") return a.dataset.place - b.dataset.place;
      if (value(a) === undefined) return sign * text(a).localeCompare(text(b), undefined, { numeric: true });
      if (!value(a) || !value(b)) return !value(a) - !value(b);
      return sign * (value(a) - value(b));
    };
    body.append(...[...body.rows].sort(compare));
  };

  const filter = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = all(".scroll tbody tr");
    rows.forEach((row) => {
      row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
    });
    const left = rows.filter((row) => !row.hidden).length;
    document.querySelector(".count").textContent = words.length ? `${left} of ${rows.length} rows` : "";
  };

  const setUp = () => {
    document.querySelector(".tabs").setAttribute("role", "tablist");
    all("tbody").forEach((body) => [...body.rows].forEach((row, place) => (row.dataset.place = place)));
    show(performance.getEntriesByType("navigation")[0]?.type === "navigate"); // a reload stays where it was
    filter();
  };

  root.classList.add("js");
  addEventListener("popstate", () => show(true));
  addEventListener("resize", fadeAll);
  document.addEventListener("scroll", (event) => { if (event.target.matches?.(".scroll")) fade(event.target); }, true);
  document.addEventListener("keydown", alongTabs);
  document.addEventListener("click", (event) => {
    const tab = event.target.closest(".tabs a");
    if (tab) {
      event.preventDefault(); // which would take the focus away
      history.pushState(null, "", tab.hash);
      show(true);
    }
    const button = event.target.closest("button");
    if (button?.matches(".sort")) sort(button.closest("th"), order[button.closest("th").getAttribute("aria-sort")]);
  });
  search.addEventListener("input", filter);
  setUp();
  // Chromium takes a meta refresh of an address with a fragment for a jump within the page.
  if (root.dataset.refresh) setTimeout(() => location.reload(), 1000 * root.dataset.refresh);
})();
