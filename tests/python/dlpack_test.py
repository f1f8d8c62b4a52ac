"""Arrays of other libraries: no copies, memory kept alive, odd strides, read-only arrays, refusals."""

import contextlib
import copy
import gc
import os
import pickle
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
import tessera
from conftest import resident_bytes


def test_a_torch_tensor_is_written_in_place():
    x, out = torch.randn(3, 8), torch.empty(3, 8)
    assert tessera.softmax(x=x, out=out) is out
    torch.testing.assert_close(out, torch.softmax(x, -1))


def test_new_outputs_come_from_the_library_of_the_input():
    assert type(tessera.softmax(x=np.ones((2, 4), np.float32))) is np.ndarray
    assert type(tessera.softmax(x=torch.ones(2, 4))) is torch.Tensor
    assert type(tessera.softmax(x=tessera.Tensor([2, 4]))) is tessera.Tensor
    half = tessera.convert(x=np.ones((2, 4), np.float32), dtype="bf16")  # numpy has no bf16
    assert type(half) is tessera.Tensor and half.dtype == "bf16"
    assert torch.from_dlpack(half).dtype is torch.bfloat16


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_torch_dtypes_go_through(dtype):
    x = torch.randn(4, 16).to(dtype)
    torch.testing.assert_close(tessera.softmax(x=x), torch.softmax(x.float(), -1).to(dtype), atol=8e-3, rtol=1e-2)


def test_parameters_and_tensors_with_gradients_are_read_as_they_are():
    weight = torch.nn.Parameter(torch.randn(8))
    x = torch.randn(2, 8, requires_grad=True)
    torch.testing.assert_close(
        tessera.rms_norm(x=x, weight=weight), torch.nn.functional.rms_norm(x, (8,), weight, 1e-5).detach()
    )


WITHOUT_A_TABLE = """
import torch

del torch.Tensor.__dlpack_c_exchange_api__

import tessera

x, weight = torch.randn(2, 64), torch.nn.Parameter(torch.randn(64))
new = tessera.softmax(x=x)
assert type(new) is tessera.Tensor
torch.testing.assert_close(torch.from_dlpack(new), torch.softmax(x, -1))
out = torch.empty_like(x)
assert tessera.rms_norm(x=x, weight=weight, out=out) is out
torch.testing.assert_close(out, torch.nn.functional.rms_norm(x, (64,), weight, 1e-5).detach())
layer = tessera.torch.FusedFP4Linear(64, 32)
layer(x).sum().backward()
assert layer.bias.grad.eq(2).all()
"""


def test_a_torch_without_dlpacks_c_table():
    """As older releases are: views work, new outputs are ours, and tessera.torch gives torch tensors all the same."""
    subprocess.run([sys.executable, "-c", WITHOUT_A_TABLE], check=True)


STREAM_WITHOUT_A_TABLE = """
import ctypes
import torch

del torch.Tensor.__dlpack_c_exchange_api__
asked = []
torch._C._cuda_getCurrentRawStream = lambda gpu: asked.append(gpu) or 4711

import tessera

pointer = ctypes.pythonapi.PyCapsule_GetPointer
pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]

class OnGpu(torch.Tensor):  # says that it lies on a GPU that no machine has
    def __dlpack__(self, **options):
        capsule = torch.utils.dlpack.to_dlpack(self.as_subclass(torch.Tensor))
        ctypes.c_int32.from_address(pointer(capsule, b"dltensor") + 8).value = 2
        ctypes.c_int32.from_address(pointer(capsule, b"dltensor") + 12).value = 99
        return capsule

try:
    tessera.softmax(x=torch.randn(2, 64).as_subclass(OnGpu), out=torch.randn(2, 64).as_subclass(OnGpu))
except tessera.Error as error:
    assert "CUDA" in str(error) or "GPU" in str(error), error
else:
    raise AssertionError("there is a GPU 99")
assert asked == [99, 99], asked
tessera.softmax(x=torch.randn(2, 64))
assert asked == [99, 99], asked
"""


def test_a_torch_without_dlpacks_c_table_is_asked_for_its_stream():
    subprocess.run([sys.executable, "-c", STREAM_WITHOUT_A_TABLE], check=True)


def test_our_tensors_are_viewed_without_a_copy():
    ours = tessera.Tensor([3, 4])
    array, tensor = ours.numpy(), torch.from_dlpack(ours)
    array[:] = 7
    assert tensor.eq(7).all() and np.from_dlpack(ours)[0, 0] == 7
    tensor[1, 2] = 9
    assert array[1, 2] == 9
    del ours, tensor
    gc.collect()
    assert array[1, 2] == 9  # the array keeps the memory


def test_a_view_keeps_packed_memory_alive():
    storage = tessera.quantize(np.ones((64, 64), np.float32)).storage.numpy()
    before = storage.copy()
    gc.collect()
    np.ones(10**6)
    np.testing.assert_array_equal(storage, before)


def test_read_only_arrays_are_inputs_and_never_outputs():
    x = np.ones((2, 4), np.float32)
    x.flags.writeable = False
    np.testing.assert_allclose(tessera.softmax(x=x), 0.25)
    with pytest.raises(tessera.Error, match="softmax: out is read-only; give an array that can be written to"):
        tessera.softmax(x=np.ones((2, 4), np.float32), out=x)


def refused(match, **arguments):
    with pytest.raises(tessera.Error, match=match) as caught:
        tessera.softmax(**arguments)
    assert caught.value.code == "invalid_argument"


def test_what_is_no_array_is_refused_in_a_sentence():
    x = np.ones((2, 4), np.float32)
    refused(r"softmax: x is a str; give an array", x="hello")
    refused(r"softmax: x is a list; give an array", x=[1.0, 2.0])
    refused(r"^softmax: x is float64; Tessera takes float32, float16, .*, int64$", x=np.ones((2, 4)))
    for dtype in (np.bool_, np.uint16, np.complex64):
        refused(f"^softmax: x is {np.dtype(dtype)}; Tessera takes float32", x=np.ones((2, 4), dtype))
    refused(r"softmax: x has 7 dimensions; Tessera takes 1 to 6", x=np.ones([1] * 7, np.float32))
    refused(r"softmax: ctx is a str; give a tessera.Context", x=x, ctx="cpu")
    refused(r"native byte order", x=x.astype(">f4"))
    refused(r"scale", x=x, scale=-1.0)
    with pytest.raises(TypeError, match="depth"):
        tessera.softmax(x=x, depth=3)
    for tensor in (torch.empty(2, 4, device="meta"), torch.eye(3).to_sparse()):
        with pytest.raises(tessera.Error, match="^softmax: x cannot be viewed: [^\n]*$"):
            tessera.softmax(x=tensor)


def test_errors_are_the_sentences_of_the_library():
    q = np.ones((1, 2, 3, 64), np.float32)
    with pytest.raises(tessera.Error, match="attention: ") as caught:
        tessera.attention(q=q, k=q[:, :, :2], v=q[:, :, :2])
    assert isinstance(caught.value, RuntimeError) and caught.value.code == "invalid_argument"
    with pytest.raises(tessera.Error, match="no such|exist|config.json") as caught:
        tessera.LLM("/nowhere")
    assert caught.value.code == "file"
    with pytest.raises(tessera.Error, match="format"):
        tessera.quantize(np.ones((4, 32), np.float32), format="int3")


def test_options_may_be_none_and_are_refused_in_a_sentence_if_they_are_something_else():
    q, x, weight = np.ones((1, 5, 2, 64), np.float32), np.ones((2, 8), np.float32), np.ones(8, np.float32)
    plain = tessera.attention(q=q, k=q, v=q)
    np.testing.assert_array_equal(tessera.attention(q=q, k=q, v=q, mask=None, dropout=None), plain)
    tessera.rms_norm(x=x, weight=weight, dropout=None)
    with pytest.raises(tessera.Error, match=r"^attention: mask is a str; give a tessera.Mask, as in mask=tessera.Mask"):
        tessera.attention(q=q, k=q, v=q, mask="causal")
    with pytest.raises(tessera.Error, match=r"^rms_norm: dropout is a float; give a tessera.Dropout, as in dropout="):
        tessera.rms_norm(x=x, weight=weight, dropout=0.1)


def test_numbers_may_be_numpys():
    x = np.float32([[1, 3, 2]])
    np.testing.assert_array_equal(tessera.softmax(x=x, scale=np.float64(2)), tessera.softmax(x=x, scale=2.0))
    assert tessera.top_k(x=x, k=np.int64(2))[1].tolist() == [[1, 2]]
    assert tessera.sample(logits=x, top_k=np.int32(1), seed=np.uint64(7)).tolist() == [1]
    assert tessera.Mask.window(np.int64(3), np.int32(0)) == tessera.Mask.window(3, 0)


def test_masks_and_dropout_are_values():
    """Equal masks have equal hashes; both go through pickle and copy, as a module that holds them does."""
    pattern = tessera.BlockMask.local(block=4, q_blocks=3, k_blocks=3, radius=1)
    masks = [tessera.Mask.causal(), tessera.Mask.sinks(2, 5), tessera.Mask.blocks(pattern, causal=True)]
    for mask in masks:
        assert pickle.loads(pickle.dumps(mask)) == mask == copy.deepcopy(mask)
        assert hash(tessera.Mask.from_spec(mask.spec())) == hash(mask)
    assert len({*masks, tessera.Mask.causal()}) == 3
    drop = copy.deepcopy(tessera.Dropout(0.25, seed=2**63 + 1))
    assert (drop.p, drop.seed) == (0.25, 2**63 + 1)


sizes = st.integers(1, 7)


@settings(max_examples=60, deadline=None)
@given(st.data(), sizes, sizes, st.sampled_from([1, 2, 4]), st.sampled_from([64, 80, 128]))
def test_attention_on_odd_shapes_and_strides(data, batch, n, groups, dim):
    """Steps and transposed dimensions: the values decide, not the memory."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))

    def draw(heads):
        steps = [data.draw(st.sampled_from([1, 2, 3])) for _ in range(3)]
        order = data.draw(st.permutations([0, 1, 2]))
        shape = [batch, n, heads]
        memory = rng.standard_normal([shape[i] * steps[i] for i in order] + [dim], dtype=np.float32)
        inverse = [order.index(i) for i in range(3)]
        return memory.transpose([*inverse, 3])[:: steps[0], :: steps[1], :: steps[2]]

    q, k, v = draw(2 * groups), draw(groups), draw(groups)
    assert q.shape == (batch, n, 2 * groups, dim)
    out = tessera.attention(q=q, k=k, v=v, mask=tessera.Mask.causal())
    np.testing.assert_allclose(out, reference.attention(q, k, v, tessera.Mask.causal().allows)[0], atol=5e-6)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 5), st.integers(1, 70), st.integers(1, 70), st.integers(0, 3))
def test_linear_on_odd_shapes(rows, in_features, out_features, offset):
    rng = np.random.default_rng(rows + 8 * in_features)
    memory = rng.standard_normal((rows, in_features + offset), dtype=np.float32)
    x, w = memory[:, offset:], rng.standard_normal((out_features, in_features), dtype=np.float32)
    np.testing.assert_allclose(tessera.linear(x=x, weight=w), x.astype(np.float64) @ w.T, atol=1e-4)


@st.composite
def rows_with_gaps(draw, width):
    """[a, b, width] of any order in memory, with steps between rows, and more than the rows to each side."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = [draw(sizes), draw(sizes)]
    steps = [draw(st.sampled_from([1, 2, 3])) for _ in shape]
    left, right = draw(st.integers(0, 5)), draw(st.integers(0, 5))
    order = draw(st.permutations([0, 1]))
    memory = rng.standard_normal([shape[i] * steps[i] for i in order] + [left + width + right], dtype=np.float32)
    turned = memory.transpose([order.index(0), order.index(1), 2])
    return turned[:: steps[0], :: steps[1], left : left + width]


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from([f.name for f in tessera.formats()]), st.booleans())
def test_packed_linear_on_odd_strides(data, format, given_output):
    """x, the residual and the output each lie in memory in their own way."""
    x = data.draw(rows_with_gaps(96))
    rng = np.random.default_rng(1)
    packed = tessera.quantize(rng.standard_normal((72, 96), dtype=np.float32), format=format)
    dense, bias = np.empty((72, 96), np.float32), rng.standard_normal(72, dtype=np.float32)
    tessera.dequantize(packed, dense)
    out = np.zeros((3, x.shape[1], 2, x.shape[0], 80), np.float32)[1, :, 0, :, 3:75].transpose(1, 0, 2)
    residual = rng.standard_normal((*x.shape[:2][::-1], 72), dtype=np.float32).transpose(1, 0, 2)
    got = tessera.linear(
        x=x, weight=tessera.prepare(packed), bias=bias, activation="relu", residual=residual,
        out=out if given_output else None,
    )
    expected = np.maximum(x.astype(np.float64) @ dense.T.astype(np.float64) + bias, 0) + residual
    np.testing.assert_allclose(got, expected, atol=2e-4)


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(1, 70), st.sampled_from(["layer_norm", "rms_norm"]), st.integers(0, 2))
def test_norms_on_odd_shapes_and_strides(data, width, name, count):
    x = data.draw(rows_with_gaps(width))
    rng = np.random.default_rng(2)
    weight, bias = (rng.standard_normal(2 * width, dtype=np.float32)[:width] for _ in range(2))
    residuals = [rng.standard_normal((*x.shape[:2][::-1], width), dtype=np.float32).transpose(1, 0, 2)] * count
    total = x.astype(np.float64) + sum(r.astype(np.float64) for r in residuals)
    options = {"bias": bias} if name == "layer_norm" else {}
    out = np.empty((3, x.shape[1], 2, x.shape[0], width + 5), np.float32)[1, :, 0, :, 3 : width + 3].transpose(1, 0, 2)
    getattr(tessera, name)(x=x, weight=weight, residuals=residuals, eps=1e-2, out=out, **options)
    expected = getattr(reference, name)(total, weight, *options.values(), 1e-2)
    np.testing.assert_allclose(out, expected, atol=1e-4)


def test_sizes_of_zero_and_one_have_no_stride_to_object_to():
    assert tessera.softmax(x=np.empty((0, 4), np.float32)).shape == (0, 4)
    column = np.ones((3, 8), np.float32)[:, ::8]
    assert column.strides[1] != 4
    np.testing.assert_array_equal(tessera.softmax(x=column), np.ones((3, 1)))
    refused("negative stride", x=np.ones((3, 8), np.float32)[::-1])


def test_calls_leave_no_references_and_no_memory():
    """10,000 calls: reference counts as before, and the process no larger."""
    x, w, out = np.ones((2, 64), np.float32), np.ones((8, 64), np.float32), np.empty((2, 8), np.float32)
    t, q, norm = torch.ones(2, 64), torch.ones(1, 3, 2, 64), np.ones(64, np.float32)
    packed, mask = tessera.prepare(tessera.quantize(w)), tessera.Mask.causal()

    def calls(count):
        for _ in range(count):
            tessera.attention(q=q, k=q, v=q, mask=mask)
            tessera.layer_norm(x=x, weight=norm, bias=norm, residuals=[x])
            tessera.rms_norm(x=t, weight=norm)
            tessera.linear(x=x, weight=packed, out=out)
            tessera.softmax(x=t)
            tessera.softmax(x=x)
            with contextlib.suppress(tessera.Error):
                tessera.linear(x=x, weight=w, out=t)

    calls(1000)
    gc.collect()
    held = (x, w, out, t, packed, q, norm, mask)
    counts = [sys.getrefcount(o) for o in held]
    before = resident_bytes()
    calls(10_000)
    gc.collect()
    assert [sys.getrefcount(o) for o in held] == counts
    assert resident_bytes() - before < 2 << 20


def test_threads_call_at_the_same_time():
    """Each thread has a Context of its own, and the GIL is let go during the work."""
    x = np.random.default_rng(0).standard_normal((64, 512), dtype=np.float32)
    expected, wrong = tessera.softmax(x=x), []

    def work():
        for _ in range(50):
            if not np.array_equal(tessera.softmax(x=x), expected):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_context_that_another_thread_uses_is_refused_and_not_shared():
    ctx = tessera.Context("cpu", threads=1)
    big = np.ones((1, 2048, 8, 64), np.float32)
    errors, started = [], threading.Event()

    def call(op, **arguments):
        try:
            op(**arguments, ctx=ctx)
        except tessera.Error as error:
            errors.append(str(error))

    def long_calls():
        started.set()
        while not errors:  # either thread may be the one that is refused
            call(tessera.attention, q=big, k=big, v=big)

    thread = threading.Thread(target=long_calls)
    thread.start()
    started.wait()
    while thread.is_alive():
        call(tessera.softmax, x=np.ones((1, 4), np.float32))
    thread.join()
    assert any("another thread is using this Context" in error for error in errors)


def test_the_gil_is_let_go_during_an_op():
    """Another Python thread ticks while one call runs. Were the GIL held, no tick could fall into the op's own time.

    A busy machine may give that thread no time during a call, so there are several.
    """
    ctx = tessera.Context("cpu", threads=1, trace=True)
    x, ended, ticks = np.ones((1, 2048, 8, 64), np.float32), threading.Event(), []

    def tick():
        while not ended.wait(0.001):
            ticks.append(time.monotonic())

    thread = threading.Thread(target=tick)
    thread.start()
    longest, begin = 1.0, time.monotonic()  # the longest time without a tick, as a part of the op's
    while longest > 0.5 and time.monotonic() - begin < 30:
        ctx.trace.clear()
        ticks[:] = [time.monotonic()]
        tessera.attention(q=x, k=x, v=x, ctx=ctx)
        ticks.append(time.monotonic())
        longest = np.diff(ticks).max() / ctx.trace.entries[0].seconds
    ended.set()
    thread.join()
    assert longest <= 0.5


def test_a_child_of_fork_computes():
    import multiprocessing

    tessera.softmax(x=np.ones((64, 512), np.float32))
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply(child_sum) == pytest.approx(64.0)


CHILD_THAT_ENDS = """
import os, sys
import numpy as np
import tessera

ctx = tessera.Context("cpu", threads=2)
llm = tessera.LLM(device="cpu", max_sequences=1, context=64)
pieces = llm.stream("Once", tessera.SamplingParams(max_tokens=-1, ignore_eos=True))
next(pieces)
tessera.softmax(x=np.ones((256, 512), np.float32), ctx=ctx)
child = os.fork()
if child == 0:
    del pieces, llm
    tessera.softmax(x=np.ones((256, 512), np.float32), ctx=ctx)
    sys.exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_child_of_fork_ends():
    """As a worker of gunicorn does. Destructors there would wait for threads that only the parent has."""
    done = subprocess.run([sys.executable, "-c", CHILD_THAT_ENDS], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("7\n", 0), done.stderr


def child_sum() -> float:
    return float(tessera.softmax(x=np.ones((64, 512), np.float32)).sum())


@pytest.mark.gpu
@pytest.mark.parametrize("given", [False, True], ids=["a new output", "out="])
def test_cuda_tensors_on_a_stream_of_their_own(given):
    """The op begins after what torch's current stream was asked, and torch goes on after the op.

    Each round has other numbers, in each column. In even rounds torch's stream is late: an op that did not wait for it
    would read the numbers of the round before. In odd rounds the op's stream is late: a stream that did not wait for
    the op would copy NaN.
    """
    late = 2_000_000  # cycles: a millisecond, which the host needs for many rounds
    values = torch.randn(20, 256, 1024, generator=torch.Generator().manual_seed(1)).cuda()
    ours = torch.cuda.ExternalStream(tessera.default_context(str(values.device)).stream)
    tessera.softmax(x=values[0])  # loads the kernel
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        x, results = torch.zeros_like(values[0]), torch.zeros_like(values)
        out = torch.full_like(x, torch.nan) if given else None
        for i, numbers in enumerate(values):
            with torch.cuda.stream(ours if i % 2 else stream):
                torch.cuda._sleep(late)
            x.copy_(numbers)
            y = tessera.softmax(x=x, out=out)
            assert y.device == x.device and (y is out or not given)
            results[i].copy_(y)
            y.fill_(torch.nan)  # nothing of this round is left in the memory that a later one gets
    stream.synchronize()
    torch.testing.assert_close(results, torch.softmax(values, -1))


@pytest.mark.gpu
def test_cuda_tensors_of_a_torch_without_dlpacks_c_table_on_a_stream_of_their_own():
    """The test above, in a process whose torch is as older ones are (conftest.py)."""
    test = f"{__file__}::{test_cuda_tensors_on_a_stream_of_their_own.__name__}[out=]"
    environment = {**os.environ, "TESSERA_TEST_WITHOUT_TABLE": "1"}
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", test], env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout


@pytest.mark.gpu
def test_cuda_attention_agrees_with_torch():
    q, k, v = (torch.randn(2, 65, 4, 64, device="cuda", dtype=torch.float16) for _ in range(3))
    out = tessera.attention(q=q, k=k, v=v, mask=tessera.Mask.causal())
    expected = torch.nn.functional.scaled_dot_product_attention(
        *(x.transpose(1, 2).float() for x in (q, k, v)), is_causal=True
    ).transpose(1, 2)
    torch.testing.assert_close(out.float(), expected, atol=4e-3, rtol=1e-2)


@pytest.mark.gpu
def test_arrays_of_two_devices_are_refused():
    with pytest.raises(tessera.Error):
        tessera.softmax(x=torch.ones(2, 4, device="cuda"), out=torch.ones(2, 4))
