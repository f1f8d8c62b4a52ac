"""A model of transformers on Tessera's kernels: patched, verified, streaming past its window, restored.

python examples/python/patch_transformers.py [--model DIR] [--linear FORMAT]
"""

import argparse

import torch
from transformers import AutoModelForCausalLM

import tessera
import tessera.transformers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=str(tessera.default_model()), help="folder of a checkpoint")
    parser.add_argument("--linear", default="nvfp4", help="format of the linear layers, or none")
    parser.add_argument("--tokens", type=int, default=96)
    options = parser.parse_args()

    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32).eval()
    tokenizer = tessera.load_tokenizer(options.model)
    ids = torch.tensor([tokenizer.encode("Once upon a time")])

    linear = None if options.linear == "none" else options.linear
    tessera.transformers.patch(model, linear=linear, streaming=(4, 60))
    print(tessera.transformers.verify(model, ids))

    out = model.generate(ids, max_new_tokens=options.tokens, do_sample=False, pad_token_id=0)
    print(tokenizer.decode(out[0].tolist(), skip_special=True))
    tessera.transformers.unpatch(model)


if __name__ == "__main__":
    main()
