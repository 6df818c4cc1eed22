// A worker: operations that a pool can call, in a persistent process.
//
//   import { Worker } from '@longshore/worker';
//
//   const worker = new Worker();
//   worker.operation('double', { idempotent: true }, (number) => 2 * number);
//   worker.run();

import { isatty } from 'node:tty';

import { takeChannel } from './lib/channel.js';
import { describe } from './lib/errors.js';
import { Frames } from './lib/frames.js';
import { Lines } from './lib/lines.js';
import { Serving, builtIn } from './lib/serve.js';

export { BadArguments, Cancelled, OperationError } from './lib/errors.js';

const VERSION = 1;
const NAME = 'longshore-node/0.1.0';

export class Worker {
  #concurrency;
  #operations = new Map(builtIn.map(([name, one]) => [name, { ...one, about: about(name, one) }]));
  #init = () => undefined;
  #cleanup = () => undefined;
  #channel;
  #serving;

  constructor({ concurrency = 1 } = {}) {
    if (!Number.isInteger(concurrency) || concurrency < 1) {
      throw new RangeError('a worker performs at least one call at a time');
    }
    this.#concurrency = concurrency;
    // Under a pool, standard output is redirected at once: code that runs from here on may print.
    if (process.env.LONGSHORE_WORKER !== undefined) this.#channel = takeChannel();
  }

  operation(name, options, handler) {
    if (typeof options === 'function') [options, handler] = [{}, options];
    if (typeof handler !== 'function') throw new TypeError(`operation ${name} needs a function`);
    this.#operations.set(name, { idempotent: options.idempotent === true, handler, about: about(name, options) });
    return this;
  }

  init(make) {
    this.#init = make;
    return this;
  }

  cleanup(end) {
    this.#cleanup = end;
    return this;
  }

  retire() {
    this.#serving?.retire();
  }

  async run() {
    if (this.#channel === undefined && isatty(0)) {
      console.error('This is a worker: a Longshore pool starts it and talks to it.');
      console.error(`To try it: python3 -m longshore.check -- node ${process.argv[1]}`);
      process.exit(2);
    }
    this.#channel ??= takeChannel();
    process.on('SIGINT', () => {}); // Ctrl-C is the pool's business
    process.on('exit', () => this.#serving?.flush());
    try {
      await this.#live();
    } catch (error) {
      if (error.code !== 'EPIPE') throw error;
    }
    // Open timers and connections must not keep a stopped worker alive.
    process.exit();
  }

  async #live() {
    const input = this.#channel.input;
    const hello = await greeting(input);
    if (hello === undefined) return;
    if (hello.version !== VERSION) {
      return this.#fail(new Error(`the pool speaks version ${hello.version}, this worker ${VERSION}`));
    }
    // Before `ready`, the end of input means that the pool no longer waits for this worker.
    const left = () => process.exit(0);
    input.once('end', left);
    let state;
    try {
      state = await this.#init();
    } catch (error) {
      return this.#fail(error);
    }
    input.off('end', left);
    try {
      await this.#serve(hello, state);
    } finally {
      await this.#cleanup(state);
    }
    await this.#channel.finish();
  }

  #serve(hello, state) {
    const binary = hello.encodings?.includes('binary') === true;
    const wire = new (binary ? Frames : Lines)(hello.max_frame ?? 64 << 20);
    const [channel, operations, concurrency] = [this.#channel, this.#operations, this.#concurrency];
    this.#serving = new Serving({ wire, channel, operations, state, concurrency });
    return new Promise((done, fail) => {
      const guarded = (act) => (chunk) => {
        try {
          act(chunk);
        } catch (error) {
          fail(error);
        }
      };
      this.#serving.ended.then(done);
      channel.input.on('data', guarded((chunk) => this.#serving.take(wire.feed(chunk))));
      channel.input.once('end', guarded(() => this.#serving.end()));
      channel.input.once('error', guarded(() => this.#serving.end()));
      guarded(() => this.#say(this.#ready(binary)))();
      channel.input.resume();
    });
  }

  #ready(binary) {
    const operations = [...this.#operations.values()].map((one) => one.about);
    const encoding = binary ? 'binary' : 'json';
    const ready = { type: 'ready', version: VERSION, pid: process.pid, encoding, operations, name: NAME };
    return this.#concurrency > 1 ? { ...ready, concurrency: this.#concurrency } : ready;
  }

  async #fail(error) {
    const { message, chain = [] } = describe(error);
    this.#say({ type: 'failed', message: [message, ...chain].join(': ') });
    console.error(error);
    process.exitCode = 1;
    await this.#channel.finish();
  }

  #say(message) {
    this.#channel.write([Buffer.from(`${JSON.stringify(message)}\n`)]);
  }
}

/** An operation, as it is listed. */
function about(name, { description, timeout, idempotent, arguments: given, result }) {
  const timeout_ms = timeout === undefined ? undefined : Math.round(timeout * 1000);
  return { name, description, timeout_ms, idempotent: idempotent === true ? true : undefined, arguments: given, result };
}

/** The pool's `hello`; nothing if input ends before it. What came with it stays to be read. */
function greeting(input) {
  return new Promise((done, fail) => {
    let data = Buffer.alloc(0);
    const over = () => done(undefined);
    const take = (chunk) => {
      data = Buffer.concat([data, chunk]);
      const newline = data.indexOf(10);
      if (newline < 0) return;
      input.pause();
      input.off('data', take);
      input.off('end', over);
      if (newline + 1 < data.length) input.unshift(data.subarray(newline + 1));
      try {
        done(hello(data.toString('utf8', 0, newline)));
      } catch (error) {
        fail(error);
      }
    };
    input.on('data', take);
    input.once('end', over);
  });
}

function hello(line) {
  const said = JSON.parse(line);
  if (said?.type !== 'hello') throw new Error('the first message is not hello');
  return said;
}
