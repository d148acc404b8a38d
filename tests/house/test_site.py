"""The documentation's site: built by docs/build_site.py, read in headless Chromium."""

import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import imageio.v3
import numpy as np
import pytest

from tests.running import ROOT

pytest.importorskip("zensical")
pytest.importorskip("mkdocstrings_handlers.python")
PROGRAM = ROOT / "docs" / "build_site.py"
OPENED = ("", "from-sb3/", "api/")
FOUND = {
    "VecNormalize": "from-sb3/?h=VecNormalize#vecnormalize",
    "gamma": "flags/?h=gamma#train",
    "resume": "reliability/?h=resume#resume",
}


class Page(HTMLParser):
    """What is wanted of a page: its text, the ids of its elements, and what they point to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids = {""}
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.text = "".join("".join(self.words).replace("¶", "").split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.ids.add(value)
            elif name in ("href", "src") and value:
                (self.links if tag == "a" else self.loaded).append(value)

    def handle_data(self, data: str) -> None:
        self.words.append(data)


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the site is built in."""
    folder = tmp_path_factory.mktemp("built")
    done = subprocess.run([sys.executable, PROGRAM, folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No issues found" in done.stdout
    return folder


def test_pages_are_whole_and_their_links_lead_somewhere(built: Path) -> None:
    from markdown_it import MarkdownIt

    site, sources = built / "site", built / "pages"
    places = {path.relative_to(sources): path for path in sources.rglob("*.md")}
    listed = re.findall(r'"([\w/-]+\.md)"', (ROOT / "docs" / "zensical.toml").read_text())
    assert sorted(listed) == sorted(map(str, places))
    pages = {path: Page(path.read_text()) for path in site.rglob("index.html")}
    assert len(pages) == len(places)
    for path, page in pages.items():
        for target in [*page.links, *page.loaded]:
            if target.startswith("https://"):
                assert target in page.links, f"{path} loads {target}"
                continue
            name, _, heading = target.partition("#")
            file = (path.parent / unquote(name)).resolve() if name else path
            if file.is_dir():
                file /= "index.html"
            assert file.exists(), f"{path}: {target}"
            assert heading in pages[file].ids if heading else True, f"{path}: {target}"
    as_github = MarkdownIt().enable("table")
    for place, path in places.items():
        if place.name not in ("api.md", "flags.md"):
            source = ROOT / "docs" / place
            if not source.exists():
                source = ROOT / ("README.md" if place.name == "index.md" else place)
            shown = site / place.with_suffix("") / "index.html"
            if place.name == "index.md":
                shown = site / "index.html"
            assert Page(as_github.render(source.read_text())).text in pages[shown].text, path
    assert "--learning_rateVALUE" in pages[site / "flags" / "index.html"].text
    names = {"ppo.trainer.train", "ppo.policy.policy.Policy.evaluate", "ppo.errors.ConfigError"}
    assert names < pages[site / "api" / "index.html"].ids


def test_the_site_is_read_and_searched_in_a_browser(built: Path, tmp_path: Path) -> None:
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    api = pytest.importorskip("playwright.sync_api")
    if not browser:
        pytest.skip("there is no Chromium")
    problems: list[str] = []
    with served(built / "site") as address, api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        for width, scheme in ((1280, "light"), (400, "dark")):
            size: Any = {"width": width, "height": 900}
            page = chromium.new_page(viewport=size, color_scheme=scheme)
            page.set_default_timeout(90_000)  # however busy the machine is
            page.on(
                "console",
                lambda message: problems.append(message.text) if message.type == "error" else None,
            )
            page.on("pageerror", lambda error: problems.append(str(error)))
            page.on(
                "requestfailed",  # but not one that the next page has cut off
                lambda request: (
                    None if "ABORTED" in str(request.failure) else problems.append(request.url)
                ),
            )
            page.on(
                "request",
                lambda request: (
                    None if request.url.startswith(address) else problems.append(request.url)
                ),
            )
            for name in OPENED:
                page.goto(address + name)
                assert page.evaluate("document.documentElement.scrollWidth") <= width, name
                assert page.locator("h1").is_visible()
            page.screenshot(path=tmp_path / "page.png")
            picture = imageio.v3.imread(tmp_path / "page.png")
            assert picture.std() > 10
            assert (np.median(picture) < 100) == (scheme == "dark")
            for word, place in FOUND.items():
                page.goto(address)
                page.locator(".md-search__button:visible, label[for=__search]:visible").click()
                page.keyboard.type(word)
                page.locator(f"a[href$='{place}']").click()
                page.wait_for_url(f"**/{place}*")
                assert page.locator("article mark").first.inner_text() == word
            page.close()
        chromium.close()
    assert problems == []


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on this machine; gives its address."""
    handler = partial(Quiet, directory=folder)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


class Quiet(SimpleHTTPRequestHandler):
    """Serve without a line for each request."""

    def log_message(self, *arguments: Any) -> None:
        pass
