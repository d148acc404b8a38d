"""Import code that flags name, and packages that may not be installed."""

import ast
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from inspect import Parameter, signature
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from ppo.errors import ConfigError, PPOError, suggest

T = TypeVar("T")
# Modules that import what the user names.
IMPORTERS = (__name__, "ppo.envs.worker_process")
RUN_FILES = ("config.json", "metrics.csv", "checkpoints/last.safetensors")


def working_folder() -> Path:
    """Return the folder that the process is in. Raises ConfigError if it has been removed."""
    try:
        return Path.cwd()
    except OSError as error:
        raise ConfigError(
            f"the working folder cannot be found ({error.strerror}): change to one that exists"
        ) from error


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Turn an ImportError in this context into a ConfigError that names an extra of setup.cfg."""
    try:
        yield
    except ImportError as error:
        clone = Path(__file__).parents[2]
        what = f"'ppo-trainer[{name}]'"
        if (clone / "setup.cfg").exists():
            what = f"-e '{'.' if clone == Path.cwd() else clone}[{name}]'"
        raise ConfigError(f"{error}: pip install {what}") from error


def import_named(flag: str, path: str, error_class: type[Exception] = ConfigError) -> Any:
    """Return what a flag names as module:Name or file.py:Name.

    Raises error_class if there is no such module or name, or if its code raises ImportError,
    AttributeError, ValueError, TypeError or SystemExit; other exceptions pass through."""
    module, _, name = path.rpartition(":")
    try:
        imported = import_code(module)
        if not hasattr(imported, name):
            hint = suggest(name, dir(imported), "nor one like it")
            raise ImportError(f"{module} has no {name}, {hint}")
        return getattr(imported, name)
    except PPOError:
        raise
    except (ImportError, AttributeError, ValueError, TypeError, SystemExit) as error:
        raise error_class(
            f"--{flag}={path} cannot be imported ({type(error).__name__}: {error}): "
            f"give module:Name or file.py:Name{hidden_module(module)}"
        ) from error


def import_class(flag: str, path: str, base: type[T]) -> type[T]:
    """Return a class that a flag names. Raises ConfigError if it is not derived from base, and as
    import_named does."""
    own = import_named(flag, path)
    if not isinstance(own, type) or not issubclass(own, base):
        raise ConfigError(f"--{flag}={path} must be a class derived from ppo.{base.__name__}")
    return own


def parse_call(text: str) -> tuple[str, list[Any], dict[str, Any]]:
    """Return the import path, the arguments and the keyword arguments of a text such as
    "module:Class(1, name=2)". Raises ValueError unless all arguments are Python literals."""
    path, _, arguments = text.partition("(")
    reason = "they are no literals"
    try:
        call: Any = ast.parse(f"call({arguments or ')'}", mode="eval").body
        compile(ast.Expression(call), "", "eval")  # refuses a name that is given twice
        options = {x.arg: ast.literal_eval(x.value) for x in call.keywords}
        if isinstance(call.func, ast.Name) and None not in options:
            return path, [*map(ast.literal_eval, call.args)], options
    except SyntaxError as error:
        reason = error.msg
    except (AttributeError, ValueError, RecursionError, MemoryError):
        pass
    raise ValueError(f"give Python literals as arguments, such as (size=3, path='x'); {reason}")


def check_arguments(
    flag: str,
    text: str,
    make: Callable[..., Any],
    given: dict[str, Any],
    *ours: Any,
    **named: Any,
) -> None:
    """Raise ConfigError if what a flag names does not take the keyword arguments given in the flag,
    beside those of the trainer. If it does not say what it takes, as code in C, pass."""
    try:
        takes = signature(make)
    except (TypeError, ValueError):
        return
    try:
        takes.bind(*ours, **named, **given)
    except TypeError as error:
        kinds = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
        names = [name for name, x in takes.parameters.items() if x.kind in kinds]
        names = [name for name in names[len(ours) :] if name not in named]
        known = ", ".join(names) or "no arguments"
        raise ConfigError(f"--{flag}={text}: {error}; it takes {known}") from error


def make_named(flag: str, path: str, make: Callable[..., T], *arguments: Any, **options: Any) -> T:
    """Return what a class that a flag names makes of arguments. Raises ConfigError if its __init__
    raises another exception than a PPOError."""
    try:
        return make(*arguments, **options)
    except PPOError:
        raise
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"--{flag}={path} cannot be made ({type(error).__name__}: {error}): mend its __init__"
        ) from error


@contextmanager
def _withheld_named() -> Iterator[None]:
    """Turn a PermissionError in this context into an ImportError that names the file."""
    try:
        yield
    except PermissionError as error:
        raise ImportError(f"{error.filename} cannot be read: {error.strerror}") from error


@_withheld_named()
def import_code(module: str) -> ModuleType:
    """Return a module, imported by its name or from a .py file, which can import its neighbours.

    Installed packages come first: the folder of a file, and the working folder if what is named is
    there and nowhere else, stay at the end of the path. Raises ImportError if there is no such
    module, if it must not be read, if another has the file's name, or if the folder is that of a
    run."""
    if not module.endswith(".py"):
        name = module.lstrip(".")  # nothing is relative to the trainer
        if not _place(_installed(name)) and _in_folder(name, here := working_folder()):
            _search_last(here)
        return import_module(name)
    file = Path(module).resolve()
    if not file.is_file():
        raise ImportError(f"there is no file {module}")
    for folder in (file.parent, working_folder()):
        if file.is_relative_to(folder):
            _search_last(folder)
    imported = import_module(file.stem)
    if Path(str(vars(imported).get("__file__"))).resolve() != file:
        raise ImportError(f"another module is called {file.stem}, so rename {file.name}")
    return imported


def file_being_imported() -> str:
    """Return the file whose code calls this as it is imported, since a flag names it or what is in
    it, or in a worker process; "" if there is none."""
    file = ""
    frame: Any = sys._getframe(1)
    while frame and not (file and frame.f_globals.get("__name__") in IMPORTERS):
        if frame.f_code.co_name == "<module>":
            file = file or frame.f_code.co_filename
        frame = frame.f_back
    return os.path.relpath(file) if frame else ""


def has_guard(file: str) -> bool:
    """Return whether a Python file does something only if it is run, not if it is imported."""
    try:
        lines = ast.parse(Path(file).read_text()).body
    except (OSError, ValueError, SyntaxError):  # as in a notebook
        return False
    return any(isinstance(x, ast.If) and "__name__" in ast.unparse(x.test) for x in lines)


def hidden_module(module: str) -> str:
    """Return the end of a sentence that says which module of the working folder is hidden by an
    installed one, empty if none is."""
    here = working_folder()
    installed = _place(_installed(module))
    own = _in_folder(module, here)
    if module.endswith(".py") or not own or installed in ("", _place(own)):
        return ""
    path = _place(own) or here / own.name
    return f"; installed packages come first: {installed} hides {path}, so rename that"


def _installed(module: str) -> ModuleSpec | None:
    """Return where a module, or the package that it is in, is found without the working folder."""
    name = module.lstrip(".").partition(".")[0]
    try:
        return find_spec(name)
    except ValueError:  # it is loaded, and says nothing about itself, or the name is empty
        return ModuleSpec(name, None, origin=name) if name in sys.modules else None


def _in_folder(module: str, folder: Path) -> ModuleSpec | None:
    return PathFinder.find_spec(module.lstrip(".").partition(".")[0], [str(folder)])


def _place(spec: ModuleSpec | None) -> str:
    """Return a module's file, empty for a folder without __init__.py, which others may extend."""
    return (spec and spec.origin) or ""


def _search_last(folder: Path) -> None:
    """Import from a folder what is nowhere else, from now on, also in processes started later.
    Raises ImportError if it is the folder of a run, whose files may come from anybody, or in it."""
    for parent in (folder, *folder.parents):
        config, *others = (os.path.lexists(parent / name) for name in RUN_FILES)
        if config and any(others):
            raise ImportError(
                f"nothing is imported from {parent}, which is a run's folder: move your code out"
            )
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
