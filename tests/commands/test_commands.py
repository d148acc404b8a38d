"""Every command answers wrong calls in one sentence."""

from pathlib import Path

import pytest

from tests.running import Call

WRONG = {
    "evaluat RUN": "unknown command evaluat; did you mean evaluate?",
    "fly": (
        "unknown command fly; give one of train, evaluate, set, check, tune, runs, plot, report, "
        "export, watch, or flags only"
    ),
    "evaluate": "the following arguments are required: RUN",
    "evaluate RUN nowhere": "nowhere: there is no such run or checkpoint; ",
    "evaluate RUN --episodes=0": "--episodes=0: expected integer >= 1",
    "evaluate RUN --video=out.avi": "--video=out.avi: give a name that ends with .mp4 or .gif",
    "evaluate RUN --episode=2": "unknown flag --episode: did you mean --episodes?",
    "evaluate RUN --output=RUN/config.json --episodes=1": (
        "--output=RUN/config.json cannot be added to (it is not a list)"
    ),
    "evaluate RUN --render=human --video=out.mp4": "--render=human and --video: give one of them",
    "evaluate RUN --video=RUN/metrics.csv/out.mp4": (
        "--video=RUN/metrics.csv/out.mp4 cannot be written to ("
    ),
    "plot": "the following arguments are required: RUNS",
    "plot nowhere": "cannot read the run in nowhere ",
    "plot RUN --output=curve.gif": "--output=curve.gif: give a name that ends with .png or .svg or",
}


@pytest.mark.parametrize("line", WRONG)
def test_what_is_wrong_is_answered_by_a_sentence(
    line: str, cartpole_copy: Path, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    monkeypatch.chdir(cartpole_copy.parent)
    cartpole_copy.rename("RUN")
    before = {path: path.read_bytes() for path in Path("RUN").rglob("*") if path.is_file()}
    code, out, err = call(*line.split())
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {WRONG[line]}")
    assert err.count("\n") == 1
    assert {path: path.read_bytes() for path in Path("RUN").rglob("*") if path.is_file()} == before
