// Shared by the two encodings of messages (lines.js, frames.js).
//
// An encoding has `feed(chunk)`, which returns the messages that the chunk completes: objects with `type`,
// `id` and, in calls, `operation`, `read()` (the arguments), `raw()` (the same, unread if possible),
// `limit` (milliseconds, 0 for none) and `listens`. And it has `result`, `error`, `progress`, `pong`
// and `retire`, which return the bytes to write: a list of buffers.

import { BadArguments, OperationError } from './errors.js';

/** Larger bodies are not copied to stand behind their header. */
export const LARGE = 32 * 1024;

/** The pool said something that is not the protocol; there is no going on. */
export class ProtocolError extends Error {}

/** Arguments that were not looked into, or a result that need not be. */
export class Raw {
  constructor(isBytes, body) {
    this.isBytes = isBytes;
    this.body = body;
  }
}

/** A value as JSON text. What JSON has no word for is null, as in arrays. */
export function toJson(value) {
  return JSON.stringify(value) ?? 'null';
}

/** Arguments out of JSON text. */
export function fromJson(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new BadArguments(`the arguments cannot be read: ${error.message}`);
  }
}

/** The bytes of a value that is bytes; else nothing. */
export function bytesOf(value) {
  if (Buffer.isBuffer(value)) return value;
  if (ArrayBuffer.isView(value)) return Buffer.from(value.buffer, value.byteOffset, value.byteLength);
  if (value instanceof ArrayBuffer) return Buffer.from(value);
  return undefined;
}

/** A message that the pool would not take must not be sent: it would end the worker. */
export function checkSize(size, limit) {
  if (size > limit) throw new OperationError(`the message takes ${size} bytes, of at most ${limit}`);
}
