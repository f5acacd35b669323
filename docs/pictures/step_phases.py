"""Draw step-phases.svg: the phases of a step and what leads from one to the next.

    python docs/pictures/step_phases.py

The phases, the transitions and their names are those of the table in gossip/core/step.py. Only the places on the
picture are chosen here.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

from gossip.core.step import TRANSITIONS, Cause, Phase

PICTURE = Path(__file__).with_name("step-phases.svg")
WIDTH, HEIGHT = 980, 560
BOX = 176, 46
PLACES = {
    Phase.TRAINING: (150, 90),
    Phase.TURNS: (490, 90),
    Phase.WAITING: (830, 90),
    Phase.RESTING: (490, 235),
    Phase.HOLDING: (490, 345),
    Phase.LEAVING: (490, 490),
    Phase.GONE: (830, 490),
}
STYLE = """
  .card { fill: #ffffff; stroke: #d0d7de }
  .phase { fill: #fff8c5; stroke: #9a6700; stroke-width: 1.2 }
  .trainer { fill: #dafbe1; stroke: #1a7f37 }
  .way { fill: none; stroke: #57606a; stroke-width: 1.3; marker-end: url(#head) }
  .head { fill: #57606a }
  text { font-family: system-ui, sans-serif; font-size: 12px; fill: #1f2328; text-anchor: middle }
  .name { font-size: 14px; font-weight: 600 }
  .cause { paint-order: stroke; stroke: #ffffff; stroke-width: 4px }
  @media (prefers-color-scheme: dark) {
    .card { fill: #0d1117; stroke: #30363d }
    .phase { fill: #3a2d00; stroke: #d29922 }
    .trainer { fill: #0f2f1a; stroke: #3fb950 }
    .way { stroke: #8b949e } .head { fill: #8b949e }
    text { fill: #e6edf3 }
    .cause { stroke: #0d1117 }
  }
"""


def border(start: tuple[float, float], towards: tuple[float, float]) -> tuple[float, float]:
    """Return where the line from the middle of a box towards a point leaves the box."""
    across, down = towards[0] - start[0], towards[1] - start[1]
    scale = min(BOX[0] / 2 / abs(across) if across else 9e9, BOX[1] / 2 / abs(down) if down else 9e9)
    return start[0] + across * scale, start[1] + down * scale


def arrow(old: Phase, new: Phase, causes: list[Cause]) -> str:
    """Return the arrow from one phase to another, bent if there is one back, and what it stands for."""
    text = escape(", or ".join(cause.value for cause in causes))
    x, y = PLACES[old]
    if old is new:
        path = f"M {x - 60} {y + 23} c -20 34 60 34 40 0"
        return f'<path class="way" d="{path}"/><text class="cause" x="{x - 50}" y="{y + 62}">{text}</text>'
    to_x, to_y = PLACES[new]
    bend = 60 if (new, old) in {(one, other) for (one, _), other in TRANSITIONS.items()} else 0
    length = ((to_x - x) ** 2 + (to_y - y) ** 2) ** 0.5
    middle = (x + to_x) / 2 + bend * (to_y - y) / length, (y + to_y) / 2 - bend * (to_x - x) / length
    (x, y), (to_x, to_y) = border((x, y), middle), border((to_x, to_y), middle)
    path = f"M {x:.0f} {y:.0f} Q {middle[0]:.0f} {middle[1]:.0f} {to_x:.0f} {to_y:.0f}"
    words = (x + 2 * middle[0] + to_x) / 4, (y + 2 * middle[1] + to_y) / 4 - 4
    return f'<path class="way" d="{path}"/><text class="cause" x="{words[0]:.0f}" y="{words[1]:.0f}">{text}</text>'


def draw() -> str:
    """Return the picture."""
    leaves = [old for (old, cause), _ in TRANSITIONS.items() if cause is Cause.LEAVE]
    arrows: dict[tuple[Phase, Phase], list[Cause]] = {}
    for (old, cause), new in TRANSITIONS.items():
        if cause is not Cause.LEAVE:
            arrows.setdefault((old, new), []).append(cause)
    parts = [arrow(old, new, causes) for (old, new), causes in arrows.items()]
    x, y = PLACES[Phase.LEAVING]
    parts.append(f'<path class="way" d="M {x - 250} {y} L {x - 90} {y}"/>')
    every = "any phase" if set(leaves) == set(Phase) else ", ".join(phase.name for phase in leaves)
    parts.append(f'<text class="cause" x="{x - 170}" y="{y - 8}">{Cause.LEAVE.value}, from {every}</text>')
    for phase, (left, top) in PLACES.items():
        kind = "phase trainer" if phase is Phase.TRAINING else "phase"
        box = f'x="{left - BOX[0] / 2:.0f}" y="{top - BOX[1] / 2:.0f}" width="{BOX[0]}" height="{BOX[1]}"'
        parts.append(f'<rect class="{kind}" rx="8" {box}/>')
        parts.append(f'<text class="name" x="{left}" y="{top + 5}">{phase.name}</text>')
    head = (
        '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path class="head" d="M 0 0 L 8 4 L 0 8 z"/></marker>'
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
            "<title>The phases of a step. In TRAINING the values are the trainer's, in all others the core's.</title>",
            f"<style>{STYLE}</style><defs>{head}</defs>",
            f'<rect class="card" x="1" y="1" width="{WIDTH - 2}" height="{HEIGHT - 2}" rx="10"/>',
            *parts,
            "</svg>",
            "",
        ]
    )


if __name__ == "__main__":
    PICTURE.write_text(draw())
