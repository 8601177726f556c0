"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  root.classList.add("js");
  const byId = (id) => document.getElementById(id);
  const ROW = 22;

  // Theme: follows the system until the button is pressed.
  byId("theme").addEventListener("click", () => {
    const dark = root.dataset.theme
      ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });

  // Sortable tables: a button in each heading; numbers by data-value, else text.
  for (const table of document.querySelectorAll("table.sortable")) {
    const body = table.tBodies[0];
    table.querySelectorAll("th button").forEach((button) => {
      button.addEventListener("click", () => {
        const th = button.closest("th");
        const column = th.cellIndex;
        const down = th.getAttribute("aria-sort") === "ascending";
        for (const other of th.parentElement.cells) other.removeAttribute("aria-sort");
        th.setAttribute("aria-sort", down ? "descending" : "ascending");
        const key = (row) => {
          const cell = row.cells[column];
          return "value" in cell.dataset ? Number(cell.dataset.value) : cell.textContent;
        };
        const rows = [...body.rows];
        rows.sort((a, b) => {
          const x = key(a), y = key(b);
          const order = typeof x === "number" ? x - y : x.localeCompare(y);
          return down ? -order : order;
        });
        body.append(...rows);
      });
    });
  }

  const hex = (i) => "0x" + (16 * i).toString(16).padStart(4, "0");
  function controlWords(c) {
    const words = ["stall " + (c & 15)];
    if (!(c >> 4 & 1) && (c & 15)) words.push("yield"); // bit 109 clear
    const write = c >> 5 & 7, read = c >> 8 & 7, wait = c >> 11 & 63, reuse = c >> 17 & 15;
    if (write !== 7) words.push("sets SB" + write);
    if (read !== 7) words.push("reads hold SB" + read);
    if (wait) words.push("waits SB" + [0, 1, 2, 3, 4, 5].filter((b) => wait >> b & 1).join("+"));
    if (reuse) words.push("reuse " + ["a", "b", "c", "d"].filter((_, b) => reuse >> b & 1).join(""));
    return words.join(", ");
  }

  class Listing {
    constructor(section, kernel, number) {
      this.section = section;
      this.kernel = kernel;
      this.count = kernel.live.length;
      this.box = section.querySelector(".listing");
      this.space = section.querySelector(".space");
      this.search = section.querySelector("input[type=search]");
      this.result = section.querySelector("output");
      this.current = -1;
      this.line = null;
      this.hits = [];
      this.hitSet = new Set();
      this.number = number;
      this.space.style.height = this.count * ROW + "px";
      this.peak = kernel.live.reduce((most, live) => Math.max(most, live), 1);
      this.box.addEventListener("scroll", () => this.draw(), { passive: true });
      this.box.addEventListener("keydown", (event) => this.key(event));
      this.search.addEventListener("input", () => this.find());
      this.search.addEventListener("keydown", (event) => {
        if (event.key === "Enter") { event.preventDefault(); this.step(event.shiftKey ? -1 : 1); }
      });
      section.querySelector(".next").addEventListener("click", () => this.step(1));
      section.querySelector(".previous").addEventListener("click", () => this.step(-1));
      section.querySelector(".filter").addEventListener("change", () => this.find());
      this.space.addEventListener("click", (event) => {
        const row = event.target.closest(".row");
        if (!row) return;
        this.go(Number(row.dataset.i), false);
        if (event.target.closest("button.line")) this.select(Number(event.target.dataset.line));
      });
      section.querySelectorAll("[data-goto]").forEach((link) =>
        link.addEventListener("click", (event) => {
          event.preventDefault();
          this.go(Number(link.dataset.goto), true);
          this.box.focus({ preventScroll: true });
        }));
      section.querySelectorAll("[data-source]").forEach((link) =>
        link.addEventListener("click", (event) => {
          event.preventDefault();
          this.select(Number(link.dataset.source), true);
        }));
      this.curve();
      this.draw();
    }

    row(i) {
      const k = this.kernel, row = document.createElement("div");
      row.className = "row";
      row.id = `k${this.number}i${i}`;
      row.dataset.i = i;
      row.setAttribute("role", "row");
      row.setAttribute("aria-rowindex", i + 2);
      row.style.top = i * ROW + "px";
      if (k.leaders.has(i)) row.classList.add("block");
      if (this.hitSet.has(i)) row.classList.add("hit");
      if (this.line !== null && k.line[i] === this.line) row.classList.add("sameline");
      if (i === this.current) { row.classList.add("current"); row.setAttribute("aria-selected", "true"); }
      const cell = (text, name) => {
        const span = document.createElement("span");
        span.setAttribute("role", "cell");
        span.className = name;
        span.textContent = text;
        row.append(span);
        return span;
      };
      cell(hex(i), "off");
      const live = cell(k.live[i], "live");
      live.style.background = `rgb(var(--hot) / ${(0.75 * Math.pow(k.live[i] / this.peak, 2)).toFixed(3)})`;
      live.title = `${k.live[i]} general registers live`;
      const mark = k.marks[i];
      const text = cell(k.text[i] + (mark ? `  ← ${mark}` : ""), "sass");
      text.title = text.textContent;
      if (mark) text.classList.add(mark.split(" ", 1)[0]);
      const control = cell(controlWords(k.control[i]), "ctl");
      control.title = control.textContent;
      const source = cell("", "src");
      if (k.line[i] >= 0) {
        const button = document.createElement("button");
        button.type = "button"; button.className = "line"; button.tabIndex = -1;
        button.dataset.line = k.line[i];
        button.textContent = k.lines[k.line[i]].short;
        button.title = k.lines[k.line[i]].text || k.lines[k.line[i]].short;
        source.append(button);
      }
      cell("│".repeat(k.depth[i]), "depth").title = `loop depth ${k.depth[i]}`;
      return row;
    }

    draw() {
      const first = Math.max(0, Math.floor(this.box.scrollTop / ROW) - 10);
      const last = Math.min(this.count, first + Math.ceil(this.box.clientHeight / ROW) + 24);
      const rows = [];
      for (let i = first; i < last; i++) rows.push(this.row(i));
      this.space.replaceChildren(...rows);
      const at = this.current >= first && this.current < last ? `k${this.number}i${this.current}` : "";
      if (at) this.box.setAttribute("aria-activedescendant", at);
      else this.box.removeAttribute("aria-activedescendant");
    }

    show(i) {
      const top = i * ROW;
      if (top < this.box.scrollTop + ROW || top > this.box.scrollTop + this.box.clientHeight - 3 * ROW)
        this.box.scrollTop = Math.max(0, top - this.box.clientHeight / 2);
    }

    go(i, scroll) {
      if (!(i >= 0 && i < this.count)) return;
      this.current = i;
      this.show(i);
      this.draw();
      if (scroll) this.box.scrollIntoView({ block: "nearest" });
    }

    key(event) {
      const page = Math.floor(this.box.clientHeight / ROW) - 2;
      const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, j: 1, k: -1 };
      if (event.key in moves) this.go(Math.min(this.count - 1, Math.max(0, this.current + moves[event.key])));
      else if (event.key === "Home") this.go(0);
      else if (event.key === "End") this.go(this.count - 1);
      else if (event.key === "n") this.step(1);
      else if (event.key === "N") this.step(-1);
      else if (event.key === "Enter" && this.current >= 0 && this.kernel.line[this.current] >= 0)
        this.select(this.kernel.line[this.current]);
      else return;
      event.preventDefault();
    }

    find() {
      const words = this.search.value.trim().toLowerCase();
      const kind = this.section.querySelector(".filter").value;
      const k = this.kernel;
      this.hits = [];
      if (words || kind) {
        for (let i = 0; i < this.count; i++) {
          const all = `${hex(i)} ${k.text[i]} ${k.marks[i] || ""} ${k.line[i] >= 0 ? k.lines[k.line[i]].short : ""}`;
          if (words && !all.toLowerCase().includes(words)) continue;
          if (kind === "marked" && !k.marks[i]) continue;
          if (kind === "slot" && !(k.marks[i] || "").includes("shared")) continue;
          if (kind === "peak" && k.live[i] < this.peak) continue;
          if (kind === "wait" && !(k.control[i] >> 11 & 63)) continue;
          this.hits.push(i);
        }
      }
      this.hitSet = new Set(this.hits);
      this.hit = -1;
      this.result.textContent = words || kind ? `${this.hits.length} of ${this.count} instructions` : "";
      if (this.hits.length) this.step(1); else this.draw();
    }

    step(by) {
      if (!this.hits.length) return;
      this.hit = (this.hit + by + this.hits.length) % this.hits.length;
      this.result.textContent = `${this.hit + 1} of ${this.hits.length} found`;
      this.go(this.hits[this.hit]);
    }

    select(line, scroll) {
      this.line = line;
      this.section.querySelectorAll("[data-line-row]").forEach((row) => {
        const here = Number(row.dataset.lineRow) === line;
        row.setAttribute("aria-current", here ? "true" : "false");
        if (here && !scroll) row.scrollIntoView({ block: "nearest" });
      });
      if (scroll) this.go(this.kernel.line.indexOf(line), true);
      this.draw();
    }

    curve() {
      const svg = this.section.querySelector("svg.curve");
      if (!svg) return;
      const cursor = svg.querySelector(".cursor"), label = svg.querySelector(".value");
      const left = Number(svg.dataset.left), width = Number(svg.dataset.plot);
      const at = (event) => {
        const box = svg.getBoundingClientRect();
        const x = (event.clientX - box.left) * svg.viewBox.baseVal.width / box.width - left;
        return Math.min(this.count - 1, Math.max(0, Math.floor(x / width * this.count)));
      };
      svg.addEventListener("pointermove", (event) => {
        const i = at(event), x = left + (i + 0.5) / this.count * width;
        cursor.setAttribute("x1", x); cursor.setAttribute("x2", x);
        cursor.style.visibility = "visible";
        label.textContent = `${hex(i)}: ${this.kernel.live[i]} live`;
      });
      svg.addEventListener("pointerleave", () => { cursor.style.visibility = "hidden"; label.textContent = ""; });
      svg.addEventListener("click", (event) => this.go(at(event), true));
    }
  }

  const listings = [];
  const sections = [...document.querySelectorAll("section.kernel")];
  data.kernels.forEach((kernel, number) => {
    if (kernel.live) {
      kernel.leaders = new Set(kernel.leaders);
      kernel.marks = Object.fromEntries(kernel.marks);
    }
  });

  function showKernel(number) {
    sections.forEach((section, n) => { section.hidden = n !== number; });
    document.querySelectorAll("#kernels tbody tr").forEach((row) =>
      row.setAttribute("aria-current", Number(row.dataset.kernel) === number ? "true" : "false"));
    if (data.kernels[number].live && !listings[number])
      listings[number] = new Listing(sections[number], data.kernels[number], number);
    else if (listings[number]) listings[number].draw();
  }
  const fromHash = () => {
    const match = /^#kernel-(\d+)$/.exec(location.hash);
    showKernel(match && sections[Number(match[1])] ? Number(match[1]) : 0);
  };
  addEventListener("hashchange", fromHash);
  fromHash();

  document.addEventListener("keydown", (event) => {
    if (event.target.matches("input,select,textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/") {
      const section = sections.find((s) => !s.hidden);
      const field = section && section.querySelector("input[type=search]");
      if (field) { event.preventDefault(); field.focus(); }
    }
  });
})();
