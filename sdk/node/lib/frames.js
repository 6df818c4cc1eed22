// Binary frames: a header of 20 bytes, a name, a body.

import { LARGE, ProtocolError, Raw, bytesOf, checkSize, fromJson, toJson } from './wire.js';

const HEADER = 20;
const TYPES = { 1: 'call', 2: 'cancel', 3: 'ping', 4: 'stop' };
const RESULT = 129, ERROR = 130, PROGRESS = 131, PONG = 132, RETIRE = 133;
const NOTHING = Buffer.alloc(0);

export class Frames {
  #parts = []; // of a frame that is not whole yet
  #have = 0;
  #need = HEADER;

  constructor(maxFrame) {
    this.maxFrame = maxFrame;
  }

  feed(chunk) {
    this.#have += chunk.length;
    this.#parts.push(chunk);
    if (this.#have < this.#need) return [];
    const data = this.#parts.length === 1 ? chunk : Buffer.concat(this.#parts);
    const messages = [];
    let at = 0;
    while ((this.#need = this.#length(data, at)) <= data.length - at) {
      const message = this.#take(data, at, at + this.#need);
      if (message !== undefined) messages.push(message);
      at += this.#need;
    }
    this.#parts = at < data.length ? [data.subarray(at)] : [];
    this.#have = data.length - at;
    return messages;
  }

  /** The length of the frame that begins there, as far as can be seen. */
  #length(data, at) {
    if (data.length - at < HEADER) return HEADER;
    const length = data.readUInt32LE(at);
    if (length < HEADER - 4 || length > this.maxFrame + HEADER) {
      throw new ProtocolError(`a frame of ${length} bytes`);
    }
    return length + 4;
  }

  #take(data, at, end) {
    const type = TYPES[data[at + 4]];
    if (type === undefined) return undefined;
    // Ids above 2^53 would need a BigInt; a pool that counts from 1 gets there in 285 years.
    const id = data.readUInt32LE(at + 12) + data.readUInt32LE(at + 16) * 0x1_0000_0000;
    if (type !== 'call') return { type, id };
    const isBytes = data[at + 5] === 1;
    const body = at + HEADER + data.readUInt16LE(at + 6);
    if (body > end) throw new ProtocolError('a name longer than its frame');
    const limit = data.readUInt32LE(at + 8);
    return {
      type,
      id,
      operation: data.toString('utf8', at + HEADER, body),
      limit: limit & 0x7fff_ffff,
      listens: limit > 0x7fff_ffff,
      read: () => (isBytes ? data.subarray(body, end) : body === end ? null : fromJson(data.toString('utf8', body, end))),
      raw: () => new Raw(isBytes, data.subarray(body, end)),
    };
  }

  result(id, value) {
    if (value === undefined || value === null) return [frame(RESULT, id, 0, NOTHING)];
    if (value instanceof Raw) return this.#body(RESULT, id, value.isBytes ? 1 : 0, value.body);
    const bytes = bytesOf(value);
    return bytes === undefined ? this.#json(RESULT, id, value) : this.#body(RESULT, id, 1, bytes);
  }

  error(id, about) {
    return this.#json(ERROR, id, about);
  }

  progress(id, value) {
    return this.#json(PROGRESS, id, value);
  }

  pong(id) {
    return [frame(PONG, id, 0, NOTHING)];
  }

  retire() {
    return [frame(RETIRE, 0, 0, NOTHING)];
  }

  #json(type, id, value) {
    return this.#body(type, id, 0, Buffer.from(toJson(value)));
  }

  #body(type, id, form, body) {
    checkSize(body.length + HEADER, this.maxFrame);
    if (body.length > LARGE) return [header(Buffer.allocUnsafe(HEADER), type, id, form, body.length), body];
    return [frame(type, id, form, body)];
  }
}

function frame(type, id, form, body) {
  const whole = Buffer.allocUnsafe(HEADER + body.length);
  body.copy(whole, HEADER);
  return header(whole, type, id, form, body.length);
}

function header(to, type, id, form, length) {
  to.writeUInt32LE(HEADER - 4 + length, 0);
  to[4] = type;
  to[5] = form;
  to.writeUInt16LE(0, 6);
  to.writeUInt32LE(0, 8);
  to.writeUInt32LE(id % 0x1_0000_0000, 12);
  to.writeUInt32LE(Math.floor(id / 0x1_0000_0000), 16);
  return to;
}
