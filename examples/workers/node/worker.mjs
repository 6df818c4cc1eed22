// A worker in Node with the operations that `longshore.check` looks for.

import { setTimeout as sleep } from 'node:timers/promises';

import { BadArguments, OperationError, Worker } from '../../../sdk/node/index.js';

const worker = new Worker();

worker.operation('double', { description: 'Twice the number.', idempotent: true }, (number) => {
  if (typeof number !== 'number') throw new BadArguments('a number is needed');
  return 2 * number;
});

worker.operation('slow', { timeout: 60 }, async ({ steps = 10, ms = 100 }, call) => {
  for (let step = 1; step <= steps; step += 1) {
    await sleep(ms, undefined, { signal: call.signal });
    call.progress({ step, of: steps });
  }
  return 'done';
});

worker.operation('fail', (words) => {
  try {
    JSON.parse('{');
  } catch (cause) {
    throw new OperationError(words, { cause, data: { words } });
  }
});

worker.operation('print', (words) => {
  process.stdout.write(words);
  return words.length;
});

worker.run();
