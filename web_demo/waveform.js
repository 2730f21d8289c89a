/**
 * The waveform of what is being played: mirrored bars on a canvas, newest at the right.
 *
 * Fed with the peaks of the jitter buffer's reports, one each 10 ms. With `prefers-reduced-motion` the picture
 * does not scroll: bars fill the canvas from left to right, then start over. Colours come from the stylesheet.
 */

const PEAKS_PER_BAR = 3; // 30 ms a bar
const BAR_PX = 3;
const STEP_PX = 5;
/** Speech peaks well under full scale; a root makes quiet parts visible. */
const GAIN = 1.6;
const EXPONENT = 0.6;
const EDGE = 0.16; // part of the width over which old bars fade

export class Waveform {
  #canvas;
  #context;
  #still;
  #bars = [];
  #column = 0;
  #peak = 0;
  #peaks = 0;
  #scheduled = false;
  #colors = {};
  #live = false;

  constructor(canvas) {
    this.#canvas = canvas;
    this.#context = canvas.getContext("2d");
    this.#still = matchMedia("(prefers-reduced-motion: reduce)");
    new ResizeObserver(() => this.#resize()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#resize());
    this.#resize();
  }

  /** Peaks in [0, 1]. */
  push(peaks) {
    for (const peak of peaks) {
      this.#peak = Math.max(this.#peak, peak);
      this.#peaks += 1;
      if (this.#peaks < PEAKS_PER_BAR) continue;
      this.#add(this.#peak);
      this.#peak = 0;
      this.#peaks = 0;
    }
    if (peaks.length > 0) this.#schedule();
  }

  /** Live bars take the accent's colour; the picture of what was stays behind in a quiet one. */
  set live(live) {
    this.#live = live;
    this.#schedule();
  }

  clear() {
    this.#bars = [];
    this.#column = 0;
    this.#schedule();
  }

  #add(peak) {
    const columns = Math.max(1, Math.floor(this.#canvas.clientWidth / STEP_PX));
    if (this.#still.matches) {
      if (this.#column >= columns) this.clear();
      this.#bars[this.#column] = peak;
      this.#column += 1;
    } else {
      this.#bars.push(peak);
      this.#bars.splice(0, Math.max(0, this.#bars.length - columns));
    }
  }

  #resize() {
    const { clientWidth, clientHeight } = this.#canvas;
    this.#canvas.width = Math.round(clientWidth * devicePixelRatio);
    this.#canvas.height = Math.round(clientHeight * devicePixelRatio);
    const style = getComputedStyle(this.#canvas);
    for (const name of ["live", "past", "rest"]) this.#colors[name] = style.getPropertyValue(`--wave-${name}`).trim();
    this.#schedule();
  }

  #schedule() {
    if (this.#scheduled) return;
    this.#scheduled = true;
    requestAnimationFrame(() => {
      this.#scheduled = false;
      this.#draw();
    });
  }

  #draw() {
    const width = this.#canvas.clientWidth;
    const height = this.#canvas.clientHeight;
    const context = this.#context;
    context.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
    context.clearRect(0, 0, width, height);
    const columns = Math.max(1, Math.floor(width / STEP_PX));
    const left = (width - columns * STEP_PX + STEP_PX - BAR_PX) / 2;
    const first = this.#still.matches ? 0 : columns - this.#bars.length;
    for (let column = 0; column < columns; column += 1) {
      const peak = this.#bars[column - first];
      const loud = peak === undefined ? 0 : Math.min(1, GAIN * peak) ** EXPONENT;
      const bar = Math.max(BAR_PX, loud * (height - 4));
      context.fillStyle = peak === undefined ? this.#colors.rest : this.#live ? this.#colors.live : this.#colors.past;
      context.globalAlpha = this.#still.matches ? 1 : Math.min(1, 0.15 + column / (columns * EDGE));
      context.beginPath();
      context.roundRect(left + column * STEP_PX, (height - bar) / 2, BAR_PX, bar, BAR_PX / 2);
      context.fill();
    }
    context.globalAlpha = 1;
  }
}
