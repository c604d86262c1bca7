"""Writes tests/data/tokens: small tokenizers trained by the `tokenizers` library, a text, and its tokens by each.

Run with: pip install tokenizers==0.23.* && python export_tokens.py
"""

import json
import pathlib

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

here = pathlib.Path(__file__).parent.parent / "tests" / "data" / "tokens"
here.mkdir(exist_ok=True)

lines = [
    "The quick brown fox jumps over the lazy dog.\n",
    "  It's the dog's day: 1234 naïve cafés, 東京, and 🙂!\n",
    "\n",
    "The dog, the fox and the lazy day.\n",
]
text = "".join(lines * 3)
(here / "text.txt").write_text(text, encoding="utf-8", newline="\n")

bytes_ = Tokenizer(models.BPE())
bytes_.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
bytes_.decoder = decoders.ByteLevel()
alphabet = pre_tokenizers.ByteLevel.alphabet()
bytes_.train_from_iterator([text], trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False))
# A limit that is not to be kept.
bytes_.enable_truncation(5)

words = Tokenizer(models.WordPiece(unk_token="[UNK]"))
words.normalizer = normalizers.BertNormalizer(lowercase=True)
words.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
special = ["[UNK]", "[CLS]", "[SEP]"]
words.train_from_iterator([text], trainers.WordPieceTrainer(vocab_size=90, special_tokens=special, show_progress=False))
words.post_processor = processors.TemplateProcessing(
    single="[CLS] $A [SEP]", special_tokens=[("[CLS]", words.token_to_id("[CLS]")), ("[SEP]", words.token_to_id("[SEP]"))]
)

for name, tokenizer in [("bytes", bytes_), ("words", words)]:
    tokenizer.save(str(here / f"{name}.json"), pretty=False)
    tokenizer.no_truncation()
    expected = {
        "vocabulary": tokenizer.get_vocab_size(),
        "around": tokenizer.encode(lines[1]).ids,
        "text": tokenizer.encode(text, add_special_tokens=False).ids,
    }
    (here / f"{name}.expected.json").write_text(json.dumps(expected))
