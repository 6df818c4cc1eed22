// Whole workers, as processes.

import assert from 'node:assert/strict';
import test from 'node:test';

import { Pool, each } from './support.js';

test('results of many kinds', async () => {
  const source = `
    const values = { none: null, nothing: undefined, list: [1, 'a'], buffer: Buffer.from([0, 255]),
      view: new Uint8Array([1, 2]), later: Promise.resolve(7) };
    worker.operation('make', (name) => values[name]);`;
  await each(source, {}, async (pool) => {
    const expected = { none: null, nothing: null, list: [1, 'a'], buffer: Buffer.from([0, 255]),
      view: Buffer.from([1, 2]), later: 7 };
    for (const [name, value] of Object.entries(expected)) {
      assert.deepEqual((await pool.answer(pool.call('make', name))).value, value, name);
    }
  });
});

test('what cannot be sent is an error and the worker lives on', async () => {
  const source = `
    worker.operation('make', (name) => ({ big: 1n, large: 'x'.repeat(200000) })[name]);
    worker.operation('later', async () => 1n);
    worker.operation('fail', () => { throw new OperationError('x'.repeat(200000), { data: 1n }); });`;
  await each(source, { maxFrame: 100_000 }, async (pool) => {
    for (const id of [pool.call('make', 'big'), pool.call('make', 'large'), pool.call('later'), pool.call('fail')]) {
      const said = await pool.answer(id);
      assert.deepEqual([said.type, said.kind], ['error', 'handler']);
    }
    assert.equal((await pool.answer(pool.call('noop'))).value, null);
  });
});

test('what is thrown without words is an error and the worker lives on', async () => {
  const source = `
    const thrown = { symbol: Object.assign(new Error(), { message: Symbol('x') }), number: Object.assign(new Error(), { message: 7 }),
      bare: Object.create(null), nothing: undefined };
    worker.operation('fail', (name) => { throw thrown[name]; });`;
  await each(source, {}, async (pool) => {
    for (const name of ['symbol', 'number', 'bare', 'nothing']) {
      const said = await pool.answer(pool.call('fail', name));
      assert.deepEqual([said.type, said.kind, typeof said.message], ['error', 'handler', 'string'], name);
    }
    assert.equal((await pool.answer(pool.call('noop'))).value, null);
  });
});

test('state lives from init to cleanup', async () => {
  const source = `
    worker.init(async () => ({ seen: 0 }));
    worker.cleanup(async (state) => console.log('closed after', state.seen));
    worker.operation('count', (step, call) => (call.state.seen += step));`;
  await each(source, {}, async (pool) => {
    assert.equal((await pool.answer(pool.call('count', 2))).value, 2);
    assert.equal((await pool.answer(pool.call('count', 2))).value, 4);
    assert.equal(await pool.stop(), 0);
    assert.equal(pool.stderr.trim(), 'closed after 4');
  });
});

test('an init that fails is told', async () => {
  const pool = new Pool(`worker.init(() => { throw new Error('no database', { cause: new Error('refused') }); });`);
  assert.deepEqual(await pool.hear(), { type: 'failed', message: 'no database: refused' });
  assert.equal(await pool.exit, 1);
});

test('calls run one at a time and in order unless told', async () => {
  const source = `
    let running = 0;
    worker.operation('alone', async (number) => {
      running += 1;
      const seen = running;
      await new Promise((done) => setTimeout(done, 5 - number));
      running -= 1;
      return seen;
    });`;
  await each(source, {}, async (pool) => {
    const ids = [0, 1, 2, 3].map((number) => pool.call('alone', number));
    for (const id of ids) assert.equal((await pool.answer(id)).value, 1);
  });
});

test('so many calls run at a time as were allowed', async () => {
  const source = `
    let waiting = [];
    worker.operation('meet', (number) => new Promise((done) => {
      waiting.push(() => done(number));
      if (waiting.length === 4) { waiting.forEach((go) => go()); waiting = []; }
    }));`;
  await each(source, { options: '{ concurrency: 4 }' }, async (pool) => {
    assert.equal(pool.about.concurrency, 4);
    const ids = new Map([0, 1, 2, 3, 4, 5, 6, 7].map((number) => [pool.call('meet', number), number]));
    for (let left = ids.size; left > 0; left -= 1) {
      const said = await pool.hear();
      assert.equal(said.value, ids.get(said.id));
    }
    assert.equal(await pool.stop(), 0);
  });
});

test('a running call hears of its cancel and a waiting one never begins', async () => {
  const source = `
    const begun = [];
    worker.operation('wait', (name, call) => new Promise((_, fail) => {
      begun.push(name);
      call.progress('begun');
      call.signal.addEventListener('abort', () => fail(call.signal.reason));
    }));
    worker.operation('begun', () => begun);`;
  await each(source, {}, async (pool) => {
    const running = pool.call('wait', 'running', { progress: true });
    const [waiting, last] = [pool.call('wait', 'waiting'), pool.call('begun')];
    assert.equal((await pool.hear()).type, 'progress');
    pool.say('cancel', waiting);
    pool.say('cancel', running);
    assert.equal((await pool.answer(running)).kind, 'cancelled');
    assert.equal((await pool.answer(waiting)).message, 'cancelled before it began');
    assert.deepEqual((await pool.answer(last)).value, ['running']);
    const late = pool.call('wait', 'late', { timeout: 5 });
    assert.equal((await pool.answer(late)).kind, 'cancelled');
  });
});

test('an answer is out before the next call begins', async () => {
  const source = `worker.operation('die', () => process.kill(process.pid, 'SIGKILL'));`;
  await each(source, {}, async (pool) => {
    for (let n = 0; n < 20; n += 1) await pool.answer(pool.call('echo', n));
    const [first, second] = [pool.call('echo', 1), pool.call('echo', 2)];
    pool.call('die');
    assert.equal((await pool.answer(first)).value, 1);
    assert.equal((await pool.answer(second)).value, 2);
    await pool.exit;
  });
});

test('process.exit in a call ends the worker as asked', async () => {
  await each(`worker.operation('exit', (code) => process.exit(code));`, {}, async (pool) => {
    const echo = pool.call('echo', 1);
    pool.call('exit', 7);
    assert.equal((await pool.answer(echo)).value, 1);
    assert.equal(await pool.exit, 7);
  });
});

test('who prints does no harm', async () => {
  const source = `
    console.log('at the start');
    worker.operation('noise', () => {
      console.log('a log');
      process.stdout.write('half a line');
      execSync('echo from a child; cat', { stdio: 'inherit' });
      return 1;
    });`;
  await each(source, { pipes: true }, async (pool) => {
    assert.equal((await pool.answer(pool.call('noise'))).value, 1);
    assert.equal((await pool.answer(pool.call('noise'))).value, 1);
    assert.equal(await pool.stop(), 0);
    for (const words of ['at the start', 'a log', 'half a line', 'from a child']) {
      assert.ok(pool.stderr.includes(words), words);
    }
  });
});

test('who prints does no harm where the channel is a socket', async () => {
  const source = `worker.operation('noise', () => { console.log('a log'); process.stdout.write('half'); return 1; });`;
  await each(source, {}, async (pool) => {
    assert.equal((await pool.answer(pool.call('noise'))).value, 1);
    assert.equal(await pool.stop(), 0);
    assert.equal(pool.stderr, 'a log\nhalf');
  });
});

test('the end of input ends a worker that has timers and connections open', async () => {
  await each(`setInterval(() => {}, 1000);`, {}, async (pool) => {
    const echo = pool.call('echo', 1);
    pool.process.stdin.end();
    assert.equal((await pool.answer(echo)).value, 1);
    assert.equal(await pool.exit, 0);
  });
});

test('the wish to be replaced', async () => {
  await each(`worker.operation('retire', () => { worker.retire(); });`, {}, async (pool) => {
    const id = pool.call('retire');
    assert.equal((await pool.hear()).type, 'retire');
    assert.equal((await pool.answer(id)).value ?? null, null);
  });
});
