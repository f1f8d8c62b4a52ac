"""A model of transformers on Tessera's kernels: patched, verified, streaming past its window, restored.

python examples/python/patch_transformers.py [--model DIR] [--linear FORMAT]

Without --model, a small GPT-NeoX with random weights is made: it shows the same, but its text means nothing.
"""

import argparse

import torch
from transformers import AutoModelForCausalLM, GPTNeoXConfig, GPTNeoXForCausalLM

import tessera
import tessera.transformers


def random_model() -> GPTNeoXForCausalLM:
    torch.manual_seed(0)
    return GPTNeoXForCausalLM(
        GPTNeoXConfig(
            vocab_size=512, hidden_size=256, intermediate_size=1024, num_hidden_layers=4, num_attention_heads=4,
            max_position_embeddings=256,
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="folder of a dense checkpoint")
    parser.add_argument("--linear", default="nvfp4", help="format of the linear layers, or none")
    parser.add_argument("--tokens", type=int, default=300)
    options = parser.parse_args()

    if options.model:
        model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32)
        ids = torch.tensor([tessera.load_tokenizer(options.model).encode("Once upon a time")])
    else:
        model, ids = random_model(), torch.arange(3, 11)[None]
    model.eval()

    linear = None if options.linear == "none" else options.linear
    tessera.transformers.patch(model, linear=linear, streaming=(4, 60))
    print(tessera.transformers.verify(model, ids))

    out = model.generate(ids, max_new_tokens=options.tokens, min_new_tokens=options.tokens, do_sample=False)
    new = out[0, ids.shape[1] :].tolist()
    print(f"{len(new)} tokens with a cache of 64")
    print(tessera.load_tokenizer(options.model).decode(new, skip_special=True) if options.model else new[:16])
    tessera.transformers.unpatch(model)


if __name__ == "__main__":
    main()
