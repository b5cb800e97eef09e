"""The end of a training: which weights are kept, what they score, and whether they read their source."""

import json
import math
from pathlib import Path

from datasets import Dataset
from transformers.utils import logging

from ..data.whole_files import TMP, write_whole
from ..translation import Translator
from ..translation.alignments import choose_heads
from .checkpoints import checkpoints, discard, mean_weights, publish, writing
from .run_folder import MEAN, RESULT
from .tasks import TranslationTask
from .trainer import RecipeTrainer

logger = logging.get_logger(__name__)

BLIND = 0.05  # nats a token


def source_check(trainer: RecipeTrainer, model, loss: float) -> dict[str, float]:
    """What the loss becomes when each target gets another source; a model that reads its source is far from it."""
    exchanged = trainer.nats_per_token(model, trainer.eval_dataset, exchanged=True)
    if exchanged < loss + BLIND:
        logger.warning(
            f"the model does not read its source: its validation loss is {loss:.3f} nats a token, and {exchanged:.3f} "
            "when the sources are exchanged. It has learned the target language alone: check that the lines of the "
            "corpus belong together, and train longer or at another learning rate"
        )
    return {"loss_of_exchanged_sources": exchanged} if math.isfinite(exchanged) else {}  # of one pair alone


ALIGNED = 200  # validation pairs that tell which heads align


def name_heads(model, tokenizer, validation: Dataset) -> None:
    """Write the heads that align words best into the generation config, where `translate --alignments` looks."""
    some = validation[:ALIGNED]
    pairs = list(zip(some["source"], some["target"], strict=True))
    read = Translator(model, tokenizer).read_pairs(pairs)
    choose_heads([parts for _, *parts in read]).store(model.generation_config)


def finish(task: TranslationTask, run: Path, trainer: RecipeTrainer, model, validation: Dataset) -> None:
    """Average, score the newest weights and the mean on the validation set, and save the mean (section 6.1), or the
    newest where both figure and loss say that they are better: a figure alone differs by chance, BLEU by half a point
    or more between two models of one training, on a thousand sentences."""
    tokenizer = trainer.processing_class

    def scores() -> dict:
        loss = trainer.nats_per_token(model, trainer.eval_dataset)
        return {"loss": loss, **task.scores(model, tokenizer, validation, trainer.batches(trainer.eval_dataset))}

    def take(folders: list[Path]) -> None:
        model.load_state_dict(mean_weights(folders), strict=False)  # tied weights stand in the file once
        model.tie_weights()

    def save(folder: Path) -> None:
        aside = run / f"{TMP}{folder.name}"
        with writing(folder):
            model.save_pretrained(aside)
            tokenizer.save_pretrained(aside)
            publish(aside, folder)

    chosen = trainer.chosen_checkpoints()
    validated = {"newest": scores()}
    take(chosen)
    validated["mean"] = scores()
    kept = "mean"
    newest, mean = (
        {"loss": validated[of]["loss"], task.metric: task.figure(validated[of])} for of in ("newest", "mean")
    )
    gain = newest[task.metric] - mean[task.metric]
    if (gain > 0 if task.greater_is_better else gain < 0) and newest["loss"] < mean["loss"]:
        kept = "newest"
        if trainer.is_world_process_zero():
            save(run / MEAN)
        take(checkpoints(run)[-1:])
        logger.warning(
            f"the newest weights are kept, and not the mean of {', '.join(path.name for path in chosen)}, which is "
            f"worse on the validation set: {mean} against {newest}. Fewer checkpoints "
            "(training.average_checkpoints), or nearer ones (training.eval_steps), may have a better mean"
        )
    if task.recipe.task == "translation":
        validated[kept] |= source_check(trainer, model, validated[kept]["loss"])
    if not trainer.is_world_process_zero():
        return  # all of them have scored their share
    if task.recipe.task == "translation":
        name_heads(model, tokenizer, validation)
    result = {
        "step": trainer.state.global_step,
        "minutes": round(sum(entry["seconds"] for entry in trainer.state.log_history) / 60, 1),
        "weights": kept,
        "mean_of": [path.name for path in chosen],
        "parameters": model.num_parameters(),
        "decoding": task.generation_settings(),
        "validation": validated,
    }
    if kept == "mean" and (run / MEAN).exists():
        discard(run / MEAN)  # of the end that the run had before
    save(run / "model")
    with writing(run / RESULT):
        write_whole(run / RESULT, json.dumps(result, indent=2))  # the last file of a run: see `is_finished`
