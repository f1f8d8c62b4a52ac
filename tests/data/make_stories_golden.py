#!/usr/bin/env python3
"""Writes the default model's golden: the float32 results of transformers with the exactly decoded 4-bit weights.

    python tests/data/make_stories_golden.py --model models/stories --out tests/data/stories/golden.safetensors

The tensors are those of goldens/README.md, for one short prompt (so that the file stays small). tokenizer.expected.json beside it holds
the results of the `tokenizers` library for a few texts. The script also loads the folder as any user of transformers and
compressed-tensors would, and prints how far that (in bfloat16) is from the golden.
Needs: torch, transformers==5.17.0, compressed-tensors==0.19.0, safetensors. Runs on a CPU.
"""
import argparse
import json
import pathlib
import sys

import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "models"))
import export  # noqa: E402

PROMPT = "Once upon a time, there was a little girl named"
GENERATED = 24
TEXTS = [PROMPT, "", " ", "Lily's mom said, \"Don't!\"\n\nThen  she   left.", "The end.<|story|>Once upon a time", "<|begin|>", "123 456,789",
         "caf\u00e9 \u2014 \u201cna\u00efve\u201d \u65e5\u672c\u8a9e \U0001f600", "tabs\tand\r\nlines\n", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"]


def exact_model(folder):
    config = json.loads((folder / "config.json").read_text())
    config.pop("quantization_config", None)
    config["dtype"] = "float32"
    model = transformers.GPTNeoXForCausalLM._from_config(
        transformers.GPTNeoXConfig(**config), attn_implementation="eager").float().eval()
    values = export.decode(load_file(folder / "model.safetensors"))
    model.load_state_dict({k.replace("embed_out", "lm_head"): v for k, v in values.items()})  # its name since transformers 5
    return model


def expected_ids(path):
    tok = Tokenizer.from_file(str(path))
    rows = []
    for text in TEXTS:
        for special in (False, True):
            ids = tok.encode(text, add_special_tokens=special).ids
            decoded = tok.decode(ids, skip_special_tokens=False)
            rows.append({"text": text, "add_special_tokens": special, "ids": ids, "decoded": decoded})
    return rows


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--model", type=pathlib.Path, required=True)
    p.add_argument("--out", type=pathlib.Path, required=True)
    args = p.parse_args()
    tokenizer = transformers.AutoTokenizer.from_pretrained(args.model)
    ids = torch.tensor([tokenizer(PROMPT).input_ids])
    model = exact_model(args.model)
    with torch.no_grad():
        out = model(ids, output_hidden_states=True, use_cache=False)
        full = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=GENERATED, do_sample=False, eos_token_id=None,
                              pad_token_id=0, return_dict_in_generate=True, output_logits=True)
        theirs = transformers.AutoModelForCausalLM.from_pretrained(args.model)(ids).logits.float()
    top = torch.stack(full.logits)[:, 0].topk(2, dim=-1).values
    golden = {"input_ids": ids, "logits": out.logits, "generated_ids": full.sequences[:, ids.shape[1]:],
              **{f"hidden_states.{i}": h for i, h in enumerate(out.hidden_states)}}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    save_file({k: v.contiguous() for k, v in golden.items()}, args.out, metadata={"format": "pt"})
    expected = json.dumps(expected_ids(args.model / "tokenizer.json"), indent=1)
    (args.out.parent / "tokenizer.expected.json").write_text(expected + "\n")
    apart = ((theirs - out.logits).norm() / out.logits.norm()).item()
    print(f"{tokenizer.decode(full.sequences[0])}\n{ids.shape[1]} prompt tokens, least lead {(top[:, 0] - top[:, 1]).min():.3f}, "
          f"{args.out.stat().st_size} bytes; as loaded by transformers (bfloat16): {apart:.1e} apart")


if __name__ == "__main__":
    main()
