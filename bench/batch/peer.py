"""The same review as a straightforward script would do it: a pool of threads, one commit per row.

python3 peer.py DATABASE THREADS prints how many rows it reviewed, and in how many seconds.

One connection for all threads, under one lock: of three ways that were tried it is the fastest. A
connection per thread for reading makes threads fight for the interpreter's lock; one per thread for
writing too, with a busy timeout, makes them sleep blindly whenever the file is locked.
"""

import json
import sqlite3
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

ANSWER = '{"verdict":"APPROVE","reason":"Quantity and price are as usual.","confidence":0.93}'


class Review:
    def __init__(self, path):
        self.lock = threading.Lock()
        self.db = sqlite3.connect(path, check_same_thread=False)
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute("PRAGMA synchronous = FULL")

    def candidates(self):
        rows = self.db.execute("SELECT line_id FROM line WHERE verdict IS NULL ORDER BY line_id")
        return [line_id for (line_id,) in rows]

    def read(self, line_id):
        sql = "SELECT item, vendor, quantity, unit_price, note FROM line WHERE line_id = ?"
        with self.lock:
            return self.db.execute(sql, (line_id,)).fetchone()

    def write(self, line_id, answer):
        worker = threading.current_thread().name
        values = (answer["verdict"], answer["reason"], answer["confidence"], worker, line_id)
        sql = (
            "UPDATE line SET verdict = ?, reason = ?, confidence = ?, reviewed_by = ?"
            " WHERE line_id = ?"
        )
        with self.lock:
            self.db.execute(sql, values)
            self.db.commit()

    def run(self, line_id):
        item, vendor, quantity, unit_price, note = self.read(line_id)
        prompt = (
            f"Review line {line_id} of a purchase order before it goes to the vendor.\n"
            f"Item: {item}\nVendor: {vendor}\nQuantity: {quantity} at {unit_price} each\n"
            + (f"Note: {note}\n" if note is not None else "")
            + "Answer with one JSON object and nothing else: `verdict` (APPROVE, QUERY or REJECT),"
            " `reason` (one sentence) and `confidence` (0 to 1).\n"
        )
        self.write(line_id, json.loads(ask(prompt)))


def ask(prompt):
    """The instant model."""
    return ANSWER if prompt else ""


def main():
    path, threads = sys.argv[1], int(sys.argv[2])
    review = Review(path)
    with ThreadPoolExecutor(max_workers=threads) as pool:
        began = time.monotonic()
        rows = sum(1 for _ in pool.map(review.run, review.candidates()))
        print(rows, time.monotonic() - began)


if __name__ == "__main__":
    main()
