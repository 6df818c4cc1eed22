"""Runs a script many times on HyperQueue's LocalCluster, and prints how many seconds it took: up to one more than it needs, since its client looks once a second.

"""
import os
import sys
import time

from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig

script, count, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
# Started before the clock: only running counts.
with LocalCluster() as cluster:
    cluster.start_worker(WorkerConfig(cores=2))
    client = cluster.client()
    job = Job(max_fails=0)
    for _ in range(count):
        job.program(["/bin/bash", script], stdout=None, stderr=None)
    begin = time.monotonic()
    submitted = client.submit(job)
    client.wait_for_jobs([submitted])
    print(time.monotonic() - begin)
