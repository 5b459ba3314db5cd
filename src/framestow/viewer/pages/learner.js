// What the learner gets of a step: both observations as sample() returns them, and the numbers beside them.

import { textElement } from "./elements.js";
import { FIRST_EXTRA, LOST, RUNNING, ZEROS, readPiece, rowOf } from "./resources.js";
import { drawFrame, formOf, scaleCanvas, shortNumber } from "./pictures.js";

const FRAME_SIDE = 150; // pixels of a frame's longer side, at most
const ROW_WIDTH = 1040; // pixels of both observations beside each other

export class Learner {
  constructor(root, memory, ranges) {
    this.root = root;
    this.memory = memory;
    this.ranges = ranges;
  }

  open(episode) {
    this.episode = episode;
  }

  async show(step) {
    const asked = (this.asked = Symbol());
    const { values, arrays } = this.episode;
    const parts = [this.words(step)];
    if (step < values.length && arrays.is_sampleable.data[step]) {
      parts.push(this.table(step));
      const observations = await this.observations(step).catch((error) => [textElement("p", error.message, "alarm")]);
      parts.push(...observations);
    }
    if (asked !== this.asked) return;
    this.root.replaceChildren(...parts);
    for (const strip of parts) strip.drawAll?.();
    this.root.dataset.step = step; // for tests: what is shown now
  }

  // How the episode goes on after the step, in words.
  words(step) {
    const { values, arrays } = this.episode;
    const list = document.createElement("ul");
    list.className = "words";
    const say = (text, kind = "") => list.append(textElement("li", text, kind));
    if (step === 0 && values.beginning) say(`This is not the episode's first step: ${this.memory.beginnings[values.beginning]}.`, "alarm");
    if (step >= values.length) {
      say(`The last frame of the episode (${this.memory.endings[values.ending]}). No transition begins here.`);
      return list;
    }
    const at = (name) => arrays[name]?.data[step];
    const ending = this.memory.endings[values.ending];
    const toCut = values.ending > RUNNING ? values.length - step : Infinity;
    if (toCut === 1) say(`The episode was ${ending} after this step.`, "alarm");
    if (!at("is_sampleable")) {
      say(values.is_open
        ? `Not drawn yet: its return of ${this.memory.n_step} rewards is not complete.`
        : "Not drawn: a frame or a step that it needs is lost.", "alarm");
      return list;
    }
    const steps = at("num_steps");
    const where = steps === 1 ? "at this step" : `at the last of ${steps} steps`;
    const later = steps === 1 ? "the next observation" : `the observation ${steps} steps later`;
    if (at("n_terminated")) say(`The episode terminated ${where}: the discount is 0, so the target is the return alone.`);
    else if (at("n_truncated")) say(`The episode was truncated ${where}: the target adds the value of the true last observation.`);
    else say(`The target adds the value of ${later}.`);
    const missing = steps < this.memory.n_step ? `: the return has ${steps} of ${this.memory.n_step} rewards` : "";
    if (toCut > 1 && toCut <= steps) say(`The episode was ${ending}, after ${toCut - 1} more steps${missing}.`, "alarm");
    if (at("border")) say("The next observation is not the observation shifted by one frame: its older frames are stored too.");
    return list;
  }

  table(step) {
    const { arrays } = this.episode;
    const at = (name) => arrays[name]?.data[step];
    const rows = [
      ["index", shortNumber(at("index"))],
      ["action", [actionText(arrays.action, step), this.memory.action_names[at("action")]].filter(Boolean).join(" ")],
      [this.memory.n_step > 1 ? `return of ${at("num_steps")} rewards` : "reward", shortNumber(at("n_step_return"))],
      ["discount", shortNumber(at("discount"))],
    ];
    if (arrays.probability) {
      const chance = at("probability");
      const times = chance * this.memory.transitions;
      rows.push(["probability of a draw", `${chance.toPrecision(3)} (${shortNumber(times)} × the mean)`]);
      rows.push(["weight", Number.isNaN(at("weight")) ? "of the part that draws it" : shortNumber(at("weight"))]);
    }
    if (arrays.priority) rows.push(["priority", shortNumber(at("priority"))]);
    for (const [name, shape] of this.memory.extras) {
      if (!shape.length) rows.push([name, shortNumber(Number(at(`extra.${name}`)))]);
    }
    const list = document.createElement("dl");
    list.className = "numbers";
    for (const [name, value] of rows) {
      const pair = document.createElement("div");
      pair.append(textElement("dt", name), textElement("dd", value));
      list.append(pair);
    }
    return list;
  }

  // A strip of frames for each array: the observation, and the next observation.
  async observations(step) {
    const number = Math.floor((step + this.episode.values.history) / this.memory.frames_per_piece);
    const piece = await readPiece(this.episode.values.number, number);
    if (piece.values.lost[step]) return [textElement("p", `Lost: ${piece.values.lost[step]}`, "alarm")];
    const strips = [];
    for (const [key, array] of this.memory.arrays.entries()) {
      const numbers = piece.arrays[`stacks.${key}`];
      const depth = numbers.shape[2];
      const row = (step - piece.values.first_step) * 2 * depth;
      const shown = Array.from(numbers.data.subarray(row, row + 2 * depth));
      const frames = await Promise.all(shown.map((one) => this.frame(piece, key, one)));
      strips.push(this.strip(array, key, depth, shown, frames, step));
    }
    return strips;
  }

  async frame(piece, key, number) {
    if (number === LOST) throw new Error("a frame is lost");
    if (number >= FIRST_EXTRA) return rowOf(piece.arrays[`extras.${key}`], number - FIRST_EXTRA);
    if (number === ZEROS) return new Uint8Array(piece.arrays[`frames.${key}`].shape[1]);
    const { history } = this.episode.values;
    const other = await readPiece(this.episode.values.number, Math.floor((number + history) / this.memory.frames_per_piece));
    return rowOf(other.arrays[`frames.${key}`], number - other.values.first);
  }

  strip(array, key, depth, shown, frames, step) {
    const element = document.createElement("div");
    element.className = "pair";
    const canvases = frames.map((bytes, at) => {
      const figure = document.createElement("figure");
      const canvas = document.createElement("canvas");
      figure.append(canvas, textElement("figcaption", captionOf(shown, at, depth, step)));
      const form = formOf(array);
      if (form.kind === "bars") figure.className = "bars";
      else {
        const side = Math.min(FRAME_SIDE, ROW_WIDTH / (2 * depth) - 6);
        const times = side / Math.max(form.width, form.height);
        scaleCanvas(canvas, form, times > 2 ? Math.floor(times) : times);
      }
      canvas.dataset.part = at < depth ? "observation" : "next_observation";
      canvas.dataset.key = array.key;
      return { figure, canvas, bytes };
    });
    for (const [title, from] of [["observation", 0], ["next observation", depth]]) {
      const half = document.createElement("div");
      const head = textElement("h3", array.key ? `${title}: ${array.key}` : title);
      const frameRow = document.createElement("div");
      frameRow.className = "frames";
      frameRow.append(...canvases.slice(from, from + depth).map(({ figure }) => figure));
      half.append(head, frameRow);
      element.append(half);
    }
    element.drawAll = () => {
      for (const { canvas, bytes } of canvases) drawFrame(canvas, bytes, array, this.ranges[key]);
    };
    return element;
  }
}

// "step 12", "padding" where a frame is repeated or zeros, or "another episode" where it is none of this one.
function captionOf(shown, at, depth, step) {
  const number = shown[at];
  const isPadding = at % depth < depth - 1 && shown[at + 1] === number;
  if (number === ZEROS) return "zeros";
  if (number >= FIRST_EXTRA) return "stored beside";
  if (isPadding) return "padding";
  const distance = number - step;
  return distance === 0 ? "t" : `t${distance > 0 ? "+" : "−"}${Math.abs(distance)}`;
}

function actionText({ data, shape }, step) {
  const size = shape.slice(1).reduce((product, side) => product * side, 1);
  return Array.from(data.subarray(step * size, (step + 1) * size), (one) => shortNumber(Number(one))).join(", ");
}
