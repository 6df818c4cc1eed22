"""Checks that a program is a good worker: ``python3 -m longshore.check -- COMMAND…``.

It plays the pool of docs/worker-protocol.md, for workers in any language. It shares no code with the SDK,
so that one mistake cannot hide in both.
"""
