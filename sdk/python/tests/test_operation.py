"""How a call's arguments fill a function's parameters."""

import unittest
from typing import Any, Callable

from longshore._call import Call
from longshore._errors import BadArguments, OperationError, describe
from longshore._operation import operation


def run(function: Callable[..., Any], arguments: Any, state: Any = "state") -> Any:
    made = operation(function, "x", None, None, False)
    return made.run(state, Call(1, "x") if made.wants_call else None, arguments)


class Filling(unittest.TestCase):
    def test_a_single_parameter_takes_the_arguments_whole(self) -> None:
        def whole(given: Any) -> Any:
            return given

        for arguments in (None, 21, "a", [1, 2], {"given": 1}, b"bytes"):
            self.assertEqual(run(whole, arguments), arguments)

    def test_several_parameters_take_the_fields_of_an_object(self) -> None:
        def fields(a: int, b: str = "b") -> Any:
            return a, b

        self.assertEqual(run(fields, {"a": 1}), (1, "b"))
        self.assertEqual(run(fields, {"b": "c", "a": 2}), (2, "c"))
        for wrong in (None, [], 3, {}, {"a": 1, "c": 2}, {"a": "1"}, b""):
            with self.assertRaises(BadArguments):
                run(fields, wrong)

    def test_a_keyword_only_parameter_is_a_field_too(self) -> None:
        def one(*, a: int) -> int:
            return a

        self.assertEqual(run(one, {"a": 1}), 1)
        with self.assertRaises(BadArguments):
            run(one, 1)

    def test_call_and_state_are_given_by_name_wherever_they_stand(self) -> None:
        def first(call: Call, state: str, given: int) -> Any:
            return call.operation, state, given

        def last(given: int, state: str, call: Call) -> Any:
            return call.operation, state, given

        def only(given: int, /, call: Call) -> Any:
            return call.operation, "state", given

        for function in (first, last, only):
            self.assertEqual(run(function, 5), ("x", "state", 5))

    def test_a_default_stands_in_for_null(self) -> None:
        def alone(given: int = 7) -> int:
            return given

        def beside(state: str, given: int = 7) -> int:
            return given

        for function in (alone, beside):
            self.assertEqual((run(function, None), run(function, 8)), (7, 8))

    def test_open_fields(self) -> None:
        def any_fields(a: int, **more: Any) -> Any:
            return a, more

        self.assertEqual(run(any_fields, {"a": 1, "b": 2}), (1, {"b": 2}))

    def test_no_parameters_take_nothing(self) -> None:
        def nothing() -> str:
            return "done"

        self.assertEqual((run(nothing, None), run(nothing, {})), ("done", "done"))
        with self.assertRaises(BadArguments):
            run(nothing, 1)

    def test_bytes_are_not_json_and_json_is_not_bytes(self) -> None:
        def takes_bytes(given: bytes) -> int:
            return len(given)

        self.assertEqual(run(takes_bytes, b"abc"), 3)
        with self.assertRaises(BadArguments):
            run(takes_bytes, "abc")

    def test_what_cannot_be_filled_is_refused_when_it_is_added(self) -> None:
        def stars(*given: int) -> None: ...

        async def later(given: int) -> None: ...

        for function in (stars, later):
            with self.assertRaises(TypeError):
                operation(function, "x", None, None, False)

    def test_how_it_is_listed(self) -> None:
        def shown(a: int, call: Call, b: str = "") -> float:
            """What it does,
            in two lines.

            And more.
            """
            return 0.0

        about = operation(shown, "shown", None, 1.5, True).about
        schema = {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
            "required": ["a"],
            "additionalProperties": False,
        }
        self.assertEqual(
            about,
            {
                "name": "shown",
                "description": "What it does, in two lines.",
                "timeout_ms": 1500,
                "idempotent": True,
                "arguments": schema,
                "result": {"type": "number"},
            },
        )


class Describing(unittest.TestCase):
    def caught(self, act: Callable[[], Any]) -> Any:
        try:
            act()
        except Exception as error:
            return describe(error)

    def test_causes_are_told_outermost_first(self) -> None:
        def act() -> None:
            try:
                try:
                    {}["key"]  # type: ignore[index]
                except KeyError as inner:
                    raise ValueError("middle") from inner
            except ValueError:
                raise RuntimeError("outer")

        about = self.caught(act)
        self.assertEqual((about["kind"], about["message"]), ("handler", "RuntimeError: outer"))
        self.assertEqual(about["chain"], ["ValueError: middle", "KeyError: 'key'"])
        self.assertIn("RuntimeError: outer", about["data"]["traceback"])

    def test_what_was_put_away_is_not_told(self) -> None:
        def act() -> None:
            try:
                raise KeyError("secret")
            except KeyError:
                raise OperationError("no", data={"code": 7}) from None

        self.assertEqual(self.caught(act), {"kind": "handler", "message": "no", "data": {"code": 7}})

    def test_causes_that_go_in_circles_end(self) -> None:
        one, other = ValueError("one"), ValueError("other")
        one.__cause__, other.__cause__ = other, one
        self.assertEqual(describe(one)["chain"], ["ValueError: other"])


if __name__ == "__main__":
    unittest.main()
