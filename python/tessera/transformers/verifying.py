"""verify(): proof that a patched model computes what it did, on our kernels, and what that gains."""

import contextlib
import copy
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from .. import _native
from ..torch.functional import attention
from ..torch.modules import FusedFP4Linear
from .attending import NAME
from .patching import Patch, patch_of, replace, told

BOUNDS = {torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 0.15}  # those of `tessera verify`


@dataclass
class Check:
    """One of the five checks of verify().

    >>> tessera.transformers.verify(model, ids, tokens=4).checks[0].name
    'kernels'
    """

    name: str
    ok: bool
    detail: str


@dataclass
class Report:
    """The five checks, in order; print it.

    layers, steps: the kernel calls that were traced in each layer, over the prompt and over one token more. fallbacks:
    layers that PyTorch computed, and why. dense: what was not packed, and why.

    >>> report = tessera.transformers.verify(model, ids, tokens=4)
    >>> report.ok, len(report.checks)
    (True, 5)
    """

    checks: list[Check] = field(default_factory=list)
    layers: dict[str, int] = field(default_factory=dict)
    steps: dict[str, int] = field(default_factory=dict)
    fallbacks: dict[str, str] = field(default_factory=dict)
    dense: dict[str, str] = field(default_factory=dict)
    hidden_errors: list[float] = field(default_factory=list)
    ms_before: float = 0.0
    ms_after: float = 0.0

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks)

    def add(self, name: str, ok: bool, detail: str) -> None:
        self.checks.append(Check(name, ok, detail))

    def __str__(self) -> str:
        lines = [f"{'ok  ' if c.ok else 'FAIL'} {c.name}: {c.detail}" for c in self.checks]
        lines += [f"fell back: {name}: {why}" for name, why in self.fallbacks.items()]
        return "\n".join(lines + [f"stayed dense: {line}" for line in told(self.dense)])


def relative(ours: Tensor, theirs: Tensor) -> float:
    """max|a - b| / max|b|, as `tessera verify` has it."""
    scale = theirs.float().abs().max().item()
    return (ours.float() - theirs.float()).abs().max().item() / (scale or 1.0)


def dense_layer(before: nn.Linear, packed: FusedFP4Linear, weight: Tensor) -> nn.Linear:
    """The layer before packing, with this weight, on the device and of the type that the model has now."""
    dense = copy.copy(before)
    dense._parameters = {"weight": nn.Parameter(weight.to(packed.dense_like), False), "bias": packed.bias}
    return dense


@contextlib.contextmanager
def reference(model: nn.Module, done: Patch) -> Iterator[None]:
    """The model's own code meanwhile, with the weights that packing left: what the kernels must reproduce."""
    forwards = [module.__dict__.pop("forward", None) for module in done.layers]
    packed = {name: model.get_submodule(name) for name in done.dense}
    for name, layer in packed.items():
        replace(model, name, dense_layer(done.dense[name], layer, layer.dense_weight()))
    if done.attention:
        model.set_attn_implementation(done.own_attention)
    try:
        yield
    finally:
        if done.attention:
            model.set_attn_implementation(NAME)
        for name, layer in packed.items():
            replace(model, name, layer)
        for module, forward in zip(done.layers, forwards, strict=True):
            if forward is not None:
                module.forward = forward


def layouts(x: Tensor) -> dict[str, Tensor]:
    """The same values [batch, seq, heads, dim] in four kinds of memory."""
    wide = torch.zeros(x.shape[0], x.shape[1] + 3, x.shape[2] + 2, x.shape[3], dtype=x.dtype, device=x.device)
    wide[:, 1 : 1 + x.shape[1], 1 : 1 + x.shape[2]] = x
    return {
        "contiguous": x.contiguous(),
        "permuted": x.permute(2, 0, 1, 3).contiguous().permute(1, 2, 0, 3),
        "viewed": x.reshape(x.shape[0], x.shape[1], -1).contiguous().view(x.shape),
        "sliced": wide[:, 1 : 1 + x.shape[1], 1 : 1 + x.shape[2]],
    }


def check_kernels(report: Report, model: nn.Module, done: Patch, bound: float) -> None:
    dtype = model.dtype if model.dtype in BOUNDS else torch.float32
    device = model.device
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(device=device, dtype=dtype)

    q, k, v = random(2, 19, 4, 64), random(2, 19, 2, 64), random(2, 19, 2, 64)
    grouped = [x.double().repeat_interleave(2, dim=2).transpose(1, 2) for x in (k, v)]
    expected = nn.functional.scaled_dot_product_attention(q.double().transpose(1, 2), *grouped, is_causal=True)
    worst = 0.0
    for name, laid in layouts(q).items():
        got = attention(laid, layouts(k)[name], layouts(v)[name], _native.Mask.causal())
        worst = max(worst, relative(got, expected.transpose(1, 2)))
    for name in done.dense:
        layer: FusedFP4Linear = model.get_submodule(name)
        x = random(2, 3, 2, layer.in_features)
        bias = None if layer.bias is None else layer.bias.double()
        expected = nn.functional.linear(x.double(), layer.dense_weight().double(), bias)
        worst = max(worst, *(relative(layer(laid), expected) for laid in layouts(x).values()))
    report.add(
        "kernels", worst <= bound,
        f"attention and {len(done.dense)} packed layers on contiguous, permuted, viewed and sliced tensors: max rel "
        f"{worst:.2e}",
    )


@contextlib.contextmanager
def counted(trace: _native.Trace, ops: dict[str, tuple[nn.Module, str]]) -> Iterator[dict[str, int]]:
    """The calls of an op that the trace has of each module's forward passes, by the module's name."""
    counts = dict.fromkeys(ops, 0)

    def count(name: str, op: str, sign: int) -> None:
        counts[name] += sign * trace.calls(op)

    hooks = []
    for name, (module, op) in ops.items():
        hooks.append(module.register_forward_pre_hook(lambda *_, name=name, op=op: count(name, op, -1)))
        hooks.append(module.register_forward_hook(lambda *_, name=name, op=op: count(name, op, 1)))
    try:
        yield counts
    finally:
        for hook in hooks:
            hook.remove()


def check_trace(report: Report, model: nn.Module, done: Patch, ids: Tensor) -> None:
    """The prompt and one token more under the trace: our kernels ran in each layer, and none fell back in any check."""
    trace = _native.default_context(str(model.device)).trace
    names = {id(m): name for name, m in model.named_modules()}
    ops = {names[id(m)]: (m, "attention") for m in done.layers} if done.attention else {}
    ops.update({name: (model.get_submodule(name), "linear") for name in done.dense})
    was_on = trace.enabled
    trace.clear()
    trace.enable()
    try:
        with counted(trace, ops) as report.layers:
            read = model(ids, use_cache=True)
        with counted(trace, ops) as report.steps:
            model(read.logits[:, -1:].argmax(-1), past_key_values=read.past_key_values, use_cache=True)
        kernels = sorted({entry.kernel for entry in trace.entries if entry.op in ("attention", "linear")})
    finally:
        trace.enable(was_on)
        trace.clear()
    of_layer = {m.layer_idx: names[id(m)] for m in done.layers}
    report.fallbacks = {of_layer[layer]: why for layer, why in done.calls.fallbacks.items()}
    report.dense = dict(done.left)

    def total(op: str) -> int:
        return sum(calls[name] for calls in (report.layers, report.steps) for name in ops if ops[name][1] == op)

    detail = (
        f"{total('attention')} attention and {total('linear')} linear calls of {len(ops)} layers, for the prompt and "
        f"one token more, kernels {', '.join(kernels) or 'none'}"
    )
    silent = {"prompt": report.layers, "token": report.steps}
    silent = {part: [name for name, calls in counts.items() if calls == 0] for part, counts in silent.items()}
    for part, layers in silent.items():
        if layers:
            detail += f"; no kernel ran for the {part} in: {', '.join(layers)}"
    report.add("call trace", bool(ops) and not any(silent.values()) and not report.fallbacks, detail)


def agreement(ours: list[int], theirs: list[int]) -> int:
    """How many tokens agree from the start."""
    return next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b), len(ours))


def last_logits(model: nn.Module, ids: Tensor) -> Tensor:
    return model(ids, use_cache=False).logits[0, -1].float()


def is_tie(ours: Tensor, theirs: Tensor, our_token: int, their_token: int, bound: float) -> tuple[bool, str]:
    """Whether two greedy tokens differ by rounding alone: logits agree, and those of the two tokens are as near."""
    scale = theirs.abs().max().item() or 1.0
    error = relative(ours, theirs)
    gap = (theirs[their_token] - theirs[our_token]).abs().item() / scale
    ok = error <= bound and gap <= bound
    kind = "a tie" if ok else "no tie"
    return ok, f"the next two, {our_token} and {their_token}, are {kind}: {gap:.1e} apart, logits within {error:.1e}"


def timed_generate(model: nn.Module, ids: Tensor, tokens: int) -> tuple[list[int], float]:
    """New tokens, and milliseconds for each after the first."""
    options: dict[str, Any] = {"do_sample": False, "use_cache": True, "pad_token_id": 0}
    mask = torch.ones_like(ids)

    def run(count: int) -> tuple[list[int], float]:
        if ids.is_cuda:
            torch.cuda.synchronize()
        start = time.perf_counter()
        out = model.generate(ids, attention_mask=mask, min_new_tokens=count, max_new_tokens=count, **options)
        if ids.is_cuda:
            torch.cuda.synchronize()
        return out[0, ids.shape[1] :].tolist(), time.perf_counter() - start

    run(1)
    _, first = run(1)
    new, total = run(tokens)
    return new, 1000 * max(total - first, 0.0) / max(tokens - 1, 1)


@torch.no_grad()
def verify(model: nn.Module, ids: Tensor, tokens: int = 16) -> Report:
    """Five checks of a patched model on a prompt (ids: [1, n]): kernels, hidden states, tokens, call trace, time.

    The reference is the model's own code, with the weights that packing left; what packing itself changes is for a
    perplexity to say. With streaming, the prompt and the tokens must fit into sinks + window, where both see the same.

    >>> tessera.transformers.verify(model, ids, tokens=4).ok
    True
    """
    done = patch_of(model)
    if done is None:
        raise _native.Error("verify: this model is not patched; patch() it first")
    if not isinstance(ids, Tensor) or ids.ndim != 2 or ids.shape[0] != 1 or ids.shape[1] < 1:
        given = list(ids.shape) if isinstance(ids, Tensor) else f"a {type(ids).__name__}"
        raise _native.Error(f"verify: ids is {given}; give one prompt as a tensor of token ids, [1, n]")
    if done.streaming and ids.shape[1] + tokens > sum(done.streaming):
        raise _native.Error(
            f"verify: {ids.shape[1]} + {tokens} tokens do not fit into sinks and window of {done.streaming}; past them "
            "the model's own code sees other tokens"
        )
    was_training, earlier = model.training, dict(done.calls.fallbacks)
    done.calls.fallbacks.clear()
    model.eval()
    try:
        return checked(model, done, ids, tokens)
    finally:
        model.train(was_training)
        done.calls.fallbacks = {**earlier, **done.calls.fallbacks}


def checked(model: nn.Module, done: Patch, ids: Tensor, tokens: int) -> Report:
    bound = BOUNDS.get(model.dtype, 0.15)
    report = Report()
    check_kernels(report, model, done, bound)
    ours = model(ids, output_hidden_states=True, use_cache=False).hidden_states
    new_after, report.ms_after = timed_generate(model, ids, tokens)
    with reference(model, done):
        theirs = model(ids, output_hidden_states=True, use_cache=False).hidden_states
        new_before, _ = timed_generate(model, ids, tokens)
        agreed = agreement(new_after, new_before)
        common = torch.cat([ids, ids.new_tensor([new_before[:agreed]])], dim=1)
        their_logits = last_logits(model, common)
    report.ms_before = time_before(model, done, ids, tokens)
    report.hidden_errors = [relative(a, b) for a, b in zip(ours, theirs, strict=True)]
    worst = max(report.hidden_errors)
    report.add("hidden states", worst <= bound, f"{len(ours)} levels, max rel {worst:.2e} (bound {bound:g})")
    text = f"{agreed} of {tokens} greedy tokens agree from the start"
    tied = agreed == tokens
    if not tied:
        tied, why = is_tie(last_logits(model, common), their_logits, new_after[agreed], new_before[agreed], bound)
        text += f"; {why}"
    report.add("tokens", tied, text)
    check_trace(report, model, done, ids)
    report.add(
        "time", True,
        f"{report.ms_before:.2f} ms a token before, {report.ms_after:.2f} ms after: "
        f"{report.ms_before / max(report.ms_after, 1e-9):.2f}x",
    )
    return report


def time_before(model: nn.Module, done: Patch, ids: Tensor, tokens: int) -> float:
    """The unpatched model's time: its own code and its own dense layers."""
    packed = {name: model.get_submodule(name) for name in done.dense}
    with reference(model, done):
        standing = {name: model.get_submodule(name) for name in done.dense}
        for name, layer in packed.items():
            replace(model, name, dense_layer(done.dense[name], layer, done.dense[name].weight))
        try:
            return timed_generate(model, ids, tokens)[1]
        finally:
            for name, layer in standing.items():
                replace(model, name, layer)
