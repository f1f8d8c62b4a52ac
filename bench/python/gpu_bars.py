"""What the Python package costs and gains on a GPU, beside PyTorch on the same GPU in the same run.

    python bench/python/gpu_bars.py [calls attention linear block compile llm transformers] [--json FILE]

Times are medians of replayed CUDA graphs, so that the host counts for neither side; only `calls` times the host.
Weights take turns, so that none is read from the cache. --small runs tiny sizes, on the CPU if there is no GPU: a
check of this program, not a measurement.
"""

import argparse
import copy
import json
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

import tessera
import tessera.torch as tt

BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION,
            "efficient": SDPBackend.EFFICIENT_ATTENTION}


class Bench:
    def __init__(self, small: bool) -> None:
        self.small = small
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.results: dict[str, object] = {}

    @property
    def on_gpu(self) -> bool:
        return self.device == "cuda"

    def note(self, name: str, value: object, text: str) -> None:
        self.results[name] = value
        print(f"{name:58} {text}", flush=True)

    def milliseconds(self, work: Callable[[], object], of: int, rounds: int = 15) -> float:
        """The time of one of the `of` calls that work() makes: the median of replays of its graph."""
        with torch.no_grad():
            for _ in range(3):
                work()
            if not self.on_gpu:
                start = time.perf_counter()
                work()
                return 1e3 * (time.perf_counter() - start) / of
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                kept = work()  # noqa: F841  its outputs live in the graph's memory
        times = []
        for _ in range(rounds + 2):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end))
        return statistics.median(times[2:]) / of

    def pair(self, name: str, ours: float, theirs: float, bar: float | None, more: str = "") -> None:
        ratio = theirs / ours
        against = "" if bar is None else f"  bar {bar}x: {'met' if ratio >= bar else 'MISSED'}"
        self.note(name, {"ours_ms": ours, "torch_ms": theirs, "ratio": ratio, "bar": bar, "more": more},
                  f"{ours:9.4f} ms, torch {theirs:9.4f} ms {more}, {ratio:5.2f}x{against}")


# ---- what a call costs on the host -----------------------------------------------------------------------------------


def host_microseconds(bench: Bench, call: Callable[[], object], rounds: int = 15, calls: int = 200) -> float:
    """How long the host is busy with a call. Waits for the GPU between bursts, which is not timed."""
    call()
    times = []
    for _ in range(2 if bench.small else rounds):
        if bench.on_gpu:
            torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        times.append(1e6 * (time.perf_counter() - start) / calls)
    if bench.on_gpu:
        torch.cuda.synchronize()
    return statistics.median(times)


def calls(bench: Bench) -> None:
    place = {"device": bench.device, "dtype": torch.float16}
    x, w, out = torch.randn(1, 256, **place), torch.ones(256, **place), torch.empty(1, 256, **place)
    q = torch.randn(1, 1, 4, 64, **place)
    layer, dense = tt.FusedFP4Linear(256, 256).to(**place), nn.Linear(256, 256).to(**place)
    causal = tessera.Mask.causal().spec()
    recorded = q.clone().requires_grad_()
    heads = q.transpose(1, 2)

    def with_gradient(op: Callable[[], object]) -> Callable[[], None]:
        def run() -> None:
            with torch.enable_grad():
                op()
        return run

    recorded_heads = recorded.transpose(1, 2)
    sdpa = functional.scaled_dot_product_attention
    cases = {
        "tessera.softmax(x, out)": (lambda: tessera.softmax(x=x, out=out), lambda: torch.softmax(x, -1)),
        "tessera.torch.rms_norm": (lambda: tt.rms_norm(x, w), lambda: functional.rms_norm(x, (256,), w)),
        "tessera.torch.attention": (lambda: tt.attention(q, q, q, causal), lambda: sdpa(heads, heads, heads)),
        "FusedFP4Linear": (lambda: layer(x), lambda: dense(x)),
        "tessera.torch.attention, recorded": (
            with_gradient(lambda: tt.attention(recorded, recorded, recorded, causal)),
            with_gradient(lambda: sdpa(recorded_heads, recorded_heads, recorded_heads))),
    }
    with torch.no_grad():
        for name, (ours, theirs) in cases.items():
            pair = host_microseconds(bench, ours), host_microseconds(bench, theirs)
            bench.note(f"calls/{name}", {"ours_us": pair[0], "torch_us": pair[1]},
                       f"{pair[0]:7.2f} us of the host; torch's own op {pair[1]:7.2f} us")


# ---- attention -------------------------------------------------------------------------------------------------------


class TorchAttention(nn.Module):
    """FlashAttention's twin on PyTorch's ops, with the same weights; plain: with the matrix of scores in memory."""

    def __init__(self, ours: tt.FlashAttention, causal: bool, plain: bool = False) -> None:
        super().__init__()
        self.ours, self.causal, self.plain = ours, causal, plain

    def forward(self, x: Tensor) -> Tensor:
        batch, seq, _ = x.shape
        q, k, v = (t.transpose(1, 2) for t in self.ours.qkv(x).view(batch, seq, -1, self.ours.head_dim)
                   .split([self.ours.n_heads, self.ours.kv_heads, self.ours.kv_heads], dim=2))
        if self.plain:
            scores = q @ k.transpose(-1, -2) * self.ours.head_dim**-0.5
            if self.causal:
                scores = scores.masked_fill(torch.ones(seq, seq, dtype=torch.bool, device=x.device).triu(1), -torch.inf)
            out = torch.softmax(scores, -1) @ v
        else:
            out = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.ours.output(out.transpose(1, 2).reshape(batch, seq, -1))


def peak_bytes(module: Callable[[Tensor], Tensor], x: Tensor) -> int:
    """The peak memory of one forward pass, beyond what was allocated before."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    module(x)
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def best_sdpa(bench: Bench, work: Callable[[], object], of: int) -> tuple[float, str]:
    best = float("inf"), "math"
    for name, backend in BACKENDS.items():
        try:
            with sdpa_kernel(backend):
                best = min(best, (bench.milliseconds(work, of), name))
        except RuntimeError:
            continue  # it does not take these tensors, or is not in this build
    return best if best[1] != "math" else (bench.milliseconds(work, of), "math")


@torch.no_grad()
def attention(bench: Bench) -> None:
    batch, seq, heads, dim = (1, 33, 2, 64) if bench.small else (8, 2048, 16, 128)
    for dtype in (torch.bfloat16, torch.float16):
        for causal in (True, False):
            torch.manual_seed(0)
            name = f"{str(dtype).split('.')[1]}, {'causal' if causal else 'full'}"
            mask = (tessera.Mask.causal() if causal else tessera.Mask.full()).spec()
            place = {"device": bench.device, "dtype": dtype}
            q, k, v = (torch.randn(batch, seq, heads, dim, **place) for _ in range(3))
            n = 4
            ours = bench.milliseconds(lambda: [tt.attention(q, k, v, mask) for _ in range(n)], n)  # noqa: B023
            theirs = float("inf"), ""
            for layout in ("rows", "heads"):
                args = [t.transpose(1, 2) if layout == "rows" else t.transpose(1, 2).contiguous() for t in (q, k, v)]
                found = best_sdpa(bench, lambda: [functional.scaled_dot_product_attention(
                    *args, is_causal=causal) for _ in range(n)], n)  # noqa: B023
                theirs = min(theirs, (found[0], f"({found[1]}, {layout})"))
            bench.pair(f"attention/op, {name}", ours, theirs[0], 1.0, theirs[1])

            module = tt.FlashAttention(heads * dim, heads, mask=mask, **place).eval()
            twin, plain = TorchAttention(module, causal), TorchAttention(module, causal, plain=True)
            x = torch.randn(batch, seq, heads * dim, **place)
            error = ((module(x) - twin(x)).float().norm() / twin(x).float().norm()).item()
            ours = bench.milliseconds(lambda: module(x), 1)  # noqa: B023
            best = best_sdpa(bench, lambda: twin(x), 1)  # noqa: B023
            bench.pair(f"attention/FlashAttention, {name}", ours, best[0], 1.0, f"({best[1]})")
            bench.note(f"attention/error, {name}", error, f"relative difference from torch {error:.1e}")
            if bench.on_gpu:
                sizes = {"ours": peak_bytes(module, x), "sdpa": peak_bytes(twin, x), "plain": peak_bytes(plain, x)}
                less = 1 - sizes["ours"] / sizes["plain"]
                bench.note(f"attention/memory, {name}", sizes,
                           f"{sizes['ours'] / 2**20:.0f} MiB, SDPA {sizes['sdpa'] / 2**20:.0f}, plain "
                           f"{sizes['plain'] / 2**20:.0f}: {100 * less:.0f}% less (bar 35%)")


# ---- packed layers ---------------------------------------------------------------------------------------------------


@torch.no_grad()
def linear(bench: Bench) -> None:
    wide, high = (256, 512) if bench.small else (4096, 14336)
    n = 2 if bench.small else 8  # layers that take turns
    place = {"device": bench.device, "dtype": torch.bfloat16}
    torch.manual_seed(0)
    dense = [nn.Linear(wide, high, **place) for _ in range(n)]
    for format in ("nvfp4",) if bench.small else ("nvfp4", "mxfp4", "int4", "fp8"):
        packed = [tt.FusedFP4Linear.from_linear(layer, format=format) for layer in dense]
        for rows in (1, 16) if format == "nvfp4" else (1,):
            x = torch.randn(rows, wide, **place)
            ours = bench.milliseconds(lambda: [layer(x) for layer in packed], n)  # noqa: B023
            theirs = bench.milliseconds(lambda: [layer(x) for layer in dense], n)  # noqa: B023
            error = ((packed[0](x) - dense[0](x)).float().norm() / dense[0](x).float().norm()).item()
            exact = functional.linear(x.float(), packed[0].dense_weight(), packed[0].bias.float())
            own = ((packed[0](x).float() - exact).norm() / exact.norm()).item()
            bench.pair(f"linear/{format}, {rows} rows", ours, theirs, 2.0 if format == "nvfp4" else None,
                       f"(error of the format {error:.4f}, of the kernel {own:.1e})")


class TorchBlock(nn.Module):
    """TransformerBlock's twin on PyTorch's ops: layer norms, one product for q, k and v, gelu."""

    def __init__(self, ours: tt.TransformerBlock) -> None:
        super().__init__()
        self.ours = ours
        self.attention = TorchAttention(ours.attention, causal=True)

    def norm(self, layer: tt.LayerNorm, x: Tensor) -> Tensor:
        return functional.layer_norm(x, (x.shape[-1],), layer.weight, layer.bias, layer.eps)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm(self.ours.norm1, x))
        return x + self.ours.down(functional.gelu(self.ours.up(self.norm(self.ours.norm2, x))))


@torch.no_grad()
def block(bench: Bench) -> None:
    width, heads, inner = (256, 2, 512) if bench.small else (4096, 32, 16384)
    n = 2 if bench.small else 4
    place = {"device": bench.device, "dtype": torch.bfloat16}
    torch.manual_seed(0)
    dense = [tt.TransformerBlock(width, heads, inner, **place).eval() for _ in range(n)]
    twins = [TorchBlock(layer) for layer in dense]
    for format in (info.name for info in tessera.formats()):
        packed = [copy.deepcopy(layer).quantize(format) for layer in dense[: n if format == "nvfp4" else 1]]
        x = torch.randn(4, 64 if not bench.small else 5, width, **place)
        expected = twins[0](x).float()
        error = ((packed[0](x).float() - expected).norm() / expected.norm()).item()
        branch = ((packed[0](x).float() - expected).norm() / (expected - x.float()).norm()).item()
        bench.note(f"block/error, {format}", {"output": error, "beyond_x": branch},
                   f"relative error of the output {error:.4f} (bar for nvfp4 0.05), of what it adds {branch:.4f}")
        if format == "nvfp4":
            for sequences in (1, 16):  # decode: one new token each
                x = torch.randn(sequences, 1, width, **place)
                ours = bench.milliseconds(lambda: [layer(x) for layer in packed], n)  # noqa: B023
                theirs = bench.milliseconds(lambda: [layer(x) for layer in twins], n)  # noqa: B023
                bench.pair(f"block/TransformerBlock, {sequences} sequences", ours, theirs, 1.36)


# ---- the whole -------------------------------------------------------------------------------------------------------


@torch.no_grad()
def compiled(bench: Bench) -> None:
    width = 256 if bench.small else 1024
    torch.manual_seed(0)
    layer = tt.TransformerBlock(width, width // 64, 4 * width, use_fp4=True).to(bench.device, torch.float16).eval()
    x = torch.randn(2, 64, width, device=bench.device, dtype=torch.float16)
    start = time.perf_counter()
    fast = torch.compile(layer, fullgraph=True)
    got, expected = fast(x), layer(x)
    seconds = time.perf_counter() - start
    error = ((got - expected).float().norm() / expected.float().norm()).item()
    from torch._dynamo.utils import counters
    breaks = sum(counters["graph_break"].values())
    graphs = counters["stats"]["unique_graphs"]
    times = host_microseconds(bench, lambda: layer(x), 5, 50), host_microseconds(bench, lambda: fast(x), 5, 50)
    bench.note("compile/TransformerBlock, inductor",
               {"seconds": seconds, "error": error, "breaks": breaks, "graphs": graphs, "eager_us": times[0],
                "compiled_us": times[1]},
               f"{graphs} graph, {breaks} breaks, error {error:.1e}, compiled in {seconds:.1f} s; "
               f"host {times[0]:.0f} us eager, {times[1]:.0f} us compiled")


def llm(bench: Bench) -> None:
    params = tessera.SamplingParams(temperature=0, max_tokens=16 if bench.small else 200)
    prompts = ["Once upon a time", "The little dog"]
    reference = tessera.LLM(device="cpu", dtype="f32", activations="exact")
    expected = [r.token_ids for r in reference.generate(prompts, params)]
    for dtype in ("f32", "f16"):
        model = tessera.LLM(device=bench.device, dtype=dtype)
        model.generate(prompts, params)
        start = time.perf_counter()
        results = model.generate(prompts[:1], params)
        seconds = time.perf_counter() - start
        got = [r.token_ids for r in model.generate(prompts, params)]
        same = [next((i for i, (a, b) in enumerate(zip(x, y, strict=False)) if a != b), len(x))
                for x, y in zip(got, expected, strict=True)]
        speed = len(results[0].token_ids) / seconds
        bench.note(f"llm/{dtype}", {"tokens_per_second": speed, "same": same, "of": [len(x) for x in expected]},
                   f"{speed:.0f} tokens/s; tokens that are the CPU's in f32, until the first other one: {same} of "
                   f"{[len(x) for x in expected]}")


def transformers(bench: Bench) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    import tessera.transformers as tf

    sizes = (256, 512, 2, 4) if bench.small else (2048, 8192, 16, 16)
    config = LlamaConfig(hidden_size=sizes[0], intermediate_size=sizes[1], num_hidden_layers=sizes[2],
                         num_attention_heads=sizes[3], num_key_value_heads=sizes[3] // 2, vocab_size=1000,
                         max_position_embeddings=2048, tie_word_embeddings=False)
    for linear in (None, "nvfp4"):
        torch.manual_seed(0)
        model = LlamaForCausalLM(config).eval().to(bench.device, torch.float16)
        ids = torch.randint(0, 1000, (1, 64), device=bench.device)
        tf.patch(model, linear=linear, keep_dense=["lm_head"] if linear else [])
        report = tf.verify(model, ids, tokens=8 if bench.small else 32)
        print(report)
        bench.note(f"transformers/linear={linear}",
                   {"ok": report.ok, "before_ms": report.ms_before, "after_ms": report.ms_after,
                    "fallbacks": report.fallbacks},
                   f"{'ok' if report.ok else 'FAILED'}; {report.ms_before:.2f} ms a token before, "
                   f"{report.ms_after:.2f} after")
        tf.unpatch(model)
        del model


PARTS = {"calls": calls, "attention": attention, "linear": linear, "block": block, "compile": compiled, "llm": llm,
         "transformers": transformers}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--json", metavar="FILE", help="write the results there too")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to check this program")
    options = parser.parse_args()
    for part in options.parts:
        if part not in PARTS:
            parser.error(f"{part!r} is no part; there are: {', '.join(PARTS)}")
    bench = Bench(options.small)
    if not bench.on_gpu and not options.small:
        parser.error("there is no GPU; --small checks this program without one")
    name = torch.cuda.get_device_name() if bench.on_gpu else "CPU"
    print(f"{name}, torch {torch.__version__}, tessera {tessera.__version__}")
    failed = 0
    for part in options.parts or PARTS:
        try:
            PARTS[part](bench)
        except Exception as error:  # if one part fails, the others still run
            failed = 1
            print(f"{part}: FAILED: {type(error).__name__}: {error}", flush=True)
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"device": name, "torch": torch.__version__, "results": bench.results}, file, indent=1)
    raise SystemExit(failed)


if __name__ == "__main__":
    main()
