/**
 * What the page shows while it speaks: the text with its sentences, and the figures.
 *
 * Writes to the elements it is given; decides nothing.
 */

import { codePointLength, utf16Index } from "./text.js";

/** The text as it is sent, cut into sentences as the server announces them. */
export class Reading {
  #root;
  #covered = 0; // code points in the nodes before the tail
  #tail;
  #sentences = new Map(); // index -> element

  constructor(root) {
    this.#root = root;
    this.clear();
  }

  clear() {
    this.#covered = 0;
    this.#sentences.clear();
    this.#tail = document.createTextNode("");
    this.#root.replaceChildren(this.#tail);
    this.#root.classList.remove("caret");
  }

  /** Whether text is still being written. */
  set writing(writing) {
    this.#root.classList.toggle("caret", writing);
  }

  append(text) {
    const atEnd = this.#root.scrollHeight - this.#root.scrollTop - this.#root.clientHeight < 40;
    this.#tail.appendData(text);
    if (atEnd) this.#root.scrollTop = this.#root.scrollHeight;
  }

  /** `start` and `end` are code points of all the text that was appended; sentences come in order. */
  addSentence({ index, start, end }) {
    const text = this.#tail.data;
    const to = utf16Index(text, end - this.#covered);
    const padded = text.slice(utf16Index(text, start - this.#covered), to);
    const from = to - padded.trimStart().length; // a blank before the first word is not lit
    const span = document.createElement("span");
    span.className = "sentence";
    span.dataset.index = String(index);
    span.textContent = text.slice(from, to);
    span.dataset.start = String(end - codePointLength(span.textContent));
    this.#tail.replaceData(0, to, "");
    this.#tail.before(text.slice(0, from), span);
    this.#covered = end;
    this.#sentences.set(index, span);
  }

  /** Mark the sentence that is heard; those before it were. */
  highlight(current) {
    for (const [index, span] of this.#sentences) {
      span.classList.toggle("now", index === current);
      span.classList.toggle("heard", index < current);
      if (index === current) span.setAttribute("aria-current", "true");
      else span.removeAttribute("aria-current");
    }
    this.#reveal(this.#sentences.get(current));
  }

  /** Within the sentence that is heard: up to which code point of all the text. */
  progress(index, place) {
    const span = this.#sentences.get(index);
    if (!span) return;
    const text = span.textContent;
    const at = utf16Index(text, place - Number(span.dataset.start));
    const said = document.createElement("span");
    said.className = "said";
    said.textContent = text.slice(0, at);
    span.replaceChildren(said, text.slice(at));
  }

  /** After a stop: what was heard, and what was not. */
  split(heard, rest) {
    this.clear();
    for (const [name, text] of [["heard", heard], ["unheard", rest]]) {
      const span = document.createElement("span");
      span.className = `sentence ${name}`;
      span.textContent = text;
      this.#tail.before(span);
    }
  }

  #reveal(span) {
    if (!span) return;
    const low = span.offsetTop + span.offsetHeight - this.#root.clientHeight;
    if (this.#root.scrollTop < low) this.#root.scrollTop = low + 12;
    else if (this.#root.scrollTop > span.offsetTop) this.#root.scrollTop = span.offsetTop - 12;
  }
}

const DASH = "–";
const whole = (value) => (value === null ? DASH : Math.round(value).toLocaleString("en"));

/** The row of figures and the clock. */
export class Figures {
  #row;
  #elements;
  #clock;

  constructor(byId) {
    this.#row = byId("figures");
    this.#elements = Object.fromEntries(
      ["ttfa", "buffer", "lead", "underruns", "packets", "kbps"].map((name) => [name, byId(`fig-${name}`)]),
    );
    this.#clock = byId("clock");
  }

  show({ ttfaMs, bufferedMs, leadMs, underruns, packets, kbps, playedMs }) {
    this.#row.classList.remove("idle");
    const set = (name, value) => {
      const element = this.#elements[name];
      if (element.textContent !== value) element.textContent = value;
    };
    set("ttfa", whole(ttfaMs));
    // Rounded to 10 ms: the last digit would only flicker.
    set("buffer", whole(Math.round(bufferedMs / 10) * 10));
    set("lead", whole(Math.round(leadMs / 10) * 10));
    set("underruns", whole(underruns));
    set("packets", whole(packets));
    set("kbps", kbps === null ? DASH : kbps.toFixed(kbps < 100 ? 1 : 0));
    this.#elements.underruns.parentElement.classList.toggle("bad", underruns > 0);
    const minutes = Math.floor(playedMs / 60_000);
    const seconds = ((playedMs % 60_000) / 1000).toFixed(1).padStart(4, "0");
    const clock = `${minutes}:${seconds === "60.0" ? "59.9" : seconds}`;
    if (this.#clock.textContent !== clock) this.#clock.textContent = clock;
  }
}
