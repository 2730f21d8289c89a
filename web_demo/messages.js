/**
 * The binary half of `sayflow.v1`: cuts an audio message into its packets.
 *
 * The layout is that of `gateway/messages.py`: a 16-byte little-endian header, then packets, each behind a u16
 * length. Knows no socket and no audio API.
 */

export const SUBPROTOCOL = "sayflow.v1";
/** Timestamps run at 48 kHz whatever the sample rate. */
export const TICKS_PER_MS = 48;

const VERSION = 1;
const HEADER_BYTES = 16;
const SOURCES = ["live", "cache", "fallback"];
const SOURCE_MASK = 0x03;
const RESET = 0x04;
const LAST = 0x08;

/** Thrown for bytes that no server of this version would send. */
export class AudioMessageError extends Error {}

/**
 * @param {ArrayBuffer} buffer one binary WebSocket message
 * @returns {{stream: number, sequence: number, timestamp: number, source: string, reset: boolean,
 *   last: boolean, packets: Uint8Array[]}} the packets are views into `buffer`
 */
export function decodeAudio(buffer) {
  if (buffer.byteLength < HEADER_BYTES) throw new AudioMessageError("shorter than its header");
  const view = new DataView(buffer);
  const version = view.getUint8(0);
  if (version !== VERSION) throw new AudioMessageError(`version ${version}, expected ${VERSION}`);
  const flags = view.getUint8(1);
  const count = view.getUint16(12, true);
  const packets = [];
  let at = HEADER_BYTES;
  for (let n = 0; n < count; n += 1) {
    if (at + 2 > buffer.byteLength) throw new AudioMessageError("ends inside a packet");
    const size = view.getUint16(at, true);
    at += 2;
    if (at + size > buffer.byteLength) throw new AudioMessageError("ends inside a packet");
    packets.push(new Uint8Array(buffer, at, size));
    at += size;
  }
  if (at !== buffer.byteLength) throw new AudioMessageError("bytes follow the last packet");
  return {
    stream: view.getUint16(2, true),
    sequence: view.getUint32(4, true),
    timestamp: view.getUint32(8, true),
    source: SOURCES[flags & SOURCE_MASK] ?? "live",
    reset: (flags & RESET) !== 0,
    last: (flags & LAST) !== 0,
    packets,
  };
}
