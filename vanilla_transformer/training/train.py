"""One training from recipe to finished model, in a run folder that can be resumed.

RUN/recipe.yaml       the recipe with all defaults filled in
RUN/provenance.json   versions of the packages, machine, processes, commands; of the data, pairs and hash per split
RUN/tokenizer/        the joint vocabulary
RUN/checkpoint-N/     weights, optimizer, schedule, random state: what a resumed training needs
RUN/model/            the finished model, with its tokenizer: the mean of the last or best checkpoints, or the newest
                      weights, where both their loss and their score are better on the validation set
RUN/mean/             that mean, where the newest weights are the model
RUN/result.json       validation scores of both
"""

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
import yaml
from datasets import Dataset, concatenate_datasets
from tqdm.auto import tqdm
from transformers import AutoTokenizer, set_seed

from ..data.corpora import SIDES, read_corpus
from ..data.vocabulary import check_template
from ..data.whole_files import write_whole
from ..translation.shares import processes_of_launch
from .arguments import (
    check_precision,
    check_requirements,
    mixed_precision,
    one_device,
    training_arguments,
    warn_of_settings,
)
from .checkpoints import checkpoints, discard
from .finish import finish
from .memory import keep_freed_memory
from .recipe import Recipe
from .run_folder import (
    PROVENANCE,
    check_run,
    check_same_data,
    content,
    early_stopping,
    is_trained,
    one_at_a_time,
    provenance,
    provenance_of,
    remove_unfinished,
    state_of,
)
from .splits import load_splits, tokenize, version_of
from .start import check_positions, load_base, new_base
from .tasks import TASKS
from .trainer import RecipeTrainer, StopOnInterrupt, WarnsOfLength


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
    warn_of_settings(recipe, arguments, from_model)
    training = recipe.training
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
        callbacks=[stop, WarnsOfLength(training), *early_stopping(recipe)],
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
