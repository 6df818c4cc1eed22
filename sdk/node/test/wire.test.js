// Both encodings of messages, split into chunks in every way.

import assert from 'node:assert/strict';
import test from 'node:test';

import { BadArguments, Cancelled, OperationError, describe } from '../lib/errors.js';
import { Frames } from '../lib/frames.js';
import { Lines } from '../lib/lines.js';
import { ProtocolError } from '../lib/wire.js';

function frame(type, id, name = '', body = '') {
  const header = Buffer.alloc(20);
  header.writeUInt32LE(16 + name.length + body.length, 0);
  header[4] = type;
  header.writeUInt16LE(name.length, 6);
  header.writeUInt32LE(id, 12);
  return Buffer.concat([header, Buffer.from(name), Buffer.from(body)]);
}

const FRAMES = Buffer.concat([frame(1, 7, 'double', '21'), frame(3, 8), frame(1, 9, 'noop'), frame(4, 0)]);
const LINES = Buffer.from(
  [
    { type: 'call', id: 7, operation: 'double', arguments: 21 },
    { type: 'ping', id: 8 },
    { type: 'call', id: 9, operation: 'noop' },
    { type: 'stop', id: 0 },
  ]
    .map((message) => `${JSON.stringify(message)}\n`)
    .join(''),
);
const MEANT = ['call 7 double 21', 'ping 8', 'call 9 noop null', 'stop 0'];

function words({ type, id, operation, read }) {
  return type === 'call' ? `${type} ${id} ${operation} ${JSON.stringify(read())}` : `${type} ${id}`;
}

function feed(Form, ...pieces) {
  const wire = new Form(1 << 20);
  return pieces.flatMap((piece) => wire.feed(piece)).map(words);
}

test('messages cut anywhere are the same', () => {
  for (const [Form, data] of [[Frames, FRAMES], [Lines, LINES]]) {
    for (let at = 1; at < data.length; at += 1) {
      assert.deepEqual(feed(Form, data.subarray(0, at), data.subarray(at)), MEANT);
    }
    assert.deepEqual(feed(Form, ...Array.from(data, (byte) => Buffer.from([byte]))), MEANT);
  }
});

test('a frame that cannot be is the end', () => {
  const long = frame(1, 1);
  long.writeUInt16LE(999, 6);
  for (const wrong of [Buffer.alloc(40, 0xff), Buffer.alloc(40), long]) {
    assert.throws(() => feed(Frames, wrong), ProtocolError);
  }
});

test('what is too large or no JSON is not sent', () => {
  const circle = {};
  circle.circle = circle;
  for (const Form of [Frames, Lines]) {
    for (const wrong of ['x'.repeat(1000), Buffer.alloc(1000), 1n, circle]) {
      assert.throws(() => new Form(1000).result(1, wrong));
    }
  }
});

test('ids beyond 32 bits come back as they were', () => {
  const id = 2 ** 40 + 5;
  const said = frame(1, 5, 'noop');
  said.writeUInt32LE(2 ** 8, 16);
  const [message] = new Frames(1000).feed(said);
  assert.equal(message.id, id);
  assert.equal(new Frames(1000).pong(id)[0].readBigUInt64LE(12), BigInt(id));
});

test('causes are told outermost first, and may go in circles', () => {
  const inner = new TypeError('inner');
  const outer = new Error('outer', { cause: new RangeError('middle', { cause: inner }) });
  inner.cause = outer;
  const about = describe(outer);
  assert.deepEqual(about.chain, ['RangeError: middle', 'TypeError: inner']);
  assert.deepEqual([about.kind, about.message, about.data.type], ['handler', 'outer', 'Error']);
});

test('kinds of errors', () => {
  const told = describe(new OperationError('no', { data: { code: 7 } }));
  assert.deepEqual(told, { kind: 'handler', message: 'no', data: { code: 7 } });
  assert.equal(describe(new BadArguments('no')).kind, 'bad_arguments');
  assert.equal(describe(new Cancelled()).kind, 'cancelled');
  assert.equal(describe('a string').message, 'a string');
  assert.equal(describe(Object.create(null)).message, 'something without words was thrown');
});
