// BullMQ on Redis: addBulk by the thousand, one worker.

const { Queue, Worker } = require("bullmq");
const { chunks, clock, main, setting, store, units, until } = require("./report.cjs");

const opts = { removeOnComplete: true };

main(async () => {
  const { hostname: host, port } = new URL(store);
  const connection = { host, port: Number(port), maxRetriesPerRequest: null };
  const queue = new Queue("noop", { connection });
  await queue.waitUntilReady();
  const sent = clock("send");
  for (const payloads of chunks()) {
    await queue.addBulk(payloads.map((data) => ({ name: "noop", data, opts })));
  }
  sent(units);
  let done = 0;
  const processed = clock("process");
  const concurrency = setting("CONCURRENCY", 50);
  const worker = new Worker("noop", async () => {}, { connection, concurrency });
  worker.on("error", console.error);
  // Said once the completion is stored.
  worker.on("completed", () => {
    done += 1;
  });
  await until(async () => done >= units);
  processed(done);
  await worker.close(true);
  await queue.close();
});
