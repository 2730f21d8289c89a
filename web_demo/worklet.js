/**
 * The audio thread's shell around the jitter buffer: moves messages in, sound out, reports back.
 *
 * Loaded by `audio.js` with `audioWorklet.addModule`. Decides nothing; `jitter.js` does.
 */

import { JitterBuffer } from "./jitter.js";

/** Quanta of 128 frames between reports: 16 ms at 48 kHz, one a screen frame. */
const REPORT_QUANTA = 6;

class Playout extends AudioWorkletProcessor {
  #buffer = new JitterBuffer({ rate: sampleRate });
  #quanta = 0;
  #wasActive = false;

  constructor() {
    super();
    this.port.onmessage = ({ data }) => this.#buffer.handle(data);
  }

  process(_inputs, [[output]]) {
    this.#buffer.pull(output, currentFrame);
    this.#quanta += 1;
    const active = this.#buffer.active;
    // A change to or from silence is told at once, all else at the pace of the screen.
    if ((active && this.#quanta >= REPORT_QUANTA) || active !== this.#wasActive) {
      this.port.postMessage(this.#buffer.report(currentFrame + output.length));
      this.#quanta = 0;
    }
    this.#wasActive = active;
    return true;
  }
}

registerProcessor("sayflow-playout", Playout);
