"""One training from recipe to finished model, in a run folder that can be resumed.

RUN/recipe.yaml       the recipe with all defaults filled in
RUN/provenance.json   versions of the packages, machine, processes, commands; of the data, pairs and hash per split
RUN/tokenizer/        the joint vocabulary
RUN/checkpoint-N/     weights, optimizer, schedule, random state: what a resumed training needs
RUN/model/            the finished model, with its tokenizer: the mean of the last or best checkpoints, or the newest
                      weights, where these are better on the validation set
RUN/result.json       validation scores of both
"""

import json
import math
import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
import yaml
from accelerate import PartialState
from accelerate.utils import broadcast_object_list
from datasets import Dataset, concatenate_datasets
from tqdm.auto import tqdm
from transformers import (
    AutoTokenizer,
    PreTrainedModel,
    Seq2SeqTrainingArguments,
    set_seed,
)
from transformers.integrations import is_tensorboard_available
from transformers.utils import logging

from ..data.corpora import SIDES, read_corpus
from ..data.vocabulary import check_template, learn_tokenizer, special_ids
from ..data.whole_files import write_whole
from ..interop.loading import load_tokenizer, load_weights, read_config
from ..model.configuration_vanilla_transformer import FamilyConfig
from ..model.decoding import position_limit
from ..processor import computes_in_bfloat16
from ..translation import Translator
from ..translation.alignments import choose_heads
from ..translation.shares import processes_of_launch
from .checkpoints import checkpoints, discard, mean_weights, publish, remove_unfinished, writing
from .memory import keep_freed_memory
from .recipe import Recipe
from .run_folder import (
    PROVENANCE,
    RESULT,
    check_run,
    check_same_data,
    content,
    early_stopping,
    is_trained,
    one_at_a_time,
    provenance,
    provenance_of,
    state_of,
)
from .splits import lengths_of, load_splits, tokenize, version_of
from .tasks import TASKS, TranslationTask
from .trainer import RecipeTrainer, StopOnInterrupt

logger = logging.get_logger(__name__)


@dataclass(frozen=True)
class TrainingResult:
    """What a training ended with; `model` is `None` when it was interrupted before its end."""

    run: Path
    model: Path | None
    step: int
    splits: dict[str, Dataset]


@one_at_a_time
def train(
    recipe: Recipe,
    run: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    from_model: str | None = None,
    further: tuple[Path, Path] | None = None,
) -> TrainingResult:
    """Train as `recipe` says and leave the finished model in `run`/model.

    Args:
        resume: go on from the newest whole checkpoint in `run`, on the very batches that would have come next.
        overwrite: delete what is in `run` first.
        from_model: folder or Hub id of a model whose weights, configuration and tokenizer are kept (fine-tuning);
            the recipe's sections `model` and `tokenizer` must agree with it or be null.
        further: two parallel text files, of training pairs from which no vocabulary is learned: those of the
            recipe's teachers, see `diversification.py`.

    Raises:
        FileExistsError: if `run` has content, and neither `resume` nor `overwrite` is set.
        ValueError: for recipes that contradict the run or the model to start from, for corpora that are refused, and
            where another process is training in `run`.
    """
    check_requirements(recipe)
    if recipe.diversification and further is None:
        raise ValueError("the recipe has a section `diversification`: call `train_recipe`, which trains its teachers")
    processes = processes_of_launch()
    if processes.is_main_process:
        check_run(recipe, run, resume, overwrite, from_model)
        if resume:
            remove_unfinished(run)  # before anything is written: it may be what the disk is full of
    processes.wait_for_everyone()  # the first one writes only behind the next such line
    task = TASKS[recipe.task](recipe)
    set_seed(recipe.training.seed)
    with processes.main_process_first():  # which writes files that the others read
        splits = load_splits(recipe.corpus)
    attention = recipe.training.attn_implementation
    if resume:
        tokenizer = AutoTokenizer.from_pretrained(run / "tokenizer")
        model = task.auto_class.from_pretrained(checkpoints(run)[-1], attn_implementation=attention)
    elif from_model:
        tokenizer, model = load_base(task, from_model)
        check_template(tokenizer, task.template)
    else:
        tokenizer, model = new_base(task, splits["train"])
    if model.can_generate():
        model.generation_config.update(**task.generation_settings())
    if further is not None:
        with processes.main_process_first():
            added = read_corpus([str(file) for file in further], recipe.corpus.source_lang, recipe.corpus.target_lang)
        splits["train"] = concatenate_datasets([splits["train"].select_columns(list(SIDES)), added])
    encode = partial(task.encode, tokenizer=tokenizer)
    version = version_of(tokenizer, recipe.task, recipe.corpus.side)
    with processes.main_process_first():
        encoded = {
            "train": tokenize(splits["train"], encode, recipe.corpus.max_length, "train", version),
            "validation": tokenize(splits["validation"], encode, None, "validation", version),
        }
    check_positions(model, encoded)
    processes.wait_for_everyone()
    task.training_collator(tokenizer)  # raises for a tokenizer that it cannot use
    arguments = training_arguments(task, model, run)  # raises for what transformers would not have
    check_precision(recipe, arguments)
    one_device(arguments)
    if processes.is_main_process:
        before = provenance_of(run) if resume else {}
        now = provenance(splits, processes.num_processes, mixed_precision(recipe), before)
        if resume:
            check_same_data(before, now, run)
        else:
            check_run(recipe, run, resume, overwrite, from_model)  # again: another training may have begun there
            if content(run):
                discard(run)  # only now that corpus, tokenizer and model are known to be right
            run.resolve().mkdir(parents=True, exist_ok=True)  # where a link leads to
            remove_unfinished(run)
        write_whole(run / "recipe.yaml", yaml.safe_dump(recipe.to_dict(), sort_keys=False, allow_unicode=True))
        if not resume:
            tokenizer.save_pretrained(run / "tokenizer")
        write_whole(run / PROVENANCE, json.dumps(now, indent=2))
    training = recipe.training
    if training.max_steps and training.warmup_steps >= training.max_steps:
        logger.warning(
            f"training.warmup_steps={training.warmup_steps} and training.max_steps={training.max_steps}: the learning "
            "rate rises to the end, and its peak is not reached; train longer, or warm up in fewer steps"
        )
    if from_model and training.learning_rate is None:
        logger.warning(
            f"training.learning_rate is not set: its peak is {arguments.learning_rate:.2g}, as for fresh weights "
            f"(equation 3), which undoes much of what {from_model} knows; fine-tuning usually takes 1e-4 or less"
        )
    if arguments.bf16 and not computes_in_bfloat16():
        logger.warning(
            "training.bf16=true: products in bfloat16 are not known to be faster here than in float32, and where they "
            "are emulated they take many times as long; auto takes what is faster"
        )
    budget = training.max_tokens * training.gradient_accumulation_steps * processes.num_processes
    uncut = " before BPE dropout, which makes more of them" if training.bpe_dropout else ""
    tqdm.write(
        f"{len(encoded['train'])} pairs, {model.num_parameters():,} parameters, a vocabulary of {len(tokenizer)}, at "
        f"most {budget:,} padded tokens a side in an update{uncut}, products in "
        f"{'bfloat16' if arguments.bf16 else 'float32'}; checkpoints in {run}"
    )

    stop = StopOnInterrupt()
    trainer = RecipeTrainer(
        model=model,
        args=arguments,
        train_dataset=encoded["train"],
        eval_dataset=encoded["validation"],
        processing_class=tokenizer,
        data_collator=task.collator(tokenizer),
        callbacks=[stop, *early_stopping(recipe)],
        task=task,
        validation_text=splits["validation"],
    )
    processes.wait_for_everyone()  # the run folder is there
    if not torch.cuda.is_available():
        keep_freed_memory()
    newest = checkpoints(run)[-1] if resume else None
    if newest and is_trained(recipe, state_of(newest)):  # and was killed before the final model was written
        trainer.state = state_of(newest)
    else:
        try:
            trainer.train(resume_from_checkpoint=str(newest) if newest else None)
        finally:
            stop.restore()
    step = trainer.state.global_step
    if stop.stopped:
        return TrainingResult(run, None, step, splits)
    with trainer.model_as_made() as model:
        finish(task, run, trainer, model, splits["validation"])
    processes.wait_for_everyone()  # none ends, well or badly, before the model is written
    return TrainingResult(run, run / "model", step, splits)


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
    tokenizer.model_max_length = max(tokenizer.model_max_length, recipe.corpus.max_length)  # what either has seen
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


def check_positions(model: PreTrainedModel, encoded: dict[str, Dataset]) -> None:
    """Raise `ValueError` where learned positions end before the longest pair does, to which a training comes late."""
    limit = position_limit(model, model.config)
    for name, rows in encoded.items() if limit else ():
        lengths = lengths_of(rows)
        if lengths.max() > limit:
            raise ValueError(
                f"a {name} pair has {lengths.max()} tokens on a side ({(lengths > limit).sum()} of {len(lengths)} "
                f"have too many), and learned positions end at {limit}: raise model.max_position_embeddings, "
                + ("lower corpus.max_length" if name == "train" else f"or leave such pairs out of corpus.{name}")
            )


# Fields that the checkpoint decides about; the rest of its configuration is for a recipe to agree with.
NOT_ARCHITECTURE = {"vocab_size", "decoder_vocab_size", "max_position_embeddings", "use_cache", "is_encoder_decoder"}


def architecture(config: FamilyConfig) -> dict:
    """The fields of our own classes that describe the network, token ids and vocabulary left out."""
    names = (name for name in config.own_fields() - NOT_ARCHITECTURE if not name.endswith("token_id"))
    return {name: getattr(config, name) for name in names}


def one_device(arguments: Seq2SeqTrainingArguments) -> None:
    """Left to themselves, transformers divide each batch among all GPUs that a process sees (DataParallel)."""
    if arguments.n_gpu > 1:
        logger.warning(
            f"one of {arguments.n_gpu} GPUs is used: a process trains on one; for all of them, `accelerate launch "
            f"--multi_gpu --num_processes {arguments.n_gpu} -m vanilla_transformer train ...`"
        )
        arguments._n_gpu = 1


def training_arguments(task: TranslationTask, model, run: Path) -> Seq2SeqTrainingArguments:
    t = task.recipe.training
    peak = t.learning_rate or model.config.d_model**-0.5 * t.warmup_steps**-0.5
    schedule = {"timescale": t.warmup_steps} if t.lr_scheduler_type == "inverse_sqrt" else None
    return Seq2SeqTrainingArguments(
        output_dir=str(run),
        max_steps=t.max_steps or -1,
        num_train_epochs=t.num_train_epochs or 1,
        gradient_accumulation_steps=t.gradient_accumulation_steps,
        learning_rate=peak,
        lr_scheduler_type=t.lr_scheduler_type,
        lr_scheduler_kwargs=schedule,
        warmup_steps=t.warmup_steps,
        optim="adamw_torch_fused",  # without weight decay it is Adam
        weight_decay=0.0,
        adam_beta1=t.adam_beta1,
        adam_beta2=t.adam_beta2,
        adam_epsilon=t.adam_epsilon,
        max_grad_norm=t.max_grad_norm,
        bf16=mixed_precision(task.recipe),
        use_cpu=not torch.cuda.is_available(),
        seed=t.seed,
        eval_strategy="steps",
        eval_steps=t.eval_steps,
        save_strategy="steps",
        save_steps=t.eval_steps,
        logging_steps=max(n for n in range(1, 101) if t.eval_steps % n == 0),  # no sum of losses spans a checkpoint
        metric_for_best_model=task.metric,
        greater_is_better=task.greater_is_better,
        ddp_find_unused_parameters=False,
        accelerator_config={"even_batches": False},  # the sampler sees to it; accelerate before 1.14 could not
        use_cache=True,  # of the configuration that is saved; training itself never caches
        report_to=t.report_to,
    )


def mixed_precision(recipe: Recipe) -> bool:
    return computes_in_bfloat16() if recipe.training.bf16 == "auto" else recipe.training.bf16


def check_precision(recipe: Recipe, arguments: Seq2SeqTrainingArguments) -> None:
    """Raises: ValueError, where accelerate was told of another precision than the recipe."""
    wanted = "bf16" if mixed_precision(recipe) else "no"
    if arguments.mixed_precision != wanted:
        raise ValueError(
            f"accelerate was told --mixed_precision {arguments.mixed_precision}, and training.bf16="
            f"{recipe.training.bf16} means {wanted!r} here: leave the precision to the recipe"
        )


def check_requirements(recipe: Recipe) -> None:
    """Raise for what is not there, or not possible as accelerate was launched: before any work."""
    if os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true":
        raise ValueError(
            "recipes divide batches among processes (DDP), and accelerate was told to shard parameters (FSDP): launch "
            "with another configuration, or shard with scripts/run_translation.py"
        )
    if recipe.training.report_to == "tensorboard" and not is_tensorboard_available():
        raise ImportError(
            "training.report_to=tensorboard needs tensorboard: pip install 'vanilla-transformer[tensorboard]'"
        )
    if recipe.training.attn_implementation == "flex_attention" and not torch.cuda.is_available():
        raise ValueError("training.attn_implementation=flex_attention has gradients on GPUs only: take sdpa or eager")
    tokenizer = recipe.tokenizer and recipe.tokenizer.path
    if tokenizer and tokenizer.count("/") > 1 and not Path(tokenizer).exists():  # and no id of the Hub
        raise FileNotFoundError(f"tokenizer.path={tokenizer} does not exist: name its folder")


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
    """Average, score the newest weights and the mean on the validation set, and save the better of both."""
    tokenizer = trainer.processing_class

    def scores() -> dict:
        loss = trainer.nats_per_token(model, trainer.eval_dataset)
        return {"loss": loss, **task.scores(model, tokenizer, validation, trainer.batches(trainer.eval_dataset))}

    def take(folders: list[Path]) -> None:
        model.load_state_dict(mean_weights(folders), strict=False)  # tied weights stand in the file once
        model.tie_weights()

    chosen = trainer.chosen_checkpoints()
    validated = {"newest": scores()}
    take(chosen)
    validated["mean"] = scores()
    kept = "mean"
    newest, mean = (task.figure(validated[which]) for which in ("newest", "mean"))
    if newest > mean if task.greater_is_better else newest < mean:
        kept = "newest"
        take(checkpoints(run)[-1:])
        logger.warning(
            f"the newest weights are kept, and not the mean of {', '.join(path.name for path in chosen)}, which is "
            f"worse on the validation set: {task.metric} {mean} against {newest}. Fewer checkpoints "
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
    aside = run / "tmp-model"
    with writing(run / "model"):
        model.save_pretrained(aside)
        tokenizer.save_pretrained(aside)
        publish(aside, run / "model")
        write_whole(run / RESULT, json.dumps(result, indent=2))  # the last file of a run: see `is_finished`
