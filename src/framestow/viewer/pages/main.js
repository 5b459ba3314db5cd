// Connects the parts of the page: the table chooses an episode; the video, the step charts and the learner's part show a step.

import { byId, textElement, tileElement } from "./elements.js";
import { Distribution } from "./distribution.js";
import { EpisodeTable } from "./episodes.js";
import { Video } from "./video.js";
import { Learner } from "./learner.js";
import { readResource } from "./resources.js";
import { shortNumber } from "./pictures.js";
import { StepCharts } from "./step_charts.js";

const ADDRESS_WAITS = 250; // milliseconds after the last step that was chosen

class Page {
  async open() {
    this.memory = (await readResource("memory")).values;
    this.showSummary();
    const episodes = await readResource("episodes");
    this.table = new EpisodeTable(byId("episodes"), this.memory, episodes, (number) => this.openEpisode(number, 0));
    this.video = new Video(this.memory, (step) => this.showStep(step));
    this.stepCharts = new StepCharts(byId("step-charts"), this.memory, (step) => this.video.goTo(step));
    this.learner = new Learner(byId("learner"), this.memory, this.video.ranges);
    byId("filter").addEventListener("input", (event) => this.countRows(this.table.filter(event.target.value)));
    this.countRows(this.table.rows.length);
    document.addEventListener("keydown", (event) => this.onKey(event));
    window.addEventListener("hashchange", () => this.openAddress());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.redraw());
    if (!this.table.rows.length) return this.showNothing();
    this.openAddress();
    const distribution = new Distribution(this.memory, this.video.ranges, (number, step) => this.openEpisode(number, step));
    distribution.show(byId("charts"), byId("often"));
  }

  showSummary() {
    const memory = this.memory;
    const textOf = (number, unit) => (number === null ? "–" : unit === "bytes" ? bytesText(number) : shortNumber(number));
    const fill = (words) => words.replace(/{(\w+)}/g, (_, name) => shortNumber(memory[name]));
    const tiles = [
      ...memory.tiles.map(([number, unit, words]) => [textOf(number, unit), fill(words)]),
      [memory.sampler.replace(/\(.*/, ""), samplerText(memory.sampler)],
    ];
    byId("tiles").replaceChildren(...tiles.map(([value, name]) => tileElement(value, name)));
    const wait = memory.waiting === 1 ? "step waits for its" : "steps wait for their";
    if (memory.waiting) this.say(`${shortNumber(memory.waiting)} ${wait} return of ${memory.n_step} rewards.`);
    if (memory.selection) this.say(memory.selection);
    if (memory.sampler_note) this.say(`${memory.sampler_note}. Probabilities are those of Uniform().`, "alarm");
    if (memory.lost) this.say(`${shortNumber(memory.lost)} transitions are lost: what has them is damaged.`, "alarm");
    for (const message of memory.damage) this.say(message, "alarm");
  }

  say(text, kind = "note") {
    if (byId("messages").lastChild?.textContent !== text) byId("messages").append(textElement("p", text, kind));
  }

  countRows(count) {
    const all = this.table.all.length;
    byId("count").textContent = count === all ? `${shortNumber(all)} episodes` : `${shortNumber(count)} of ${shortNumber(all)} episodes`;
  }

  showNothing() {
    for (const section of document.querySelectorAll("section")) section.hidden = true;
    this.say("The memory has no episode yet: append steps, then save it.");
  }

  // The address says which episode and step are shown: #episode=12&step=30.
  openAddress() {
    const asked = new URLSearchParams(location.hash.slice(1));
    const number = asked.has("episode") ? Number(asked.get("episode")) : -1;
    const shown = this.table.has(number) ? number : this.table.newestWhole();
    if (shown !== this.shown || !this.episode) this.openEpisode(shown, Number(asked.get("step") || 0));
    else if (Number(asked.get("step")) !== this.video.step) this.video.goTo(Number(asked.get("step")));
  }

  async openEpisode(number, step) {
    if (!(number >= 0)) return; // the filter leaves none
    this.shown = number;
    this.table.show(number);
    const episode = await readResource(`episode/${number}`).catch((error) => this.say(error.message, "alarm"));
    if (!episode || this.shown !== number) return;
    this.episode = episode;
    byId("episode-note").textContent = this.describe(episode.values);
    this.learner.open(episode);
    this.stepCharts.open(episode);
    this.video.open(episode, step);
  }

  describe({ number, env_id: env, length, ending, beginning, age }) {
    const { endings, beginnings, labels, num_envs: numEnvs } = this.memory;
    const of = numEnvs > 1 ? ` of environment ${env}` : "";
    const start = beginning ? `; ${beginnings[beginning]}` : "";
    const since = age ? `, ${shortNumber(age)} frames ago` : "";
    return `Episode ${number}${of}${labels.length === 1 ? ` (${labels[0]})` : ""}: ${shortNumber(length)} steps, ${endings[ending]}${since}${start}.`;
  }

  showStep(step) {
    this.stepCharts.show(step);
    this.learner.show(step);
    this.showFacts(step);
    // Browsers refuse an address that changes with every frame of a video.
    clearTimeout(this.timer);
    this.timer = setTimeout(() => history.replaceState(null, "", `#episode=${this.shown}&step=${step}`), ADDRESS_WAITS);
  }

  // Draws what has colours of the scheme, dark or light.
  redraw() {
    this.table.redraw();
    this.stepCharts.draw();
    if (this.episode) this.video.goTo(this.video.step);
  }

  showFacts(step) {
    const { arrays, values } = this.episode;
    const total = arrays.reward.data.subarray(0, step + 1).reduce((sum, reward) => sum + reward, 0);
    const isStep = step < values.length;
    const facts = [
      ["step", isStep ? shortNumber(step) : "end"],
      ["reward", isStep ? shortNumber(arrays.reward.data[step]) : "–"],
      ["return so far", shortNumber(Math.round(total * 1e4) / 1e4)],
    ];
    if (this.memory.action_names.length) this.showValues(step);
    byId("facts").replaceChildren(...facts.map(([name, value]) => tileElement(value, name)));
  }

  // The agent's value of each action as a bar, from the lowest to the highest; the action that was taken is marked.
  async showValues(step) {
    const asked = (this.askedValues = Symbol());
    const { values: episode, arrays } = this.episode;
    const number = Math.floor((step + episode.history) / this.memory.frames_per_piece);
    const piece = await readResource(`values/${episode.number}/${number}`).catch(() => null);
    if (asked !== this.askedValues) return;
    const names = this.memory.action_names;
    const row = piece ? step - piece.values.first_step : -1;
    const isKnown = piece && step < episode.length && row < piece.arrays.td_error.data.length;
    const own = isKnown ? Array.from(piece.arrays.values.data.subarray(row * names.length, (row + 1) * names.length)) : [];
    const [low, high] = [Math.min(...own), Math.max(...own)];
    const bars = own.map((value, action) => {
      const bar = document.createElement("div");
      bar.className = action === Number(arrays.action.data[step]) ? "action-value taken" : "action-value";
      const measure = textElement("span", "", "measure");
      measure.style.width = `${Number.isFinite(value) ? 4 + (96 * (value - low)) / (high - low || 1) : 0}%`;
      bar.append(textElement("span", names[action], "name"), textElement("span", "", "space"), textElement("b", shortNumber(value)));
      bar.children[1].append(measure);
      return bar;
    });
    const error = isKnown ? shortNumber(piece.arrays.td_error.data[row]) : "–";
    const note = `Values of the agent after ${shortNumber(this.memory.agent_steps)} steps; TD error ${error}. Bars begin at ${shortNumber(low)}. The action taken is marked.`;
    byId("values").replaceChildren(...bars, textElement("p", own.length ? note : "", "note"));
  }

  onKey(event) {
    if (event.target.closest("input[type=search], select") || event.ctrlKey || event.metaKey || event.altKey) return;
    const far = event.shiftKey ? 10 : 1;
    const actions = {
      ArrowLeft: () => this.video.goTo(this.video.step - far),
      ArrowRight: () => this.video.goTo(this.video.step + far),
      Home: () => this.video.goTo(0),
      End: () => this.video.goTo(this.video.last),
      ArrowUp: () => this.openEpisode(this.table.next(-1), 0),
      ArrowDown: () => this.openEpisode(this.table.next(1), 0),
      " ": () => this.video.toggle(),
    };
    const isOnButton = event.key === " " && event.target.closest("button");
    if (!actions[event.key] || isOnButton || !this.episode) return;
    event.preventDefault();
    actions[event.key]();
  }
}

// The settings of a sampler, from its call: "alpha 0.5, beta 0.4".
function samplerText(call) {
  const settings = call.slice(call.indexOf("(") + 1, -1);
  return settings ? `draws, with ${settings.replaceAll("=", " ")}` : "draws";
}

function bytesText(bytes) {
  for (const [unit, size] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) {
    if (bytes >= size) return `${(bytes / size).toFixed(1)} ${unit}`;
  }
  return `${bytes} B`;
}

new Page().open().catch((error) => byId("messages").append(textElement("p", error.message, "alarm")));
