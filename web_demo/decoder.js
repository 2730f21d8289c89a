/**
 * Packets to sound: Opus through WebCodecs, or PCM where the browser has none.
 *
 * Both decoders have the same face: `feed(message)`, `finish()`, `close()`, and the callbacks `onSamples(samples,
 * position)`, `onFinished()`, `onError(error)`. Positions count frames at `rate` of the stream's timeline.
 */

import { TICKS_PER_MS } from "./messages.js";

const PACKET_MS = 20;
const OPUS = { codec: "opus", sampleRate: 48000, numberOfChannels: 1 };

/** Whether this browser decodes raw Opus packets. (WebCodecs needs https or localhost.) */
export async function canDecodeOpus() {
  if (!("AudioDecoder" in globalThis)) return false;
  return (await AudioDecoder.isConfigSupported(OPUS)).supported === true;
}

/** Raw Opus packets; WebCodecs always answers at 48 kHz, whatever rate was encoded. */
export class OpusStream {
  static rate = 48000;
  #decoder;
  #jobs = []; // {packet, timestamp} | "reset" | "finish", in order
  #draining = false;
  #fresh = true;
  #handlers;

  constructor(handlers) {
    this.#handlers = handlers;
    this.#decoder = new AudioDecoder({
      output: (data) => this.#deliver(data),
      error: (error) => handlers.onError(error),
    });
    this.#decoder.configure(OPUS);
  }

  feed({ packets, timestamp, reset }) {
    if (reset) this.#jobs.push("reset");
    packets.forEach((packet, n) => {
      this.#jobs.push({ packet, timestamp: timestamp / TICKS_PER_MS + n * PACKET_MS });
    });
    this.#pump();
  }

  finish() {
    this.#jobs.push("finish");
    this.#pump();
  }

  close() {
    this.#jobs = [];
    if (this.#decoder.state !== "closed") this.#decoder.close();
  }

  #pump() {
    while (!this.#draining && this.#decoder.state === "configured" && this.#jobs.length > 0) {
      const job = this.#jobs.shift();
      if (job === "finish" || (job === "reset" && !this.#fresh)) this.#drain(job);
      else if (job !== "reset") this.#decode(job);
    }
  }

  #decode({ packet, timestamp }) {
    this.#fresh = false;
    const microseconds = Math.round(timestamp * 1000);
    this.#decoder.decode(new EncodedAudioChunk({ type: "key", timestamp: microseconds, data: packet }));
  }

  /** Let what is in the decoder come out, then start afresh: no sound is lost, and later packets wait here. */
  async #drain(job) {
    this.#draining = true;
    try {
      await this.#decoder.flush();
    } catch {
      return; // closed meanwhile, or failed, which `error` has told
    }
    this.#draining = false;
    this.#fresh = true;
    if (job === "finish") {
      this.#handlers.onFinished();
      return;
    }
    this.#decoder.reset();
    this.#decoder.configure(OPUS);
    this.#pump();
  }

  #deliver(data) {
    const samples = new Float32Array(data.numberOfFrames);
    data.copyTo(samples, { planeIndex: 0, format: "f32-planar" });
    const position = Math.round((data.timestamp * OpusStream.rate) / 1e6);
    data.close();
    this.#handlers.onSamples(samples, position);
  }
}

/** Little-endian int16 packets at the rate that was asked for. */
export class PcmStream {
  static rate = 48000;
  #handlers;

  constructor(handlers) {
    this.#handlers = handlers;
  }

  feed({ packets, timestamp }) {
    let position = timestamp;
    for (const packet of packets) {
      const view = new DataView(packet.buffer, packet.byteOffset, packet.byteLength);
      const samples = Float32Array.from({ length: packet.byteLength >> 1 }, (_, n) => view.getInt16(2 * n, true) / 32768);
      this.#handlers.onSamples(samples, position);
      position += samples.length;
    }
  }

  finish() {
    this.#handlers.onFinished();
  }

  close() {
    this.#handlers = { onSamples() {}, onFinished() {}, onError() {} };
  }
}
