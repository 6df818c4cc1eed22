"""Our worker: an operation that does nothing, without the mark that lets answers wait for each other."""

from longshore.worker import Worker

worker = Worker()


@worker.operation("nothing")
def nothing(_: None) -> None:
    """Does nothing."""


worker.run()
