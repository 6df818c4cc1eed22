// The worker's loop: calls come in, at most `concurrency` run at a time, answers go out.

import { Call } from './call.js';
import { describe } from './errors.js';
import { LARGE } from './wire.js';

// An answer may wait for the next one only if that takes less than this (milliseconds), and at most so many.
const QUICK = 0.1;
const HELD = 32;
// Calls to buffer before reading pauses.
const WAITING = 1024;

export class Serving {
  #wire;
  #channel;
  #operations;
  #state;
  #concurrency;
  #queue = [];
  #at = 0; // where the queue begins
  #running = new Map();
  #held = [];
  #ending = false;
  #ended;

  constructor({ wire, channel, operations, state, concurrency }) {
    this.#wire = wire;
    this.#channel = channel;
    this.#operations = operations;
    this.#state = state;
    this.#concurrency = concurrency;
    this.ended = new Promise((done) => (this.#ended = done));
  }

  /** Messages have come. */
  take(messages) {
    for (const message of messages) this.#take(message);
    this.#work();
    this.flush();
  }

  #take(message) {
    if (this.#ending) return;
    if (message.type === 'stop') this.#ending = true;
    else if (message.type === 'cancel') this.#cancel(message.id);
    else if (message.type === 'call' || message.type === 'ping') this.#queue.push(message);
    if (this.#queue.length - this.#at === WAITING) this.#channel.input.pause();
  }

  /** No more will come. What has come is done. */
  end() {
    this.#ending = true;
    this.#work();
    this.flush();
  }

  /** Sends what was held back. */
  flush() {
    if (this.#held.length === 0) return;
    const held = this.#held;
    this.#held = [];
    this.#channel.write(held);
  }

  /** Tells the pool to replace this worker. */
  retire() {
    this.#say(this.#wire.retire());
  }

  #say(buffers) {
    this.#held.push(...buffers);
    this.flush();
  }

  #cancel(id) {
    const call = this.#running.get(id);
    if (call !== undefined) return call._cancel();
    const waiting = this.#queue.find((message, at) => at >= this.#at && message.id === id);
    if (waiting?.type === 'call') waiting.cancelled = true;
  }

  #work() {
    while (this.#running.size < this.#concurrency && this.#at < this.#queue.length) {
      const message = this.#next();
      if (message.type === 'ping') this.#held.push(...this.#wire.pong(message.id));
      else this.#begin(message);
    }
    if (this.#queue.length === 0 && this.#channel.input.isPaused()) this.#channel.input.resume();
    if (this.#ending && this.#running.size === 0 && this.#queue.length === 0) this.#ended();
  }

  /** The one that came first. What lies before `#at` is cleared away now and then, not each time. */
  #next() {
    const message = this.#queue[this.#at++];
    if (this.#at === this.#queue.length || this.#at >= WAITING) {
      this.#queue.splice(0, this.#at);
      this.#at = 0;
    }
    return message;
  }

  #begin(message) {
    const operation = this.#operations.get(message.operation);
    if (operation === undefined) return this.#say(this.#unknown(message.id));
    if (message.cancelled) {
      return this.#say(this.#wire.error(message.id, { kind: 'cancelled', message: 'cancelled before it began' }));
    }
    // If this worker dies, the pool treats the first unanswered call as started and sends the later
    // ones to another worker. So answers may be held back only while calls run that may be repeated,
    // and only for a moment.
    if (!operation.idempotent || !operation.quick) this.flush();
    const begun = performance.now();
    const call = new Call(message, this.#state, (id, value) => this.#say(this.#wire.progress(id, value)));
    let result;
    try {
      result = operation.handler(operation.raw ? message.raw() : message.read(), call);
      if (typeof result?.then === 'function') return this.#await(message.id, call, result);
      this.#held.push(...this.#wire.result(message.id, result));
    } catch (error) {
      this.#held.push(...this.#error(message.id, error));
    }
    call._done();
    operation.quick = performance.now() - begun < QUICK;
    if (!operation.idempotent || !operation.quick || !this.#mayHold()) this.flush();
  }

  #mayHold() {
    return this.#held.length < HELD && this.#held[this.#held.length - 1].length < LARGE;
  }

  #await(id, call, promise) {
    this.#running.set(id, call);
    this.flush();
    const answered = (encode) => {
      let buffers;
      try {
        buffers = encode();
      } catch (error) {
        buffers = this.#error(id, error);
      }
      this.#running.delete(id);
      call._done();
      this.#say(buffers);
      this.#work();
      this.flush();
    };
    promise.then(
      (result) => answered(() => this.#wire.result(id, result)),
      (error) => answered(() => this.#error(id, error)),
    );
  }

  #unknown(id) {
    const known = [...this.#operations.keys()].sort().join(', ');
    return this.#wire.error(id, { kind: 'unknown_operation', message: `no such operation (known: ${known})` });
  }

  /** An error; of one that cannot be sent as it is, what can be. */
  #error(id, error) {
    const about = describe(error);
    try {
      return this.#wire.error(id, about);
    } catch {
      return this.#wire.error(id, { kind: about.kind, message: about.message.slice(0, 4000) });
    }
  }
}

/** What every worker can do: pools use it to check one. */
export const builtIn = [
  ['noop', { description: 'Does nothing.', idempotent: true, raw: true, handler: () => null }],
  ['echo', { description: 'Gives back its arguments.', idempotent: true, raw: true, handler: (given) => given }],
];

