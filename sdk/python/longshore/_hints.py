"""Type hints, used twice: for the JSON Schema that `list_operations` shows, and for a reader that
converts and checks JSON values.
"""

from __future__ import annotations

import dataclasses
import enum
import typing
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

from ._errors import BadArguments

#: Converts a JSON value to the operation's parameter. The second parameter is the value's path in the
#: arguments. `None` in place of a reader: no check.
Reader = Optional[Callable[[Any, str], Any]]

_NONE = type(None)
_NAMES = {str: "a string", bool: "true or false", int: "an integer", float: "a number", _NONE: "null"}
_SCHEMAS = {str: "string", bool: "boolean", int: "integer", float: "number", _NONE: "null"}
_UNIONS = [Union]
try:
    from types import UnionType  # `int | None`, from 3.10 on

    _UNIONS.append(UnionType)  # type: ignore[arg-type]
except ImportError:
    pass


class Shapes:
    """Reads hints; classes with fields are described once, under `$defs`."""

    def __init__(self) -> None:
        self.defs: Dict[str, Dict[str, Any]] = {}
        self._names: Dict[Any, str] = {}
        self._readers: Dict[Any, Callable[[Any, str], Any]] = {}

    def schema(self, hint: Any) -> Optional[Dict[str, Any]]:
        """The whole schema of a hint; nothing for bytes, which are no JSON."""
        if hint is bytes:
            return None
        return self.whole(self.of(hint)[0])

    def whole(self, schema: Dict[str, Any]) -> Dict[str, Any]:
        """A schema together with the definitions it refers to."""
        return {**schema, "$defs": self.defs} if self.defs else schema

    def of(self, hint: Any) -> Tuple[Dict[str, Any], Reader]:
        """The schema and the reader of a hint. Unknown hints are not checked."""
        if hint in _SCHEMAS:
            return {"type": _SCHEMAS[hint]}, _plain(hint)
        if hint is None:
            return self.of(_NONE)
        origin, of = typing.get_origin(hint), typing.get_args(hint)
        if origin in _UNIONS:
            return self._union(of)
        if origin is typing.Literal:
            return {"enum": list(of)}, _one_of(list(of))
        if hint in (list, tuple, set) or origin in (list, tuple, set):
            return self._sequence(origin or hint, of)
        if hint is dict or origin is dict:
            return self._mapping(of)
        if isinstance(hint, type) and issubclass(hint, enum.Enum):
            return {"enum": [one.value for one in hint]}, _member(hint)
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            return self._class(hint, _dataclass_fields(hint), hint)
        if _is_typeddict(hint):
            return self._class(hint, _typeddict_fields(hint), None)
        return {}, None

    def _union(self, of: Tuple[Any, ...]) -> Tuple[Dict[str, Any], Reader]:
        both = [self.of(one) for one in of]
        schemas, readers = [schema for schema, _ in both], [reader for _, reader in both]
        if any(reader is None for reader in readers):
            return {"anyOf": schemas}, None

        def read(value: Any, where: str) -> Any:
            wrong = []
            for reader in readers:
                try:
                    return reader(value, where)  # type: ignore[misc]
                except BadArguments as error:
                    wrong.append(str(error))
            # For `Optional[X]`, the error of X is the helpful one.
            raise BadArguments(wrong[0] if len(wrong) == 2 and _NONE in of else "; or ".join(wrong))

        return {"anyOf": schemas}, read

    def _sequence(self, kind: Any, of: Tuple[Any, ...]) -> Tuple[Dict[str, Any], Reader]:
        if kind is tuple and of and of[-1] is not Ellipsis:
            return self._tuple(of)
        items, reader = self.of(of[0]) if of else ({}, None)
        schema = {"type": "array", "items": items} if items else {"type": "array"}

        def read(value: Any, where: str) -> Any:
            if type(value) is not list:
                raise wrong(value, where, "a list")
            if reader is not None:
                value = [reader(one, f"{where}[{at}]") for at, one in enumerate(value)]
            return value if kind is list else kind(value)

        return schema, read

    def _tuple(self, of: Tuple[Any, ...]) -> Tuple[Dict[str, Any], Reader]:
        both = [self.of(one) for one in of]
        schema = {
            "type": "array",
            "prefixItems": [schema for schema, _ in both],
            "minItems": len(both),
            "maxItems": len(both),
        }

        def read(value: Any, where: str) -> Any:
            if type(value) is not list or len(value) != len(both):
                raise wrong(value, where, f"a list of {len(both)}")
            pairs = enumerate(zip(value, both))
            return tuple(r(one, f"{where}[{at}]") if r else one for at, (one, (_, r)) in pairs)

        return schema, read

    def _mapping(self, of: Tuple[Any, ...]) -> Tuple[Dict[str, Any], Reader]:
        values, reader = self.of(of[1]) if of else ({}, None)
        schema: Dict[str, Any] = {"type": "object"}
        if values:
            schema["additionalProperties"] = values

        def read(value: Any, where: str) -> Any:
            if type(value) is not dict:
                raise wrong(value, where, "an object")
            if reader is None:
                return value
            return {key: reader(one, inside(where, key)) for key, one in value.items()}

        return schema, read

    def _class(
        self, hint: Any, fields: List["Field"], make: Optional[Callable[..., Any]]
    ) -> Tuple[Dict[str, Any], Reader]:
        """A class with fields. It may contain itself, so its name is known before its fields are."""
        if hint not in self._names:
            name = hint.__name__
            while name in self.defs:  # another class of the same name
                name += "_"
            self._names[hint], self.defs[name] = name, {}
            self.defs[name], reader = self.fields(fields, closed=make is not None)
            self._readers[hint] = reader if make is None else _maker(make, reader)
        schema = {"$ref": f"#/$defs/{self._names[hint]}"}
        return schema, lambda value, where: self._readers[hint](value, where)

    def fields(
        self, fields: List["Field"], closed: bool
    ) -> Tuple[Dict[str, Any], Callable[[Any, str], Dict[str, Any]]]:
        """An object with these fields; `closed`: an unknown field is an error."""
        both = {field.name: self.of(field.hint) for field in fields}
        required = [field.name for field in fields if field.required]
        schema: Dict[str, Any] = {
            "type": "object",
            "properties": {name: schema for name, (schema, _) in both.items()},
        }
        if required:
            schema["required"] = required
        if closed:
            schema["additionalProperties"] = False

        def read(value: Any, where: str) -> Dict[str, Any]:
            if type(value) is not dict:
                raise wrong(value, where, "an object")
            for name in required:
                if name not in value:
                    raise BadArguments(f"{inside(where, name)} is missing")
            made = {}
            for name, one in value.items():
                if name not in both:
                    if closed:
                        raise BadArguments(f"{inside(where, name)} is not known")
                    made[name] = one
                    continue
                reader = both[name][1]
                made[name] = one if reader is None else reader(one, inside(where, name))
            return made

        return schema, read


class Field(typing.NamedTuple):
    """A field of a class, or a parameter of a function."""

    name: str
    hint: Any
    required: bool


def wrong(value: Any, where: str, wanted: str) -> BadArguments:
    """A value of the wrong type."""
    if isinstance(value, bytes):
        is_a = "bytes"
    else:
        is_a = {list: "a list", dict: "an object", **_NAMES}.get(type(value), "something else")
    return BadArguments(f"{where or 'arguments'}: {is_a}, where {wanted} is needed")


def inside(where: str, name: str) -> str:
    """The path of a field."""
    return f"{where}.{name}" if where else name


def _maker(
    make: Callable[..., Any], fields: Callable[[Any, str], Dict[str, Any]]
) -> Callable[[Any, str], Any]:
    """Errors that the class itself raises count as bad arguments, too."""

    def read(value: Any, where: str) -> Any:
        given = fields(value, where)
        try:
            return make(**given)
        except (TypeError, ValueError) as error:
            raise BadArguments(f"{where or 'arguments'}: {error}") from error

    return read


def _plain(kind: type) -> Reader:
    def read(value: Any, where: str) -> Any:
        if type(value) is kind:
            return value
        if kind is float and type(value) is int:
            return float(value)
        if kind is int and type(value) is float and value.is_integer():
            return int(value)
        raise wrong(value, where, _NAMES[kind])

    return read


def _one_of(allowed: List[Any]) -> Reader:
    def read(value: Any, where: str) -> Any:
        if not any(value == one and type(value) is type(one) for one in allowed):
            names = ", ".join(map(repr, allowed))
            raise BadArguments(f"{where or 'arguments'}: {value!r} is not one of {names}")
        return value

    return read


def _member(kind: Any) -> Reader:
    allowed = _one_of([one.value for one in kind])

    def read(value: Any, where: str) -> Any:
        return kind(allowed(value, where))  # type: ignore[misc]

    return read


def _dataclass_fields(kind: Any) -> List[Field]:
    hints = typing.get_type_hints(kind)
    missing = dataclasses.MISSING
    return [
        Field(one.name, hints[one.name], one.default is missing and one.default_factory is missing)
        for one in dataclasses.fields(kind)
        if one.init
    ]


def _typeddict_fields(kind: Any) -> List[Field]:
    hints = typing.get_type_hints(kind)
    return [Field(name, hint, name in kind.__required_keys__) for name, hint in hints.items()]


def _is_typeddict(hint: Any) -> bool:
    return isinstance(hint, type) and hasattr(hint, "__required_keys__")
