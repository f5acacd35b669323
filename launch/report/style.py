"""How a report looks: light or dark as the reader's system is, in one column on a phone."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["style"]

#: By Okabe and Ito, distinguishable with all kinds of colour vision; darker on white, for contrast.
_LIGHT = ("#0072b2", "#d55e00", "#008060", "#b04a8a", "#b37700", "#2b8cc4", "#5a5a5a", "#7a6a00")
_DARK = ("#4aa8e0", "#ff8a45", "#2fc79a", "#e59cc6", "#f0b432", "#8fd0f5", "#bdbdbd", "#e8dc4a")
#: Beyond eight ranks the colours come again, with other strokes.
_DASHES = ("none", "7 3", "2 3", "9 3 2 3", "12 2", "4 2", "1 2", "6 2 1 2")

_BASE = """\
*{box-sizing:border-box}
body{margin:0 auto;max-width:1240px;padding:1rem clamp(.75rem,3vw,2rem) 3rem;background:var(--page);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
h1{font-size:1.6rem;line-height:1.25;margin:.5rem 0 0;overflow-wrap:anywhere}
h2{font-size:1.15rem;margin:2.2rem 0 .6rem}
h3{font-size:.95rem;margin:0 0 .3rem;font-weight:600}
.sub,.note,figcaption{color:var(--soft)}
.sub{margin:.2rem 0 0}
figcaption{font-size:.8rem;margin-top:.2rem}
code,pre{font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
pre{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:.7rem .9rem;
overflow-x:auto;margin:.4rem 0}
pre.wrap{white-space:pre-wrap;overflow-wrap:anywhere}
.notices{list-style:none;padding:0;margin:1rem 0 0}
.notices li{border-left:4px solid var(--alarm);background:var(--card);padding:.45rem .8rem;margin:.4rem 0;
border-radius:0 6px 6px 0}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(8.5rem,1fr));gap:.6rem;margin:1.2rem 0 0}
.tiles div{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:.6rem .9rem}
.tiles dt{color:var(--soft);font-size:.8rem}
.tiles dd{margin:0;font-size:1.3rem;font-weight:600;font-variant-numeric:tabular-nums}
.scroll{overflow-x:auto;border:1px solid var(--line);border-radius:10px;background:var(--card)}
.tall{max-height:30rem;overflow-y:auto}
table{border-collapse:collapse;width:100%;font-size:.86rem;font-variant-numeric:tabular-nums}
th,td{padding:.38rem .55rem;text-align:right;white-space:nowrap;border-bottom:1px solid var(--line)}
tr:last-child td{border-bottom:0}
th{color:var(--soft);font-weight:600;position:sticky;top:0;background:var(--card)}
td.t,th.t{text-align:left}
td.w{white-space:normal;min-width:16rem;overflow-wrap:anywhere}
.bad{color:var(--alarm);font-weight:600}
.pick{display:flex;flex-wrap:wrap;gap:.3rem;padding:.5rem 0;position:sticky;top:0;background:var(--page);z-index:2;
border:0;margin:0;min-width:0;max-height:8rem;overflow-y:auto}
.pick legend{float:left;padding:.15rem .4rem .15rem 0;color:var(--soft)}
.pick label{display:inline-flex;align-items:center;gap:.35rem;padding:.12rem .6rem;border:1px solid var(--line);
border-radius:99px;background:var(--card);cursor:pointer;font-size:.85rem}
.pick input{position:absolute;opacity:0}
.pick label:has(:checked){border-color:var(--ink);box-shadow:inset 0 0 0 1px var(--ink)}
.pick label:has(:focus-visible){outline:3px solid var(--c0);outline-offset:1px}
.sw{width:20px;height:10px;flex:none}
.sw path,.l{fill:none;stroke:var(--k);stroke-dasharray:var(--d);stroke-linejoin:round;stroke-linecap:round}
.sw path{stroke-width:3}
.grid{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr));gap:1rem;align-items:start}
figure{margin:0;background:var(--card);border:1px solid var(--line);border-radius:10px;
padding:.8rem .8rem .5rem;min-width:0}
figure.wide{grid-column:1/-1}
svg{display:block;width:100%;height:auto}
.w1080{display:none}
@media (min-width:50rem){.w1080{display:block}.w480{display:none}}
small{font-weight:400;color:var(--soft)}
svg text{font:11.5px system-ui,sans-serif;fill:var(--soft)}
.l{stroke-width:1.7;transition:opacity .15s}
.l.f{stroke-width:.8;opacity:.28;stroke-dasharray:none}
.g{stroke:var(--line);stroke-width:1}
.a{stroke:var(--soft);stroke-width:1}
.s{stroke:var(--k);stroke-width:4;fill:none}
.v{stroke:var(--k);stroke-width:1;stroke-dasharray:3 3;opacity:.75}
.b{fill:var(--k);opacity:.3}
.m{fill:var(--card);stroke:var(--ink);stroke-width:1.5;stroke-linejoin:round}
.grid figure:not(.wide) .e .m{stroke:var(--k)}
.m.kill{stroke:var(--alarm);stroke-width:2.4}
.grid figure:not(.wide) .e .m.consensus,.m.start-again{fill:var(--k)}
.m.consensus{fill:var(--ink)}
.m.warning{stroke-width:1}
.n{font-size:9px}
.keys{display:flex;flex-wrap:wrap;gap:.2rem 1rem;font-size:.8rem;color:var(--soft);margin:.4rem 0 0;padding:0;
list-style:none}
.keys li{display:inline-flex;align-items:center;gap:.35rem}
.keys svg{width:16px;height:16px;flex:none}
.dot{display:inline-block;width:.75em;height:.75em;border-radius:50%;background:var(--k);margin-right:.45em}
details{margin:.5rem 0}
summary{cursor:pointer;color:var(--soft)}
footer{margin-top:2.5rem;color:var(--soft);font-size:.8rem}
@media print{.pick{position:static}}
@media (prefers-reduced-motion:reduce){*{transition:none!important}}
"""


def style(ranks: Sequence[int]) -> str:
    """Return the style sheet of a page about these ranks."""
    light = "--page:#f7f7f5;--card:#fff;--ink:#1c1c1a;--soft:#5c5c58;--line:#deded9;--alarm:#c02000;"
    dark = "--page:#15161a;--card:#1e2026;--ink:#eceef2;--soft:#a6abb5;--line:#343842;--alarm:#ff7a5c;"
    parts = [
        f":root{{color-scheme:light dark;{light}{_colours(_LIGHT)}}}",
        f"@media (prefers-color-scheme:dark){{:root{{{dark}{_colours(_DARK)}}}}}",
        _BASE,
    ]
    for rank in ranks:
        parts.append(f".r{rank}{{--k:var(--c{rank % 8});--d:{_DASHES[rank // 8 % 8]}}}")
        # Without a script: the chosen rank stays, the others fade.
        others = f":is(.l,.s,.e):not(.r{rank})"
        parts.append(f"body:has(#pick-{rank}:checked) {others}{{opacity:.07}}")
        parts.append(f"body:has(#pick-{rank}:checked) .l.r{rank}:not(.f){{stroke-width:2.4}}")
    return "\n".join(parts)


def _colours(colours: Sequence[str]) -> str:
    return "".join(f"--c{index}:{colour};" for index, colour in enumerate(colours))
