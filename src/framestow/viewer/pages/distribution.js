// What the sampler draws: charts, which come as HTML, and a sheet of the transitions that are drawn most often.

import { byId, textElement } from "./elements.js";
import { drawFrame, formOf, scaleCanvas, shortNumber } from "./pictures.js";
import { readResource, rowOf } from "./resources.js";

const THUMBNAIL = 84; // pixels of its longer side

export class Distribution {
  constructor(memory, ranges, choose) {
    this.memory = memory;
    this.ranges = ranges;
    this.choose = choose;
  }

  async show(charts, often) {
    const { values, arrays } = await readResource("distribution");
    charts.innerHTML = values.charts;
    const count = arrays.episode.data.length;
    if (!count) return;
    often.append(textElement("h3", "Drawn most often"));
    const sheet = document.createElement("div");
    sheet.className = "sheet often";
    for (let row = 0; row < count; row++) sheet.append(this.thumbnail(values.key, arrays, row));
    often.append(sheet);
    for (const [row, { firstChild }] of [...sheet.children].entries()) {
      drawFrame(firstChild, rowOf(arrays.frames, row), this.memory.arrays[values.key], this.ranges[values.key]);
    }
  }

  thumbnail(key, { episode, step, probability }, row) {
    const button = document.createElement("button");
    const canvas = document.createElement("canvas");
    const form = formOf(this.memory.arrays[key]);
    if (form.kind === "bars") button.className = "bars";
    else scaleCanvas(canvas, form, THUMBNAIL / Math.max(form.width, form.height));
    const times = shortNumber(Number((probability.data[row] * this.memory.transitions).toPrecision(3)));
    button.append(canvas, textElement("span", `${times} ×`));
    button.title = `episode ${episode.data[row]}, step ${step.data[row]}: drawn ${times} times as often as the mean`;
    button.addEventListener("click", () => {
      this.choose(episode.data[row], step.data[row]);
      byId("video-title").scrollIntoView();
    });
    return button;
  }
}
