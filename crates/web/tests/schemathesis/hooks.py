"""What schemathesis cannot know of our API from its document."""

import json

import schemathesis


@schemathesis.serializer("application/x-ndjson")
def lines(_context, value):
    """A stream of units: one line, or one for each of a list."""
    rows = value if isinstance(value, list) else [value]
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


@schemathesis.hook
def before_call(_context, case, _kwargs):
    """A cursor is what an earlier answer gave, and no text that anybody makes up is one; who may wait for
    minutes need not. Only where the request is meant to be good: bad ones go out as they are."""
    if case.meta is None or not case.meta.generation.mode.is_positive or not case.query:
        return
    case.query.pop("after", None)
    for name in ["wait", "room"]:
        if name in case.query:
            case.query[name] = min(int(case.query[name]), 1)
