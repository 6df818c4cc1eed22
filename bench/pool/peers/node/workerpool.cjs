// workerpool: two workers, threads or processes, as it is told.

const path = require('node:path');
const workerpool = require('workerpool');
const { measure } = require('./measure.cjs');

const pool = workerpool.pool(path.join(__dirname, 'workerpool-worker.cjs'), {
  minWorkers: 2,
  maxWorkers: 2,
  workerType: process.argv[2],
});
const folder = path.join(path.dirname(require.resolve('workerpool')), '..');
measure(require(path.join(folder, 'package.json')).version, () => pool.exec('nothing', []));
