// What every Node peer is told and what it says; bench/peers/run reads the lines.

const CHUNK = 1000;
const units = Number(process.env.UNITS ?? 20000);
const limit = Number(process.env.LIMIT ?? 60);

/** A setting of the peer: the default is the best that was found. */
const setting = (name, fallback) => Number(process.env[name] ?? fallback);

/** The payloads of the jobs, in the parts in which they are sent. */
function* chunks() {
  for (let start = 0; start < units; start += CHUNK) {
    const count = Math.min(CHUNK, units - start);
    yield Array.from({ length: count }, (_, i) => ({ i: start + i }));
  }
}

/** Starts a clock; calling the result prints a line. */
function clock(what) {
  const start = process.hrtime.bigint();
  return (count) => {
    const seconds = Number(process.hrtime.bigint() - start) / 1e9;
    console.log(`${what} ${count} ${seconds.toFixed(6)}`);
  };
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Waits until `reached` says that enough was done, or the time is up. */
async function until(reached) {
  const deadline = Date.now() + limit * 1000;
  while (!(await reached()) && Date.now() < deadline) await pause(2);
}

/** Runs a peer; whatever it leaves open ends with it. */
function main(peer) {
  peer().then(
    () => process.exit(0),
    (error) => {
      console.error(error);
      process.exit(1);
    },
  );
}

module.exports = { units, setting, chunks, clock, until, main, store: process.env.STORE };
