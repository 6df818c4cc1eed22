// JSON lines: one message a line.

import { ProtocolError, Raw, bytesOf, checkSize, toJson } from './wire.js';

const NEWLINE = 10;
const TYPES = new Set(['hello', 'call', 'cancel', 'ping', 'stop']);

export class Lines {
  #parts = []; // of a line that is not whole yet
  #have = 0;

  constructor(maxFrame) {
    this.maxFrame = maxFrame;
  }

  feed(chunk) {
    const last = chunk.lastIndexOf(NEWLINE);
    if (last < 0) {
      this.#keep(chunk);
      return [];
    }
    const whole = chunk.subarray(0, last);
    const lines = this.#parts.length === 0 ? whole : Buffer.concat([...this.#parts, whole]);
    this.#parts = [];
    this.#have = 0;
    if (last + 1 < chunk.length) this.#keep(chunk.subarray(last + 1));
    return lines.toString('utf8').split('\n').map(take).filter((message) => message !== undefined);
  }

  #keep(part) {
    this.#parts.push(part);
    this.#have += part.length;
    if (this.#have > this.maxFrame * 2) throw new ProtocolError('a line without an end');
  }

  result(id, value) {
    const bytes = value instanceof Raw ? value.body : bytesOf(value);
    const said = bytes === undefined ? `"value":${toJson(value)}` : `"value_base64":"${bytes.toString('base64')}"`;
    return this.#line(`{"type":"result","id":${id},${said}}\n`);
  }

  error(id, about) {
    return this.#line(`${toJson({ type: 'error', id, ...about })}\n`);
  }

  progress(id, value) {
    return this.#line(`{"type":"progress","id":${id},"value":${toJson(value)}}\n`);
  }

  pong(id) {
    return this.#line(`{"type":"pong","id":${id}}\n`);
  }

  retire() {
    return this.#line('{"type":"retire"}\n');
  }

  #line(text) {
    const line = Buffer.from(text);
    checkSize(line.length, this.maxFrame);
    return [line];
  }
}

function take(line) {
  if (line === '') return undefined;
  const said = parse(line);
  if (said === null || typeof said !== 'object' || !TYPES.has(said.type)) return undefined;
  if (said.type !== 'call') return said;
  const read = () =>
    said.arguments_base64 === undefined ? said.arguments ?? null : Buffer.from(said.arguments_base64, 'base64');
  const { type, id, operation } = said;
  return { type, id, operation, limit: said.timeout_ms ?? 0, listens: said.progress === true, read, raw: read };
}

function parse(line) {
  try {
    return JSON.parse(line);
  } catch (error) {
    throw new ProtocolError(`a line that is no JSON: ${error.message}`);
  }
}
