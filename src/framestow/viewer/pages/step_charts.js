// Step charts, under the video: numbers of every step of an episode. A click or a drag chooses the step.

import { textElement } from "./elements.js";
import { colourOf, numbersOf, shortNumber } from "./pictures.js";
import { LAST_END, RUNNING, readPiece, readResource, rowOf } from "./resources.js";

const HEIGHT = 38; // pixels of a chart
const MOST_LINES = 12; // charts of a vector's numbers

export class StepCharts {
  constructor(root, memory, choose) {
    this.root = root;
    this.memory = memory;
    this.choose = choose;
    this.step = 0;
    this.cursor = document.createElement("div");
    this.cursor.className = "cursor";
    this.list = document.createElement("div");
    root.replaceChildren(this.list, this.cursor);
    root.addEventListener("pointerdown", (event) => this.drag(event));
    root.addEventListener("pointermove", (event) => event.buttons && this.isDragged && this.chooseAt(event));
    window.addEventListener("pointerup", () => (this.isDragged = false));
    new ResizeObserver(() => this.draw()).observe(root);
  }

  async open(episode) {
    this.episode = episode;
    this.charts = this.chartsOf(episode);
    this.build();
    const others = [...(await this.valueCharts(episode)), ...(await this.observationCharts(episode))];
    if (this.episode !== episode || !others.length) return;
    this.charts.splice(-1, 0, ...others);
    this.build();
  }

  chartsOf({ values, arrays }) {
    const charts = [{ name: "reward", numbers: arrays.reward.data, kind: "bars", colour: "--c0" }];
    const actions = linesOf("action", arrays.action, this.memory.action_shape, "--c4");
    charts.push(...actions.map((chart) => (this.memory.are_actions_counted ? { ...chart, kind: "dots" } : chart)));
    if (arrays.probability) {
      const average = 1 / this.memory.transitions;
      const numbers = arrays.probability.data.map((chance) => chance / average);
      charts.push({ name: "chance", title: "chance of being drawn, in times the mean of all transitions", unit: " ×", numbers, kind: "line", colour: "--c1", low: 0 });
    }
    for (const [name, shape] of this.memory.extras) charts.push(...linesOf(name, arrays[`extra.${name}`], shape, "--c2"));
    const title = "green: the episode begins or ends; orange: it was cut; brown: the next observation has frames of its own";
    return [...charts, { name: "ends", title, kind: "marks", numbers: arrays.border.data, values }];
  }

  // The highest value and the TD error of every step, by the agent of the run.
  async valueCharts(episode) {
    const numActions = this.memory.action_names.length;
    if (!numActions) return [];
    const { number: shown, length, pieces } = episode.values;
    const [highest, errors] = [0, 1].map(() => new Float64Array(length).fill(NaN));
    for (let number = 0; number < pieces && this.episode === episode; number++) {
      const { values, arrays } = await readResource(`values/${shown}/${number}`);
      arrays.td_error.data.forEach((error, row) => {
        errors[values.first_step + row] = error;
        highest[values.first_step + row] = Math.max(...arrays.values.data.subarray(row * numActions, (row + 1) * numActions));
      });
    }
    return [
      { name: "value", title: "the agent's highest value of an action", numbers: highest, kind: "line", colour: "--c2" },
      { name: "TD error", title: "return, plus discount times the highest next value, minus the value of the action",
        numbers: errors, kind: "bars", colour: "--c3" },
    ];
  }

  // The numbers of vectors, if the observations have no picture.
  async observationCharts(episode) {
    const { values } = episode;
    if (this.memory.arrays.some(({ shape }) => shape.length > 1)) return [];
    const pieces = [];
    for (let number = 0; number < values.pieces && this.episode === episode; number++) {
      pieces.push(await readPiece(values.number, number));
    }
    return this.memory.arrays.flatMap((array, key) => {
      const numbers = Array.from({ length: array.shape[0] }, () => new Float64Array(values.length + 1).fill(NaN));
      for (const piece of pieces) {
        const frames = piece.arrays[`frames.${key}`];
        for (let row = 0; row < frames.shape[0]; row++) {
          const step = piece.values.first + row;
          if (step < 0) continue;
          numbersOf(rowOf(frames, row), array).forEach((value, at) => (numbers[at][step] = value));
        }
      }
      return numbers.slice(0, MOST_LINES).map((own, at) => ({
        name: `${array.key || "obs"} ${at}`, numbers: own, kind: "line", colour: "--c3",
      }));
    });
  }

  build() {
    this.list.replaceChildren(...this.charts.map((chart) => {
      const row = document.createElement("div");
      row.className = `step-chart ${chart.kind}`;
      const label = textElement("span", chart.name, "name");
      label.title = chart.title || chart.name;
      chart.canvas = document.createElement("canvas");
      chart.value = textElement("span", "", "value");
      row.append(label, chart.canvas, chart.value);
      return row;
    }));
    this.draw();
  }

  show(step) {
    this.step = step;
    for (const chart of this.charts || []) {
      if (chart.kind !== "marks") chart.value.textContent = step < chart.numbers.length ? shortNumber(chart.numbers[step]) + (chart.unit || "") : "";
    }
    this.placeCursor();
  }

  placeCursor() {
    const canvas = this.charts?.[0]?.canvas;
    if (!canvas) return;
    const width = canvas.clientWidth;
    const left = canvas.offsetLeft + ((this.step + 0.5) / this.numSteps) * width;
    this.cursor.style.transform = `translateX(${Math.round(left)}px)`;
  }

  get numSteps() {
    return this.episode.values.length + 1; // the last frame has no step
  }

  drag(event) {
    if (!event.target.closest("canvas")) return;
    this.isDragged = true;
    this.chooseAt(event);
  }

  chooseAt(event) {
    const { left, width } = this.charts[0].canvas.getBoundingClientRect();
    this.choose(Math.floor(((event.clientX - left) / width) * this.numSteps));
  }

  draw() {
    for (const chart of this.charts || []) {
      const { canvas } = chart;
      const ratio = window.devicePixelRatio || 1;
      const width = canvas.clientWidth;
      const height = chart.kind === "marks" ? 16 : HEIGHT;
      if (!width) continue;
      canvas.width = width * ratio;
      canvas.height = height * ratio;
      const context = canvas.getContext("2d");
      context.scale(ratio, ratio);
      if (chart.kind === "marks") this.drawMarks(context, chart, width, height);
      else drawNumbers(context, chart, this.numSteps, width, height);
    }
    if (this.charts) this.show(this.step);
  }

  // The end of the episode, and steps whose next observation is not the observation shifted by a frame.
  drawMarks(context, { numbers, values }, width, height) {
    const space = width / this.numSteps;
    context.fillStyle = colourOf("--grid");
    context.fillRect(0, height / 2 - 1, width, 2);
    context.fillStyle = colourOf("--c5");
    numbers.forEach((isBorder, step) => isBorder && context.fillRect(step * space, 2, Math.max(2, space), height - 4));
    context.fillStyle = colourOf(values.beginning === 0 ? "--c2" : "--c1");
    context.fillRect(0, 1, 4, height - 2);
    context.fillStyle = colourOf(values.ending <= LAST_END ? "--c2" : values.ending === RUNNING ? "--pale" : "--c1");
    context.fillRect(width - 4, 1, 4, height - 2);
  }
}

function linesOf(name, { data, shape }, ownShape, colour) {
  const size = ownShape.reduce((product, side) => product * side, 1);
  const names = size === 1 ? [name] : Array.from({ length: Math.min(size, MOST_LINES) }, (_, at) => `${name} ${at}`);
  return names.map((title, at) => ({
    name: title,
    numbers: Float64Array.from({ length: shape[0] }, (_, step) => Number(data[step * size + at])),
    kind: "line",
    colour,
  }));
}

function drawNumbers(context, { numbers, kind, colour, low: least }, numSteps, width, height) {
  let low = least ?? (kind === "bars" ? 0 : Infinity);
  let high = kind === "bars" ? 0 : -Infinity;
  for (const value of numbers) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  const scale = (height - 6) / (high - low || 1);
  const topOf = (value) => (high > low ? height - 3 - (value - low) * scale : height / 2);
  const space = width / numSteps;
  context.fillStyle = colourOf("--grid");
  context.fillRect(0, Math.round(topOf(Math.min(Math.max(0, low), high))), width, 1);
  context.fillStyle = context.strokeStyle = colourOf(colour);
  if (kind === "bars") {
    const zero = topOf(0);
    numbers.forEach((value, step) => {
      if (!value || Number.isNaN(value)) return;
      const top = topOf(value);
      context.fillRect(step * space, Math.min(top, zero), Math.max(2, space - 1), Math.max(1, Math.abs(zero - top)));
    });
    return;
  }
  if (kind === "dots") {
    numbers.forEach((value, step) => context.fillRect(step * space, topOf(value) - 1.5, Math.max(2, space - 1), 3));
    return;
  }
  // At most two points a pixel: the least and the greatest number that it shows.
  context.beginPath();
  const steps = Math.max(1, Math.floor(numSteps / width / 2));
  for (let step = 0; step < numbers.length; step += steps) {
    let [from, to] = [numbers[step], numbers[step]];
    for (let at = step; at < Math.min(step + steps, numbers.length); at++) {
      from = Math.min(from, numbers[at]);
      to = Math.max(to, numbers[at]);
    }
    context.lineTo((step + 0.5) * space, topOf(from));
    if (to !== from) context.lineTo((step + 0.5) * space, topOf(to));
  }
  context.lineWidth = 1.4;
  context.stroke();
}
