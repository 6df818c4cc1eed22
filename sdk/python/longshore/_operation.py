"""Functions as operations: which parameters they have, and how a call's arguments fill them."""

from __future__ import annotations

import inspect
import typing
from typing import Any, Callable, Dict, List, Optional

from ._call import Call
from ._errors import BadArguments
from ._hints import Field, Reader, Shapes, wrong

#: Performs a call: state, call (if wanted) and arguments in, result out.
Run = Callable[[Any, Optional[Call], Any], Any]


class Operation:
    """An operation."""

    __slots__ = ("about", "run", "wants_call", "raw", "idempotent", "quick")

    def __init__(self, about: Dict[str, Any], run: Run, wants_call: bool, raw: bool = False) -> None:
        self.about = about
        self.run = run
        self.wants_call = wants_call
        #: Takes the raw arguments, and returns a result that needs no encoding.
        self.raw = raw
        self.idempotent = bool(about.get("idempotent"))
        #: Whether the last call was very fast.
        self.quick = False


def built_in() -> List[Operation]:
    """The built-in operations, which pools use to check a worker."""
    noop = {"name": "noop", "description": "Does nothing.", "idempotent": True}
    echo = {"name": "echo", "description": "Gives back its arguments.", "idempotent": True}
    return [
        Operation(noop, lambda state, call, arguments: None, False, raw=True),
        Operation(echo, lambda state, call, arguments: arguments, False, raw=True),
    ]


def operation(
    function: Callable[..., Any],
    name: str,
    description: Optional[str],
    timeout: Optional[float],
    idempotent: bool,
) -> Operation:
    """An operation made from a function."""
    if inspect.iscoroutinefunction(function):
        raise TypeError(f"operation {name}: async functions are not called; use asyncio.run inside")
    parameters = Parameters(function, name)
    about: Dict[str, Any] = {"name": name}
    if description is None:
        description = (inspect.getdoc(function) or "").partition("\n\n")[0].replace("\n", " ")
    if description:
        about["description"] = description
    if timeout is not None:
        about["timeout_ms"] = round(timeout * 1000)
    if idempotent:
        about["idempotent"] = True
    if parameters.schema is not None:
        about["arguments"] = parameters.schema
    if parameters.result is not None:
        about["result"] = parameters.result
    return Operation(about, parameters.runner(function), parameters.call is not None)


class Parameters:
    """The parameters of a function: ``call`` and ``state`` by name; of the others, a single one takes
    the arguments whole, and several (or keyword-only ones) take the fields of an object.
    """

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        hints = typing.get_type_hints(function)
        self.call: Optional[str] = None
        self.state: Optional[str] = None
        self.open = False
        others: List[inspect.Parameter] = []
        for one in inspect.signature(function).parameters.values():
            if one.kind is one.VAR_POSITIONAL:
                raise TypeError(f"operation {name}: *{one.name} cannot be filled")
            if one.kind is one.VAR_KEYWORD:
                self.open = True
            elif one.name == "call" or hints.get(one.name) is Call:
                self.call = one.name
            elif one.name == "state":
                self.state = one.name
            else:
                others.append(one)
        self._shape(others, hints)

    def _shape(self, others: List[inspect.Parameter], hints: Dict[str, Any]) -> None:
        self.whole: Optional[inspect.Parameter] = None
        self.schema: Optional[Dict[str, Any]] = None
        self.read: Reader = None
        shapes = Shapes()
        if len(others) == 1 and others[0].kind is not inspect.Parameter.KEYWORD_ONLY and not self.open:
            self.whole = others[0]
            hint = hints.get(self.whole.name, Any)
            if hint is bytes:
                self.read = _only_bytes
            else:
                schema, self.read = shapes.of(hint)
                self.schema = shapes.whole(schema) or None
        elif others or self.open:
            empty = inspect.Parameter.empty
            given = [Field(p.name, hints.get(p.name, Any), p.default is empty) for p in others]
            schema, self.read = shapes.fields(given, closed=not self.open)
            self.schema = shapes.whole(schema)
        else:
            self.schema, self.read = {"type": "null"}, _nothing
        self.result = Shapes().schema(hints["return"]) if "return" in hints else None

    def runner(self, function: Callable[..., Any]) -> Run:
        """Returns a function that fills the parameters and calls the operation."""
        read, extras = self.read, self._extras()
        if self.whole is None:
            fields = read or _nothing

            def run_fields(state: Any, call: Optional[Call], arguments: Any) -> Any:
                return function(**fields(arguments, ""), **extras(state, call))

            return run_fields
        has_default = self.whole.default is not inspect.Parameter.empty
        positional = self.whole.kind is inspect.Parameter.POSITIONAL_ONLY
        if (self.call or self.state) is None or positional:
            # The usual case, without a dictionary in between where it can be.
            some = self.call is not None or self.state is not None

            def run_first(state: Any, call: Optional[Call], arguments: Any) -> Any:
                more = extras(state, call) if some else {}
                if arguments is None and has_default:
                    return function(**more)
                return function(arguments if read is None else read(arguments, ""), **more)

            return run_first
        name = self.whole.name

        def run_named(state: Any, call: Optional[Call], arguments: Any) -> Any:
            given = extras(state, call)
            if arguments is not None or not has_default:
                given[name] = arguments if read is None else read(arguments, "")
            return function(**given)

        return run_named

    def _extras(self) -> Callable[[Any, Optional[Call]], Dict[str, Any]]:
        call_name, state_name = self.call, self.state

        def extras(state: Any, call: Optional[Call]) -> Dict[str, Any]:
            given: Dict[str, Any] = {}
            if call_name is not None:
                given[call_name] = call
            if state_name is not None:
                given[state_name] = state
            return given

        return extras


def _only_bytes(value: Any, where: str) -> Any:
    if not isinstance(value, bytes):
        raise BadArguments("JSON, where bytes are needed")
    return value


def _nothing(value: Any, where: str) -> Dict[str, Any]:
    if value is not None and value != {}:
        raise wrong(value, where, "nothing")
    return {}
