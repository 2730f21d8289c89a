/**
 * The jitter buffer: sound arrives in bursts, leaves in even steps, and never clicks.
 *
 * Pure arithmetic over arrays, no audio API, no clock: the caller says which context frame each `pull` fills.
 * Run by `worklet.js` on the audio thread (or by `audio.js` on the page where there is no AudioWorklet). It plays
 * one stream at a time. Positions count frames of the stream's own timeline at its source rate.
 */

/** Ramp after a stop, before a resumption and over a sudden end: short enough to be instant, long enough not to click. */
export const FADE_MS = 5;
/** Linear amplitude above which a sample counts as audible, about -60 dBFS. */
const AUDIBLE = 1e-3;
/** One bar of the waveform. */
const PEAK_MS = 10;
const FIRST_CAPACITY = 1 << 18; // frames: 5.4 s at 48 kHz, over twice the lead a server may have

export class JitterBuffer {
  #rate;
  #sourceRate;
  #ring = new Float32Array(FIRST_CAPACITY);
  #written = 0; // source frames ever pushed
  #read = 0; // source frames ever played; a fraction where the rates differ
  #marks = []; // {at, position}: the frame written at `at` lies at `position` of the stream
  #stream = null;
  #state = "idle"; // idle | buffering | playing | ended
  #finished = false;
  #targetMs = 100;
  #waited = 0; // output frames since sound is there but held back
  #fadeIn = 0; // output frames still to be ramped up
  #tail = new Float32Array(0); // what still rings out after a stop or a sudden end
  #tailAt = 0;
  #lastValue = 0;
  #gap = null;
  #gaps = [];
  #stop = null;
  #stops = [];
  #audible = 0;
  #firstAudible = null;
  #soundUntil = 0;
  #peak = 0;
  #peakFrames = 0;
  #peaks = [];

  /** @param {{rate: number, sourceRate?: number}} options frames a second out and in */
  constructor({ rate, sourceRate = 48000 }) {
    this.#rate = rate;
    this.#sourceRate = sourceRate;
  }

  /** Takes a message of the page: {type: open | push | finish | stop | target, ...}. */
  handle(message) {
    if (message.type === "open") this.open(message.stream, message.sourceRate);
    else if (message.type === "stop") this.stop(message.frame);
    else if (message.type === "target") this.#targetMs = message.ms;
    else if (message.stream !== this.#stream) return; // late sound of a stopped stream
    else if (message.type === "push") this.push(message.samples, message.position);
    else if (message.type === "finish") this.#finished = true;
  }

  /** Start a stream; whatever played before fades out. */
  open(stream, sourceRate) {
    this.#release();
    this.#stream = stream;
    this.#sourceRate = sourceRate;
    this.#state = "buffering";
    this.#firstAudible = null;
  }

  /** Add sound that lies at `position` of the stream. */
  push(samples, position) {
    const needed = this.#written - Math.floor(this.#read) + samples.length + 1;
    if (needed > this.#ring.length) this.#grow(needed);
    const tail = this.#marks.at(-1);
    if (!tail || tail.position + (this.#written - tail.at) !== position) {
      this.#marks.push({ at: this.#written, position });
    }
    const start = this.#written % this.#ring.length;
    const head = Math.min(samples.length, this.#ring.length - start);
    this.#ring.set(samples.subarray(0, head), start);
    this.#ring.set(samples.subarray(head), 0);
    this.#written += samples.length;
  }

  /** Barge-in: drop everything and fade. `frame` is the context frame at which the page asked. */
  stop(frame) {
    this.#release();
    this.#state = "idle";
    this.#stream = null;
    this.#stop = { frame };
  }

  /** Fill `output` (all of it, silence included), whose first sample is context frame `frame`. */
  pull(output, frame) {
    output.fill(0);
    if (this.#state === "buffering") this.#tryStart(output.length, frame);
    if (this.#state === "playing") this.#render(output, frame);
    this.#mixTail(output);
    this.#measure(output, frame);
    if (this.#stop && this.#tailAt >= this.#tail.length) {
      this.#stops.push({ frame: this.#stop.frame, silentFrame: Math.max(this.#soundUntil, frame) });
      this.#stop = null;
    }
  }

  /** What happened since the last report, and where we are. */
  report(frame) {
    const report = {
      frame,
      stream: this.#stream,
      state: this.#state,
      position: this.position,
      bufferedMs: (1000 * Math.max(0, this.#written - this.#read)) / this.#sourceRate,
      targetMs: this.#targetMs,
      audibleFrames: this.#audible,
      firstAudibleFrame: this.#firstAudible,
      soundUntilFrame: this.#soundUntil,
      gaps: this.#gaps,
      stops: this.#stops,
      peaks: this.#peaks,
    };
    this.#gaps = [];
    this.#stops = [];
    this.#peaks = [];
    return report;
  }

  /** Whether a report could say anything new. */
  get active() {
    return this.#state === "buffering" || this.#state === "playing" || this.#stop !== null || this.#peaks.length > 0;
  }

  /** The stream frame that is played next. */
  get position() {
    const mark = this.#marks[0];
    return mark ? mark.position + Math.max(0, this.#read - mark.at) : 0;
  }

  #tryStart(frames, frame) {
    const bufferedMs = (1000 * (this.#written - this.#read)) / this.#sourceRate;
    if (bufferedMs <= 0) {
      if (!this.#finished) return;
      this.#state = "ended";
      this.#gap = null; // nothing followed, so nothing was missing
      return;
    }
    this.#waited += frames;
    const waitedMs = (1000 * this.#waited) / this.#rate;
    // A short remainder before a silence of the writer must not wait for ever: hence the second test.
    if (bufferedMs < this.#targetMs && waitedMs < this.#targetMs && !this.#finished) return;
    this.#waited = 0;
    this.#state = "playing";
    this.#fadeIn = this.#fadeFrames;
    if (this.#gap) this.#gaps.push({ ...this.#gap, endFrame: frame });
    this.#gap = null;
  }

  #render(output, frame) {
    const step = this.#sourceRate / this.#rate;
    const lookahead = step === 1 ? 0 : 1;
    for (let i = 0; i < output.length; i += 1) {
      if (this.#read + lookahead >= this.#written) {
        this.#runDry(frame + i, i);
        return;
      }
      let value = this.#sample(this.#read);
      if (this.#fadeIn > 0) {
        value *= 1 - this.#fadeIn / this.#fadeFrames;
        this.#fadeIn -= 1;
      }
      output[i] = value;
      this.#lastValue = value;
      this.#read += step;
    }
    while (this.#marks.length > 1 && this.#marks[1].at <= this.#read) this.#marks.shift();
  }

  #runDry(frame, offset) {
    this.#read = this.#written;
    this.#marks.splice(0, this.#marks.length - 1);
    this.#state = this.#finished ? "ended" : "buffering";
    if (!this.#finished) this.#gap = { position: this.position, startFrame: frame };
    const last = this.#lastValue;
    this.#ringOut(() => last, offset);
  }

  /** Forget the stream; what it would have played next rings out. */
  #release() {
    if (this.#state === "playing") {
      const step = this.#sourceRate / this.#rate;
      const start = this.#read;
      const last = this.#lastValue;
      const next = (i) => (start + i * step + 1 < this.#written ? this.#sample(start + i * step) : last);
      this.#ringOut(next, 0);
    }
    this.#written = 0;
    this.#read = 0;
    this.#marks = [];
    this.#finished = false;
    this.#waited = 0;
    this.#gap = null;
    this.#lastValue = 0;
  }

  /** Prepare the fade: `value(i)` is the sound without it, `offset` its first sample in the output at hand. */
  #ringOut(value, offset) {
    const frames = this.#fadeFrames;
    this.#tail = Float32Array.from({ length: frames }, (_, i) => value(i) * (1 - (i + 1) / frames));
    this.#tailAt = -offset;
  }

  #mixTail(output) {
    for (let i = 0; i < output.length && this.#tailAt < this.#tail.length; i += 1) {
      if (this.#tailAt >= 0) output[i] += this.#tail[this.#tailAt];
      this.#tailAt += 1;
    }
  }

  #measure(output, frame) {
    const peakFrames = Math.round((this.#rate * PEAK_MS) / 1000);
    for (let i = 0; i < output.length; i += 1) {
      const size = Math.abs(output[i]);
      if (size > 0) this.#soundUntil = frame + i + 1;
      if (size > AUDIBLE) {
        this.#audible += 1;
        this.#firstAudible ??= frame + i;
      }
      this.#peak = Math.max(this.#peak, size);
      this.#peakFrames += 1;
      if (this.#peakFrames < peakFrames) continue;
      if (this.#state === "playing" || this.#peak > 0) this.#peaks.push(this.#peak);
      this.#peak = 0;
      this.#peakFrames = 0;
    }
  }

  /** The sound at a place between two frames, on the straight line through them. */
  #sample(at) {
    const low = Math.floor(at);
    const value = this.#ring[low % this.#ring.length];
    const part = at - low;
    return part === 0 ? value : value + part * (this.#ring[(low + 1) % this.#ring.length] - value);
  }

  #grow(needed) {
    const ring = new Float32Array(2 ** Math.ceil(Math.log2(needed)));
    for (let at = Math.floor(this.#read); at < this.#written; at += 1) {
      ring[at % ring.length] = this.#ring[at % this.#ring.length];
    }
    this.#ring = ring;
  }

  get #fadeFrames() {
    return Math.round((this.#rate * FADE_MS) / 1000);
  }
}
