"""What the OpenAPI document does not tell schemathesis."""

import json

import schemathesis


@schemathesis.serializer("application/x-ndjson")
def lines(_context, value):
    """NDJSON: one line, or one per item of a list."""
    rows = value if isinstance(value, list) else [value]
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


@schemathesis.hook
def before_call(_context, case, _kwargs):
    """Removes generated cursors, since only cursors of earlier responses are valid, and shortens waits.
    Only for requests that are meant to be valid."""
    if case.meta is None or not case.meta.generation.mode.is_positive or not case.query:
        return
    case.query.pop("after", None)
    for name in ["wait", "room"]:
        if name in case.query:
            case.query[name] = min(int(case.query[name]), 1)
