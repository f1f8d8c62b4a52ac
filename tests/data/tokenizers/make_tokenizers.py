#!/usr/bin/env python3
"""Trains one tiny tokenizer of each style that Tessera reads, and records the results of the `tokenizers`
library (pip install tokenizers==0.23.3) for a list of nasty texts.

    python3 make_tokenizers.py        # writes NAME.tokenizer.json and NAME.expected.json beside it

gpt2.expected.json, gpt-neox.expected.json and llama2.expected.json are not written here: they belong to
published tokenizers that are not part of the project. Training differs from run to run: write both files
of a tokenizer or none.
"""
import json
import pathlib

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).parent

CORPUS = """Once upon a time there was a little girl named Lily. She loved to play outside in the sunshine.
One day, her mom said, "Lily, let's go to the park!" They didn't have 12 apples, they had 1,234,567 of them.
The quick brown fox jumps over the lazy dog; it's the dog's turn, we'll see, I'VE said so, they'd know.
def main(argc, argv):\n    for i in range(100):\n        print(f"{i}: {i ** 2}")\n    return 0\n
Der schöne Weg führt über die Brücke. Le café était fermé à midi, où êtes-vous allé? Ñandú, niño, mañana.
Привет, мир! Как дела? Все счастливые семьи похожи друг на друга. 北京欢迎你，今天天气很好。 こんにちは世界、元気ですか。
مرحبا بالعالم، كيف حالك اليوم؟ नमस्ते दुनिया, आप कैसे हैं? 안녕하세요 세계. 🙂 👩‍👩‍👧‍👦 🇩🇪 ❤️ — “quotes” …
""".split("\n")

LONG = "".join(chr(ord("a") + (i * i + 3 * i) % 26) for i in range(3000))
TEXTS = [
    "", " ", "a", "Hello, world!", " leading and  double   spaces ", "tabs\tand\nnew\r\nlines\n\n\n", "\r\n\r\n \n x\r",
    "don't we'll I'VE it's THEY'D 'S ’s", "naïve café — “quotes” … ﬁ", "北京欢迎你，今天天气很好。", "こんにちは世界 ｶﾞ",
    "Привет, мир!", "مرحبا بالعالم", "नमस्ते क्षि", "안녕 각 \u1100\u1161\u11a8", "🙂👩\u200d👩\u200d👧\u200d👦🇩🇪 👍🏽❤️",
    "1 12 123 1234 12345 1234567890 3.14159 1,000,000 ½ ٣٤٥ Ⅷ １２３", "def f(x):\n    return x**2  # square\n",
    "e\u0301 vs é, \u0301 alone, a\u0323\u0307 a\u0307\u0323, \u212b \u2126 \u0344 \u0958", "\x00\x01\x1f\x7f\x80\x85\x9f control",
    "\u00a0nbsp\u200bzero\u2028line\u3000wide\u180emongol\ufeffbom", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐍈 \U0010ffff \ufffd \uffff", "ſ K İ ß ẞ ΑΣ",
    "a<|end|>b <|end|> c", "<|end|><|end|>", "<|en<|end|>d|>", "  <|end|>  ", "x <mask> y", "x<mask>  y", "word keyword word. sword",
    "KEYWORD é\u0301 KéY", "<s>hi</s> <unk> <s> hi", "<0x41> <0xE2><0x82><0xAC>", "▁ ▁▁x ▁", "   \n  \n ", "a" * 100, " " * 50, "\n" * 20,
    "ab" * 50, "é" * 40, "🙂" * 20, "...!!!???", "http://example.com/?q=1&b=2#frag", "the the the THE The", LONG,
]


def train(tokenizer, size, special, byte_level, **options):
    alphabet = pre_tokenizers.ByteLevel.alphabet() if byte_level else options.pop("alphabet", [])
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=special, initial_alphabet=alphabet,
                                  show_progress=False, **options)
    tokenizer.train_from_iterator(CORPUS, trainer)


def gpt2():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    train(tokenizer, 700, ["<|end|>"], True)
    tokenizer.add_tokens([AddedToken(" " * n, normalized=True) for n in (8, 4, 2)])
    return tokenizer


def llama3():
    pattern = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
               r"\s*[\r\n]+|\s+(?!\S)|\s+")
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    train(tokenizer, 800, [], True)
    tokenizer.add_special_tokens(["<s>", "<|end|>"])
    tokenizer.add_tokens([AddedToken("word", single_word=True, normalized=False)])
    start = tokenizer.token_to_id("<s>")
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B:1", special_tokens=[("<s>", start)])])
    return tokenizer


def qwen():
    pattern = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
               r"\s*[\r\n]+|\s+(?!\S)|\s+")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    train(tokenizer, 700, [], True)
    tokenizer.add_special_tokens(["<|end|>"])
    tokenizer.add_tokens([AddedToken("KéY", normalized=True)])
    return tokenizer


BYTES = ["<0x%02X>" % b for b in range(256)]


def llama2():
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    train(tokenizer, 900, ["<unk>", "<s>", "</s>"] + BYTES, False, limit_alphabet=120)
    tokenizer = Tokenizer.from_str(json.dumps(drop_special(tokenizer, BYTES)))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> <s> $B </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    return tokenizer


def drop_special(tokenizer, names):
    """The tokenizer's JSON, with these as plain tokens of the vocabulary."""
    data = json.loads(tokenizer.to_str())
    data["added_tokens"] = [token for token in data["added_tokens"] if token["content"] not in names]
    return data


def llama2_legacy():
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    # Merges may not cross words: the legacy layout has no pre-tokenizer, but was trained with one.
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    train(tokenizer, 900, ["<unk>", "<s>", "</s>"] + BYTES, False, limit_alphabet=120)
    data = drop_special(tokenizer, BYTES)
    data["pre_tokenizer"] = None
    data["model"]["merges"] = [" ".join(pair) for pair in data["model"]["merges"]]
    tokenizer = Tokenizer.from_str(json.dumps(data))
    tokenizer.add_special_tokens([AddedToken("<|end|>", lstrip=True, normalized=False)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    return tokenizer, data["model"]["merges"]


def words():
    """Not a published style: it uses every option that the others do not."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", continuing_subword_prefix="##", end_of_word_suffix="</w>"))
    tokenizer.normalizer = normalizers.Sequence([
        normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Strip(),
        normalizers.Replace(Regex("[“”]"), '"')])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.Punctuation("merged_with_previous"), pre_tokenizers.Split("-", "merged_with_next", invert=False)])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("##", ""), decoders.Replace("</w>", " "), decoders.Fuse()])
    train(tokenizer, 500, ["<unk>", "<s>", "</s>"], False, limit_alphabet=60, continuing_subword_prefix="##",
          end_of_word_suffix="</w>")
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, rstrip=True)])
    tokenizer.add_tokens([AddedToken("KEYWORD", normalized=True, single_word=True)])
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 1))
    return tokenizer


def write(name, tokenizer, merges=None):
    data = json.loads(tokenizer.to_str())
    if merges:
        data["model"]["merges"] = merges
    path = HERE / f"{name}.tokenizer.json"
    path.write_text(json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
    tokenizer = Tokenizer.from_file(str(path))
    rows = []
    for text in TEXTS:
        for special in (False, True):
            ids = tokenizer.encode(text, add_special_tokens=special).ids
            rows.append({"text": text, "add_special_tokens": special, "ids": ids,
                         "decoded": tokenizer.decode(ids, skip_special_tokens=False),
                         "decoded_without_special": tokenizer.decode(ids, skip_special_tokens=True)})
    out = "[\n" + ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows) + "\n]\n"
    (HERE / f"{name}.expected.json").write_text(out)
    print(name, path.stat().st_size, len(out))


def main():
    write("tiny-gpt2", gpt2())
    write("tiny-llama3", llama3())
    write("tiny-qwen", qwen())
    write("tiny-llama2", llama2())
    write("tiny-llama2-legacy", *llama2_legacy())
    write("tiny-words", words())


if __name__ == "__main__":
    main()
