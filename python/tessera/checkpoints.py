"""What is done with a checkpoint's folder: its tokenizer, packing it, measuring it."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import _native
from .program import PROGRAM
from .requests import require_streaming, token_ids

PathLike = str | os.PathLike[str]


def patterns(keep_dense: str | Sequence[str] | None) -> list[str]:
    """One name is as good as a list of it."""
    return [keep_dense] if isinstance(keep_dense, str) else list(keep_dense or ())


def default_model() -> Path:
    """The folder of the model that is used where none is named: $TESSERA_DEFAULT_MODEL, or the bundled one.

    >>> (tessera.default_model() / "config.json").exists()
    True
    """
    named = os.environ.get("TESSERA_DEFAULT_MODEL")
    return Path(named) if named else Path(__file__).parent / "share" / "tessera" / "models" / "stories"


def load_tokenizer(path: PathLike | None = None) -> _native.Tokenizer:
    """The tokenizer of a folder, or of a tokenizer.json.

    >>> ids = tessera.load_tokenizer().encode("Once upon a time")
    """
    return _native.Tokenizer.from_file(default_model() if path is None else Path(path))


def quantize(dense: Any, out: PathLike | None = None, **options: Any) -> Any:
    """Packs a matrix [out, in] into a `Weight`, or a checkpoint's folder into the folder `out`.

    Of a matrix: format="nvfp4" (`formats()` has the names), group=-1, zero_point=False, search, ctx.
    Of a folder: see `quantize_checkpoint`.

    >>> tessera.quantize(numpy.ones((64, 32), "float32"), format="int4", group=32).nbytes
    1152
    """
    if isinstance(dense, (str, os.PathLike)):
        if out is None:
            raise _native.Error(f"quantize: {os.fspath(dense)} is a folder; name the folder to write with out=")
        return quantize_checkpoint(dense, out, **options)
    if out is not None:
        raise _native.Error("quantize: out= is for a checkpoint's folder; a matrix becomes a Weight, which is returned")
    return _native.quantize(dense, **options)


def quantize_checkpoint(
    model: PathLike, out: PathLike, *, format: str = "nvfp4", group: int = -1, zero_point: bool = False,
    keep_dense: str | Sequence[str] = (), pack_embedding: bool = False, force: bool = False, threads: int = 0,
) -> Path:
    """Packs a dense checkpoint into the folder `out`, as `tessera quantize` does. Returns `out`.

    >>> tessera.quantize_checkpoint("models/stories", "stories-nvfp4", keep_dense=["embed_out"])
    """
    command = [str(PROGRAM), "quantize", "--model", os.fspath(model), "--format", format, "--out", os.fspath(out)]
    command += ["--threads", str(threads)]
    command += ["--group", str(group)] if group >= 0 else []
    command += [part for pattern in patterns(keep_dense) for part in ("--keep-dense", pattern)]
    flags = {"--zero-point": zero_point, "--pack-embedding": pack_embedding, "--force": force}
    command += [flag for flag, given in flags.items() if given]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"the program ended with status {done.returncode}"]
        raise _native.Error(lines[-1].removeprefix("tessera quantize: ").removeprefix("tessera: "))
    return Path(out)


def perplexity(
    model: Any, text: str | Sequence[int], *, context: int = 0, stride: int = 0,
    streaming: tuple[int, int] | None = None, cache_dtype: str | None = None, **options: Any,
) -> _native.PerplexityResult:
    """How well a model (a folder, None for the bundled one, or an `LLM`) predicts a text or token ids.

    Reads the text in chunks of `context` tokens, or as one stream with `streaming=(sinks, window)`. `cache_dtype` is
    that of keys and values ("int8", "fp8"). `options` are those of `LLM` that load a model: device, dtype, weights,
    keep_dense, activations, threads. The figures are those of `tessera perplexity`.

    >>> 1 < tessera.perplexity(None, "Once upon a time there was a little girl.").ppl < 1000
    True
    """
    from .llm import LLM, Loaded

    if isinstance(model, LLM) and options:
        raise _native.Error(f"perplexity: {', '.join(options)} cannot change a loaded LLM; give its folder instead")
    loaded = model.loaded if isinstance(model, LLM) else Loaded(model, **options)
    if isinstance(text, str):
        bos = loaded.prompt.bos  # refuses a folder without a tokenizer
        ids = loaded.tokenizer.encode(text)
    else:
        ids, bos = token_ids(text), -1
    # A Context of its own: the engine of an LLM has the other one to itself.
    ctx = _native.Context(loaded.ctx.device, share_threads_with=loaded.ctx, activations=loaded.ctx.activations)
    return _native.measure_perplexity(
        ctx, loaded.model, ids, context=context, stride=stride, bos=bos,
        streaming=require_streaming(streaming),
        cache_dtype=cache_dtype,
    )
