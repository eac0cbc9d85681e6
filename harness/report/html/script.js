"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const make = (tag, properties, ...children) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  };

  // Numbers as people read them, back to numbers: "72 µs", "1,910× faster", "5 MB". Words have none.
  const UNITS = { ns: 1e-9, "µs": 1e-6, ms: 1e-3, s: 1, B: 1, kB: 1e3, MB: 1e6, GB: 1e9, "%": 1 };
  const NUMBER = /^≈?\s*(-?[\d,]+(?:\.\d+)?)(?:[\s\u00a0]*(ns|µs|ms|s|kB|MB|GB|B|%)\b)?(×?(?:[\s\u00a0]*slower)?)/;
  const number = (text) => {
    if (text.startsWith("exact")) return Infinity;
    if (text.startsWith("baseline")) return 1;
    const found = NUMBER.exec(text);
    if (!found) return NaN;
    const value = Number(found[1].replaceAll(",", "")) * (UNITS[found[2]] ?? 1);
    return found[3].includes("slower") ? 1 / value : value;
  };
  const text = (cell) => (cell.matches("td.n") ? cell.firstChild : cell).textContent.trim();

  function sortable(table) {
    const body = table.tBodies[0];
    const headings = all("thead th", table);
    headings.forEach((heading, column) => {
      const button = make("button", { type: "button", className: "sort" }, heading.textContent);
      heading.replaceChildren(button);
      button.addEventListener("click", () => {
        const up = heading.getAttribute("aria-sort") !== "ascending";
        headings.forEach((other) => other.removeAttribute("aria-sort"));
        heading.setAttribute("aria-sort", up ? "ascending" : "descending");
        body.append(...sorted([...body.rows], column, heading.classList.contains("n"), up));
      });
    });
  }

  function sorted(rows, column, numeric, up) {
    const words = new Intl.Collator(document.documentElement.lang, { numeric: true });
    const keyed = rows.map((row) => ({ row, text: text(row.cells[column]) }));
    keyed.forEach((entry) => { entry.value = numeric ? number(entry.text) : 0; });
    keyed.sort((one, other) => {
      const gone = Number(Number.isNaN(one.value)) - Number(Number.isNaN(other.value));
      if (gone) return gone; // what has no number stands last in both directions
      const order = numeric && one.value !== other.value ? (one.value < other.value ? -1 : 1)
        : words.compare(one.text, other.text);
      return up ? order : -order;
    });
    return keyed.map((entry) => entry.row);
  }

  function filterable(table, controls) {
    const rows = [...table.tBodies[0].rows];
    const headings = all("thead th", table);
    const filters = all("thead th[data-filter]", table).map((heading) => {
      const column = headings.indexOf(heading);
      const name = heading.dataset.filter;
      const read = (row) => name === "framework" ? text(row.cells[column]).split("/")[0] : text(row.cells[column]);
      const values = [...new Set(rows.map(read))].sort();
      const select = make("select", {}, make("option", { value: "" }, "all"));
      values.forEach((value) => select.append(make("option", { value: `=${value}` }, value)));
      return { name, read, select, useful: values.length > 1 };
    }).filter((filter) => filter.useful);
    const pin = headings.findIndex((heading) => heading.classList.contains("pin"));
    const search = make("input", { type: "search", autocomplete: "off", spellcheck: false });
    const count = make("output", {});
    const apply = () => {
      const wanted = search.value.trim().toLowerCase();
      let shown = 0;
      rows.forEach((row) => {
        const fits = filters.every(({ read, select }) => !select.value || select.value === `=${read(row)}`);
        row.hidden = !(fits && (!wanted || text(row.cells[pin]).toLowerCase().includes(wanted)));
        shown += !row.hidden;
      });
      count.textContent = `${shown.toLocaleString("en")} of ${rows.length.toLocaleString("en")} cases`;
    };
    filters.forEach(({ name, select }) => {
      select.addEventListener("change", apply);
      controls.append(make("label", {}, name, select));
    });
    search.addEventListener("input", apply);
    controls.append(make("label", {}, "strategy contains", search), count);
    controls.hidden = false;
    apply();
  }

  // Picked lines stand out in the hue of their framework; the others step back.
  function pickable(figure) {
    const picks = figure.querySelector(".picks");
    const svg = figure.querySelector("svg");
    if (!picks || !svg) return;
    const named = (button) => {
      const path = all(`.line[data-line="${button.dataset.line}"] path`, svg).at(-1);
      const end = path?.getPointAtLength(path.getTotalLength());
      if (!end) return;
      const label = document.createElementNS(svg.namespaceURI, "text");
      label.textContent = button.textContent;
      label.setAttribute("class", "name");
      label.dataset.of = button.dataset.line;
      label.setAttribute("x", end.x - 6);
      label.setAttribute("y", end.y - 8);
      label.style.setProperty("--pick", button.style.getPropertyValue("--hue"));
      svg.append(label);
    };
    picks.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (!button) return;
      const on = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(on));
      const parts = all(`.line[data-line="${button.dataset.line}"]`, svg);
      parts.forEach((part) => {
        part.classList.toggle("on", on);
        part.style.setProperty("--pick", button.style.getPropertyValue("--hue"));
        part.parentNode.append(part); // above the others
      });
      all(`text.name[data-of="${button.dataset.line}"]`, svg).forEach((label) => label.remove());
      if (on && !parts.some((part) => part.querySelector("text"))) named(button);
      svg.classList.toggle("picking", picks.querySelector('[aria-pressed="true"]') !== null);
    });
    picks.hidden = false;
  }

  const table = document.querySelector("[data-table]");
  if (table) {
    filterable(table, document.querySelector("[data-controls]"));
    sortable(table);
  }
  all("[data-chart]").forEach(pickable);
})();
