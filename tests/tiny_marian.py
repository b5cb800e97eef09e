"""Tiny Marian models with random weights, and a MarianTokenizer of a few sentences."""

import io
import json
from pathlib import Path

import sentencepiece
import torch
from tiny import ENGLISH, FRENCH
from transformers import MarianConfig, MarianMTModel, MarianTokenizer


def tiny_marian(*, dtype=torch.float64, logits_bias=True, **overrides) -> MarianMTModel:
    """Shaped like OPUS-MT: `</s>` is 0, the last id is padding and start. Nothing is zero, not even padding's row."""
    size = overrides.get("vocab_size", 40)
    settings = dict(vocab_size=size, pad_token_id=size - 1, decoder_start_token_id=size - 1, eos_token_id=0)
    settings |= dict(bos_token_id=0, forced_eos_token_id=0, activation_function="swish", scale_embedding=True)
    settings |= dict(d_model=16, encoder_layers=2, decoder_layers=2, encoder_ffn_dim=24, decoder_ffn_dim=24)
    settings |= dict(encoder_attention_heads=2, decoder_attention_heads=2, max_position_embeddings=64)
    model = MarianMTModel(MarianConfig(**{**settings, **overrides})).to(dtype).eval()
    randomise(model)
    if logits_bias:
        model.final_logits_bias.normal_(std=0.3)
    # As in the generation_config.json of OPUS-MT.
    model.generation_config.update(max_length=32, num_beams=4, bad_words_ids=[[model.config.pad_token_id]])
    model.generation_config._from_model_config = False
    return model


def randomise(model: torch.nn.Module) -> None:
    """Every trained number at random, none of them zero, and so that outputs depend on inputs."""
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:  # Marian's sinusoids
            continue
        if parameter.ndim == 1:  # biases, and the gains of layer norms
            torch.nn.init.normal_(parameter, mean=1.0 if name.endswith("norm.weight") else 0.0, std=0.2)
        elif "embed" in name or "shared" in name or "lm_head" in name:
            torch.nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5)
        else:
            torch.nn.init.xavier_uniform_(parameter, gain=2.0)


def marian_tokenizer(folder: Path, *, separate_vocabs: bool = False) -> MarianTokenizer:
    """Learnt from the sentences in `tiny.py`: a SentencePiece model for each language, one vocabulary or two."""
    folder.mkdir(parents=True, exist_ok=True)
    pieces = {}
    for side, texts in (("source", ENGLISH), ("target", FRENCH)):
        written = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts * 4),
            model_writer=written,
            vocab_size=60,
            character_coverage=1.0,
            hard_vocab_limit=False,
            minloglevel=2,
        )
        (folder / f"{side}.spm").write_bytes(written.getvalue())
        learnt = sentencepiece.SentencePieceProcessor(model_proto=written.getvalue())
        pieces[side] = [learnt.id_to_piece(i) for i in range(learnt.get_piece_size()) if i > 2]  # <unk>, <s>, </s>

    def write(name: str, words: list[str]) -> str:
        names = dict.fromkeys(["</s>", "<unk>", *words, "<pad>"])  # each once
        (folder / name).write_text(json.dumps({piece: i for i, piece in enumerate(names)}))
        return str(folder / name)

    if separate_vocabs:  # with one id for padding on both sides, as the model has one `pad_token_id`
        shortest = min(len(words) for words in pieces.values())
        files = [write(f"{name}.json", pieces[side][:shortest]) for name, side in
                 (("vocab", "source"), ("target_vocab", "target"))]  # fmt: skip
    else:
        files = [write("vocab.json", pieces["source"] + pieces["target"])]
    spm = [str(folder / "source.spm"), str(folder / "target.spm")]
    return MarianTokenizer(*spm, *files, source_lang="en", target_lang="fr", separate_vocabs=separate_vocabs)


def marian_checkpoint(folder: Path, **overrides) -> Path:
    """A folder as the Hub has it: weights in float32, configurations, SentencePiece files."""
    tokenizer = marian_tokenizer(folder)
    model = tiny_marian(dtype=torch.float32, vocab_size=len(tokenizer), **overrides)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
