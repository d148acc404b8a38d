"""ppo plot: a picture of the learning curves of runs."""

from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from ppo.errors import ConfigError, reason, suggest
from ppo.extras import curves

METRICS = [*curves.TITLES, "approx_kl", "clip_fraction", "entropy"]
METRICS += ["explained_variance", "value_loss", "steps_per_second"]
SIZE = 360, 220  # of a chart
SIZE_OF_ONE = 600, 340
LINE = 22  # of text


@dataclass(frozen=True)
class Flags:
    metric: tuple[str, ...] = ()
    """Column of metrics.csv, such as entropy; repeat the flag for several (none: a selection)."""
    output: str = "curves.svg"
    """File to write (.svg, .png or .pdf)."""


def main(names: list[str], options: Flags, flags: dict[str, Any]) -> None:
    """Plot runs. Raises ConfigError."""
    curves.refuse(flags)
    path = Path(options.output)
    if path.suffix not in (".svg", ".png", ".pdf"):
        raise ConfigError(f"--output={path}: give a file that ends in .svg, .png or .pdf")
    runs = curves.read_runs(names)
    known = {name for run in runs for name in run.series}
    for name in options.metric:
        if name not in known:
            raise ConfigError(f"--metric={name}: no run has this metric{suggest(name, known)}")
    metrics = options.metric or [name for name in METRICS if name in known]
    if not metrics:
        raise ConfigError("these runs have no values yet: wait for the first iteration")
    picture = picture_of(curves.grouped(runs), metrics)
    save(picture, path)
    print(f"picture: {path}")


def picture_of(groups: dict[str, list[curves.Record]], metrics: Any) -> str:
    """Return charts of metrics as an SVG, three in a row below a legend."""
    top = LINE * (len(groups) + 1)
    columns = min(3, len(metrics))
    rows = -(-len(metrics) // columns)
    width, height = SIZE_OF_ONE if columns == 1 else SIZE
    row_height = height + 2 * LINE
    longest = max(map(len, groups))
    full_width = max(columns * width, 56 + 7 * longest)
    size = f'width="{full_width}" height="{top + rows * row_height}"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} color="#333">']
    parts.append(f'<style>{curves.STYLE}</style><rect {size} fill="#fff"/>')
    for index, label in enumerate(groups):
        y = LINE * (index + 1)
        line = curves.path("curve", index, [f"10 {y - 4}", f"34 {y - 4}"])
        parts.append(f'{line}<text x="40" y="{y}">{escape(label)}</text>')
    for index, name in enumerate(metrics):
        row, column = divmod(index, columns)
        title = escape(f"{curves.TITLES.get(name, name)} over environment steps")
        chart = curves.draw(groups.values(), name, width, height)
        place = f"translate({column * width} {top + row * row_height})"
        parts.append(f'<g transform="{place}"><text x="16" y="{LINE}">{title}</text>')
        parts.append(f'<g transform="translate(0 {LINE + 8})">{chart}</g></g>')
    return "\n".join([*parts, "</svg>\n"])


def save(picture: str, path: Path) -> None:
    """Write an SVG, or a picture of it. Raises ConfigError, also without cairosvg."""
    if path.suffix == ".svg":
        curves.write(path, picture)
        return
    try:
        import cairosvg

        convert = getattr(cairosvg, f"svg2{path.suffix[1:]}")
        content = picture.encode(errors="replace")
        convert(content, scale=2, write_to=str(path))
    except (ImportError, OSError) as error:  # OSError: also without the library cairo
        raise ConfigError(
            f"--output={path} cannot be written ({reason(error)}): pip install cairosvg, or give "
            "an .svg file"
        ) from error
