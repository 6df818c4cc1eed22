// What every pool of Node is measured by: calls that do nothing, one at a time and WIDTH in flight.

const SECONDS = Number(process.env.SECONDS);
const WIDTH = Number(process.env.WIDTH);

const now = () => Number(process.hrtime.bigint()) / 1e3;

async function oneAtATime(call, seconds) {
  const times = [];
  const begun = now();
  for (let last = begun; last - begun < seconds * 1e6; ) {
    await call();
    const then = now();
    times.push(then - last);
    last = then;
  }
  times.sort((a, b) => a - b);
  return times[times.length >> 1];
}

async function inFlight(call, seconds) {
  let calls = 0;
  const begun = now();
  const caller = async () => {
    while (now() - begun < seconds * 1e6) {
      await call();
      calls += 1;
    }
  };
  await Promise.all(Array.from({ length: WIDTH }, caller));
  return (calls * 1e6) / (now() - begun);
}

exports.measure = async (version, call) => {
  console.log(`version ${version}`);
  if (SECONDS > 0) {
    await inFlight(call, SECONDS / 4);
    console.log(`p50 ${await oneAtATime(call, SECONDS)}`);
    console.log(`rate ${await inFlight(call, SECONDS)}`);
  }
  process.exit(0);
};
