// Workers for tests: a few lines of source, started as a process; the test acts as the pool.

import { spawn } from 'node:child_process';
import { once } from 'node:events';

const INDEX = new URL('../index.js', import.meta.url).href;
const TYPES = { call: 1, cancel: 2, ping: 3, stop: 4 };
const NAMES = { 129: 'result', 130: 'error', 131: 'progress', 132: 'pong', 133: 'retire' };

export class Pool {
  stderr = '';
  #data = Buffer.alloc(0);
  #messages = [];
  #wake = () => {};
  #id = 0;
  #binary = false;

  /** A worker of that source, before its `ready`. */
  constructor(source, { form = 'binary', options = '', maxFrame = 64 << 20, pipes = false } = {}) {
    const text = `import { BadArguments, OperationError, Worker } from ${JSON.stringify(INDEX)};
      import { execSync } from 'node:child_process';
      const worker = new Worker(${options});
      ${source}
      worker.run();`;
    const env = { ...process.env, LONGSHORE_WORKER: '1' };
    const command = [process.execPath, '--input-type=module', '-e', text];
    // Node gives its children sockets; a pool gives them pipes. The exit code is then the exit code of `cat`.
    if (pipes) command.unshift('sh', '-c', '{ { cat | "$0" "$@" 2>&3 | cat >&4; } 3>&1 | cat >&2; } 4>&1');
    this.process = spawn(command[0], command.slice(1), { env });
    this.exit = once(this.process, 'close').then(([code]) => code);
    this.process.stderr.on('data', (chunk) => (this.stderr += chunk));
    this.process.stdout.on('data', (chunk) => this.#take(chunk));
    this.process.stdin.on('error', () => {});
    const encodings = form === 'binary' ? ['json', 'binary'] : ['json'];
    this.line({ type: 'hello', version: 1, encodings, max_frame: maxFrame });
  }

  static async ready(source, options) {
    const pool = new Pool(source, options);
    pool.about = await pool.hear();
    pool.#binary = pool.about.encoding === 'binary';
    return pool;
  }

  line(message) {
    this.process.stdin.write(`${JSON.stringify(message)}\n`);
  }

  call(operation, args = null, more = {}) {
    this.#id += 1;
    this.say('call', this.#id, { operation, args, ...more });
    return this.#id;
  }

  say(type, id = 0, { operation = '', args = null, progress = false, timeout = 60_000 } = {}) {
    const bytes = Buffer.isBuffer(args);
    if (this.#binary) {
      const call = type === 'call';
      const name = Buffer.from(operation);
      const body = !call ? Buffer.alloc(0) : bytes ? args : Buffer.from(JSON.stringify(args));
      const header = Buffer.alloc(20);
      header.writeUInt32LE(16 + name.length + body.length, 0);
      header[4] = TYPES[type];
      header[5] = bytes ? 1 : 0;
      header.writeUInt16LE(name.length, 6);
      header.writeUInt32LE(call ? timeout + (progress ? 0x8000_0000 : 0) : 0, 8);
      header.writeUInt32LE(id, 12);
      this.process.stdin.write(Buffer.concat([header, name, body]));
      return;
    }
    const given = bytes ? { arguments_base64: args.toString('base64') } : { arguments: args };
    this.line(type === 'call' ? { type, id, operation, ...given, progress, timeout_ms: timeout } : { type, id });
  }

  async hear() {
    while (this.#messages.length === 0) {
      await Promise.race([new Promise((wake) => (this.#wake = wake)), this.exit.then(() => this.#gone())]);
    }
    return this.#messages.shift();
  }

  /** Hears the answer to one call, which must be the next. */
  async answer(id) {
    const said = await this.hear();
    if (said.id !== id) throw new Error(`id ${said.id} where ${id} was due`);
    return said;
  }

  async stop() {
    this.say('stop');
    this.process.stdin.end();
    return this.exit;
  }

  #gone() {
    if (this.#messages.length === 0) throw new Error(`the worker ended: ${this.stderr}`);
  }

  #take(chunk) {
    this.#data = Buffer.concat([this.#data, chunk]);
    while (this.#binary ? this.#frame() : this.#line());
    this.#wake();
  }

  #line() {
    const end = this.#data.indexOf(10);
    if (end < 0) return false;
    const said = JSON.parse(this.#data.toString('utf8', 0, end));
    if (said.value_base64 !== undefined) said.value = Buffer.from(said.value_base64, 'base64');
    this.#messages.push(said);
    this.#data = this.#data.subarray(end + 1);
    return true;
  }

  #frame() {
    if (this.#data.length < 20) return false;
    const end = this.#data.readUInt32LE(0) + 4;
    if (this.#data.length < end) return false;
    const type = NAMES[this.#data[4]];
    const body = this.#data.subarray(20, end);
    const value = this.#data[5] === 1 ? Buffer.from(body) : body.length > 0 ? JSON.parse(body) : null;
    const id = this.#data.readUInt32LE(12);
    this.#messages.push(type === 'error' ? { type, id, ...value } : { type, id, value });
    this.#data = this.#data.subarray(end);
    return true;
  }
}

/** Runs a test with a worker in each form. */
export async function each(source, options, test) {
  for (const form of ['json', 'binary']) {
    const pool = await Pool.ready(source, { ...options, form });
    try {
      await test(pool, form);
    } finally {
      pool.process.kill('SIGKILL');
    }
  }
}
