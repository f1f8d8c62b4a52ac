"""patch() and unpatch(): a model's attention and linear layers become ours, and their own again."""

import fnmatch
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import nn

from .. import _native
from ..checkpoints import patterns
from ..torch.modules import FusedFP4Linear
from . import attending, streaming
from .attending import Calls


@dataclass
class Patch:
    """What patch() did to a model; `calls` counts from then on.

    >>> tessera.transformers.patch_of(model).calls.fallbacks
    {}
    """

    attention: bool
    linear: str | None
    streaming: tuple[int, int] | None
    calls: Calls = field(default_factory=Calls)
    own_attention: str | None = None  # the attention implementation before
    dense: dict[str, nn.Linear] = field(default_factory=dict)  # the layers that were packed, as they were, by name
    left: dict[str, str] = field(default_factory=dict)  # what was not packed, by name, and why
    layers: list[nn.Module] = field(default_factory=list)  # attention modules


def patch_of(model: nn.Module) -> Patch | None:
    """What was patched; None: nothing.

    >>> tessera.transformers.patch_of(model).streaming
    (4, 28)
    """
    return getattr(model, "_tessera_patch", None)


def attention_modules(model: nn.Module) -> list[nn.Module]:
    """The modules that call transformers' attention interface, in order."""
    return [m for m in model.modules() if type(m).__name__.endswith("Attention") and hasattr(m, "layer_idx")]


def patch(
    model: nn.Module, *, attention: bool = True, linear: str | None = None,
    streaming: tuple[int, int] | None = None, keep_dense: str | Sequence[str] = (), group: int = -1,
) -> nn.Module:
    """Puts a transformers model on Tessera's kernels, in place, and returns it.

    attention: through transformers' attention interface. linear: a format ("nvfp4", "int4", ...) to pack the linear
    layers in, but those that keep_dense names (patterns as in "*.attention.dense"; a tied head stays). streaming:
    (sinks, window) for endless streams, on GPT-NeoX and the Llama family, with our attention in any case. The dense
    layers are kept for unpatch(), where they are: `model.to()` moves the packed ones alone.

    >>> model = tessera.transformers.patch(model, linear="nvfp4", keep_dense=["lm_head"], streaming=(4, 28))
    """
    if patch_of(model) is not None:
        raise _native.Error("this model is patched already; unpatch() it first")
    if not (attention or linear or streaming):
        raise _native.Error("patch: attention=False changes nothing without linear= or streaming=; give one of them")
    # Streams need the interface too: a model's own implementation makes masks that hide the padding among them.
    done = Patch(attention or bool(streaming), linear, streaming, layers=attention_modules(model))
    if done.attention and not done.layers:
        raise _native.Error(f"{type(model).__name__} has no layer that uses transformers' attention interface")
    done.own_attention = model.config._attn_implementation
    model._tessera_patch = done
    try:
        apply(model, done, patterns(keep_dense), group)
    except BaseException:
        unpatch(model)
        raise
    return model


def apply(model: nn.Module, done: Patch, keep_dense: Sequence[str], group: int) -> None:
    for module in done.layers:
        module._tessera_calls = done.calls
    if done.attention:
        attending.register()
        model.set_attn_implementation(attending.NAME)
        if model.config._attn_implementation != attending.NAME:
            raise _native.Error(f"{type(model).__name__} does not let its attention implementation be changed")
    if done.streaming:
        sinks, window = done.streaming
        if sinks < 1 or window < 1:
            raise _native.Error(f"streaming=({sinks}, {window}): both must be at least 1; (4, 1020) is usual")
        for module in done.layers:
            streaming.stream(module, rotary_embedding_of(model), sinks, window)
    if done.linear:
        pack(model, done, done.linear, keep_dense, group)


def rotary_embedding_of(model: nn.Module) -> nn.Module:
    for name, module in model.named_modules():
        if name.endswith("rotary_emb"):
            return module
    raise _native.Error(f"{type(model).__name__} has no rotary embedding, which streaming needs")


def is_tied(model: nn.Module, layer: nn.Linear) -> bool:
    embedding = model.get_input_embeddings()
    return embedding is not None and layer.weight is embedding.weight


def why_dense(model: nn.Module, module: nn.Module) -> str | None:
    """Why a module is not packed though it holds a matrix; None: it is, or it holds none."""
    if type(module) is nn.Linear:
        return "tied to the embedding" if is_tied(model, module) else None
    matrices = [f"{n} {list(p.shape)}" for n, p in module.named_parameters(recurse=False) if p.ndim > 1]
    if isinstance(module, nn.Embedding) or not matrices:
        return None
    if isinstance(module, nn.Linear):
        return f"{type(module).__name__}, a subclass of nn.Linear, may compute something else"
    return f"{type(module).__name__}, which holds {', '.join(matrices)}, is no nn.Linear"


def pack(model: nn.Module, done: Patch, format: str, keep_dense: Sequence[str], group: int) -> None:
    layers = {name: m for name, m in model.named_modules() if type(m) is nn.Linear and not is_tied(model, m)}
    done.left = {name: why for name, m in model.named_modules() if (why := why_dense(model, m))}
    for pattern in keep_dense:
        if not fnmatch.filter(layers, pattern):
            raise _native.Error(f"keep_dense: {pattern!r} matches no linear layer; there are: {', '.join(layers)}")
    for name, layer in layers.items():
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in keep_dense):
            done.left[name] = "keep_dense names it"
            continue
        packed = FusedFP4Linear.from_linear(layer, format=format, group=group)
        # Without elements: model.to() changes its device and type, and those are the dense layer's then.
        packed.register_buffer("dense_like", layer.weight.detach().new_empty(0), persistent=False)
        replace(model, name, packed)
        done.dense[name] = layer
    if not done.dense:
        why = "; ".join(told(done.left)) or "it has no matrices"
        raise _native.Error(f"linear={format!r}: {type(model).__name__} has no layer to pack ({why}); leave it out")


def told(reasons: dict[str, str]) -> list[str]:
    """One line for what layers share: their numbers become stars."""
    kinds = Counter((re.sub(r"\.\d+(?=\.|$)", ".*", name), why) for name, why in reasons.items())
    return [f"{name}{f' ({count})' if count > 1 else ''}: {why}" for (name, why), count in kinds.items()]


def replace(model: nn.Module, name: str, layer: nn.Module) -> None:
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, layer)


def unpatch(model: nn.Module) -> nn.Module:
    """Undoes patch(): the model's own attention, and its dense layers as they were, or as `model.to()` makes them.

    >>> model = tessera.transformers.unpatch(model)
    """
    done = patch_of(model)
    if done is None:
        raise _native.Error("this model is not patched")
    for module in done.layers:
        for name in ("forward", "_tessera_calls", "_tessera_rotary"):
            module.__dict__.pop(name, None)
    if done.attention and model.config._attn_implementation == attending.NAME:
        model.set_attn_implementation(done.own_attention)
    for name, layer in done.dense.items():
        packed = model.get_submodule(name)
        replace(model, name, layer.to(packed.dense_like.device, packed.dense_like.dtype).train(packed.training))
    del model._tessera_patch
    return model
