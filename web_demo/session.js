/**
 * A browser client for `sayflow.v1`: one WebSocket, kept over many utterances, that comes back by itself.
 *
 * Usable on its own (with `messages.js`); knows no page and no audio API.
 *
 *   const session = new Session({ url: "wss://host/v1/stream" });
 *   session.addEventListener("state", ({ detail }) => console.log(detail.state));
 *   session.connect();
 *   const utterance = session.speak({ voice: "…" });
 *   utterance.addEventListener("audio", ({ detail }) => play(detail.packets));
 *   utterance.send("Hello ");  utterance.send("there.");  utterance.end();
 *
 * States: idle, connecting, asking (the server seems to wait for a token), ready, waiting (to reconnect, for
 * `retryMs`), denied (a token is wanted or was refused), closed.
 * Session events: `state`, `hello`, `error` (of a message, not of an utterance). Utterance events: `started`,
 * `sentence`, `audio`, then exactly one of `done`, `cancelled`, `error`.
 */

import { decodeAudio, SUBPROTOCOL } from "./messages.js";

const FIRST_RETRY_MS = 400;
const MAX_RETRY_MS = 15_000;
/** After 1013 the server wants rest. */
const OVERLOAD_RETRY_MS = 4000;
const PING_EVERY_MS = 15_000;
/** Silence after the handshake for so long means that the server waits for a token. */
const HELLO_WITHIN_MS = 1200;
/** UTF-16 units of one `text` message: under the server's limits on characters and on bytes. */
const PIECE_UNITS = 5000;
/** No word for so long after a ping means a dead connection that TCP has not noticed. */
const PONG_WITHIN_MS = 10_000;
const POLICY = 1008;
const OVERLOAD = 1013;
const NORMAL = 1000;
const BAD_MESSAGE = 4002; // of the range that applications may use

/** One utterance: text in, sound and events out. Made by `Session.speak`. */
export class Utterance extends EventTarget {
  #send;
  stream = null;
  over = false;
  ended = false;

  constructor(id, send) {
    super();
    this.id = id;
    this.#send = send;
  }

  /** More text, cut anywhere. */
  send(text) {
    // A surrogate pair cut in two is joined by the server.
    for (let at = 0; at < text.length; at += PIECE_UNITS) {
      this.#post({ type: "text", utterance: this.id, text: text.slice(at, at + PIECE_UNITS) });
    }
  }

  /** Speak what was sent, though its sentence is not at its end. */
  flush() {
    this.#post({ type: "flush", utterance: this.id });
  }

  /** No more text. */
  end() {
    if (this.ended) return;
    this.ended = true;
    this.#post({ type: "end", utterance: this.id });
  }

  /** Tell what was heard; the server paces by it. */
  played(ms) {
    this.#post({ type: "played", utterance: this.id, ms });
  }

  /** Barge-in. The server answers `cancelled`, with the text that was spoken and that which was not. */
  cancel(playedMs = null) {
    this.#post({ type: "cancel", utterance: this.id, played_ms: playedMs });
  }

  #post(message) {
    if (!this.over) this.#send(message);
  }

  /** For the session: pass an event on. */
  deliver(type, detail) {
    if (this.over) return;
    this.over = type === "done" || type === "cancelled" || type === "error";
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}

export class Session extends EventTarget {
  #url;
  #token;
  #socket = null;
  #utterances = new Map(); // id -> Utterance
  #streams = new Map(); // stream number -> Utterance
  #count = 0;
  #attempt = 0;
  #retryTimer = null;
  #helloTimer = null;
  #pingTimer = null;
  #pongTimer = null;
  state = "idle";
  hello = null;

  /** @param {{url: string | URL, token?: string | null}} options */
  constructor({ url, token = null }) {
    super();
    this.#url = url;
    this.#token = token;
    globalThis.addEventListener?.("online", () => this.state === "waiting" && this.connect());
  }

  /** Open the socket, at once. */
  connect() {
    if (this.#socket) return;
    clearTimeout(this.#retryTimer);
    this.#setState("connecting", { attempt: this.#attempt });
    const socket = new WebSocket(this.#url, SUBPROTOCOL);
    socket.binaryType = "arraybuffer";
    socket.onopen = () => this.#opened();
    socket.onmessage = ({ data }) => this.#receive(data, socket);
    socket.onclose = ({ code, reason }) => this.#closed(code, reason);
    this.#socket = socket;
  }

  /** Use this token, and connect anew. */
  authenticate(token) {
    this.#token = token;
    this.#attempt = 0;
    if (this.#socket && this.hello === null) this.#send({ type: "auth", token });
    else this.connect();
  }

  /** Close for good. */
  close() {
    clearTimeout(this.#retryTimer);
    this.#setState("closed");
    this.#socket?.close(NORMAL);
  }

  /** Begin an utterance; `options` are the fields of `start`. Only when `state` is `ready`. */
  speak(options = {}) {
    if (this.state !== "ready") throw new Error(`the session is ${this.state}`);
    this.#count += 1;
    const utterance = new Utterance(`u${this.#count}`, (message) => this.#send(message));
    this.#utterances.set(utterance.id, utterance);
    this.#send({ type: "start", ...options, utterance: utterance.id });
    return utterance;
  }

  #send(message) {
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify(message));
  }

  #opened() {
    if (this.#token) this.#send({ type: "auth", token: this.#token });
    this.#helloTimer = setTimeout(() => this.#setState("asking", { hadToken: Boolean(this.#token) }), HELLO_WITHIN_MS);
  }

  #receive(data, socket) {
    this.#keepAlive();
    try {
      if (data instanceof ArrayBuffer) this.#receiveAudio(decodeAudio(data));
      else this.#receiveEvent(JSON.parse(data));
    } catch (error) {
      console.error(error);
      socket.close(BAD_MESSAGE, "bad message");
    }
  }

  #receiveAudio(message) {
    this.#streams.get(message.stream)?.deliver("audio", message);
  }

  #receiveEvent(message) {
    const utterance = this.#utterances.get(message.utterance);
    if (message.type === "hello") this.#greet(message);
    else if (message.type === "started" && utterance) this.#streams.set(message.stream, utterance);
    if (utterance) {
      utterance.stream ??= message.stream ?? null;
      utterance.deliver(message.type, message);
      if (utterance.over) this.#forget(utterance);
    } else if (message.type === "error") {
      this.dispatchEvent(new CustomEvent("error", { detail: message }));
    }
  }

  #greet(hello) {
    clearTimeout(this.#helloTimer);
    this.hello = hello;
    this.#attempt = 0;
    this.#setState("ready");
    this.dispatchEvent(new CustomEvent("hello", { detail: hello }));
  }

  #forget(utterance) {
    this.#utterances.delete(utterance.id);
    this.#streams.delete(utterance.stream);
  }

  #keepAlive() {
    clearTimeout(this.#pongTimer);
    clearTimeout(this.#pingTimer);
    this.#pingTimer = setTimeout(() => {
      this.#send({ type: "ping" });
      this.#pongTimer = setTimeout(() => this.#abandon(), PONG_WITHIN_MS);
    }, PING_EVERY_MS);
  }

  /** The peer is gone though the socket is open: a close handshake would wait for it, so do not. */
  #abandon() {
    const socket = this.#socket;
    if (!socket) return;
    socket.onclose = null;
    socket.onmessage = null;
    socket.close();
    this.#closed(1006, "no answer to a ping");
  }

  #closed(code, reason) {
    const greeted = this.hello !== null;
    this.#socket = null;
    this.hello = null;
    clearTimeout(this.#helloTimer);
    clearTimeout(this.#pingTimer);
    clearTimeout(this.#pongTimer);
    for (const utterance of this.#utterances.values()) {
      utterance.deliver("error", { type: "error", utterance: utterance.id, code: "connection_lost", message: reason });
    }
    this.#utterances.clear();
    this.#streams.clear();
    if (this.state === "closed") return;
    // After `hello` the same code means that something else was against the rules: a slow reader, for one.
    if (code === POLICY && !greeted) {
      this.#setState("denied", { code, reason, hadToken: Boolean(this.#token) });
      return;
    }
    const retryMs = this.#retryDelay(code);
    this.#attempt += 1;
    this.#retryTimer = setTimeout(() => this.connect(), retryMs);
    this.#setState("waiting", { code, reason, retryMs, greeted, attempt: this.#attempt });
  }

  /** Doubles, up to a limit, with a random part so that a thousand pages do not come back at once. */
  #retryDelay(code) {
    const first = code === OVERLOAD ? OVERLOAD_RETRY_MS : FIRST_RETRY_MS;
    return Math.min(MAX_RETRY_MS, first * 2 ** this.#attempt) * (0.75 + 0.5 * Math.random());
  }

  #setState(state, detail = {}) {
    this.state = state;
    this.dispatchEvent(new CustomEvent("state", { detail: { state, ...detail } }));
  }
}
