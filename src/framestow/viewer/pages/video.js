// Plays an episode: a screen for each array of an observation, and the buttons and keys that move through its steps.

import { byId } from "./elements.js";
import { readPiece, rowOf } from "./resources.js";
import { Range, drawFrame, formOf, scaleCanvas } from "./pictures.js";

const PICTURE_SIDE = 420; // pixels that a picture takes at most, on a wide screen

export class Video {
  constructor(memory, show) {
    this.memory = memory;
    this.show = show; // called with a step's number whenever another one is chosen
    this.timer = null;
    this.step = 0;
    this.last = 0;
    this.ranges = memory.arrays.map((array) => new Range(array));
    this.buildScreens();
    byId("play").addEventListener("click", () => this.toggle());
    byId("back").addEventListener("click", () => this.goTo(this.step - 1));
    byId("forward").addEventListener("click", () => this.goTo(this.step + 1));
    byId("scrub").addEventListener("input", (event) => this.goTo(Number(event.target.value)));
    byId("speed").addEventListener("change", () => this.timer && this.play());
  }

  buildScreens() {
    this.screens = this.memory.arrays.map((array) => {
      const figure = document.createElement("figure");
      const canvas = document.createElement("canvas");
      const form = formOf(array);
      const caption = document.createElement("figcaption");
      figure.className = form.kind === "bars" ? "screen bars" : "screen";
      if (form.kind !== "bars") {
        const share = this.memory.arrays.length > 1 ? 0.6 : 1;
        const times = Math.max(1, Math.floor((PICTURE_SIDE * share) / Math.max(form.width, form.height)));
        scaleCanvas(canvas, form, times);
      }
      canvas.dataset.key = array.key;
      figure.append(canvas, caption);
      return { array, canvas, caption };
    });
    byId("screens").replaceChildren(...this.screens.map(({ canvas }) => canvas.parentElement));
  }

  open(episode, step) {
    this.pause();
    this.episode = episode.values;
    this.last = this.episode.length;
    byId("scrub").max = this.last;
    this.goTo(step);
  }

  goTo(step) {
    if (!this.episode) return;
    const chosen = Math.min(Math.max(step, 0), this.last);
    this.step = chosen;
    byId("scrub").value = chosen;
    byId("counter").textContent = `${chosen.toLocaleString("en-US")} / ${this.last.toLocaleString("en-US")}`;
    if (chosen === this.last) this.pause();
    this.draw();
    this.show(chosen);
  }

  toggle() {
    if (this.timer) return this.pause();
    if (this.step === this.last) this.goTo(0);
    this.play();
  }

  play() {
    clearInterval(this.timer);
    const wait = 1000 / Number(byId("speed").value);
    this.timer = setInterval(() => !this.isDrawing && this.goTo(this.step + 1), wait);
    this.showButton("❚❚", "Pause");
  }

  pause() {
    clearInterval(this.timer);
    this.timer = null;
    this.showButton("▶", "Play");
  }

  showButton(text, label) {
    byId("play").textContent = text;
    byId("play").setAttribute("aria-label", label);
  }

  // Draws the chosen frame, once its piece is read. If another step is chosen meanwhile, that one is drawn.
  async draw() {
    if (this.isDrawing) return (this.isLate = true);
    this.isDrawing = true;
    do {
      this.isLate = false;
      await this.drawFrames(this.episode, this.step);
    } while (this.isLate);
    this.isDrawing = false;
  }

  async drawFrames(episode, step) {
    const perPiece = this.memory.frames_per_piece;
    const number = Math.floor((step + episode.history) / perPiece);
    const piece = await readPiece(episode.number, number).catch((error) => ({ error }));
    if (number + 1 < episode.pieces) readPiece(episode.number, number + 1).catch(() => {});
    const gap = piece.error ? [0, 0, piece.error.message] : gapAt(piece, step);
    this.screens.forEach(({ array, canvas, caption }, key) => {
      canvas.parentElement.classList.toggle("gap", Boolean(gap));
      caption.textContent = gap ? (piece.error ? gap[2] : `damaged: ${gap[2]}`) : "";
      if (gap) return canvas.getContext("2d").clearRect(0, 0, canvas.width, canvas.height);
      drawFrame(canvas, rowOf(piece.arrays[`frames.${key}`], step - piece.values.first), array, this.ranges[key]);
      const note = this.ranges[key].note;
      const size = `${array.has_axes ? array.shape.join("×") : "one number,"} ${array.dtype}`;
      caption.textContent = [array.key, size, note && `shown from ${note}`].filter(Boolean).join(" · ");
    });
    byId("screens").dataset.step = step; // for tests: what is drawn now
  }
}

export function gapAt(piece, step) {
  return piece.values.gaps.find(([first, count]) => step >= first && step < first + count);
}
