"""What our model is measured against, besides MarianMT."""

import argparse
import contextlib
import io
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from vanilla_transformer.reference import NumpyTransformer


def numpy_peer(folder: Path, batch) -> Callable[[], int]:
    """Greedy search for one sentence by our reference in NumPy: () -> tokens."""
    model = NumpyTransformer.from_pretrained(folder)
    source = batch["input_ids"][0].tolist()
    return lambda: len(model.search([model.config["decoder_start_token_id"]], source, 100, num_beams=1)[0].tokens)


class TorchTransformer(nn.Module):
    """`torch.nn.Transformer` of the same size, with tied embeddings and what a loss needs around it."""

    def __init__(self, config):
        super().__init__()
        heads, layers = config.encoder_attention_heads, (config.encoder_layers, config.decoder_layers)
        self.embed = nn.Embedding(config.vocab_size, config.d_model)
        nn.init.normal_(self.embed.weight, std=config.d_model**-0.5)
        self.scale, self.start = config.d_model**0.5, config.decoder_start_token_id
        self.core = nn.Transformer(
            config.d_model, heads, *layers, config.encoder_ffn_dim, config.dropout, batch_first=True
        )
        self.positions = nn.Parameter(torch.randn(512, config.d_model), requires_grad=False)

    def forward(self, input_ids, attention_mask, labels):
        def enter(ids):
            return self.embed(ids) * self.scale + self.positions[: ids.shape[1]]

        target = torch.cat([torch.full_like(labels[:, :1], self.start), labels[:, :-1]], 1).clamp(min=0)
        hidden = self.core(
            enter(input_ids),
            enter(target),
            tgt_mask=nn.Transformer.generate_square_subsequent_mask(target.shape[1], labels.device, torch.bool),
            src_key_padding_mask=attention_mask == 0,
            memory_key_padding_mask=attention_mask == 0,
            tgt_is_causal=True,
        )
        loss = nn.functional.cross_entropy((hidden @ self.embed.weight.T).flatten(0, 1), labels.flatten())
        return argparse.Namespace(loss=loss)


def ctranslate2_peer(marian, batches, beams: int, exact: int | None) -> Callable[[], list] | None:
    """Translation by CTranslate2 with MarianMT's weights, by its own converter: () -> ids of all rows; `None` where it
    is not installed. All outputs get `exact` tokens, where a number is given."""
    try:
        import ctranslate2
        from ctranslate2.converters.transformers import MarianMTLoader, TransformersConverter
    except ImportError:
        return None
    names = [f"<{i}>" for i in range(marian.config.vocab_size)]
    start, end = names[marian.config.decoder_start_token_id], names[marian.config.eos_token_id]

    class Loader(MarianMTLoader):
        """OPUS-MT begins its outputs with the embedding zero and has a last token of padding: ours has neither."""

        def set_decoder(self, spec, decoder):
            super().set_decoder(spec, decoder)
            spec.start_from_zero_embedding = False

        def set_config(self, config, model, tokenizer):
            config.eos_token, config.unk_token, config.decoder_start_token = end, names[3], start

        def get_vocabulary(self, model, tokenizer):
            return list(names)

        def _remove_pad_weights(self, spec):
            pass

    class Converter(TransformersConverter):
        def _load(self):
            with torch.no_grad():
                return Loader()(marian, None)

    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        Converter("").convert(folder, force=True)
        translator = ctranslate2.Translator(folder, intra_threads=torch.get_num_threads(), compute_type="float32")
    length = {"max_decoding_length": exact or 100, "min_decoding_length": exact or 1}
    tokens = [
        [
            [names[i] for i in row[mask.bool()].tolist()]
            for row, mask in zip(b["input_ids"], b["attention_mask"], strict=True)
        ]
        for b in batches
    ]

    def run() -> list:
        results = [translator.translate_batch(batch, beam_size=beams, **length) for batch in tokens]
        return [[[int(token[1:-1]) for token in r.hypotheses[0]] for r in batch] for batch in results]

    return run
