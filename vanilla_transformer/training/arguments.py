"""What transformers' trainer is told of a recipe, and what a recipe needs of packages, accelerate and processor."""

import os
from pathlib import Path

import torch
from transformers import Seq2SeqTrainingArguments
from transformers.integrations import is_tensorboard_available
from transformers.utils import logging

from ..processor import computes_in_bfloat16
from .recipe import Recipe
from .tasks import TranslationTask

logger = logging.get_logger(__name__)


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
    if recipe.training.attn_implementation == "flash_attention_2" and not mixed_precision(recipe):
        raise ValueError(
            "training.attn_implementation=flash_attention_2 computes in half precision alone, and training.bf16="
            f"{recipe.training.bf16} means float32 here: set training.bf16=true, or take sdpa"
        )


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


def one_device(arguments: Seq2SeqTrainingArguments) -> None:
    """Left to themselves, transformers divide each batch among all GPUs that a process sees (DataParallel)."""
    if arguments.n_gpu > 1:
        logger.warning(
            f"one of {arguments.n_gpu} GPUs is used: a process trains on one; for all of them, `accelerate launch "
            f"--multi_gpu --num_processes {arguments.n_gpu} -m vanilla_transformer train ...`"
        )
        arguments._n_gpu = 1


def warn_of_settings(recipe: Recipe, arguments: Seq2SeqTrainingArguments, from_model: str | None) -> None:
    """Say of settings that are possible, and hardly meant."""
    training = recipe.training
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
