"""Type hints as schemas and as readers."""

import enum
import unittest
from dataclasses import dataclass, field
from typing import Any, Dict, List, Literal, Optional, Set, Tuple, TypedDict, Union

from longshore._errors import BadArguments
from longshore._hints import Shapes


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Size:
    width: int
    height: int = 10


@dataclass
class Tree:
    name: str
    children: List["Tree"] = field(default_factory=list)


@dataclass
class Even:
    number: int

    def __post_init__(self) -> None:
        if self.number % 2:
            raise ValueError("it is odd")


class Options(TypedDict, total=False):
    quality: int


class Hints(unittest.TestCase):
    def read(self, hint: Any, value: Any) -> Any:
        reader = Shapes().of(hint)[1]
        return value if reader is None else reader(value, "")

    def refused(self, hint: Any, value: Any, words: str) -> None:
        with self.assertRaises(BadArguments) as caught:
            self.read(hint, value)
        self.assertEqual(str(caught.exception), words)

    def test_plain_types_are_taken_as_they_are(self) -> None:
        for hint, value in [(int, 3), (str, "a"), (bool, True), (float, 0.5), (type(None), None)]:
            self.assertIs(self.read(hint, value), value)
        self.assertEqual(repr(self.read(float, 2)), "2.0")
        self.assertEqual(repr(self.read(int, 2.0)), "2")

    def test_true_is_no_number_and_one_is_not_true(self) -> None:
        self.refused(int, True, "arguments: true or false, where an integer is needed")
        self.refused(float, True, "arguments: true or false, where a number is needed")
        self.refused(bool, 1, "arguments: an integer, where true or false is needed")
        self.refused(int, 1.5, "arguments: a number, where an integer is needed")
        self.refused(str, b"x", "arguments: bytes, where a string is needed")

    def test_a_fault_says_where_it_is(self) -> None:
        self.refused(List[int], [1, "2"], "[1]: a string, where an integer is needed")
        self.refused(Dict[str, int], {"a": None}, "a: null, where an integer is needed")
        self.refused(List[Size], [{"width": 1}, {}], "[1].width is missing")
        self.refused(Size, {"width": 1, "depth": 2}, "depth is not known")
        self.refused(Tree, {"name": "a", "children": [{"name": 1}]},
                     "children[0].name: an integer, where a string is needed")  # fmt: skip

    def test_classes_are_made(self) -> None:
        self.assertEqual(self.read(Size, {"width": 3}), Size(3, 10))
        self.assertEqual(self.read(Colour, "red"), Colour.RED)
        leaf = {"name": "leaf"}
        self.assertEqual(self.read(Tree, {"name": "root", "children": [leaf]}), Tree("root", [Tree("leaf")]))
        self.refused(Even, {"number": 3}, "arguments: it is odd")
        self.refused(Colour, "green", "arguments: 'green' is not one of 'red', 'blue'")

    def test_collections_are_made(self) -> None:
        self.assertEqual(self.read(Tuple[int, str], [1, "a"]), (1, "a"))
        self.assertEqual(self.read(Tuple[int, ...], [1, 2, 3]), (1, 2, 3))
        self.assertEqual(self.read(Set[int], [1, 1]), {1})
        self.assertEqual(self.read(list, [1, "x"]), [1, "x"])
        self.refused(Tuple[int, str], [1], "arguments: a list, where a list of 2 is needed")

    def test_optional_and_union(self) -> None:
        self.assertIsNone(self.read(Optional[int], None))
        self.assertEqual(self.read(Union[int, str], "a"), "a")
        self.refused(Optional[int], "x", "arguments: a string, where an integer is needed")
        self.refused(Literal[1, "a"], True, "arguments: True is not one of 1, 'a'")

    def test_a_typed_dict_may_hold_more_than_it_says(self) -> None:
        self.assertEqual(self.read(Options, {"quality": 3, "other": 1}), {"quality": 3, "other": 1})
        self.refused(Options, {"quality": "x"}, "quality: a string, where an integer is needed")

    def test_what_is_not_known_passes(self) -> None:
        for hint in (Any, object, "complex".__class__.__mro__[-1], List[Any], Union[complex, int]):
            value = ["anything"]
            self.assertEqual(self.read(hint, value), value)

    def test_schemas(self) -> None:
        for hint, schema in [
            (int, {"type": "integer"}),
            (Optional[str], {"anyOf": [{"type": "string"}, {"type": "null"}]}),
            (List[bool], {"type": "array", "items": {"type": "boolean"}}),
            (Dict[str, float], {"type": "object", "additionalProperties": {"type": "number"}}),
            (Literal["a", 1], {"enum": ["a", 1]}),
            (Colour, {"enum": ["red", "blue"]}),
            (Any, {}),
            (bytes, None),
        ]:
            self.assertEqual(Shapes().schema(hint), schema)

    def test_schemas_of_classes_are_defined_once_and_may_contain_themselves(self) -> None:
        tree = {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "children": {"type": "array", "items": {"$ref": "#/$defs/Tree"}},
            },
            "required": ["name"],
            "additionalProperties": False,
        }
        self.assertEqual(Shapes().schema(Tree), {"$ref": "#/$defs/Tree", "$defs": {"Tree": tree}})


if __name__ == "__main__":
    unittest.main()
