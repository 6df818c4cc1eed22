"""A step of the batch: what may be paid. Started once and called for each claim, perhaps again after a crash, so it
changes nothing by itself."""

from longshore.worker import Worker

worker = Worker()

LIMITS = {"water": 2000, "theft": 1000, "other": 500}


@worker.operation("run", idempotent=True)
def run(step: dict):
    """The answer of the step `limit`. `steps` has the answers of the steps before it."""
    answers, row = step["steps"], step["row"]
    left = LIMITS[answers["classify"]["kind"]] - answers["history"][0]["paid"] // 10
    return {"answer": {"amount": max(0, min(row["amount"], left))}}


worker.run()
