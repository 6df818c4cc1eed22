// graphile-worker: addJobs by the thousand, a local queue of 2000 and completions in batches.

const { Logger, makeWorkerUtils, run, runMigrations } = require("graphile-worker");
const { Pool } = require("pg");
const { chunks, clock, main, setting, store, units, until } = require("./report.cjs");

process.env.NO_LOG_SUCCESS = "1";
const concurrentJobs = setting("CONCURRENCY", 100);
const worker = {
  concurrentJobs,
  localQueue: { size: setting("LOCAL", 2000) },
  completeJobBatchDelay: setting("DELAY_MS", 0),
  failJobBatchDelay: 0,
};

async function send(pgPool) {
  const utils = await makeWorkerUtils({ pgPool });
  const sent = clock("send");
  for (const payloads of chunks()) {
    await utils.addJobs(payloads.map((payload) => ({ identifier: "noop", payload })));
  }
  sent(units);
  await utils.release();
}

/** Jobs whose completion is not yet stored: it deletes them. */
async function left(pool) {
  const { rows } = await pool.query(
    "SELECT count(*)::int AS left FROM graphile_worker._private_jobs",
  );
  return rows[0].left;
}

main(async () => {
  const pgPool = new Pool({ connectionString: store, max: concurrentJobs + 2 });
  await runMigrations({ pgPool });
  await send(pgPool);
  let ran = 0;
  const noop = async () => {
    ran += 1;
  };
  const logger = new Logger(() => () => {});
  const processed = clock("process");
  const runner = await run({ pgPool, logger, preset: { worker }, taskList: { noop } });
  await until(async () => ran >= units && (await left(pgPool)) === 0);
  processed(units - (await left(pgPool)));
  await runner.stop();
});
