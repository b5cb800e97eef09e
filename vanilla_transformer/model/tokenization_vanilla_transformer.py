# Copyright 2026 The vanilla_transformer authors. MIT License.
"""The tokenizer's class. What it does to a text stands in `tokenizer.json`, so that any process can load it alone."""

from itertools import groupby

from transformers import TokenizersBackend

IGNORED_LABEL = -100


class VanillaTransformerTokenizer(TokenizersBackend):
    """Byte-level BPE that loses nothing, for both languages at once (section 5.1).

    It has no `__init__`, so that transformers loads `tokenizer.json` as it is, and it never changes an encoding:
    without this class `AutoTokenizer` gives the same ids. Text never becomes a special token, not even one
    that is added later: give its id yourself.
    """

    model_input_names = ["input_ids", "attention_mask"]

    def _encode_plus(self, text, *args, **kwargs):
        """As in transformers, with a clear error for half characters, which no UTF-8 file can hold.

        Raises:
            ValueError: for a lone surrogate, as a broken JSON escape makes it.
        """
        try:
            return super()._encode_plus(text, *args, **kwargs)
        except TypeError:
            for given in (text, *args[:1], kwargs.get("text_pair")):
                for item in given if isinstance(given, (list, tuple)) else [given]:
                    reject_surrogates(item)
            raise

    def _decode(self, token_ids, skip_special_tokens=False, **kwargs):
        """As in transformers, with two differences. Labels are padded with -100, which is no token, and is left out.
        A token that was added is its own text: the byte-level decoder would take its letters for bytes ("é" for 0xE9).
        """
        if isinstance(token_ids, int):
            token_ids = [token_ids]
        added = self.added_tokens_decoder
        pieces = []
        for is_added, run in groupby((i for i in token_ids if i != IGNORED_LABEL), key=added.__contains__):
            if is_added:
                tokens = (added[i] for i in run)
                pieces += [token.content for token in tokens if not (skip_special_tokens and token.special)]
            else:
                pieces.append(super()._decode(list(run), **kwargs))
        return "".join(pieces)

    def readable_tokens(self, token_ids: list[int]) -> list[str]:
        """Each token as people read it: `' été'`, not `'ĠÃ©tÃ©'`; a token that is a part of a character as its bytes,
        `'<0xC3>'`. Labels of -100 are left out."""
        return [self.readable(i) for i in token_ids if i != IGNORED_LABEL]

    def readable(self, token_id: int) -> str:
        token = self.convert_ids_to_tokens(int(token_id))
        if token is None:
            raise ValueError(f"got token id {token_id}, expected one below {len(self)}, the size of the vocabulary")
        if token_id in self.added_tokens_decoder:  # a special token, or one that was added as text
            return token
        data = bytes(BYTES[letter] for letter in token)
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            return "".join(f"<0x{byte:02X}>" for byte in data)


def byte_letters() -> dict[str, int]:
    """The letter that byte-level BPE writes for each byte: printable ones for themselves, others from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters = {chr(byte): byte for byte in printable}
    rest = (byte for byte in range(256) if byte not in printable)
    return letters | {chr(256 + n): byte for n, byte in enumerate(rest)}


BYTES = byte_letters()


def reject_surrogates(text) -> None:
    """Raise `ValueError` if `text` is a string that is no valid Unicode."""
    if isinstance(text, str):
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError(
                f"{text[:40]!r} holds a lone surrogate at character {error.start}: it is no valid Unicode; decode its "
                "source again, for instance with json.loads, or drop it with text.encode('utf-8', 'ignore')"
            ) from None
