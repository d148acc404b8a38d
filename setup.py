"""Build the package as setup.cfg says, with links that work on PyPI: to the URL in setup.cfg."""

import re
from configparser import ConfigParser
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent


def with_absolute_links(text: str, url: str, version: str) -> str:
    """Return Markdown whose links to files lead to a release in the repository on GitHub."""
    raw = url.replace("github.com", "raw.githubusercontent.com")  # which serves images
    text = re.sub(r"(!\[[^\]]*\]\()(?!https?:)", rf"\g<1>{raw}/v{version}/", text)
    return re.sub(r"(\[[^\]]*\]\()(?!https?:|#)", rf"\g<1>{url}/blob/v{version}/", text)


config = ConfigParser(interpolation=None)
config.read(ROOT / "setup.cfg")
url, version = config["metadata"]["url"], config["metadata"]["version"]
readme = (ROOT / "README.md").read_text(encoding="utf-8")
setup(
    long_description=with_absolute_links(readme, url, version),
    project_urls={
        "Documentation": f"{url}/tree/main/docs",
        "Changelog": f"{url}/blob/main/CHANGELOG.md",
        "Issues": f"{url}/issues",
    },
)
