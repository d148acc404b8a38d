"""Write ppo/config/flag_types.py, by which editors know the flags: python -m tests.flag_types"""

from collections.abc import Iterable
from dataclasses import Field, fields
from textwrap import indent, wrap
from typing import Any, get_origin

from ppo.config.config import Config
from ppo.config.flags import allowed_values
from tests.running import ROOT

MODULE = ROOT / "ppo" / "config" / "flag_types.py"
HEAD = '''"""Flags as keyword arguments, for editors and type checkers.

Written by python -m tests.flag_types, from the fields of ppo.config.config.Config.
"""

from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, Literal

from typing_extensions import TypedDict

Text = str | PathLike[str]
Schedule = Callable[[float], float]  # of the share of the run that is left
'''
OPTIONS = {option.name: option for option in fields(Config)}
# Which the functions of ppo take as parameters of their own.
NAMED = ("env_name", "model", "eval_env", "learner", "callback")
COMMON = [name for name in OPTIONS if name not in NAMED]
# Base, description and flags of each class.
CLASSES: dict[str, tuple[str, str, Iterable[str]]] = {
    "CommonFlags": ("TypedDict", "Flags that all functions take by name.", COMMON),
    "LoadPolicyFlags": ("CommonFlags", "Flags of ppo.load_policy.", ["eval_env"]),
    "TrainFlags": ("CommonFlags", "Flags of ppo.train.", ["model"]),
    "ConfigFlags": (
        "TrainFlags",
        "Flags of ppo.tuned_config.",
        ["eval_env", "learner", "callback"],
    ),
}


def annotation(option: Field[Any]) -> str:
    """Return the type of the values that a flag takes from Python."""
    kind, words, metadata = allowed_values(option)
    if get_origin(option.type) is list:
        return "str | Sequence[str]"
    names = {str: "Text", Any: "dict[str, Any] | list[dict[str, Any]] | str"}
    parts = [names.get(kind, kind.__name__)] if kind else []
    if kind is not str and (literals := [f'"{word}"' for word, x in words.items() if x]):
        parts.append(f"Literal[{', '.join(literals)}]")
    if metadata["schedules"]:
        parts += ["str", "Schedule"]
    if "none" in words and words["none"] is None:
        parts.append("None")
    return " | ".join(dict.fromkeys(parts))


def source() -> str:
    """Return the text of the module."""
    text = HEAD
    for name, (base, about, names) in CLASSES.items():
        text += f'\n\nclass {name}({base}, total=False):\n    """{about}"""\n'
        for flag in names:
            option = OPTIONS[flag]
            help = "\n".join(wrap(f'"""{option.metadata["help"]}"""', 96))
            text += f"\n    {flag}: {annotation(option)}\n{indent(help, '    ')}\n"
    return text


if __name__ == "__main__":
    MODULE.write_text(source())
