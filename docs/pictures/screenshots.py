"""Take live-table.svg and report.png from a real run of about a minute.

    python docs/pictures/screenshots.py

Four peers train the digits example; rank 2 is slow, rank 1 is killed and comes back. The table is what `gossip status`
prints while rank 1 is dead. The report is the page of `gossip report`, seen by Chromium, which has to be installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image
from rich.console import Console
from rich.text import Text

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LAUNCH = "launch -n 4 --quiet --straggler 2=4x --fault kill:1@100 --fault restart:1@700"
SCRIPT = "examples/digits.py --epochs 60 --step-seconds 0.02"
COLUMNS = 120
#: The part of the page that is shown, and the colours that are kept: a small file.
WIDTH, HEIGHT, COLOURS = 1140, 1300, 200
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
#: As rich's own, without fonts from another host.
TERMINAL = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img">
<style>
.{unique_id}-matrix {{ font-family: monospace; font-size: {char_height}px; line-height: {line_height}px }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def gossip(*arguments: str) -> str:
    """Run the command on a terminal of our width, and return what it printed."""
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "TERM": "xterm-256color"}
    on_a_terminal = [sys.executable, "-c", "import pty, sys; pty.spawn(sys.argv[1:])"]
    command = [*on_a_terminal, sys.executable, "-m", "launch.cli", *arguments]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment, check=False
    )
    return done.stdout.replace("\r", "")


def table(run: Path, launched: subprocess.Popen[bytes]) -> str:
    """Return the table of the swarm, as of the first look at which somebody is dead."""
    while launched.poll() is None:
        seen = gossip("status", str(run))
        if "dead" in seen.partition("\n")[0]:
            return seen
        time.sleep(0.5)
    raise SystemExit("the run ended before anybody was declared dead: is the machine very fast?")


def draw_table(printed: str) -> None:
    """Write what was printed as a picture of a terminal."""
    text = Text.from_ansi("\n".join(line.rstrip() for line in printed.strip().splitlines()))
    width = max(line.cell_len for line in text.split())
    with Path(os.devnull).open("w") as nowhere:
        console = Console(record=True, width=width, file=nowhere)
        console.print(text)
    picture = console.export_svg(title="gossip watch", code_format=TERMINAL, unique_id="table")
    (HERE / "live-table.svg").write_text(picture)


def take_report(page: Path) -> None:
    """Write the upper part of a page as a picture."""
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        raise SystemExit(f"one of {', '.join(BROWSERS)} has to be installed")
    flags = "--headless --no-sandbox --disable-gpu --hide-scrollbars --no-first-run --disable-background-networking"
    taken = page.with_suffix(".png")
    window = [f"--window-size={WIDTH},{HEIGHT}", f"--user-data-dir={page.parent / 'browser'}"]
    command = [browser, *flags.split(), *window, f"--screenshot={taken}", page.as_uri()]
    subprocess.run(command, check=True, capture_output=True)
    Image.open(taken).convert("RGB").quantize(COLOURS).save(HERE / "report.png", optimize=True)


def main() -> None:
    """Run, look, and draw."""
    with tempfile.TemporaryDirectory() as directory:
        run = Path(directory) / "20260101-120000"
        command = [sys.executable, "-m", "launch.cli", *LAUNCH.split(), "--run-dir", str(run), *SCRIPT.split()]
        launched = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            draw_table(table(run, launched))
            launched.wait()
        finally:
            launched.terminate()
            launched.wait()
        page = Path(directory) / "report.html"
        gossip("report", str(run), "-o", str(page))
        take_report(page)


if __name__ == "__main__":
    main()
