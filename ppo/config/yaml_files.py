"""YAML as far as JSON goes: what a file of flags may hold."""

import re
from collections.abc import Callable
from typing import Any, ClassVar

import yaml

TAG = "tag:yaml.org,2002:"
# As YAML 1.2's core schema (section 10.3.2) resolves plain words. PyYAML's own rules, of YAML 1.1,
# would make on and no booleans, 1:30 a number in base 60, 010 the number 8, and 3e-4 a text.
RESOLVED = {
    "null": r"(null|Null|NULL|~|)$",
    "bool": r"(true|True|TRUE|false|False|FALSE)$",
    "int": r"[-+]?(0|[1-9]\d*)$",
    "float": r"[-+]?(\.\d+|(0|[1-9]\d*)(\.\d*)?)([eE][-+]?\d+)?$",
}
KINDS = ("null", "bool", "int", "float", "str", "seq")
MakeDict = Callable[[list[tuple[Any, Any]]], dict[str, Any]]


class Loader(yaml.SafeLoader):
    """A loader that makes nothing but what JSON holds, and refuses what would make it large."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}
    yaml_constructors: ClassVar[dict[str | None, Any]] = {
        name: yaml.SafeLoader.yaml_constructors[name]
        for name in (None, *(TAG + kind for kind in KINDS))
    }

    def __init__(self, text: str, make_dict: MakeDict) -> None:
        super().__init__(text)
        self.make_dict = make_dict

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):  # a few lines of these may stand for gigabytes
            raise ValueError(f"line {self.peek_event().start_mark.line + 1} has an alias (*)")
        return super().compose_node(parent, index)

    def construct_pairs(self, node: Any, deep: bool = True) -> dict[str, Any]:
        return self.make_dict(super().construct_pairs(node, deep=True))


for kind, pattern in RESOLVED.items():
    Loader.add_implicit_resolver(TAG + kind, re.compile(pattern), None)
Loader.add_constructor(TAG + "map", Loader.construct_pairs)


def parse_yaml(text: str, object_pairs_hook: MakeDict) -> Any:
    """Return the content of YAML, as json.loads does that of JSON. Raises ValueError if it is
    damaged or holds more than JSON could, RecursionError if it is nested too deep."""
    try:
        return Loader(text, object_pairs_hook).get_single_data()
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else "?"
        raise ValueError(f"line {line}: {error.problem}") from error
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
