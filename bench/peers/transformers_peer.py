"""transformers as a peer of whole models: eager, compiled, and from a CUDA graph. Used by compare_transformers.py."""
import contextlib
import gc
import itertools
import statistics
import sys
import time


class Transformers:
    """One shape in one dtype, with random weights made on the device."""

    kind = "eager"

    def __init__(self, shape, dtype, a):
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM

        self.torch, self.a, self.dtype = torch, a, dtype
        config = AutoConfig.from_pretrained(shape)
        with torch.device(a.device):
            self.model = AutoModelForCausalLM.from_config(config, dtype=torch_dtype(dtype)).eval()

    def random_ids(self, batch, tokens):
        return self.torch.randint(self.model.config.vocab_size, (batch, tokens), device=self.a.device)

    def wait(self):
        if self.a.device == "cuda":
            self.torch.cuda.synchronize()

    def feed(self, ids, cache):
        return self.model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1).past_key_values

    def prompt_seconds(self, tokens):
        ids = self.random_ids(1, tokens)
        self.wait()
        start = time.perf_counter()
        self.feed(ids, None)
        self.wait()
        return time.perf_counter() - start

    def make_ready(self, batch, context):
        """Called once before the steps of a batch are timed."""

    def step_seconds(self, batch, context):
        cache = self.feed(self.random_ids(batch, context), None) if context else None
        ids = self.random_ids(batch, self.a.generate)
        self.wait()
        start = time.perf_counter()
        for i in range(self.a.generate):
            cache = self.feed(ids[:, i:i + 1], cache)
        self.wait()
        return (time.perf_counter() - start) / self.a.generate

    def bytes_per_step(self, batch, context):
        linear = sum(m.weight.nbytes for m in self.model.modules() if isinstance(m, self.torch.nn.Linear))
        config = self.model.config
        kv_heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        seen = context + (self.a.generate + 1) // 2  # the mean, including the token itself
        return linear + 2 * batch * config.num_hidden_layers * kv_heads * head_dim * self.model.dtype.itemsize * seen

    def program(self):
        return f"transformers, {self.model.config._attn_implementation} attention"

    def about(self):
        return {"program": self.program(), "weights": self.dtype, "activations": self.dtype,
                "weight_bytes": sum(p.nbytes for p in self.model.parameters())}

    def decode_row(self, batch, context):
        with self.torch.inference_mode():
            self.make_ready(batch, context)
            self.step_seconds(batch, context)  # kernels are chosen and loaded here
            step = [1e3 * self.step_seconds(batch, context) for _ in range(self.a.repeat)]
        return {**self.about(), "batch": batch, "context": context,
                "bytes_per_step": self.bytes_per_step(batch, context), "ms_per_step": statistics.median(step),
                "ms_min": min(step), "ms_max": max(step)}

    def prompt_row(self, tokens):
        with self.torch.inference_mode():
            self.prompt_seconds(tokens)
            self.prompt_seconds(tokens)
            seconds = statistics.median(self.prompt_seconds(tokens) for _ in range(self.a.repeat))
        row = {**self.about(), "prompt": tokens, "ms": 1e3 * seconds}
        del row["weight_bytes"]
        return row


class TransformersStatic(Transformers):
    """A static cache, and the whole step of all sequences in one call. Subclasses define how it is called."""

    def step(self):
        logits = self.model(self.token, past_key_values=self.cache, cache_position=self.position).logits
        if self.a.sample:
            self.token.copy_(logits[:, -1:].argmax(-1))
        self.position.add_(1)

    def make_ready(self, batch, context):
        from transformers import StaticCache

        a, torch = self.a, self.torch
        self.cache = StaticCache(config=self.model.config, max_cache_len=context + a.generate + 8)
        self.token = self.random_ids(batch, 1)
        self.position = torch.zeros(1, dtype=torch.long, device=a.device)
        self.prepare()

    def step_seconds(self, batch, context):
        a, torch = self.a, self.torch
        self.cache.reset()
        for begin in range(0, context, 2048):  # logits of all tokens at once would take too much memory
            end = min(begin + 2048, context)
            self.model(self.random_ids(batch, end - begin), past_key_values=self.cache, logits_to_keep=1,
                       cache_position=torch.arange(begin, end, device=a.device))
        self.position.fill_(context)
        self.wait()
        start = time.perf_counter()
        for _ in range(a.generate):
            self.replay()
        self.wait()
        return (time.perf_counter() - start) / a.generate


class TransformersGraph(TransformersStatic):
    kind = "graph"

    def program(self):
        return "transformers, static cache, CUDA graph"

    def prepare(self):
        torch = self.torch
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.step()
        torch.cuda.current_stream().wait_stream(stream)
        self.position.zero_()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.step()
        self.replay = self.graph.replay


class TransformersCompiled(TransformersStatic):
    kind = "compiled"

    def program(self):
        return "transformers, static cache, torch.compile"

    def prepare(self):
        self.torch._dynamo.reset()
        compiled = self.torch.compile(self.model, mode="reduce-overhead", dynamic=False)

        def replay():
            logits = compiled(self.token, past_key_values=self.cache, cache_position=self.position).logits
            if self.a.sample:
                self.token.copy_(logits[:, -1:].argmax(-1))
            self.position.add_(1)

        self.replay = replay


KINDS = {kind.kind: kind for kind in (Transformers, TransformersCompiled, TransformersGraph)}


def torch_dtype(name):
    import torch

    return {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[name]


def torch_bandwidth(device):
    """Bytes per second of a sum over far more memory than a cache holds."""
    import torch

    numbers, sums = torch.ones((2**32 if device == "cuda" else 2**28) // 4, device=device), 4
    seconds = []
    for _ in range(12):
        start = time.perf_counter()
        for _ in range(sums):
            total = numbers.sum()
        total.item()  # waits for all sums
        seconds.append(time.perf_counter() - start)
    return sums * numbers.nbytes / statistics.median(seconds[2:])


def torch_matrix_rate():
    """Operations per second of a large product in bf16, on random numbers."""
    import torch

    n = 8192
    x, y = (torch.randn(n, n, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    seconds = []
    for _ in range(12):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(4):
            torch.matmul(x, y)
        torch.cuda.synchronize()
        seconds.append((time.perf_counter() - start) / 4)
    return 2 * n**3 / statistics.median(seconds[2:])


@contextlib.contextmanager
def shown(what):
    """A configuration that a program cannot run must not end the comparison."""
    try:
        yield
    except Exception as error:
        print(f"compare_transformers: {what}: {str(error).splitlines()[0] if str(error) else error!r}", file=sys.stderr)


def free_memory(a):
    gc.collect()
    if a.device == "cuda":
        import torch

        torch.cuda.empty_cache()


def measure_peer(shape, a, tables):
    """transformers in all dtypes and kinds."""
    for dtype, kind in itertools.product(a.peer_dtypes.split(","), a.kinds.split(",")):
        if a.late() or (kind != "eager" and a.device != "cuda"):
            continue
        peer = KINDS[kind](shape, dtype, a)
        for batch, context in itertools.product(a.batches, a.contexts):
            if a.late():
                break
            with shown(f"{shape.stem}, {kind}, {dtype}, batch {batch}, context {context}"):
                tables.decode.append(peer.decode_row(batch, context))
            peer.cache = peer.graph = peer.replay = None
            free_memory(a)
        for tokens in a.prompts if kind == "eager" else []:
            with shown(f"{shape.stem}, {kind}, {dtype}, prompt of {tokens}"):
                tables.prompt.append(peer.prompt_row(tokens))
        del peer
        free_memory(a)


def start_torch(a, bandwidths):
    try:
        import torch
        import transformers  # noqa: F401
    except ImportError as error:
        sys.exit(f"compare_transformers: {error}; pip install torch transformers, or use --without-transformers")
    if a.device == "cuda" and not torch.cuda.is_available():
        sys.exit("compare_transformers: torch finds no GPU here; use --device cpu to run without one")
    torch.set_num_threads(a.threads)
    torch.manual_seed(0)
    bandwidths["torch"] = torch_bandwidth(a.device)
    free_memory(a)
    return torch_matrix_rate() if a.device == "cuda" else None
