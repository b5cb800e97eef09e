"""What a training starts from: a tokenizer and a model, new ones or those of another model."""

import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list
from datasets import Dataset
from transformers import PreTrainedModel
from transformers.utils import logging

from ..data.vocabulary import check_template, learn_tokenizer, special_ids
from ..interop.loading import load_tokenizer, load_weights, read_config
from ..model.configuration_vanilla_transformer import FamilyConfig
from ..model.decoding import position_limit, too_many_tokens
from .splits import lengths_of
from .tasks import TranslationTask

logger = logging.get_logger(__name__)


def new_base(task: TranslationTask, train_pairs: Dataset):
    """A tokenizer learned from the training pairs, or a given one, and a model with fresh weights."""
    recipe = task.recipe
    if recipe.model is None or recipe.tokenizer is None:
        raise ValueError("the recipe has no model or no tokenizer section: only `--from MODEL` can fill it in")
    if recipe.tokenizer.path is not None:
        tokenizer = load_tokenizer(recipe.tokenizer.path)
    else:
        learned = None
        if PartialState().is_main_process:
            learned = learn_tokenizer(task.texts(train_pairs), recipe.tokenizer.vocab_size, template=task.template)
        tokenizer = broadcast_object_list([learned])[0]
    pad_for(task, tokenizer)
    tokenizer.model_max_length = recipe.corpus.max_length  # a figure for the user, nothing is cut to it
    check_template(tokenizer, task.template)
    ids = special_ids(tokenizer, task.template)
    if task.template == "translation" and ids["bos_token_id"] is None:  # as in Marian's models
        ids["decoder_start_token_id"] = ids["pad_token_id"]
    config = recipe.model_config(vocab_size=len(tokenizer), **ids)
    return tokenizer, task.model_class._from_config(config, attn_implementation=recipe.training.attn_implementation)


def load_base(task: TranslationTask, name: str):
    """Model and tokenizer to be fine-tuned.

    Raises:
        OSError: if there is none, or if its weights are damaged or incomplete.
        ValueError: if the model is of another architecture, has two vocabularies, or contradicts the recipe.
    """
    recipe, attention = task.recipe, task.recipe.training.attn_implementation
    read_config(name)  # raises
    model = load_weights(name, task.auto_class, dtype=torch.float32, attn_implementation=attention)
    if type(model).__name__ != task.model_class.__name__:
        raise ValueError(
            f"{name} is a {type(model).__name__}, expected a {task.model_class.__name__}: models of "
            "transformers are fine-tuned with scripts/run_translation.py"
        )
    if not getattr(model.config, "share_encoder_decoder_embeddings", True):
        raise ValueError(f"{name} has two vocabularies: training knows models with one joint vocabulary")
    tokenizer = load_tokenizer(name)
    pad_for(task, tokenizer)
    if len(tokenizer) > model.config.vocab_size:
        raise too_many_tokens(f"the tokenizer in {name} has {len(tokenizer)} tokens", model.config.vocab_size)
    tokenizer.model_max_length = max(tokenizer.model_max_length, recipe.corpus.max_length)  # what either has seen
    limit = position_limit(model, model.config)
    if recipe.training.bpe_dropout and limit and recipe.corpus.max_length > limit:
        raise ValueError(
            f"training.bpe_dropout={recipe.training.bpe_dropout} cuts pairs into up to corpus.max_length="
            f"{recipe.corpus.max_length} tokens a side, and the positions of {name} end at {limit}: lower "
            "corpus.max_length to that"
        )
    contradictions = []
    if recipe.model is not None:
        wanted, found = (architecture(c) for c in (recipe.model_config(model.config.vocab_size), model.config))
        contradictions += [
            f"model.{key} is {value} in the recipe and {found[key]} in {name}"
            for key, value in wanted.items()
            if value != found[key]
        ]
    if recipe.tokenizer is not None and (
        recipe.tokenizer.path is not None or recipe.tokenizer.vocab_size != model.config.vocab_size
    ):
        contradictions.append(
            f"tokenizer is {recipe.tokenizer.path or recipe.tokenizer.vocab_size} in the recipe, and {name} brings "
            f"its own of {model.config.vocab_size} tokens"
        )
    if contradictions:
        raise ValueError(
            f"the recipe contradicts the model to start from: {'; '.join(contradictions)}. Keep what the model has "
            "with --set model=null --set tokenizer=null"
        )
    return tokenizer, model


def pad_for(task: TranslationTask, tokenizer) -> None:
    """A translation is padded behind its end: teacher forcing puts the start token before the first place of all."""
    if task.template == "translation" and tokenizer.padding_side != "right":
        logger.warning(f"the tokenizer pads on the {tokenizer.padding_side}: a translator's does so on the right, now")
        tokenizer.padding_side = "right"


def check_positions(model: PreTrainedModel, encoded: dict[str, Dataset]) -> None:
    """Raise `ValueError` where the positions end before the longest pair does, to which a training comes late."""
    limit = position_limit(model, model.config)
    for name, rows in encoded.items() if limit else ():
        lengths = lengths_of(rows)
        if lengths.max() > limit:
            raise ValueError(
                f"a {name} pair has {lengths.max()} tokens on a side ({(lengths > limit).sum()} of {len(lengths)} "
                f"have too many), and the positions of {type(model).__name__} end at {limit}: give the model more "
                "(max_position_embeddings), "
                + ("or lower max_length of the pairs" if name == "train" else "or leave such pairs out of that file")
            )


# Fields that the checkpoint decides about; the rest of its configuration is for a recipe to agree with.
NOT_ARCHITECTURE = {"vocab_size", "decoder_vocab_size", "max_position_embeddings", "use_cache", "is_encoder_decoder"}


def architecture(config: FamilyConfig) -> dict:
    """The fields of our own classes that describe the network, token ids and vocabulary left out."""
    names = (name for name in config.own_fields() - NOT_ARCHITECTURE if not name.endswith("token_id"))
    return {name: getattr(config, name) for name in names}
