/**
 * One utterance as the listener has it: binds an `Utterance` of the session to the player.
 *
 * Follows the playhead, not the arrival of sound: which sentence is heard, how far ahead the server is, where the
 * listener was left waiting. Knows no page. Events: `change` (a phase), `sent`, `sentence`, `done`, `cancelled`,
 * `progress` (a place in the text), `error`, `over`.
 */

import { TICKS_PER_MS } from "./messages.js";
import { codePointLength } from "./text.js";
import { isUnderrun } from "./underruns.js";

const PLAYED_EVERY_MS = 250;
const PACKET_MS = 20;
const GROWTH = 1.5;
const MIN_TARGET_MS = 100;
const MAX_TARGET_MS = 400;

let targetMs = MIN_TARGET_MS; // learnt on this connection's utterances, hence not one utterance's own

export class Speech extends EventTarget {
  #utterance;
  #player;
  #stream;
  #sent = [];
  #codePoints = 0;
  #endedAtMs = null;
  #firstTextAtMs = null;
  #reportedMs = -1;
  #receivedMs = 0;
  #bytes = 0;
  #playoutOver = false;
  #nextSequence = 0;
  #alignments = new Map(); // index of a sentence -> its characters' times
  #place = 0; // up to which code point the text was heard
  /** waiting (no sound yet) | speaking | stopping | over */
  phase = "waiting";
  sentences = [];
  sentence = -1; // index in `sentences` of the one being heard
  ttfaMs = null;
  playedMs = 0;
  bufferedMs = 0;
  underruns = 0;
  gapMs = 0; // how long the listener was left waiting by underruns, in all
  packets = 0;
  source = "live";

  constructor(utterance, player) {
    super();
    this.#utterance = utterance;
    this.#player = player;
    this.#stream = player.open({ onError: (error) => this.#decoderFailed(error) });
    player.targetMs = targetMs;
    const on = (type, handler) => utterance.addEventListener(type, ({ detail }) => handler(detail));
    on("audio", (message) => this.#hear(message));
    on("sentence", (message) => {
      this.sentences.push(message);
      this.#emit("sentence", message);
    });
    on("alignment", ({ index, chars }) => this.#alignments.set(index, chars));
    on("done", (message) => {
      this.#emit("done", message);
      this.#terminal();
    });
    on("cancelled", (message) => {
      this.#emit("cancelled", message);
      this.#finish();
    });
    on("error", (message) => this.#fail(message));
  }

  /** More text, as it comes. */
  send(text) {
    const now = performance.now();
    this.#firstTextAtMs ??= now;
    this.#codePoints += codePointLength(text);
    this.#sent.push({ atMs: now, codePoints: this.#codePoints });
    this.#utterance.send(text);
    this.#emit("sent", text);
  }

  end() {
    this.#endedAtMs = performance.now();
    this.#utterance.end();
  }

  /** Silent at once; the server is told what was heard. */
  stop() {
    if (this.phase === "over" || this.phase === "stopping") return;
    this.#player.stop();
    this.#utterance.cancel(Math.round(this.playedMs));
    this.#setPhase("stopping");
    if (this.#utterance.over) this.#finish();
  }

  /** Sound that the server has sent and the listener has not heard, ms. */
  get leadMs() {
    return this.phase === "over" ? 0 : Math.max(0, this.#receivedMs - this.playedMs);
  }

  /** Bits of the packets by the sound in them. */
  get kbps() {
    return this.packets > 0 ? (this.#bytes * 8) / (this.packets * PACKET_MS) : null;
  }

  /** A report of the jitter buffer. */
  observe(report) {
    if (report.stream !== this.#stream || this.phase === "stopping" || this.phase === "over") return;
    this.playedMs = (1000 * report.position) / 48_000;
    this.bufferedMs = report.bufferedMs;
    if (report.firstAudibleFrame !== null && this.ttfaMs === null) {
      this.ttfaMs = this.#player.heardAt(report.firstAudibleFrame) - this.#firstTextAtMs;
      this.#setPhase("speaking");
    }
    for (const gap of report.gaps) this.#judge(gap);
    this.#follow();
    this.#playoutOver = report.state === "ended";
    const due = this.playedMs - this.#reportedMs >= PLAYED_EVERY_MS;
    if ((due || this.#playoutOver) && this.playedMs > this.#reportedMs) {
      this.#reportedMs = this.playedMs;
      this.#utterance.played(this.playedMs);
    }
    if (this.#playoutOver && this.#utterance.over) this.#finish();
  }

  #hear(message) {
    if (this.phase === "stopping" || this.phase === "over") return;
    if (message.sequence !== this.#nextSequence) {
      console.warn(`audio message ${message.sequence} of a stream, expected ${this.#nextSequence}`);
    }
    this.#nextSequence = message.sequence + 1;
    this.source = message.source;
    this.packets += message.packets.length;
    for (const packet of message.packets) this.#bytes += packet.length;
    this.#receivedMs = message.timestamp / TICKS_PER_MS + message.packets.length * PACKET_MS;
    this.#player.feed(message);
  }

  #judge(gap) {
    const positionMs = (1000 * gap.position) / 48_000;
    const atMs = this.#player.heardAt(gap.startFrame);
    if (!isUnderrun({ positionMs, atMs }, this.sentences, this.#sent, this.#endedAtMs)) return;
    this.underruns += 1;
    this.gapMs += (1000 * (gap.endFrame - gap.startFrame)) / this.#player.rate;
    targetMs = Math.min(MAX_TARGET_MS, targetMs * GROWTH);
    this.#player.targetMs = targetMs;
  }

  #follow() {
    if (this.ttfaMs === null) return;
    const heard = this.sentences.findLastIndex((sentence) => sentence.start_ms <= this.playedMs);
    if (heard !== this.sentence) {
      this.sentence = heard;
      this.#emit("change");
    }
    if (heard >= 0) this.#progress(this.sentences[heard].index);
  }

  /** The server's estimate of the character that is heard; it comes when the sentence is made, if in time. */
  #progress(index) {
    const char = this.#alignments.get(index)?.findLast(([, , startMs]) => startMs <= this.playedMs);
    if (!char || char[1] === this.#place) return;
    this.#place = char[1];
    this.#emit("progress", { index, place: this.#place });
  }

  #terminal() {
    // Without a packet there is nothing to play out: blank text, or a failure before the first sound.
    if (this.packets === 0 || this.#playoutOver || this.phase === "stopping") this.#finish();
  }

  #fail(message) {
    this.#emit("error", message);
    if (this.phase !== "stopping") this.#player.finish();
    this.#terminal();
  }

  #decoderFailed(error) {
    if (this.phase === "over" || this.phase === "stopping") return;
    this.#player.distrustOpus();
    this.stop();
    this.#emit("error", { code: "decoder_failed", message: String(error.message ?? error) });
  }

  #finish() {
    if (this.phase === "over") return;
    if (this.underruns === 0) targetMs = Math.max(MIN_TARGET_MS, targetMs / GROWTH);
    this.bufferedMs = 0;
    this.#setPhase("over");
    this.#emit("over");
  }

  #setPhase(phase) {
    this.phase = phase;
    this.#emit("change");
  }

  #emit(type, detail = null) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}
