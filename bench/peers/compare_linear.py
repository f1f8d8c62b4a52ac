#!/usr/bin/env python3
"""Low-precision linear layers on a GPU: Tessera beside cuBLAS bf16, PyTorch int4 and Humming, in one run.

    python bench/peers/compare_linear.py --out docs/results/h200
    python bench/peers/compare_linear.py --out table --shapes 4096x14336 --rows 1,16 --formats nvfp4,int4 --humming nvfp4

Writes linear.md, linear.csv and a plot for each shape. Activations are bf16, weights random; every program rotates over 200
MB of weights, so that none is in the L2. The floor is what the bytes cost at the bandwidth, or the arithmetic at the rate of
a large matrix product, that bench_gpu measured in the same run.

Needs torch, and for Humming the packages humming-kernels, cuda-bindings, cuda-pathfinder, tabulate, tqdm and filelock. Humming
compiles each kernel at its first call, which takes seconds; HUMMING_CACHE_DIR keeps the kernels (its keys are the paths and times
of its own files). --warm-up only fills that folder, with a process for each shape and format.
"""
import argparse
import pathlib
import subprocess
import sys

import gpu_table as table

HUMMING = {
    "nvfp4": {"dtype": "float4e2m1", "group_size": 16, "scale_dtype": "float8e4m3", "scale_2_type": "tensor"},
    "mxfp4": {"dtype": "float4e2m1", "group_size": 32, "scale_dtype": "float8e8m0"},
    "int4": {"dtype": "int4", "group_size": 128},
    "int8": {"dtype": "int8", "group_size": 128},
    "fp8": {"dtype": "float8e4m3"},
}
SHAPES = "2560x10240,4096x4096,4096x14336,8192x28672,768x3072"
ROWS = "1,2,4,8,16,32,64,128,256,512,1024,4096"
FORMATS = "nvfp4,mxfp4,nf4,int4,int4z,int8,fp8"
COLUMNS = ["K", "N", "M", "format", "us", "floor", "humming_us", "cublas_us", "torch_int4_us", "rel", "humming_rel", "bytes", "kernel"]


# ---- peers: each gives functions of x, every one with a weight of its own ----------------------------------------------

def cublas(K, N):
    import torch

    weights = [torch.randn(N, K, device="cuda", dtype=torch.bfloat16) * 0.02 for _ in range(table.copies_beyond_cache(2 * K * N))]
    return [lambda x, w=w: torch.nn.functional.linear(x, w) for w in weights]


def torch_int4(K, N):
    import torch

    layers = []
    for _ in range(table.copies_beyond_cache(K * N / 2)):
        codes = torch.randint(0, 255, (N, K // 2), device="cuda", dtype=torch.uint8)
        packed = torch.ops.aten._convert_weight_to_int4pack(codes, 8)
        layers.append((packed, torch.randn(K // 128, N, 2, device="cuda", dtype=torch.bfloat16)))
    return [lambda x, p=p, s=s: torch.ops.aten._weight_int4pack_mm(x, p, 128, s) for p, s in layers]


def humming_layers(K, N, fmt, count):
    """Layers and the dense weight they were made from."""
    import torch
    from humming.layer import HummingLayer

    weight = torch.randn(N, K, device="cuda", dtype=torch.bfloat16) * 0.02
    layers = []
    for _ in range(count):
        layer = HummingLayer(shape_n=N, shape_k=K, weight_config=dict(HUMMING[fmt]), torch_dtype=torch.bfloat16).to("cuda")
        layer.load_from_unquantized(weight)
        layer.transform()
        layers.append(layer)
    return layers, weight


def activations(rows, K):
    import torch

    return torch.randn(rows, K, device="cuda", dtype=torch.bfloat16)


def time_layers(name, layers, rows, K):
    """Microseconds by rows, reported as they are measured; rows that a peer refuses are reported and left out."""
    times = {}
    for M in rows:
        x = activations(M, K)
        try:
            times[M] = table.microseconds([lambda f=f: f(x) for f in layers])
            print(f"compare_linear: {name}, {M} rows: {times[M]:.2f} us", file=sys.stderr, flush=True)
        except Exception as error:  # noqa: BLE001: a peer may fail in any way, and the others go on
            print(f"compare_linear: {name}, {M} rows: {error}", file=sys.stderr, flush=True)
    return times


def time_humming(K, N, fmt, rows):
    bits = 8 if fmt in ("int8", "fp8") else 4
    layers, weight = humming_layers(K, N, fmt, table.copies_beyond_cache(K * N * bits / 8))
    x = activations(16, K)
    expected = x.float() @ weight.float().T
    error = ((layers[0](x).float() - expected).norm() / expected.norm()).item()
    return time_layers(f"Humming {fmt} {K}x{N}", layers, rows, K), error


def peer_times(shape, a):
    """{peer: {rows: microseconds}} and {format: error of Humming}."""
    import torch

    K, N = map(int, shape.split("x"))
    times, errors = {"cublas": time_layers(f"cuBLAS bf16 {shape}", cublas(K, N), a.rows, K)}, {}
    torch.cuda.empty_cache()
    # Beyond 64 rows PyTorch's kernel takes milliseconds.
    times["torch_int4"] = time_layers(f"PyTorch int4 {shape}", torch_int4(K, N), [M for M in a.rows if M <= 64], K)
    torch.cuda.empty_cache()
    for fmt in a.humming:
        try:
            times["humming-" + fmt], errors[fmt] = time_humming(K, N, fmt, a.rows)
        except Exception as error:  # noqa: BLE001
            print(f"compare_linear: Humming, {fmt} {shape}: {error}", file=sys.stderr)
        torch.cuda.empty_cache()
    return times, errors


def our_rows(shape, a):
    """The ceilings and Tessera's rows, by format. Few rows of all formats come first, then each larger number of them: after many rows the
    card's clock stays low for a while."""
    ceilings, found = None, []
    for part in filter(None, [[M for M in a.rows if M <= 64], *([M] for M in sorted(a.rows) if M > 64)]):
        lines = list(table.ours(a.program, "linear", "--shapes", shape, "--rows", ",".join(map(str, part)),
                                "--formats", ",".join(a.formats), "--dtypes", "bf16"))
        if not lines:
            sys.exit(1)  # what it refused has been shown
        ceilings = ceilings or lines[0]
        found += lines[1:]
    formats = list(dict.fromkeys(row["format"] for row in found))
    return ceilings, sorted(found, key=lambda row: (formats.index(row["format"]), row["M"]))


# ---- the table ---------------------------------------------------------------------------------------------------------

def joined(row, times, errors):
    M, fmt = row["M"], row["format"]
    base = "int4" if fmt.startswith("int4") else fmt
    return {**row, "cublas_us": times["cublas"].get(M), "torch_int4_us": times["torch_int4"].get(M) if base == "int4" else None,
            "humming_us": times.get("humming-" + base, {}).get(M), "humming_rel": errors.get(base)}


def ratio(peer, mine):
    return "-" if peer is None else f"{peer / mine:.2f}x"


def as_cells(r):
    return [f"{r['K']} x {r['N']}", str(r["M"]), r["format"], f"{r['us']:.2f}", f"{r['floor']:.2f}", f"{r['us'] / r['floor']:.2f}",
            table.cell(r["humming_us"], 2), ratio(r["humming_us"], r["us"]), table.cell(r["cublas_us"], 2), ratio(r["cublas_us"], r["us"]),
            table.cell(r["torch_int4_us"], 2), f"{r['rel']:.1e}", r["kernel"]]


HEADS = ["K x N", "rows", "format", "us", "floor", "us / floor", "Humming", "ratio", "cuBLAS bf16", "ratio", "PyTorch int4", "error", "kernel"]


def bars(rows, fmt):
    for M in sorted({r["M"] for r in rows}):
        row = next((r for r in rows if r["M"] == M and r["format"] == fmt), None)
        if row is None or M not in (1, 16, 64, 256):
            continue
        yield f"{M} rows: Tessera {fmt}", row["us"], table.plot.COLOURS["accent"]
        if row["humming_us"]:
            yield f"Humming {fmt}", round(row["humming_us"], 2), table.plot.COLOURS["plain"]
        if row["cublas_us"]:
            yield "cuBLAS bf16", round(row["cublas_us"], 2), table.plot.COLOURS["plain"]
        yield "floor", row["floor"], table.plot.COLOURS["muted"]


def write(rows, ceilings, a):
    a.out.mkdir(parents=True, exist_ok=True)
    head = table.heading("compare_linear.py", "Activations bf16; microseconds. The error is that of the product with the decoded weight. The floor is "
                         f"bytes over {ceilings['tb_per_s']} TB/s or flops over {ceilings['tflop_per_s']} TFLOP/s, as measured in the same run.",
                         humming_version())
    (a.out / "linear.md").write_text(table.markdown(head, HEADS, map(as_cells, rows)), encoding="utf-8")
    table.write_csv(a.out / "linear.csv", COLUMNS, rows)
    for shape in dict.fromkeys((r["K"], r["N"]) for r in rows):
        of_shape = [r for r in rows if (r["K"], r["N"]) == shape]
        for fmt in ("nvfp4", "int4"):
            chart = list(bars(of_shape, fmt))
            if chart:
                name = f"linear_{shape[0]}x{shape[1]}_{fmt}.svg"
                (a.out / name).write_text(table.plot.draw(f"Linear layer {shape[0]} x {shape[1]}, {fmt}", "weights past the L2, graph replay", "us", chart),
                                          encoding="utf-8")


def humming_version():
    from importlib import metadata

    try:
        return [f"humming-kernels {metadata.version('humming-kernels')}"]
    except metadata.PackageNotFoundError:
        return []


# ---- the command -------------------------------------------------------------------------------------------------------

def warm_up(a):
    """Compiles Humming's kernels, each shape and format in a process of its own: the compiler is single-threaded."""
    code = ("import sys; sys.path.insert(0, sys.argv[1]); import compare_linear as c; K, N = map(int, sys.argv[2].split('x'));\n"
            "layers, _ = c.humming_layers(K, N, sys.argv[3], 1)\n"
            "for M in map(int, sys.argv[4].split(',')): layers[0](c.activations(M, K))")
    folder = str(pathlib.Path(__file__).resolve().parent)
    running = [subprocess.Popen([sys.executable, "-c", code, folder, shape, fmt, ",".join(map(str, a.rows))])
               for shape in a.shapes for fmt in a.humming]
    sys.exit(max(process.wait() for process in running))


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)

    def listed(text):
        return [part for part in text.split(",") if part]

    p.add_argument("--shapes", type=listed, default=listed(SHAPES), help="K x N of each layer")
    p.add_argument("--rows", type=lambda text: [int(part) for part in listed(text)], default=[int(M) for M in ROWS.split(",")])
    p.add_argument("--formats", type=listed, default=listed(FORMATS), help="of Tessera")
    p.add_argument("--humming", type=listed, default=["nvfp4", "int4"], help=f"formats to run Humming in, of {', '.join(HUMMING)}; '' for none")
    p.add_argument("--warm-up", action="store_true", help="only compile Humming's kernels")
    p.add_argument("--program", default=str(table.ROOT / "build/bin/bench_gpu"))
    p.add_argument("--out", type=pathlib.Path, default=pathlib.Path("docs/results/h200"), help="folder for the table and the plots")
    a = p.parse_args()
    unknown = [fmt for fmt in a.humming if fmt not in HUMMING]
    if unknown:
        p.error(f"Humming is not set up for {', '.join(unknown)}; there are {', '.join(HUMMING)}")
    if not a.warm_up:
        table.need_program(p, a.program)
    return a


def main():
    a = arguments()
    table.start_torch("compare_linear")
    if a.warm_up:
        warm_up(a)
    rows = []
    for shape in a.shapes:
        times, errors = peer_times(shape, a)
        ceilings, found = our_rows(shape, a)
        rows += [joined(row, times, errors) for row in found]
        write(rows, ceilings, a)  # after each shape, so that nothing measured is lost
    print((a.out / "linear.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
