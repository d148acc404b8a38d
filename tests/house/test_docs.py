"""Every name in README.md, CONTRIBUTING.md and docs/ exists: files, links, functions, tests, flags.

The source is read; only the names of what is gone are imported.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from ppo.config.gone import GONE
from ppo.extensions import Extension

ROOT = Path(__file__).parents[2]
TESTS = sorted((ROOT / "tests").rglob("*.py"))
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(ROOT.glob("docs/**/*.md")),
]
PACKAGES = ("ppo", "envs", "models", "benchmarks", "examples")
SUFFIXES = (".md", ".py", ".json", ".csv", ".html", ".png", ".safetensors", ".sbatch")
FLAG_MAKERS = ("flag", "fixed_flag", "live_flag", "run_flag")
PLACEHOLDERS = {"x", "no_x", "flag", "name"}
# Flags that the text names and that belong to torchrun, sbatch, py-spy, RL-Baselines3-Zoo, wandb's
# agent, ruff, twine, uvx and other trainers.
FOREIGN = """
    standalone nproc_per_node nnodes rdzv_backend rdzv_endpoint rdzv_id rdzv_conf max_restarts
    local_addr shutdown_timeout signals_to_handle requeue signal rate subprocesses pid algo
    conf_file eval_freq hyperparams n_jobs n_timesteps n_trials optimize_hyperparameters sampler
    save_freq study_name tensorboard_log track trained_agent vec_env wandb_project_name count check
    strict anneal_lr help array from
"""

per_page = pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))


@per_page
def test_python_files_exist(page: Path) -> None:
    named = set(re.findall(r"(?<![\w./-])(?:\.\./)?([\w/]+\.py)\b", text_of(page)))
    named -= {"my_env.py", "my_hooks.py", "my_model.py"}  # of the reader
    folders = (ROOT, ROOT / "examples", *{path.parent for path in TESTS})
    assert not {name for name in named if not any((x / name).exists() for x in folders)}


@per_page
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", text_of(page)):
        if target.startswith(("http://", "https://")):
            continue
        path, _, heading = target.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), target
        if heading:
            titles = re.findall(r"^#+ (.+)$", file.read_text(), re.MULTILINE)
            assert heading in {slug(title) for title in titles}, target


@per_page
def test_dotted_names_exist(page: Path) -> None:
    """Those of the project's packages (`ppo.envs.make`), and `Class.member` of its classes."""
    text = text_of(page)
    dotted = set(re.findall(r"`((?:ppo|benchmarks|examples)(?:[.:]\w+)+)", text))
    dotted |= set(re.findall(r"-m ((?:benchmarks|examples)\.\w+)", text)) - {"benchmarks.NAME"}
    dotted |= set(re.findall(r"=((?:examples)\.\w+:\w+)", text))
    assert not {name for name in dotted if not has_path(name.replace(":", "."))}
    members = set(re.findall(r"`([A-Z]\w+\.\w+)[`(]", text))
    assert not {
        name for name in members if not name.endswith(SUFFIXES) and not is_member(*name.split("."))
    }


@per_page
def test_names_said_to_be_in_a_file_are_there(page: Path) -> None:
    """Of the form `name` in [file.py](link), also `one` and `two` in [file.py](link)."""
    found = re.findall(
        r"((?:`[\w.]+` and )?`[\w.]+`) in\s+\[[^\]]+\]\(([^)]+\.py)\)", text_of(page)
    )
    for names, link in found:
        module = module_at((page.parent / link).resolve())
        for name in re.findall(r"`([\w.]+)`", names):
            assert has_attribute(module, name.split(".")), f"{name} in {link}"


@per_page
def test_named_tests_exist(page: Path) -> None:
    texts = {path.name: path.read_text() for path in TESTS}
    wrong = {}
    for file, name in set(re.findall(r"(test_\w+\.py)::(\w+)", text_of(page))):
        where = [path for path, text in texts.items() if f"def {name}(" in text]
        if file not in where:
            wrong[f"{file}::{name}"] = where
    assert not wrong, "they are in these files now"


@per_page
def test_flags_exist(page: Path) -> None:
    text = re.sub(r"python -m (benchmarks|tests)\.[^`|\n]*", "", text_of(page))
    named = set(re.findall(r"(?<![\w-])--(\w[\w-]*)", text))
    known = known_flags() | {*FOREIGN.split()} | PLACEHOLDERS | GONE.keys()
    assert not {
        name for name in named if not {name.replace("-", "_"), name.removeprefix("no_")} & known
    }


@pytest.mark.parametrize("page", ["README.md", "docs/how-it-works.md"])
def test_the_loop_that_a_page_shows_is_that_of_the_trainer(page: str) -> None:
    text = (ROOT / page).read_text()
    (shown,) = re.findall(r"```python\n# ppo/trainer\.py\n(.*?)```", text, re.DOTALL)
    remaining = iter((ROOT / "ppo" / "trainer.py").read_text().splitlines())
    assert len(shown.splitlines()) > 9
    for line in filter(None, shown.splitlines()):  # in the same order
        line, _, _ = line.partition("  #")
        assert line.strip() in map(str.strip, remaining), line


def test_sizes_in_how_it_works_are_about_right() -> None:
    """Of the files to read and of the modules, within a third; those to read add up."""
    text = text_of(ROOT / "docs" / "how-it-works.md")
    read = re.findall(
        r"^\| \[[\w/.]+\]\(\.\./(\S+)\) \|.*\| (\d+) \| (\d+) \|$", text, re.MULTILINE
    )
    (total,) = re.findall(
        r"^\| together \| \| ([\d,]+) \| (\d+): (\d+) h (\d+) min \|$", text, re.MULTILINE
    )
    lines, minutes, *time = (int(x.replace(",", "")) for x in total)
    assert lines == sum(int(count) for _, count, _ in read)
    assert minutes == sum(int(count) for _, _, count in read)
    assert minutes == 60 * time[0] + time[1]
    rooms = re.findall(r"^\| \[[\w/.]+\]\(\.\./(\S+)\) \| ([\d,]+) \|", text, re.MULTILINE)
    assert len(read) > 20
    assert len(rooms) > 10
    for name, shown in [*(row[:2] for row in read), *rooms]:
        path = ROOT / name
        files = [path] if path.is_file() else [*path.rglob("*.py")]
        count = sum(len(file.read_text().splitlines()) for file in files)
        assert 2 / 3 < int(shown.replace(",", "")) / count < 3 / 2, f"{name} has {count} lines"


def test_how_it_works_has_every_seam_and_every_extra() -> None:
    text = text_of(ROOT / "docs" / "how-it-works.md")
    seams = text.partition("\n## The seams")[2].partition("\n## ")[0]
    order = {"after", "needs", "exports", "gone_commands"}
    assert {*Extension._fields} - order <= {*re.findall(r"`(\w+)`", seams)}
    extras = text.partition("\n## The extras")[2]
    there = {path.parent.name for path in (ROOT / "ppo" / "extras").glob("*/__init__.py")}
    assert {*re.findall(r"^\| \[(\w+)\]", extras, re.MULTILINE)} == there


def test_the_readmes_commands_for_a_new_machine_are_alone_on_their_lines() -> None:
    lines = re.findall(r"^pip install -e .*$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert lines == [
        "pip install -e '.[all]' && python main.py --env_name=LunarLander-v2 --model=mlp",
        "pip install -e '.[dev]' && python -m pytest",
    ]


def test_a_wrong_name_is_noticed() -> None:
    assert has_path("ppo.algorithm.losses.clipped_surrogate")
    assert has_path("ppo.algorithm.learner.Learner.loss")
    assert has_path("ppo.Learner")
    assert not has_path("ppo.algorithm.losses.clipped_surrogates")
    assert not has_path("ppo.algorithm.learner.Learner.lose")
    assert not has_path("ppo.algorithms.learner")
    assert is_member("CriticWarmup", "state_dict")  # inherited
    assert not is_member("Learner", "learn")
    assert "learning_rate" in known_flags()
    assert "lr" in known_flags()
    assert "learning_rat" not in known_flags()


def text_of(page: Path) -> str:
    """Return the text of a page, with underscores as they are shown."""
    return page.read_text().replace("\\_", "_")


def slug(title: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def sources() -> Iterator[Path]:
    """Yield the Python files of the project, by their real places."""
    yield ROOT / "main.py"
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield path.resolve()


def module_at(path: Path) -> str:
    """Return a file's module name; those of envs and models are imported below ppo."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    name = ".".join(parts).removesuffix(".__init__")
    if parts[0] in ("envs", "models"):
        return f"ppo.{name}"
    return name


@cache
def modules() -> dict[str, ast.Module]:
    """Return the parsed source of every module by name."""
    return {module_at(path): ast.parse(path.read_text()) for path in sources()}


@cache
def classes() -> dict[str, list[ast.ClassDef]]:
    """Return all classes of the project by name."""
    found: dict[str, list[ast.ClassDef]] = {}
    for tree in modules().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(node)
    return found


def defined(body: list[ast.stmt]) -> set[str]:
    """Return the names that statements define, import or assign."""
    found: set[str] = set()
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {
                x.id for target in targets for x in ast.walk(target) if isinstance(x, ast.Name)
            }
    return found


def lazy_names(module: str) -> set[str]:
    """Return the keys of the dict by which ppo imports names when they are first asked for."""
    if module != "ppo":
        return set()
    return {
        str(key.value)
        for node in ast.walk(modules()["ppo"])
        if isinstance(node, ast.Dict)
        for key in node.keys
        if isinstance(key, ast.Constant)
    }


def has_path(dotted: str) -> bool:
    """Return whether a dotted name is a module, or an attribute of one."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        module = ".".join(parts[:length])
        if module in modules():
            return has_attribute(module, parts[length:])
    return False


def has_attribute(module: str, names: list[str]) -> bool:
    """Return whether a module defines a name, and that class a member, if there is a second."""
    if not names:
        return True
    if names[0] not in defined(modules()[module].body) | lazy_names(module):
        return False
    return len(names) == 1 or is_member(names[0], names[1])


def is_member(kind: str, name: str) -> bool:
    """Return whether a class, or a base of it, defines a member."""
    for node in classes().get(kind, []):
        own = {
            x.attr
            for x in ast.walk(node)
            if isinstance(x, ast.Attribute)
            and isinstance(x.value, ast.Name)
            and x.value.id == "self"
            and isinstance(x.ctx, ast.Store)
        }
        if name in own | defined(node.body):
            return True
        bases = [base.id for base in node.bases if isinstance(base, ast.Name) and base.id != kind]
        if any(is_member(base, name) for base in bases):
            return True
    return False


@cache
def known_flags() -> set[str]:
    """Return all names and aliases of the fields that are flags."""
    found = {"config"}
    for module, tree in modules().items():
        if not module.startswith(("ppo.config", "ppo.commands", "ppo.extras")):
            continue
        for node in ast.walk(tree):
            if not isinstance(node, ast.AnnAssign) or not isinstance(node.value, ast.Call):
                continue
            call = node.value
            if isinstance(call.func, ast.Name) and call.func.id in FLAG_MAKERS:
                found.add(ast.unparse(node.target))
                found |= {str(x.value) for x in call.args[2:] if isinstance(x, ast.Constant)}
    return found
