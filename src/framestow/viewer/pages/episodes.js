// The table of episodes: sorts, filters, and draws only the rows that are in sight.

import { textElement } from "./elements.js";
import { LAST_END, readResource } from "./resources.js";
import { colourOf, shortNumber } from "./pictures.js";

const ROW = 32; // pixels
const EXTRA = 6; // rows drawn above and below those in sight
const MOST_PIXELS = 8e6; // of all rows; browsers show no element that is much higher
const REST = 60; // milliseconds without scrolling, after which sparklines are read
const COLUMNS = [
  { name: "number", title: "#", kind: "numeric" },
  { name: "env_id", title: "env", kind: "numeric" },
  { name: "label", title: "label" },
  { name: "length", title: "steps", kind: "numeric" },
  { name: "return", title: "return", kind: "numeric" },
  { name: "rewards", title: "rewards", isFixed: true },
  { name: "ending", title: "ended" },
  { name: "age", title: "age", kind: "numeric" },
];
const COMPARED = { env: "env_id", length: "length", steps: "length", return: "return", age: "age", "#": "number" };
const NEWEST_FIRST = { name: "age", isDescending: false };

export class EpisodeTable {
  constructor(root, memory, episodes, choose) {
    this.memory = memory;
    this.choose = choose;
    this.columns = Object.fromEntries(Object.entries(episodes.arrays).map(([name, { data }]) => [name, data]));
    this.all = Uint32Array.from(this.columns.number.keys());
    this.rows = this.all; // rows in sight of the filter, in order
    this.sorted = NEWEST_FIRST;
    this.chosen = -1;
    this.elements = new Map(); // of the rows that are drawn, by row
    this.isLabelled = memory.labels.length > 1;
    this.build(root);
    this.sort();
  }

  build(root) {
    this.head = document.createElement("div");
    this.head.className = "row head";
    for (const column of this.shownColumns()) this.head.append(this.headCell(column));
    this.view = document.createElement("div");
    this.view.className = "rows";
    this.view.tabIndex = 0;
    this.view.setAttribute("role", "listbox");
    this.view.setAttribute("aria-label", "Episodes");
    this.space = document.createElement("div");
    this.space.className = "space";
    this.view.append(this.space);
    root.replaceChildren(this.head, this.view);
    root.classList.toggle("labelled", this.isLabelled);
    this.view.addEventListener("scroll", () => this.draw());
    this.view.addEventListener("click", (event) => {
      const row = event.target.closest(".row");
      if (row) this.choose(Number(row.dataset.number));
    });
    new ResizeObserver(() => this.draw()).observe(this.view);
  }

  shownColumns() {
    return COLUMNS.filter((column) => column.name !== "label" || this.isLabelled);
  }

  headCell(column) {
    const cell = document.createElement(column.isFixed ? "span" : "button");
    cell.className = `cell ${column.name} ${column.kind || ""}`;
    cell.textContent = column.title;
    cell.dataset.name = column.name;
    if (!column.isFixed) cell.addEventListener("click", () => this.sortBy(column.name));
    return cell;
  }

  sortBy(name) {
    const startsHigh = name === "return" || name === "length";
    const { name: before, isDescending } = this.sorted;
    if (before !== name) this.sorted = { name, isDescending: startsHigh };
    else if (isDescending === startsHigh) this.sorted = { name, isDescending: !startsHigh };
    else this.sorted = NEWEST_FIRST;
    this.view.scrollTop = 0;
    this.sort();
  }

  sort() {
    const { name, isDescending } = this.sorted;
    const column = this.columns[name];
    const sign = isDescending ? -1 : 1;
    this.rows = this.rows.slice().sort((one, other) => sign * (column[one] - column[other]) || one - other);
    for (const cell of this.head.children) {
      const isSorted = cell.dataset.name === name;
      cell.setAttribute("aria-sort", isSorted ? (isDescending ? "descending" : "ascending") : "none");
    }
    this.draw();
  }

  // Keeps the rows that fulfil every word: return>5, env=1, or a text of label, beginning or end.
  filter(text) {
    const tests = text.toLowerCase().split(/\s+/).filter(Boolean).map((word) => this.testOf(word));
    this.rows = this.all.filter((row) => tests.every((test) => test(row)));
    this.view.scrollTop = 0;
    this.sort();
    return this.rows.length;
  }

  testOf(word) {
    const compared = word.match(/^(#|[a-z]+)(<=|>=|<|>|=)(-?[\d.]+(?:e[+-]?\d+)?)$/);
    const column = compared && this.columns[COMPARED[compared[1]]];
    if (!column) return (row) => this.textOf(row).includes(word);
    const bound = Number(compared[3]);
    const tests = {
      "<": (value) => value < bound, ">": (value) => value > bound, "=": (value) => value === bound,
      "<=": (value) => value <= bound, ">=": (value) => value >= bound,
    };
    return (row) => tests[compared[2]](column[row]);
  }

  textOf(row) {
    const { labels, endings, beginnings } = this.memory;
    const label = this.columns.label ? labels[this.columns.label[row]] : "";
    return `${label} ${endings[this.columns.ending[row]]} ${beginnings[this.columns.beginning[row]]}`.toLowerCase();
  }

  // The number of the episode `by` rows below the chosen one; the first row if none is chosen.
  next(by) {
    const at = this.rows.findIndex((row) => this.columns.number[row] === this.chosen);
    const row = this.rows[Math.min(Math.max(at < 0 ? 0 : at + by, 0), this.rows.length - 1)];
    return row === undefined ? -1 : this.columns.number[row];
  }

  // The newest episode that is stored from its reset to its end; the newest one if none is.
  newestWhole() {
    const { ending, beginning, number } = this.columns;
    const whole = this.rows.find((row) => ending[row] <= LAST_END && beginning[row] === 0);
    return number[whole ?? this.rows[0]];
  }

  has(number) {
    return this.columns.number.includes(number);
  }

  show(number) {
    this.chosen = number;
    const at = this.rows.findIndex((row) => this.columns.number[row] === number);
    if (at >= 0) {
      const top = at * ROW;
      const lowest = top + ROW - this.view.clientHeight;
      const shown = this.view.scrollTop * this.pace;
      if (top < shown) this.view.scrollTop = top / this.pace;
      else if (lowest > shown) this.view.scrollTop = Math.ceil(lowest / this.pace);
    }
    this.draw();
  }

  // How many pixels the rows move when the table scrolls by one.
  get pace() {
    const { clientHeight } = this.view;
    return Math.max(1, (this.rows.length * ROW - clientHeight) / (MOST_PIXELS - clientHeight));
  }

  draw() {
    this.space.style.height = `${Math.min(this.rows.length * ROW, MOST_PIXELS)}px`;
    const { scrollTop, clientHeight } = this.view;
    const top = scrollTop * this.pace;
    const first = Math.max(0, Math.floor(top / ROW) - EXTRA);
    const last = Math.min(this.rows.length, Math.ceil((top + clientHeight) / ROW) + EXTRA);
    const shown = this.rows.subarray(first, last);
    const kept = new Set(shown);
    for (const row of this.elements.keys()) if (!kept.has(row)) this.removeRow(row);
    let next = this.space.firstChild;
    shown.forEach((row, number) => {
      const element = this.elements.get(row) ?? this.newRow(row);
      if (element === next) next = next.nextSibling;
      else this.space.insertBefore(element, next);
      element.style.top = `${(first + number) * ROW - top + scrollTop}px`;
      element.setAttribute("aria-selected", String(this.columns.number[row] === this.chosen));
    });
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.drawSparklines(), REST);
  }

  // Draws all rows again, in the present colours.
  redraw() {
    for (const row of this.elements.keys()) this.removeRow(row);
    this.draw();
  }

  newRow(row) {
    const element = document.createElement("div");
    element.className = "row";
    element.dataset.number = this.columns.number[row];
    element.setAttribute("role", "option");
    for (const column of this.shownColumns()) {
      const kind = `cell ${column.name} ${column.kind || ""}`;
      element.append(textElement("span", column.isFixed ? "" : this.cellText(column.name, row), kind));
    }
    this.elements.set(row, element);
    return element;
  }

  removeRow(row) {
    this.elements.get(row).remove();
    this.elements.delete(row);
  }

  cellText(name, row) {
    const value = this.columns[name][row];
    if (name === "label") return this.memory.labels[value];
    if (name !== "ending") return shortNumber(value);
    const isWhole = this.columns.beginning[row] === 0;
    return this.memory.endings[value] + (isWhole ? "" : `; ${this.memory.beginnings[this.columns.beginning[row]]}`);
  }

  // Reads rewards when the table rests: rows that pass ask a server for nothing.
  drawSparklines() {
    for (const [row, element] of this.elements) {
      const cell = element.querySelector(".rewards");
      if (!cell.firstChild) this.drawSparkline(cell, row).catch(() => {});
    }
  }

  async drawSparkline(cell, row) {
    const canvas = document.createElement("canvas");
    canvas.width = 120;
    canvas.height = 24;
    const block = Math.floor(row / this.memory.rows_a_spark_block);
    const { shape, data } = (await readResource(`sparklines/${block}`)).arrays.rewards;
    const own = data.subarray((row % this.memory.rows_a_spark_block) * shape[1]).subarray(0, shape[1]);
    const high = Math.max(...own, 0);
    const low = Math.min(...own, 0);
    const context = canvas.getContext("2d");
    const scale = (canvas.height - 2) / (high - low || 1);
    const zero = 1 + high * scale;
    const width = canvas.width / shape[1];
    context.fillStyle = colourOf("--grid");
    context.fillRect(0, Math.min(zero, canvas.height - 1), canvas.width, 1);
    own.forEach((value, number) => {
      context.fillStyle = colourOf(value < 0 ? "--c1" : "--c0");
      if (value) context.fillRect(number * width, zero - Math.max(value, 0) * scale, width - 1, Math.abs(value) * scale);
    });
    cell.replaceChildren(canvas);
  }
}
