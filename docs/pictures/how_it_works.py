"""Draw how-it-works.svg, the picture on the front page.

    python docs/pictures/how_it_works.py

Eight peers stand on a circle. The edges are those of the real schedule, `one-peer-exponential` at one turn. One peer is
slow and one is dead; nobody waits for either.
"""

from __future__ import annotations

import math
from pathlib import Path

import topologies

PICTURE = Path(__file__).with_name("how-it-works.svg")
PEERS, TURN = 8, 1
SLOW, DEAD = 3, 6
WIDTH, HEIGHT = 980, 440
CENTRE_X, CENTRE_Y, RADIUS_X, RADIUS_Y = 296, 220, 236, 180
BOX_W, BOX_H = 92, 50

#: The card has a background of its own, so that it can be read on any page; the colours follow the reader's system.
STYLE = """
  .card { fill: #ffffff; stroke: #d0d7de }
  text { font-family: system-ui, sans-serif; font-size: 14px; fill: #1f2328 }
  .title { font-size: 16px; font-weight: 600 }
  .small { font-size: 12px; fill: #57606a }
  .peer { fill: #ddf4ff; stroke: #0969da; stroke-width: 1.5 }
  .slow { fill: #fff8c5; stroke: #9a6700 }
  .dead { fill: #f6f8fa; stroke: #8c959f; stroke-dasharray: 5 4 }
  .deadtext { fill: #6e7781 }
  .edge { stroke: #0969da; stroke-width: 1.8; fill: none; marker-end: url(#tip) }
  .late { stroke: #9a6700; stroke-dasharray: 7 4; marker-end: url(#latetip) }
  .gone { stroke: #8c959f; stroke-dasharray: 2 5; marker-end: none }
  .tip { fill: #0969da }
  .latetip { fill: #9a6700 }
  .parcel { fill: #0969da }
  .lateparcel { fill: #9a6700 }
  .label { font-size: 11px; font-weight: 600; fill: #ffffff }
  @media (prefers-color-scheme: dark) {
    .card { fill: #0d1117; stroke: #30363d }
    text { fill: #e6edf3 }
    .small { fill: #9198a1 }
    .peer { fill: #0c2d4d; stroke: #58a6ff }
    .slow { fill: #3a2d00; stroke: #d29922 }
    .dead { fill: #161b22; stroke: #6e7681 }
    .deadtext { fill: #8b949e }
    .edge { stroke: #58a6ff }
    .late { stroke: #d29922 }
    .gone { stroke: #6e7681 }
    .tip, .parcel { fill: #58a6ff }
    .latetip, .lateparcel { fill: #d29922 }
    .label { fill: #0d1117 }
  }
"""

#: What the picture shows, beside it: a heading and its lines.
NOTES = (
    (
        "Every peer trains a replica of its own",
        "x is its parameters times its weight w.",
        "The model that you train is z = x / w.",
    ),
    (
        "After each step, mass moves",
        "A peer sends half of (x, w) to this turn's",
        "neighbour: one arrow. The next turn has",
        "other arrows. No message goes to everybody.",
    ),
    ("A slow peer is not waited for", "Its parcels count whenever they arrive."),
    (
        "A dead peer is not waited for",
        "Its neighbours take back what was in flight",
        "and plan without it. No coordinator.",
    ),
)


def place(rank: int) -> tuple[float, float]:
    """Return the centre of a peer's box."""
    angle = 2 * math.pi * (rank + 0.5) / PEERS - math.pi / 2
    return CENTRE_X + RADIUS_X * math.cos(angle), CENTRE_Y + RADIUS_Y * math.sin(angle)


def rim(start: tuple[float, float], end: tuple[float, float], gap: float) -> tuple[float, float]:
    """Return where a line from the centre of one box leaves it towards another."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    scale = min(
        (BOX_W / 2 + gap) / abs(dx) if dx else math.inf,
        (BOX_H / 2 + gap) / abs(dy) if dy else math.inf,
    )
    return start[0] + dx * scale, start[1] + dy * scale


def edge(origin: int, target: int) -> list[str]:
    """Return the arrow of one push, with its parcel."""
    ends = place(origin), place(target)
    (x1, y1), (x2, y2) = rim(*ends, 2), rim(ends[1], ends[0], 8)
    line = f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="edge{{}}"/>'
    if target == DEAD:
        return [line.format(" gone")]
    late = origin == SLOW
    kind = "lateparcel" if late else "parcel"
    x, y = 0.67 * x1 + 0.33 * x2, 0.67 * y1 + 0.33 * y2
    return [
        line.format(" late" if late else ""),
        f'<rect x="{x - 27:.1f}" y="{y - 10:.1f}" width="54" height="20" rx="4" class="{kind}"/>',
        f'<text x="{x:.1f}" y="{y + 4:.1f}" text-anchor="middle" class="label">½(x, w)</text>',
    ]


def peer(rank: int) -> list[str]:
    """Return the box of one peer."""
    x, y = place(rank)
    kind = {SLOW: " slow", DEAD: " dead"}.get(rank, "")
    text = "deadtext" if rank == DEAD else ""
    below = {SLOW: "slow", DEAD: "dead"}.get(rank, "replica (x, w)")
    corner = f'x="{x - BOX_W / 2:.1f}" y="{y - BOX_H / 2:.1f}"'
    return [
        f'<rect {corner} width="{BOX_W}" height="{BOX_H}" rx="8" class="peer{kind}"/>',
        f'<text x="{x:.1f}" y="{y - 4:.1f}" text-anchor="middle" class="{text}">peer {rank}</text>',
        f'<text x="{x:.1f}" y="{y + 14:.1f}" text-anchor="middle" class="small">{below}</text>',
    ]


def notes() -> list[str]:
    """Return the words beside the circle."""
    lines, y = [], 78
    for heading, *rest in NOTES:
        lines.append(f'<text x="624" y="{y}" class="title">{heading}</text>')
        for text in rest:
            y += 20
            lines.append(f'<text x="624" y="{y}">{text}</text>')
        y += 40
    return lines


def draw() -> str:
    """Return the picture."""
    schedule = topologies.get("one-peer-exponential", n=PEERS)
    edges = [(rank, target) for rank in range(PEERS) if rank != DEAD for target, _ in schedule.out_edges(rank, TURN)]
    body = [
        f'<rect x="1" y="1" width="{WIDTH - 2}" height="{HEIGHT - 2}" rx="12" class="card"/>',
        *(line for origin, target in edges for line in edge(origin, target)),
        *(line for rank in range(PEERS) for line in peer(rank)),
        *notes(),
    ]
    tips = "".join(
        f'<marker id="{name}" viewBox="0 0 10 10" refX="5" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M 0 0 L 10 5 L 0 10 z" class="{name}"/></marker>'
        for name in ("tip", "latetip")
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'aria-label="Eight peers on a circle, each with a replica. Every peer sends half of its mass to one neighbour. '
        f'Peer {SLOW} is slow and peer {DEAD} is dead; the others do not wait for them.">\n'
        f"<style>{STYLE}</style>\n<defs>{tips}</defs>\n" + "\n".join(body) + "\n</svg>\n"
    )


if __name__ == "__main__":
    PICTURE.write_text(draw())
