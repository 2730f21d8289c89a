/**
 * Text arithmetic: code points against UTF-16, and text cut the way a language model emits it.
 *
 * The protocol counts Unicode code points; JavaScript strings count UTF-16 units. Pure but for `typeOut`, which
 * waits on a timer. Touches no page and no socket.
 */

/** How many UTF-16 units the first `codePoints` code points of `text` take; the whole length past its end. */
export function utf16Index(text, codePoints) {
  let units = 0;
  for (let n = 0; n < codePoints && units < text.length; n += 1) {
    units += text.codePointAt(units) > 0xffff ? 2 : 1;
  }
  return units;
}

/** Unicode code points in `text`. */
export function codePointLength(text) {
  let count = 0;
  for (let units = 0; units < text.length; count += 1) {
    units += text.codePointAt(units) > 0xffff ? 2 : 1;
  }
  return count;
}

// A token is a CJK run, a word with the space before it, or any other single character with its space.
const TOKEN = /\p{Script=Han}+|\s*[\p{L}\p{N}'’]+|\s*[^\p{L}\p{N}\s]|\s+/gu;
const HAN = /^\p{Script=Han}/u;
const LONG_WORD = 7;

/**
 * Cuts text into pieces like the tokens of a language model: one or two Chinese characters, a word, a part of a
 * long word, a mark. Joined they are `text` again; no piece cuts a surrogate pair.
 * @param {string} text
 * @param {() => number} random in [0, 1)
 */
export function* pieces(text, random = Math.random) {
  for (const [token] of text.matchAll(TOKEN)) {
    const points = Array.from(token);
    if (HAN.test(token)) {
      while (points.length > 0) yield points.splice(0, 1 + Math.floor(random() * 2)).join("");
    } else if (points.length > LONG_WORD && random() < 0.6) {
      const cut = 3 + Math.floor(random() * (points.length - 5));
      yield points.slice(0, cut).join("");
      yield points.slice(cut).join("");
    } else {
      yield token;
    }
  }
}

function wait(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}

/**
 * Sends `text` in pieces at `rate` pieces a second, unevenly, until done or aborted. Each piece has a deadline,
 * so that a throttled timer (a hidden tab) catches up instead of falling behind.
 * @returns {Promise<boolean>} whether all of it was sent
 */
export async function typeOut(text, { rate, send, signal, random = Math.random }) {
  let due = performance.now();
  for (const piece of pieces(text, random)) {
    const early = due - performance.now();
    if (early > 0) await wait(early, signal);
    if (signal.aborted) return false;
    send(piece);
    due += (0.4 + 1.2 * random()) * (1000 / rate);
  }
  return true;
}
