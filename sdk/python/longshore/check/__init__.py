"""Checks that a program follows the worker protocol: ``python3 -m longshore.check -- COMMAND…``.

It acts as the pool of docs/worker-protocol.md, for workers in any language. It shares no code with the SDK,
so that one mistake cannot hide in both.
"""
