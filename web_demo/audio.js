/**
 * The player: decoder, jitter buffer, loudspeaker.
 *
 * Owns the AudioContext. Knows nothing of the socket or the page: `speech.js` feeds it audio messages and listens
 * to its reports. Reports are those of `jitter.js`.
 */

import { canDecodeOpus, OpusStream, PcmStream } from "./decoder.js";
import { JitterBuffer } from "./jitter.js";

const CONTEXT_RATE = 48000; // what Opus decodes to, so that nothing is resampled where the browser allows it
const SCRIPT_FRAMES = 1024; // 21 ms

/** The jitter buffer on the audio thread. */
async function workletOutput(context, onReport) {
  await context.audioWorklet.addModule(new URL("./worklet.js", import.meta.url));
  const node = new AudioWorkletNode(context, "sayflow-playout", { numberOfInputs: 0, outputChannelCount: [1] });
  node.port.onmessage = ({ data }) => onReport(data);
  node.connect(context.destination);
  return { post: (message, transfer = []) => node.port.postMessage(message, transfer), kind: "worklet" };
}

/** The same on the page's thread: a page that is neither https nor localhost gets no AudioWorklet. */
function scriptOutput(context, onReport) {
  const buffer = new JitterBuffer({ rate: context.sampleRate });
  const node = context.createScriptProcessor(SCRIPT_FRAMES, 0, 1);
  let wasActive = false;
  node.onaudioprocess = ({ outputBuffer, playbackTime }) => {
    const frame = Math.round(playbackTime * context.sampleRate);
    buffer.pull(outputBuffer.getChannelData(0), frame);
    if (buffer.active || wasActive) onReport(buffer.report(frame + SCRIPT_FRAMES));
    wasActive = buffer.active;
  };
  node.connect(context.destination);
  return { post: (message) => buffer.handle(message), kind: "script" };
}

export class Player {
  #context = null;
  #output = null;
  #starting = null;
  #decoder = null;
  #stream = 0;
  #onReport;
  #forced;
  decodedFrames = 0;
  format = "opus";

  /**
   * @param {(report: object) => void} onReport about 60 times a second while there is sound
   * @param {{pcm?: boolean, script?: boolean}} forced take a fallback though the browser could do better
   */
  constructor(onReport, forced = {}) {
    this.#onReport = onReport;
    this.#forced = forced;
  }

  /** Call in the handler of a click or key, or the browser keeps silent. Resolves when sound can play. */
  async start() {
    this.#starting ??= this.#build();
    // No await before this line: `resume` must run within the user's gesture.
    const resumed = this.#context?.state === "running" ? null : this.#context?.resume();
    await this.#starting;
    await resumed;
  }

  async #build() {
    this.#context = new AudioContext({ sampleRate: CONTEXT_RATE, latencyHint: "interactive" });
    const worklet = "audioWorklet" in this.#context && !this.#forced.script;
    const open = worklet ? workletOutput : scriptOutput;
    const [output, opus] = await Promise.all([open(this.#context, this.#onReport), canDecodeOpus()]);
    this.#output = output;
    this.format = opus && !this.#forced.pcm ? "opus" : "pcm";
  }

  /** Begin a stream; what played before fades out. Returns its number, which reports carry. */
  open({ onError }) {
    this.#decoder?.close();
    this.#stream += 1;
    const stream = this.#stream;
    const Stream = this.format === "opus" ? OpusStream : PcmStream;
    this.#output.post({ type: "open", stream, sourceRate: Stream.rate });
    this.#decoder = new Stream({
      onSamples: (samples, position) => {
        this.decodedFrames += samples.length;
        this.#output.post({ type: "push", stream, samples, position }, [samples.buffer]);
      },
      onFinished: () => this.#output.post({ type: "finish", stream }),
      onError,
    });
    return stream;
  }

  /** One audio message of the stream that was opened last. */
  feed(message) {
    this.#decoder?.feed(message);
    if (message.last) this.finish();
  }

  /** Nothing follows: play out what is there. */
  finish() {
    this.#decoder?.finish();
  }

  /** Barge-in: silent within a few milliseconds. */
  stop() {
    this.#output?.post({ type: "stop", frame: Math.round(this.#context.currentTime * this.#context.sampleRate) });
    this.#decoder?.close();
    this.#decoder = null;
  }

  /** Hold back this much sound before playing. */
  set targetMs(ms) {
    this.#output?.post({ type: "target", ms });
  }

  /** Ask for PCM from now on: the Opus decoder failed. */
  distrustOpus() {
    this.format = "pcm";
  }

  get rate() {
    return this.#context?.sampleRate ?? CONTEXT_RATE;
  }

  get outputKind() {
    return this.#output?.kind ?? null;
  }

  /** When a context frame reaches the loudspeaker, on the clock of `performance.now()`. */
  heardAt(frame) {
    const { contextTime, performanceTime } = this.#context.getOutputTimestamp?.() ?? {};
    const seconds = frame / this.#context.sampleRate;
    if (performanceTime > 0 && contextTime > 0) return performanceTime + 1000 * (seconds - contextTime);
    const latency = this.#context.outputLatency || this.#context.baseLatency || 0;
    return performance.now() + 1000 * (seconds - this.#context.currentTime + latency);
  }
}
