"""The text: turns stories into tokens, and tokens into training windows.

A byte-level BPE tokenizer is trained on the stories. Every 100th story is held out, and the rest becomes one long row of token ids, each
story followed by <|story|>. A window always starts with <|begin|>, which appears nowhere else. The model learns to rest unused attention
on that first token, which is why it works as an attention sink.
"""
import lzma
import pathlib

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

BEGIN, STORY = "<|begin|>", "<|story|>"
BEGIN_ID, STORY_ID = 0, 1
HOLD_OUT_EVERY = 100


def read_stories(path):
    opener = lzma.open if str(path).endswith(".xz") else open
    with opener(path, "rt", encoding="utf-8") as f:
        parts = f.read().split(STORY + "\n")
    return [s for s in (p.strip("\n") for p in parts) if s]


def split(stories):
    held_out = stories[::HOLD_OUT_EVERY]
    train = [s for i, s in enumerate(stories) if i % HOLD_OUT_EVERY]
    return train, held_out


def train_tokenizer(stories, vocab_size):
    """GPT-2's byte-level pre-tokenizer. <|begin|> goes in front if special tokens are asked for."""
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(stories, trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=[BEGIN, STORY], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False))
    tok.post_processor = processors.TemplateProcessing(
        single=f"{BEGIN} $A", pair=f"{BEGIN} $A $B", special_tokens=[(BEGIN, BEGIN_ID)])
    assert tok.token_to_id(BEGIN) == BEGIN_ID and tok.token_to_id(STORY) == STORY_ID
    return tok


def encode(tok, stories):
    """-> uint16 ids of all stories in a row, each followed by <|story|>."""
    rows = []
    for start in range(0, len(stories), 4096):
        for e in tok.encode_batch(stories[start:start + 4096], add_special_tokens=False):
            rows.append(np.array(e.ids + [STORY_ID], np.uint16))
    return np.concatenate(rows)


def prepare(data, out, vocab_size):
    """Makes tokenizer and token ids under `out`, once -> (path of tokenizer.json, path of tokens.npz)."""
    out = pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    tokenizer, tokens = out / "tokenizer.json", out / "tokens.npz"
    if not (tokenizer.exists() and tokens.exists()):
        train, held_out = split(read_stories(data))
        tok = train_tokenizer(train, vocab_size)
        tok.save(str(tokenizer), pretty=False)
        held_bytes = sum(len(s.encode()) for s in held_out)
        np.savez_compressed(tokens, train=encode(tok, train), held_out=encode(tok, held_out), held_out_bytes=held_bytes)
    return tokenizer, tokens


class Windows:
    """Training windows [<|begin|>, t0, t1, ...] drawn from ids on the training device."""

    def __init__(self, ids, length, seed):
        import torch  # here, so that preparing the text needs no PyTorch
        self.torch, self.ids, self.length = torch, ids, length
        self.gen = torch.Generator(ids.device).manual_seed(seed)
        starts = (ids == STORY_ID).nonzero().flatten() + 1
        self.starts = starts[starts < len(ids) - length]

    def draw(self, batch):
        """-> inputs and targets, both [batch, length]. Half of the windows start at a story, like a prompt. The others start anywhere,
        like a stream whose first tokens are gone."""
        torch, device = self.torch, self.ids.device
        anywhere = torch.randint(len(self.ids) - self.length, (batch - batch // 2,), generator=self.gen, device=device)
        pick = torch.randint(len(self.starts), (batch // 2,), generator=self.gen, device=device)
        return self.at(torch.cat([anywhere, self.starts[pick]]))

    def at(self, offsets):
        torch = self.torch
        text = self.ids[offsets.unsqueeze(1) + torch.arange(self.length, device=self.ids.device)].long()
        begin = torch.full_like(text[:, :1], BEGIN_ID)
        return torch.cat([begin, text[:, :-1]], dim=1), text

    def all(self):
        """Every token once, for validation."""
        torch = self.torch
        return self.at(torch.arange(0, len(self.ids) - self.length, self.length, device=self.ids.device))
