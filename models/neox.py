"""GPT-NeoX for training: the same computation and tensor names as transformers' GPTNeoXForCausalLM, small enough to read.

It has a parallel residual (attention and feed-forward both read the layer's input), rotary embedding on the first quarter of each head,
exact gelu, and one fused projection for query, key and value, laid out as [heads, 3, head dim].
"""
import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Shape:
    vocab: int = 3072
    layers: int = 7
    hidden: int = 512
    heads: int = 8
    window: int = 512
    tied: bool = False
    dropout: float = 0.0
    rotary_fraction: float = 0.25
    rotary_base: float = 10000.0

    @property
    def head_dim(self):
        return self.hidden // self.heads

    @property
    def rotary_dim(self):
        return int(self.head_dim * self.rotary_fraction)


def rotary_table(shape, positions):
    """-> cos, sin [positions, rotary_dim]; the two halves of the rotated part share their angles."""
    frequency = shape.rotary_base ** (-torch.arange(0, shape.rotary_dim, 2, device=positions.device).float() / shape.rotary_dim)
    angle = positions.float().unsqueeze(-1) * frequency
    angle = torch.cat([angle, angle], dim=-1)
    return angle.cos(), angle.sin()


def rotate(x, cos, sin):
    """x [..., positions, head_dim]: only the first rotary_dim values are rotated."""
    rotated, kept = x[..., :cos.shape[-1]], x[..., cos.shape[-1]:]
    a, b = rotated.chunk(2, dim=-1)
    return torch.cat([rotated * cos + torch.cat([-b, a], dim=-1) * sin, kept], dim=-1).to(x.dtype)


class Attention(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.heads = shape.heads
        self.watch_begin = False  # record how much attention the first position gets
        self.begin_mass = None  # [heads], mean over the batch and all queries
        self.query_key_value = nn.Linear(shape.hidden, 3 * shape.hidden)
        self.dense = nn.Linear(shape.hidden, shape.hidden)

    def split(self, x):
        """-> query, key, value, each [batch, heads, positions, head_dim], not yet rotated."""
        qkv = self.query_key_value(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        return qkv.chunk(3, dim=-1)

    def join(self, x):
        return self.dense(x.transpose(1, 2).flatten(2))

    def forward(self, x, cos, sin):
        q, k, v = self.split(x)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        if self.watch_begin:
            return self.join(self.watched(q, k, v))
        return self.join(F.scaled_dot_product_attention(q, k, v, is_causal=True))

    def watched(self, q, k, v):
        """The same attention, with one more column of v: 1 at the first position, 0 elsewhere. It comes out as that position's share."""
        pad = 8  # columns, for alignment
        mark = torch.zeros_like(v[..., :pad])
        mark[:, :, 0, 0] = 1
        out = F.scaled_dot_product_attention(
            F.pad(q, (0, pad)), F.pad(k, (0, pad)), torch.cat([v, mark], dim=-1), is_causal=True, scale=q.shape[-1] ** -0.5)
        self.begin_mass = out[..., -pad].float().mean((0, 2))
        return out[..., :-pad]


class FeedForward(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.dense_h_to_4h = nn.Linear(shape.hidden, 4 * shape.hidden)
        self.dense_4h_to_h = nn.Linear(4 * shape.hidden, shape.hidden)

    def forward(self, x):
        return self.dense_4h_to_h(F.gelu(self.dense_h_to_4h(x)))


class Layer(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.input_layernorm = nn.LayerNorm(shape.hidden)
        self.post_attention_layernorm = nn.LayerNorm(shape.hidden)
        self.attention = Attention(shape)
        self.mlp = FeedForward(shape)
        self.dropout = nn.Dropout(shape.dropout)

    def forward(self, x, cos, sin):
        attention = self.attention(self.input_layernorm(x), cos, sin)
        return x + self.dropout(attention) + self.dropout(self.mlp(self.post_attention_layernorm(x)))


class NeoX(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.gpt_neox = nn.ModuleDict({
            "embed_in": nn.Embedding(shape.vocab, shape.hidden),
            "layers": nn.ModuleList(Layer(shape) for _ in range(shape.layers)),
            "final_layer_norm": nn.LayerNorm(shape.hidden),
        })
        self.dropout = nn.Dropout(shape.dropout)
        self.embed_out = nn.Linear(shape.hidden, shape.vocab, bias=False)
        if shape.tied:
            self.embed_out.weight = self.gpt_neox.embed_in.weight
        for name, p in self.named_parameters():
            if p.ndim == 2:
                into_residual = name.endswith(("attention.dense.weight", "dense_4h_to_h.weight"))
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * shape.layers) if into_residual else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def hidden(self, ids):
        """-> the state after the final norm."""
        cos, sin = rotary_table(self.shape, torch.arange(ids.shape[1], device=ids.device))
        x = self.dropout(self.gpt_neox["embed_in"](ids))
        for layer in self.gpt_neox["layers"]:
            x = layer(x, cos, sin)
        return self.gpt_neox["final_layer_norm"](x)

    def forward(self, ids, targets=None):
        """Logits, or the mean negative log-likelihood of the targets."""
        logits = self.embed_out(self.hidden(ids))
        if targets is None:
            return logits
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
