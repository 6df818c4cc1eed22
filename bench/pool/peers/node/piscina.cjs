// piscina: two threads.

const path = require('node:path');
const { Piscina } = require('piscina');
const { measure } = require('./measure.cjs');

const pool = new Piscina({
  filename: path.join(__dirname, 'nothing.cjs'),
  minThreads: 2,
  maxThreads: 2,
});
measure(Piscina.version, () => pool.run());
