#!/usr/bin/env python3
"""Draws a horizontal bar chart as SVG, using only the standard library.

  scripts/plot.py --title "Time of a decode step" --unit us --out plot.svg "f32=2950" "nvfp4, exact=930" "floor of nvfp4=260:muted"

Each bar is LABEL=VALUE, with an optional :accent or :muted.
"""
import argparse
from html import escape

COLOURS = {"plain": "#8aa0b4", "accent": "#2f7d6b", "muted": "#d5dbe1"}
ROW, BAR, LABEL_WIDTH, BAR_WIDTH, VALUE_WIDTH, TOP = 30, 20, 210, 430, 90, 56


def parse(bar):
    label, _, rest = bar.rpartition("=")
    value, _, style = rest.partition(":")
    return label, float(value), COLOURS[style or "plain"]


def draw(title, note, unit, bars):
    largest = max(value for _, value, _ in bars)
    width, height = LABEL_WIDTH + BAR_WIDTH + VALUE_WIDTH, TOP + ROW * len(bars) + 16
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        ' font-family="system-ui, sans-serif" font-size="13">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="12" y="22" font-size="15" font-weight="600" fill="#1d2733">{escape(title)}</text>',
        f'<text x="12" y="41" fill="#5b6875">{escape(note)}</text>',
    ]
    for row, (label, value, colour) in enumerate(bars):
        y = TOP + row * ROW
        length = max(2.0, BAR_WIDTH * value / largest)
        lines += [
            f'<text x="{LABEL_WIDTH - 10}" y="{y + 15}" text-anchor="end" fill="#1d2733">{escape(label)}</text>',
            f'<rect x="{LABEL_WIDTH}" y="{y}" width="{length:.1f}" height="{BAR}" rx="3" fill="{colour}"/>',
            f'<text x="{LABEL_WIDTH + length + 7:.1f}" y="{y + 15}" fill="#1d2733">{value:g} {escape(unit)}</text>',
        ]
    return "\n".join(lines + ["</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--title", required=True)
    parser.add_argument("--note", default="")
    parser.add_argument("--unit", default="")
    parser.add_argument("--out", required=True)
    parser.add_argument("bars", nargs="+", metavar="LABEL=VALUE")
    args = parser.parse_args()
    with open(args.out, "w", encoding="utf-8") as file:
        file.write(draw(args.title, args.note, args.unit, [parse(bar) for bar in args.bars]))


if __name__ == "__main__":
    main()
