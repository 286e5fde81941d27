"use strict";
(() => {
  const root = document.documentElement;
  const all = (selector, of = document) => [...of.querySelectorAll(selector)];
  const parts = () => all(".part");
  const tabs = () => all(".tabs a");
  const search = document.querySelector(".filter");
  const about = document.getElementById("about");
  let known = { texts: [], records: [] };

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
    if (scroll && target && target !== part) target.scrollIntoView({ block: "center" });
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
    rove(table);
  };

  // In a table, one number takes part in the order of the tab key; arrows lead to the others.
  const numbers = (row) => all("button.number", row);
  const rove = (table) => all("tbody button.number", table).forEach((button, place) => (button.tabIndex = place ? -1 : 0));
  const alongNumbers = (event) => {
    const button = event.target.closest("button.number");
    const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
    if (!button || !step) return;
    event.preventDefault();
    const cell = button.closest("td, th");
    const rows = [...button.closest("tbody").rows].filter((row) => !row.hidden && numbers(row).length);
    const row = rows[rows.indexOf(cell.parentNode) + step[0]];
    const cells = row ? [...row.cells].filter((one) => numbers(one).length) : [];
    const beside = step[0] ? row?.cells[cell.cellIndex] : cells[cells.indexOf(cell) + step[1]];
    const next = beside?.querySelector("button.number");
    if (!next) return;
    button.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  };

  const filter = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = all(".scroll tbody tr");
    rows.forEach((row) => {
      row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
      all(".pieces tbody", row.closest("section")).forEach((body) => (body.rows[row.dataset.place].hidden = row.hidden));
    });
    const left = rows.filter((row) => !row.hidden).length;
    document.querySelector(".count").textContent = words.length ? `${left} of ${rows.length} rows` : "";
  };

  // What a number is.
  const explain = (button) => {
    const [model, dataset, recipe, metric, label, unit, reason, protocol, value, low, high, sd, n, seeds, comparable, inner, commands] =
      known.records[button.dataset.record];
    const text = (index) => known.texts[index];
    const short = (number) => (typeof number === "number" ? Number(number.toPrecision(8)) : number);
    const lines = [["model", text(model)], ["dataset", text(dataset)], ["recipe", text(recipe)]];
    if (value === null) lines.push(["status", button.textContent]);
    else lines.push(["value", `${short(value)} ${text(unit)}`]);
    if (low !== null && high !== null) lines.push(["95 % interval", `${short(low)} to ${short(high)}`]);
    if (sd !== null) lines.push(["sd over seeds", short(sd)]);
    if (seeds.length) lines.push([seeds.length > 1 ? "seeds" : "seed", seeds.join(", ")]);
    if (n !== null) lines.push(["n", n]);
    if (text(reason)) lines.push(["remark", text(reason)]);
    if (!comparable) lines.push(["remark", "not comparable with the other models: its protocol is another"]);
    lines.push(["metric", text(metric)]);
    if (text(protocol)) lines.push(["protocol", inner.length ? "" : text(protocol)]);
    const list = about.querySelector("dl");
    list.replaceChildren();
    const add = (name, content, of) => {
      const [term, description] = [document.createElement("dt"), document.createElement("dd")];
      term.textContent = name;
      description.textContent = content;
      if (of) term.className = description.className = "of";
      list.append(term, description);
    };
    lines.forEach(([name, content]) => add(name, content));
    inner.forEach(([name, content]) => add(text(name), text(content), true));
    commands.forEach((command) => add("command", text(command)));
    about.querySelector("h3").textContent = text(label);
    about.showPopover();
    const place = button.getBoundingClientRect();
    const within = (at, size, room) => `${Math.max(16, Math.min(at, room - size - 16))}px`;
    about.style.left = within(place.left, about.offsetWidth, root.clientWidth);
    about.style.top = within(place.bottom + 6, about.offsetHeight, innerHeight);
    about.querySelector(".close").focus();
    about.ontoggle = (event) => event.newState === "closed" && button.focus({ preventScroll: true });
  };

  const setUp = () => {
    document.querySelector(".tabs").setAttribute("role", "tablist");
    known = JSON.parse(document.getElementById("known").textContent);
    all("tbody").forEach((body) => [...body.rows].forEach((row, place) => (row.dataset.place = place)));
    all("table").forEach(rove);
    show(false);
    filter();
  };

  root.classList.add("js");
  addEventListener("popstate", () => show(true));
  addEventListener("resize", fadeAll);
  document.addEventListener("scroll", (event) => { if (event.target.matches?.(".scroll")) fade(event.target); }, true);
  document.addEventListener("keydown", (event) => { alongTabs(event); alongNumbers(event); });
  document.addEventListener("click", (event) => {
    const tab = event.target.closest(".tabs a");
    if (tab) {
      event.preventDefault(); // which would take the focus away
      history.pushState(null, "", tab.hash);
      show(true);
    }
    const button = event.target.closest("button");
    if (button?.matches(".sort")) sort(button.closest("th"), order[button.closest("th").getAttribute("aria-sort")]);
    if (button?.matches(".number")) explain(button);
  });
  search.addEventListener("input", filter);
  setUp();
  // Chromium takes a meta refresh of an address with a fragment for a jump within the page.
  if (root.dataset.refresh) setTimeout(() => location.reload(), 1000 * root.dataset.refresh);
})();
