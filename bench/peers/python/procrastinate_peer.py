"""Procrastinate: batch_defer by the thousand, one worker. It takes and completes jobs one by one."""

import asyncio
import logging

from procrastinate import App, PsycopgConnector

from report import LIMIT, STORE, UNITS, Clock, chunks, line, setting

CONNECTIONS = setting("CONNECTIONS", 20)
CONCURRENCY = setting("CONCURRENCY", 50)

connector = PsycopgConnector(conninfo=STORE, min_size=4, max_size=CONNECTIONS)
app = App(connector=connector)


@app.task(name="noop")
async def noop(i):
    pass


async def send():
    clock = Clock()
    for numbers in chunks():
        await noop.batch_defer_async(*[{"i": i} for i in numbers])
    line("send", UNITS, clock.seconds())


async def process():
    clock = Clock()
    # `wait=False`: it ends when nothing is left. Told to stop early, it finishes what it runs.
    worker = app.run_worker_async(
        concurrency=CONCURRENCY, wait=False, install_signal_handlers=False, listen_notify=False
    )
    try:
        await asyncio.wait_for(worker, LIMIT)
    except asyncio.TimeoutError:
        pass
    seconds = clock.seconds()
    done = "SELECT count(*) AS done FROM procrastinate_jobs WHERE status = 'succeeded'"
    line("process", (await connector.execute_query_one_async(done))["done"], seconds)


async def main():
    logging.disable(logging.WARNING)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        await send()
        await process()


asyncio.run(main())
