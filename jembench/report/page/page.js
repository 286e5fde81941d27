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
      if (selected) tab.parentNode.scrollLeft = tab.offsetLeft + tab.offsetWidth + 24 - tab.parentNode.clientWidth;
    });
    fadeAll();
    scatter();
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

  // Scatter plot: two columns of the dot plot, on its scales.
  const svg = (name, attributes, ...children) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    Object.entries(attributes).forEach(([key, value]) => made.setAttribute(key, value));
    made.append(...children);
    return made;
  };
  const axis = (header, length, vertical) => {
    const low = Number(header.dataset.low);
    const high = Number(header.dataset.high);
    const name = header.querySelector(".sort").textContent;
    return {
      name,
      title: [name, header.querySelector(".better").textContent].filter(Boolean).join(", "),
      ticks: JSON.parse(header.dataset.ticks),
      beyond: (value) => (value < low ? (vertical ? "▾" : "◂") : value > high ? (vertical ? "▴" : "▸") : ""),
      place: (value) => {
        const part = (Math.min(Math.max(value, low), high) - low) / (high - low);
        return length * (vertical ? 1 - part : part);
      },
    };
  };
  // Puts a label at the first place beside its dot where it covers no other.
  const labelled = (dot, width, taken) => {
    const label = dot.querySelector(".label");
    const { x, y } = dot.dataset;
    const size = label.getComputedTextLength() || 7 * label.textContent.length;
    const free = ([left, top]) =>
      left > 0 && left + size < width && taken.every((o) => left > o.right || left + size < o.left || Math.abs(top - o.top) > 14);
    const places = [[7, -7], [7, 16], [-7 - size, -7], [-7 - size, 16]].map(([a, b]) => [Number(x) + a, Number(y) + b]);
    const place = places.find(free);
    if (!place) return label.remove(); // its title tells the name
    const [left, top] = place;
    label.setAttribute("x", left);
    label.setAttribute("y", top);
    taken.push({ left, top, right: left + size });
  };
  const scatter = () => {
    const plot = document.querySelector(".scatter svg");
    if (!plot) return 0;
    const width = Math.min(plot.parentNode.clientWidth || 680, 680) - 64; // 0: hidden, to be printed all the same
    const height = Math.max(220, 0.55 * width);
    const headers = document.querySelector(".dots").tHead.rows[0].cells;
    const chosen = all(".scatter select").map((select) => Number(select.value)).reverse();
    const [x, y] = [axis(headers[chosen[0]], width, false), axis(headers[chosen[1]], height, true)];
    const line = (x1, y1, x2, y2, of) => svg("line", { x1, y1, x2, y2, class: of });
    const text = (content, attributes) => svg("text", attributes, content);
    const rows = all(".dots tbody tr").filter((row) => !row.hidden);
    const lacking = rows.filter((row) => !chosen.every((at) => row.cells[at].dataset.v));
    const names = lacking.map((row) => row.cells[0].textContent).join(", ");
    document.querySelector(".scatter .notes").textContent = names && `Not shown, without one of the two values: ${names}.`;
    const dots = rows.filter((row) => !lacking.includes(row)).map((row) => {
      const [across, up] = chosen.map((at) => row.cells[at]);
      const values = [across, up].map((cell) => cell.querySelector("svg").getAttribute("aria-label"));
      const name = row.cells[0].textContent;
      const [left, top] = [x.place(across.dataset.v), y.place(up.dataset.v)];
      const arrow = x.beyond(across.dataset.v) || y.beyond(up.dataset.v);
      const dot = svg("g", { color: across.querySelector("svg").getAttribute("color"), "data-x": left, "data-y": top },
        svg("title", {}, `${name}: ${x.name} ${values[0]}, ${y.name} ${values[1]}`));
      if (across.dataset.low) dot.append(line(x.place(across.dataset.low), top, x.place(across.dataset.high), top, "bar"));
      if (up.dataset.low) dot.append(line(left, y.place(up.dataset.low), left, y.place(up.dataset.high), "bar"));
      dot.append(arrow ? text(arrow, { x: left, y: top + 4, "text-anchor": "middle" }) : svg("circle", { cx: left, cy: top, r: 4 }));
      dot.append(text(name, { class: "label" }));
      return dot;
    });
    plot.setAttribute("width", width + 64);
    plot.setAttribute("height", height + 52);
    plot.setAttribute("viewBox", `-56 -8 ${width + 64} ${height + 52}`);
    plot.setAttribute("aria-label", [`${y.name} against ${x.name}`, ...dots.map((dot) => dot.firstChild.textContent)].join("; "));
    plot.replaceChildren(
      ...x.ticks.flatMap((tick) => [line(x.place(tick), 0, x.place(tick), height, "tick"), text(tick, { x: x.place(tick), y: height + 18, "text-anchor": "middle" })]),
      ...y.ticks.flatMap((tick) => [line(0, y.place(tick), width, y.place(tick), "tick"), text(tick, { x: -8, y: y.place(tick) + 4, "text-anchor": "end" })]),
      text(x.title, { x: width, y: height + 38, "text-anchor": "end", class: "title" }),
      text(y.title, { transform: "rotate(-90)", x: 0, y: -44, "text-anchor": "end", class: "title" }),
      ...dots,
    );
    const taken = [];
    dots.forEach((dot) => labelled(dot, width, taken));
    return dots.length;
  };

  const filter = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = all(".scroll tbody tr");
    rows.forEach((row) => {
      row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
    });
    const left = rows.filter((row) => !row.hidden).length;
    document.querySelector(".count").textContent = words.length ? `${left} of ${rows.length} rows` : "";
    scatter();
  };

  const setUp = () => {
    document.querySelector(".tabs").setAttribute("role", "tablist");
    all("tbody").forEach((body) => [...body.rows].forEach((row, place) => (row.dataset.place = place)));
    show(performance.getEntriesByType("navigation")[0]?.type === "navigate"); // a reload stays where it was
    filter();
    const vertical = document.querySelector(".scatter select"); // at first a metric that two models have
    while (vertical && scatter() < 2 && vertical.selectedIndex < vertical.length - 1) vertical.selectedIndex += 1;
  };

  root.classList.add("js");
  addEventListener("popstate", () => show(true));
  addEventListener("resize", () => { fadeAll(); scatter(); });
  all(".scatter select").forEach((select) => select.addEventListener("change", scatter));
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
