"""Plots of whole models: bars of time per token beside their floors. Used by decode_tables.py."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import plot  # noqa: E402


def write_plots(rows, context, folder):
    """One for each shape: time per token of one sequence after this context."""
    alone = [row for row in rows if row["batch"] == 1 and row["context"] == context]
    for shape in dict.fromkeys(row["shape"] for row in alone):
        bars = []
        for row in (row for row in alone if row["shape"] == shape):
            ours = row["program"] == "Tessera"
            bars.append((f"{row['program'].split(',')[0]}, {row['weights']}", round(row["ms_per_step"], 3),
                         plot.COLOURS["accent" if ours else "plain"]))
            if ours:
                bars.append((f"floor of {row['weights']}", round(row["floor_ms"], 3), plot.COLOURS["muted"]))
        note = f"batch 1, after {context} tokens; floor: bytes read by a token over the measured bandwidth"
        (folder / f"decode_{shape}.svg").write_text(plot.draw(f"Time per token, {shape}", note, "ms", bars))
