"""NVFP4 as compressed-tensors stores it (nvfp4-pack-quantized): rounding for training, packing for the file, exact decoding.

A weight is E2M1 code x E4M3 scale (one per 16 along a row) / global scale (one per tensor). Two choices are ours, both within the format.
The global scale is a power of two, so that the grid does not drift while weights train and every value is exact in bfloat16. A block's
scale maps its largest weight to 6 or to 4, whichever gives the smaller squared error (between 4 and 6 the grid has no value).
"""
import torch

BLOCK = 16
VALUES = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
TOP_SCALE = 256  # leaves room for the 1.5 times larger scale of a block that ends at 4: 384 <= 448, E4M3's largest
SMALLEST_SCALE = 2.0 ** -9  # the smallest E4M3: a block of zeros must not divide by zero


def global_scale(weight):
    largest = weight.abs().max().clamp_min(1e-12)
    return torch.exp2(torch.floor(torch.log2(6 * TOP_SCALE / largest)))


def to_grid(x):
    """Magnitudes x >= 0 -> the nearest E2M1 value: steps of 0.5 up to 2, of 1 up to 4, of 2 up to 6."""
    step = torch.where(x < 2, 0.5, torch.where(x < 4, 1.0, 2.0))
    return (torch.round(x / step) * step).clamp_max(6)


def choose(weight):
    """-> magnitudes on the grid [N, K/16, 16], scales in E4M3 [N, K/16], global scale []."""
    overall = global_scale(weight)
    magnitude = (weight * overall).abs().unflatten(-1, (-1, BLOCK))
    largest = magnitude.amax(-1)
    found = []
    for top in (6.0, 4.0):
        scale = (largest / top).clamp_min(SMALLEST_SCALE).to(torch.float8_e4m3fn)
        step = scale.float().unsqueeze(-1)
        grid = to_grid(magnitude / step)
        found.append((grid, scale, (grid * step - magnitude).square().sum(-1)))
    (grid6, scale6, error6), (grid4, scale4, error4) = found
    four = error4 < error6
    scale = torch.where(four, scale4.float(), scale6.float()).to(torch.float8_e4m3fn)  # exact: both are E4M3 already
    return torch.where(four.unsqueeze(-1), grid4, grid6), scale, overall


def rounded(weight):
    """The weight as it will be in the file, in float32."""
    grid, scale, overall = choose(weight)
    return ((grid * scale.float().unsqueeze(-1)).flatten(-2) / overall).copysign(weight)


def pack(weight):
    """-> the three tensors of one matrix. Low nibble first; the fourth bit is the sign."""
    grid, scale, overall = choose(weight)
    code = torch.searchsorted(VALUES.to(weight.device), grid.flatten(-2))  # grid values are exact
    sign = (weight.signbit() & (code > 0)).to(torch.uint8) << 3
    nibble = code.to(torch.uint8) | sign
    return {"weight_packed": nibble[:, 0::2] | (nibble[:, 1::2] << 4), "weight_scale": scale, "weight_global_scale": overall.reshape(1)}


def unpack(tensors):
    """The exact float32 values of the tensors from pack()."""
    packed = tensors["weight_packed"]
    nibble = torch.stack([packed & 15, packed >> 4], dim=-1).flatten(1).long()
    table = torch.cat([VALUES, -VALUES]).to(packed.device)
    scale = tensors["weight_scale"].float().repeat_interleave(BLOCK, dim=1)
    return table[nibble] * (scale / tensors["weight_global_scale"].float())
