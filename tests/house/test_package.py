"""The installed package, in a folder that has modules of the same names as the checkout."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from configparser import ConfigParser
from pathlib import Path

import pytest

import ppo
from tests.running import ROOT

SOURCES = (
    *("ppo", "envs", "models", "main.py", "setup.cfg", "setup.py", "MANIFEST.in"),
    *("pyproject.toml", "README.md", "CHANGELOG.md", "CITATION.cff", "LICENSE"),
)
MINE = """
import gymnasium
import numpy as np

import utils


class MyEnv(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (3,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.uniform(-1, 1, 3).astype(np.float32), {}

    def step(self, action):
        observation = self.np_random.uniform(-1, 1, 3).astype(np.float32)
        return observation, utils.REWARD, bool(observation[0] > 0.5), False, {}
"""
SCRIPT = """
from ppo import Config, train

if __name__ == "__main__":
    config = Config(
        env_name="CartPole-v1", num_workers=2, num_envs=2, total_steps=256, eval_episodes=1,
        report=False, run_dir="runs/script",
    )
    print("steps", train(config).steps)
"""
BREAKS = "raise RuntimeError(__file__ + ' was imported by mistake')\n"
SMALL = (
    *("--preset=none", "--num_envs=2", "--num_steps=32", "--num_workers=2"),
    *("--eval_episodes=1", "--report=False", "--logger=none"),
)


def build(kind: str, source: Path, folder: Path) -> Path:
    """Build a wheel or an sdist of a folder; returns its file."""
    pytest.importorskip("setuptools")
    command = [sys.executable, "-m", "build", "--no-isolation", f"--{kind}", "--outdir", folder]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (path,) = folder.iterdir()
    return path


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout without what earlier builds have left."""
    folder = tmp_path_factory.mktemp("source")
    for name in SOURCES:
        path = ROOT / name
        if path.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(path, folder / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy(path, folder / name)
    return folder


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", source, tmp_path_factory.mktemp("dist") / "wheel")


@pytest.fixture(scope="module")
def sdist(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("sdist", source, tmp_path_factory.mktemp("dist") / "sdist")


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scripts' folder of an environment with the wheel, and this one's other packages."""
    pytest.importorskip("pip")
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    command = [sys.executable, "-m", "pip", f"--python={folder}/bin/python", "install", "--no-deps"]
    # With PYTHONPATH, pip would find the checkout and install nothing.
    variables = {name: x for name, x in os.environ.items() if name != "PYTHONPATH"}
    install = [*command, "--no-index", str(wheel)]
    subprocess.run(install, check=True, capture_output=True, env=variables)
    others = {Path(path).resolve() for path in sys.path if path} - {ROOT}
    own = [path for path in others if path.name in ("site-packages", "dist-packages")]
    # Not as site directories, whose .pth files might lead to this checkout.
    (packages / "others.pth").write_text("".join(f"{path}\n" for path in own))
    return folder / "bin"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A user's folder, with modules of the same names as those of the checkout."""
    for name in ("envs", "models", "utils"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(BREAKS)
    for name in ("main", "models/mlp", "envs/make", "errors", "config"):
        (tmp_path / f"{name}.py").write_text(BREAKS)
    return tmp_path


def run(place: Path, *command: str | Path) -> subprocess.CompletedProcess[str]:
    """A command in the user's folder, from where the checkout cannot be imported."""
    variables = {name: x for name, x in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [*map(str, command)], cwd=place, env=variables, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done


def test_a_wheel_has_real_files_below_ppo_only(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == {"ppo"}
    wanted = {
        path.relative_to(ROOT)
        for folder in ("ppo", "ppo/envs", "ppo/models")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".json", ".typed")
    }
    assert {str(path) for path in wanted} <= names
    assert {"ppo/envs/worker.py", "ppo/models/mlp.py", "ppo/py.typed"} <= names


def contents(wheel: Path) -> dict[str, int]:
    """The checksum of each file, but for the list of them."""
    with zipfile.ZipFile(wheel) as archive:
        files = archive.infolist()
    return {file.filename: file.CRC for file in files if "RECORD" not in file.filename}


def test_an_sdist_has_no_links_and_makes_the_same_wheel(
    sdist: Path, wheel: Path, tmp_path: Path
) -> None:
    with tarfile.open(sdist) as archive:
        assert all(member.isfile() or member.isdir() for member in archive)
    shutil.unpack_archive(sdist, tmp_path)
    (unpacked,) = tmp_path.glob("ppo?trainer-*/")
    again = build("wheel", unpacked, tmp_path / "wheel")
    assert contents(again) == contents(wheel)


def release() -> tuple[str, str]:
    """The repository and the version that setup.cfg names."""
    config = ConfigParser(interpolation=None)
    config.read(ROOT / "setup.cfg")
    return config["metadata"]["url"], config["metadata"]["version"]


def test_links_on_pypi_lead_to_files_of_the_release(wheel: Path) -> None:
    url, version = release()
    raw = url.replace("github.com", "raw.githubusercontent.com")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        text = archive.read(name).decode()
    links = re.findall(r"(!?)\[[^\]]*\]\(([^)]*)\)", text)
    places = {"": f"{url}/blob/v{version}/", "!": f"{raw}/v{version}/"}
    files = [link.removeprefix(places[kind]) for kind, link in links if places[kind] in link]
    assert {"docs/lander.gif", "docs/results.md", "ppo/trainer.py"} <= {*files}
    assert all((ROOT / file.partition("#")[0]).exists() for file in files)
    assert all(link.startswith("https://") for _, link in links)


def test_all_files_name_the_same_release() -> None:
    url, version = release()
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {version}\n" in citation
    assert ppo.__version__ == version
    assert f"\nrepository-code: {url}\n" in citation
    (first, *_) = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert first == version
    notebook = (ROOT / "examples" / "own_project" / "notebook.ipynb").read_text()
    assert f'%pip install -q git+{url}"' in notebook


def test_what_is_installed_is_not_the_checkout(installed: Path, place: Path) -> None:
    code = "import ppo, ppo.envs.make, ppo.models; print(ppo.__file__, ppo.envs.make.__file__)"
    paths = run(place, installed / "python", "-c", code).stdout.split()
    assert len(paths) == 2
    assert all(Path(path).is_relative_to(installed.parent) for path in paths)


@pytest.mark.slow
def test_the_console_script_and_a_script_train_evaluate_and_resume(
    installed: Path, place: Path
) -> None:
    flags = ("--env_name=CartPole-v1", *SMALL, "--run_dir=runs/mine")
    run(place, installed / "ppo", *flags, "--total_steps=256")
    assert (place / "runs" / "mine" / "summary.json").exists()
    assert "return " in run(place, installed / "ppo", "evaluate", "mine", "--episodes=2").stdout
    run(place, installed / "ppo", "--resume=mine", "--total_steps=512")
    assert "000000000512.safetensors" in os.listdir(place / "runs" / "mine" / "checkpoints")
    helped = run(place, installed / "ppo", "--help").stdout
    assert helped == run(place, installed / "python", "-m", "ppo", "--help").stdout
    (place / "train.py").write_text(SCRIPT)
    assert "steps 256" in run(place, installed / "python", "train.py").stdout


@pytest.mark.slow
def test_an_environment_in_the_users_own_envs_is_found(installed: Path, place: Path) -> None:
    (place / "envs" / "__init__.py").write_text("")
    (place / "envs" / "mine.py").write_text(MINE)
    (place / "utils" / "__init__.py").write_text("REWARD = 1.0\n")
    flags = ("--env_name=envs.mine:MyEnv", *SMALL, "--total_steps=256")
    for number, program in enumerate((["ppo"], ["python", "-m", "ppo"])):
        folder = place / "runs" / str(number)
        run(place, installed / program[0], *program[1:], *flags, f"--run_dir={folder}")
        assert (folder / "summary.json").exists()
