"""The slow, obvious versions, in float64."""

import numpy as np


def attention(q, k, v, allows=lambda i, p, j: True, scale=None):
    """[batch, seq, heads, dim]; allows(i, p, j) as tessera.Mask.allows."""
    batch, n_q, heads, dim = q.shape
    n_k, kv_heads = k.shape[1:3]
    scale = scale or dim**-0.5
    out, lse = np.zeros(q.shape), np.full((batch, heads, n_q), -np.inf)
    seen = np.array([[allows(i, i + n_k - n_q, j) for j in range(n_k)] for i in range(n_q)], dtype=bool)
    for b in range(batch):
        for h in range(heads):
            kv = h // (heads // kv_heads)
            scores = scale * q[b, :, h].astype(np.float64) @ k[b, :, kv].astype(np.float64).T
            scores = np.where(seen, scores, -np.inf)
            rows = seen.any(1)
            top = scores[rows].max(1, keepdims=True)
            weights = np.exp(scores[rows] - top)
            total = weights.sum(1, keepdims=True)
            out[b, rows, h] = weights / total @ v[b, :, kv].astype(np.float64)
            lse[b, h, rows] = (np.log(total) + top)[:, 0]
    return out, lse


def layer_norm(x, weight, bias, eps):
    x = x.astype(np.float64)
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps) * weight + bias


def rms_norm(x, weight, eps):
    x = x.astype(np.float64)
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * weight


def rotary(x, positions, inv_freq):
    half = len(inv_freq)
    angles = np.asarray(positions, np.float64)[:, None] * np.asarray(inv_freq, np.float64)
    cos, sin = np.cos(angles)[None, :, None], np.sin(angles)[None, :, None]
    out = x.astype(np.float64).copy()
    a, b = out[..., :half].copy(), out[..., half : 2 * half].copy()
    out[..., :half], out[..., half : 2 * half] = a * cos - b * sin, b * cos + a * sin
    return out
