// pg-boss: insert by the thousand, then loops of fetch and complete. Its work() looks for jobs at
// most twice a second, so this is the fastest way through its public interface.

const { PgBoss } = require("pg-boss");
const { chunks, clock, main, setting, store, units } = require("./report.cjs");

const batchSize = setting("BATCH", 1000);
const loops = setting("LOOPS", 4);

/** Takes and completes jobs until there are none; returns how many. */
async function loop(boss) {
  let done = 0;
  for (;;) {
    const jobs = await boss.fetch("noop", { batchSize });
    if (jobs.length === 0) return done;
    await boss.complete("noop", jobs.map((job) => job.id));
    done += jobs.length;
  }
}

main(async () => {
  const boss = new PgBoss({ connectionString: store, max: setting("CONNECTIONS", 12) });
  boss.on("error", console.error);
  await boss.start();
  await boss.createQueue("noop");
  const sent = clock("send");
  for (const payloads of chunks()) {
    await boss.insert("noop", payloads.map((data) => ({ data })));
  }
  sent(units);
  const processed = clock("process");
  const done = await Promise.all(Array.from({ length: loops }, () => loop(boss)));
  processed(done.reduce((sum, count) => sum + count, 0));
  await boss.stop({ graceful: false });
});
