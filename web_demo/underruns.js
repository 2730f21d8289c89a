/**
 * Tells an underrun from a silence of the writer.
 *
 * An underrun is a gap in the listener's playout while text was there to speak. Whether it was is known only when
 * sound resumes: in mid-sentence it was; at a sentence's start it was if all of that sentence had been sent
 * before the gap began. Pure.
 */

/** Sound resumes within this of a sentence's `start_ms`: it is that sentence's first sound. */
const BOUNDARY_MS = 10;

/**
 * @param {{positionMs: number, atMs: number}} gap its place on the stream's timeline; when it began, page clock
 * @param {{index: number, end: number, start_ms: number}[]} sentences those known when sound resumed
 * @param {{atMs: number, codePoints: number}[]} sent how much text had been sent when
 * @param {number | null} endedAtMs when the text was ended, page clock
 */
export function isUnderrun(gap, sentences, sent, endedAtMs) {
  const next = sentences.find((s) => s.index > 0 && Math.abs(s.start_ms - gap.positionMs) <= BOUNDARY_MS);
  if (!next) return true;
  if (endedAtMs !== null && endedAtMs <= gap.atMs) return true;
  const before = sent.findLast((entry) => entry.atMs <= gap.atMs);
  // One code point more than the sentence: until it comes, "3." may still become "3.5".
  return (before?.codePoints ?? 0) > next.end;
}
