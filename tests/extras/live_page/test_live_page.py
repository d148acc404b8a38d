"""ppo watch: what its page is sent, to whom, and what a browser makes of it."""

import csv
import json
import os
import re
import shutil
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote

import imageio.v2
import numpy as np
import pytest

from ppo.extras.live_page import folders, server
from ppo.extras.live_page.folders import PLACE
from ppo.extras.live_page.server import HEADERS, PageServer
from ppo.system.files import lock_file
from tests.end_to_end.test_untrusted_files import DEEP, sparse, spoil
from tests.running import BRIEF, Call, start, wait_until

HEADER = "iteration,step,seconds,episode_return_mean\n"
ROWS = [f"{i},{100 * i},{i / 2},{i * i}\n" for i in range(1, 10)]


@contextmanager
def served(*paths: Path) -> Iterator[PageServer]:
    """Serve a page about runs while the context is open."""
    with PageServer(paths, 0) as page:
        threading.Thread(target=page.serve_forever, args=(0.01,), daemon=True).start()
        yield page
        page.shutdown()


def get(page: PageServer, path: str, **headers: str) -> tuple[int, bytes]:
    """Return the status and the content of an answer, whose headers guard it whatever it is."""
    connection = HTTPConnection("127.0.0.1", page.server_port, timeout=20)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    return answer.status, answer.read()


def news(page: PageServer, before: Any = None) -> dict[str, Any]:
    """Return what is new since an answer before."""
    places = [{name: run[name] for name in PLACE} for run in (before or {"runs": []})["runs"]]
    status, content = get(page, f"/news?places={quote(json.dumps(places))}")
    assert status == 200
    return json.loads(content)


def make_run(folder: Path, *rows: str) -> Path:
    """Make the folder of a run with some rows."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"env_name": "CartPole-v1"}')
    if rows:
        (folder / "metrics.csv").write_text(HEADER + "".join(rows))
    return folder


def test_a_page_is_sent_the_values_of_a_run_once(cartpole_copy: Path) -> None:
    path = cartpole_copy / "metrics.csv"
    with served(cartpole_copy) as page:
        first = news(page)
        (run,) = first["runs"]
        with path.open() as file:
            names, *rows = csv.reader(file)
        assert run["names"] == names
        assert run["rows"] == [[float(text) if text else None for text in row] for row in rows]
        assert (run["environment"], run["training"]) == ("CartPole-v1", False)
        second = news(page, first)
        assert not second["runs"][0].keys() & {"names", "name", "events"}
        assert second["runs"][0]["rows"] == []
        assert "titles" not in second
        whole = path.read_bytes()
        line = whole.splitlines(keepends=True)[-1]
        path.write_bytes(whole + line + line[:-1])  # the last line is still being written
        with lock_file(cartpole_copy / "lock"):
            os.utime(cartpole_copy / "lock")  # as a run does, which writes to it
            third = news(page, second)
        assert third["runs"][0]["rows"] == run["rows"][-1:]
        assert third["runs"][0]["training"]
        with path.open("ab") as file:
            file.write(b"\n")
        assert news(page, third)["runs"][0]["rows"] == run["rows"][-1:]


def test_a_file_that_a_resumed_run_has_replaced_is_read_from_its_start(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", *ROWS)
    with served(run) as page:
        before = news(page)
        make_run(tmp_path / "new", *ROWS[:4], "5,500,9.5,77\n", *ROWS[5:])  # as long as before
        (tmp_path / "new" / "metrics.csv").rename(run / "metrics.csv")
        (after,) = news(page, before)["runs"]
    assert after["names"] == HEADER.strip().split(",")
    assert after["rows"][4] == [5, 500, 9.5, 77]
    assert len(after["rows"]) == 9


def test_seeds_are_shown_before_their_first_row_and_when_they_begin_later(tmp_path: Path) -> None:
    make_run(tmp_path / "seeds" / "s2")
    make_run(tmp_path / "seeds" / "s10", *ROWS)
    make_run(tmp_path / "elsewhere")
    (tmp_path / "seeds" / "s3").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "same").symlink_to(tmp_path / "seeds")
    with served(tmp_path / "seeds", tmp_path / "same", tmp_path / "seeds" / "s2") as page:
        before = news(page)
        assert [run["name"] for run in before["runs"]] == ["seeds/s2", "seeds/s10"]
        assert before["runs"][0].keys() & {"names", "rows", "problem"} == set()
        (tmp_path / "seeds" / "s2" / "metrics.csv").write_text(HEADER + ROWS[0])
        make_run(tmp_path / "seeds" / "s1", *ROWS[:2])
        runs = news(page, before)["runs"]
        assert [len(run["rows"]) for run in runs] == [1, 0, 2]  # in the order that a page knows
        assert runs[2]["name"] == "seeds/s1"


def test_of_many_runs_the_newest_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_RUNS", 2)
    for seconds, name in enumerate("cab"):
        os.utime(make_run(tmp_path / name) / "config.json", (seconds, seconds))
    with served(tmp_path) as page:
        answer = news(page)
        assert [run["name"].rpartition("/")[2] for run in answer["runs"]] == ["a", "b"]
        assert answer["left_out"] == 1
        assert news(page, answer)["session"] == answer["session"]
        make_run(tmp_path / "d", *ROWS)
        later = news(page, answer)
        assert later["session"] != answer["session"]  # so that pages begin anew
        later = news(page)
    assert [run["name"].rpartition("/")[2] for run in later["runs"]] == ["b", "d"]
    assert later["left_out"] == 2
    assert len(later["runs"][1]["rows"]) == len(ROWS)


def test_a_long_run_is_sent_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "MAX_BYTES", 1000)
    rows = [f"{i},{i},{i},1\n" for i in range(1000, 1100)]  # of 17 bytes
    with served(make_run(tmp_path / "run", *rows)) as page:
        answers = [news(page)]
        while answers[-1]["runs"][0]["more"]:
            answers.append(news(page, answers[-1]))
    sent = [[row[0] for row in answer["runs"][0]["rows"]] for answer in answers]
    assert sent == [[*range(1000, 1058)], [*range(1058, 1100)]]


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example:80", "127.0.0.1.evil.example", "10.0.0.1", ""]
)
def test_another_name_of_this_machine_is_refused(host: str, tmp_path: Path) -> None:
    with served(make_run(tmp_path / "run", *ROWS)) as page:
        for path in ("/", "/news?places=[]", "/video?run=0"):
            assert get(page, path, Host=host)[0] == 403
        for name in ("localhost", "LOCALHOST:9", "127.0.0.1:123", "[::1]:80"):
            assert get(page, "/", Host=name)[0] == 200
        assert page.server_address[0] == "127.0.0.1"


@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/../server.py",
        "/page/live.js",
        "/news",
        "/news?places={",
        "/news?places=[[]]",
        '/news?places=[{"table":0.5,"offset":0,"size":0}]',
        "/video",
        "/video?run=7",
        "/video?run=x",
        "/video?run=0",
        "//evil.example[",
    ],
)
def test_nothing_else_is_served(path: str, tmp_path: Path) -> None:
    with served(make_run(tmp_path / "run", *ROWS)) as page:
        assert get(page, path)[0] == 404


def test_the_newest_video_is_served_unless_a_link_leads_to_it(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", *ROWS)
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "900.mp4").write_bytes(b"secret")
    videos = run / "videos"
    with served(run) as page:
        videos.symlink_to(secret)
        assert news(page)["runs"][0]["video"] is None
        assert get(page, "/video?run=0")[0] == 404
        videos.unlink()
        videos.mkdir()
        (videos / "9000.mp4").symlink_to(secret / "900.mp4")
        (videos / "last9999.mp4").write_bytes(b"another's")
        (videos / "900.mp4").write_bytes(b"older")
        (videos / "1000.mp4").write_bytes(b"newest")
        assert news(page)["runs"][0]["video"] == 1000
        assert get(page, "/video?run=0") == (200, b"newest")
        os.mkfifo(videos / "2000.mp4")
        assert get(page, "/video?run=0")[0] == 404
        (videos / "2000.mp4").unlink()
        sparse(videos / "3000.mp4")
        assert get(page, "/video?run=0")[0] == 404


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("metrics.csv", b"\xff\xfe\n", "begins with another line"),
        ("metrics.csv", b"", "begins with another line"),
        ("metrics.csv", b"," * (1 << 20), "begins with another line"),
        ("metrics.csv", f"{HEADER}1,2,3,nan\n<b>,2,3,4\n2,4,6,inf\n", "not rows of numbers"),
        ("metrics.csv", f"{HEADER}1,2,3,1e308\n1,2,3\n-1,2,3,4\n2,4,6,\n", "not rows of numbers"),
        ("metrics.csv", HEADER.encode() + b"1" * (5 << 20), None),
        ("metrics.csv", os.mkfifo, "not a regular file"),
        ("metrics.csv", Path.mkdir, "not a regular file"),
        ("metrics.csv", sparse, "more than"),
        ("events.jsonl", os.mkfifo, None),
        ("events.jsonl", f'{DEEP}\n{{"kind": {DEEP}}}\n[1]\n\xff\n', None),
        ("config.json", DEEP, None),
        ("config.json", '{"env_name": ["x"]}', None),
        ("lock", os.mkfifo, None),
        ("videos", os.mkfifo, None),
    ],
)
def test_a_strangers_file_is_left_out(
    name: str, content: Any, problem: str | None, tmp_path: Path
) -> None:
    run = make_run(tmp_path / "run", *ROWS)
    spoil(run, name, content)
    with served(run) as page:
        first = news(page)
        (answer,) = first["runs"]
        assert (problem or "") in answer.get("problem", "")
        assert bool(problem) == ("problem" in answer) or name == "metrics.csv"
        if problem == "not rows of numbers":
            assert answer["rows"] == [[1, 2, 3, None], [2, 4, 6, None]]
        while answer.get("more"):  # comes to an end
            first = news(page, first)
            (answer,) = first["runs"]


def test_the_newest_events_are_sent_when_there_are_new_ones(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    lines = [json.dumps({"time": "t", "kind": "k", "message": f"m{i}"}) for i in range(30)]
    (run / "events.jsonl").write_text("\n".join(lines) + "\n")
    with served(run) as page:
        before = news(page)
        messages = [event["message"] for event in before["runs"][0]["events"]]
        assert messages == [f"m{i}" for i in range(29, 9, -1)]
        with (run / "events.jsonl").open("a") as file:
            file.write('{"message": "new", "traceback": "not sent"}\n')
            file.write('{"time": 1, "kind": "signal", "signal": "SIGINT", "settings": {}}\n')
        newest, event, *_ = news(page, before)["runs"][0]["events"]
    assert newest == {"time": "1", "kind": "signal", "message": "signal=SIGINT"}
    assert event == {"time": "", "kind": "", "message": "new"}


def test_the_command_serves_until_ctrl_c(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", *ROWS)
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    process = start("watch", str(run), f"--port={port}")
    try:
        assert process.stdout
        assert process.stdout.readline() == f"page: http://127.0.0.1:{port}/\n"
        connection = HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("GET", "/news?places=[]")
        assert len(json.loads(connection.getresponse().read())["runs"][0]["rows"]) == 9
    finally:
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=20)
    assert (process.returncode, *said) == (0, "", "")


def test_what_cannot_be_watched_is_answered_by_a_sentence(tmp_path: Path, call: Call) -> None:
    run = str(make_run(tmp_path / "run"))
    (tmp_path / "empty").mkdir()
    for wrong in ("empty", "nowhere", "run/config.json"):
        code, out, errors = call("watch", run, str(tmp_path / wrong))
        assert (code, out) == (2, "")
        assert errors == f"error: {tmp_path / wrong}: there is no run in it: give a run's folder\n"
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = f"--port={one.getsockname()[1]}"
        code, out, errors = call("watch", run, port)
        assert (code, out) == (2, "")
        assert errors == f"error: {port} cannot be used (Address already in use): give another\n"
    assert call("watch", run, "--port=70000")[0] == 2
    assert call("watch")[0] == 2


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium."""
    path = shutil.which("chromium") or shutil.which("google-chrome")
    api = pytest.importorskip("playwright.sync_api")
    if not path:
        pytest.skip("there is no Chromium")
    with api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@contextmanager
def opened(browser: Any, page: PageServer, width: int, scheme: str) -> Iterator[Any]:
    """Open a page in a browser, in which nothing fails and nothing is wider than the window."""
    problems: list[str] = []
    address = f"http://127.0.0.1:{page.server_port}/"
    tab = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    tab.set_default_timeout(90_000)  # however busy the machine is
    tab.on("console", lambda said: check_console(said.text, problems))
    tab.on("pageerror", lambda error: problems.append(str(error)))
    tab.on("dialog", lambda dialog: problems.append(dialog.message))
    tab.on("request", lambda request: check_address(request.url, address, problems))
    tab.goto(address)
    tab.locator(".curve").first.wait_for(state="attached")  # a flat one is invisible to it
    yield tab
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert problems == []
    tab.close()


def until(tab: Any, expression: str) -> None:
    """Wait until a JavaScript expression holds in a page, whose policy allows it no eval."""
    deadline = time.monotonic() + 90
    while not tab.evaluate(expression):
        assert time.monotonic() < deadline
        tab.wait_for_timeout(20)


def check_console(said: str, problems: list[str]) -> None:
    if "ERR_CONNECTION_REFUSED" not in said:  # the server has ended
        problems.append(said)


def check_address(asked: str, address: str, problems: list[str]) -> None:
    if not asked.startswith((address, f"blob:{address}", "data:,")):
        problems.append(asked)


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (400, "dark")])
def test_a_browser_shows_curves_video_and_events_and_no_html_of_a_run(
    width: int, scheme: str, browser: Any, tmp_path: Path
) -> None:
    evil = "<img src=x onerror=alert(1)>"
    run = make_run(tmp_path / f"{evil}{'long' * 30}", *ROWS)
    other = make_run(tmp_path / "other")
    (run / "config.json").write_text(json.dumps({"env_name": f"A{evil}B"}))
    header = HEADER.replace("\n", f",env/{evil},approx_kl\n")
    rows = [row.replace("\n", f",7,{0.01 * i}\n") for i, row in enumerate(ROWS)]
    (run / "metrics.csv").write_text(header + "".join(rows))
    (run / "events.jsonl").write_text(json.dumps({"kind": evil, "message": "x" * 5000}) + "\n")
    (run / "videos").mkdir()
    frames = np.full((20, 64, 64, 3), 150, np.uint8)
    imageio.v2.mimwrite(run / "videos" / "800.mp4", frames, fps=10, codec="libx264")
    with served(run, other) as page, opened(browser, page, width, scheme) as tab:
        assert tab.locator("#runs h2").first.inner_text().startswith(f"{tmp_path.name}/{evil}")
        assert f"A{evil}B, not training: step 900, return 81" in tab.locator("#runs").inner_text()
        assert "no iteration has ended yet" in tab.locator("#runs").inner_text()
        assert f"{evil} xxx" in tab.locator("#more li").inner_text()
        until(tab, "document.querySelector('video')?.readyState === 4")
        assert "After step 800" in tab.locator("#more").inner_text()
        titles = tab.locator("figcaption").all_inner_texts()
        assert titles == ["mean return in training", "KL of an update"]
        tab.locator("summary").click()
        tab.get_by_label(f"env/{evil}").check()
        assert tab.locator("figcaption").all_inner_texts() == [*titles, f"env/{evil}"]
        assert tab.locator("img, b").count() == 0
        tab.get_by_label("seconds", exact=True).last.check()
        assert "4" in tab.locator("figure").first.locator("text").all_text_contents()
        with (run / "metrics.csv").open("a") as file:
            file.write("a line that is damaged\n10,1000,5,1234,7,0.1\n")
        (other / "metrics.csv").write_text(HEADER + ROWS[0])
        tab.get_by_text("return 1,234").wait_for()
        with tab.expect_response("**/news*"):  # the next one
            pass
        assert "not rows of numbers: they are left out" in tab.locator("#runs").inner_text()
        assert tab.locator("figure").first.locator(".curve").count() == 2
        curve = tab.locator("figure").first.locator(".curve").first.get_attribute("d")
        assert len(re.findall("[ML]", curve)) == 10
        tab.reload()
        tab.locator("figcaption", has_text=f"env/{evil}").wait_for()
        tab.screenshot(path=tmp_path / "page.png", full_page=True)
        picture = imageio.v2.imread(tmp_path / "page.png")
        assert (np.median(picture) < 100) == (scheme == "dark")


@pytest.mark.slow
def test_a_browser_thins_a_long_run_without_losing_rare_values(
    browser: Any, tmp_path: Path
) -> None:
    header = HEADER.replace("\n", ",evaluation_return_mean\n")
    rows = [f"{i},{i},{i},1,{i if i % 20 == 7 else ''}\n" for i in range(1, 25_001)]
    run = make_run(tmp_path / "run")
    (run / "metrics.csv").write_text(header + "".join(rows))
    with served(run) as page, opened(browser, page, 1280, "light") as tab:
        tab.get_by_text("step 25,000").wait_for()
        curves = [tab.locator(".curve").nth(i).get_attribute("d") for i in range(2)]
    assert 500 <= len(re.findall("[ML]", curves[0])) <= 1000
    heights = [float(y) for y in re.findall(r"[ML]\S+ ([\d.]+)", curves[1])]
    assert len(heights) > 400
    assert heights == sorted(heights, reverse=True)
    assert curves[0].rpartition("L")[2].split()[0] == curves[1].rpartition("L")[2].split()[0]


@pytest.mark.slow
def test_a_browser_follows_a_run_of_another_process_to_its_end(
    browser: Any, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    endless = [flag for flag in BRIEF if "steps=2560" not in flag]
    process = start(*endless, "--video_every=5", f"--run_dir={run}")
    try:
        wait_until((run / "config.json").exists, process)
        with served(run) as page, opened(browser, page, 1280, "light") as tab:
            tab.get_by_text("CartPole-v1, training: step").wait_for()
            before = tab.locator(".curve").first.get_attribute("d")
            until(tab, "document.querySelector('video')?.readyState === 4")
            until(tab, f"document.querySelector('.curve').getAttribute('d') !== '{before}'")
            process.send_signal(signal.SIGINT)
            tab.get_by_text("CartPole-v1, not training: step").wait_for()
            tab.get_by_text("signal=SIGINT").first.wait_for()
            page.shutdown()
            page.server_close()
            tab.get_by_text("No news: the command").wait_for()
    finally:
        process.kill()
        process.communicate()
