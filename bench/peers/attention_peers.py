"""Others' attention on a GPU, for compare_attention.py: each function gives a graph of calls on inputs like those of a row."""
import gpu_table as table

WINDOW = 1024  # bench_gpu's default


def inputs(row):
    """q, k, v as [batch, heads, seq, dim] views of [batch, seq, heads, dim], as in a model. Two sets, as in bench_gpu."""
    import torch

    shape = (row["batch"], row["S"], row["heads"], row["D"])
    return [[torch.randn(shape, device="cuda", dtype=torch.bfloat16).transpose(1, 2) for _ in range(3)] for _ in range(2)]


def sdpa(backend, row, sets):
    """PyTorch's scaled_dot_product_attention by one of its back ends: flash or cudnn."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    kind = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}[backend]
    attend = torch.nn.functional.scaled_dot_product_attention
    causal = row["mask"] == "causal"
    with sdpa_kernel(kind):
        return table.Captured([lambda s=s: attend(*s, is_causal=causal) for s in sets])


def windowed(q, k, v, window):
    """The kernel of PyTorch's flash back end supports windows; its public function does not."""
    import torch

    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return torch.ops.aten._flash_attention_forward(q, k, v, None, None, q.shape[1], k.shape[1], 0.0, True, False,
                                                   window_size_left=window - 1, window_size_right=0)[0]


def check_windowed():
    """Checks the window against the formula."""
    import torch

    q, k, v = (torch.randn(1, 2, 300, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    i = torch.arange(300, device="cuda")
    visible = (i[None] <= i[:, None]) & (i[None] > i[:, None] - 50)
    exact = torch.nn.functional.scaled_dot_product_attention(q.float(), k.float(), v.float(), attn_mask=visible)
    error = (windowed(q, k, v, 50).transpose(1, 2).float() - exact).norm() / exact.norm()
    if not error < 0.01:
        raise RuntimeError(f"the flash back end's window is not the window that was asked for (error {error:.2g})")


def flash_window(row, sets):
    del row
    check_windowed()
    return table.Captured([lambda s=s: windowed(*s, WINDOW) for s in sets])


def lists_of(rows):
    """How many tiles each row has, and which."""
    import torch

    order = torch.zeros(1, 1, len(rows), len(rows), dtype=torch.int32)
    for r, tiles in enumerate(rows):
        order[0, 0, r, : len(tiles)] = torch.tensor(tiles, dtype=torch.int32)
    return torch.tensor([len(tiles) for tiles in rows], dtype=torch.int32).view(1, 1, len(rows)).cuda(), order.cuda()


def flex(row, sets):
    """PyTorch's flex_attention, compiled, with the tiles of bench_gpu's mask."""
    import torch
    from torch.nn.attention.flex_attention import BlockMask, flex_attention

    mask = None
    if row.get("pattern"):
        # Single elements matter only in partial tiles: those on the diagonal, under a causal mask.
        partial = [[t for t in seen if t == r and row["causal"]] for r, seen in enumerate(row["pattern"])]
        full = [[t for t in seen if t not in some] for seen, some in zip(row["pattern"], partial)]
        mask = BlockMask.from_kv_blocks(*lists_of(partial), *lists_of(full), BLOCK_SIZE=128,
                                        mask_mod=(lambda b, h, q, k: q >= k) if row["causal"] else None)
    compiled = torch.compile(flex_attention, dynamic=False)
    return table.Captured([lambda s=s: compiled(*s, block_mask=mask) for s in sets])


def of(row, sparse):
    """Name and maker of each peer that has this mask."""
    kind, _, kernel = row["mask"].partition("@")
    if kernel:
        return {}  # measured without that, too
    if sparse:
        return {"flex_us": flex}
    if kind in ("full", "causal"):
        return {"flash_us": lambda *a: sdpa("flash", *a), "cudnn_us": lambda *a: sdpa("cudnn", *a)}
    return {"flash_us": flash_window} if kind == "window" else {}
