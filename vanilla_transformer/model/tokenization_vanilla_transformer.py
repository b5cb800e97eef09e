# Copyright 2026 The vanilla_transformer authors. MIT License.
"""The tokenizer's class. What it does to a text stands in `tokenizer.json`, so that any process can load it alone."""

from transformers import TokenizersBackend

IGNORED_LABEL = -100


class VanillaTransformerTokenizer(TokenizersBackend):
    """Byte-level BPE that loses nothing, for both languages at once (section 5.1).

    It has no `__init__`, so that transformers loads `tokenizer.json` as it is, and it never changes an encoding:
    without this class `AutoTokenizer` gives the same ids.
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
            for item in [text] if isinstance(text, str) else text:
                reject_surrogates(item)
            raise

    def _decode(self, token_ids, *args, **kwargs):
        """As in transformers; labels are padded with -100, which is no token, and is left out."""
        if isinstance(token_ids, int):
            token_ids = [token_ids]
        return super()._decode([i for i in token_ids if i != IGNORED_LABEL], *args, **kwargs)

    def readable_tokens(self, token_ids: list[int]) -> list[str]:
        """Each token as people read it: `' été'`, not `'ĠÃ©tÃ©'`; a token that is a part of a character as its bytes,
        `'<0xC3>'`."""
        letters = self.backend_tokenizer.decoder
        texts = []
        for token in self.convert_ids_to_tokens(list(token_ids)):
            text = token if token in self.all_special_tokens else letters.decode([token])
            texts.append(text if "\ufffd" not in text else "".join(f"<0x{BYTES[letter]:02X}>" for letter in token))
        return texts


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
