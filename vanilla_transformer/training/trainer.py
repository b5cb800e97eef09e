"""`Seq2SeqTrainer` with what a recipe adds: token-budget batches, smoothing in the model, measures of its task such as
BLEU by decoding, checkpoints that are whole or not there, and an orderly end on Ctrl-C."""

import math
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path

import torch
from datasets import Dataset
from torch.utils.data import DataLoader
from tqdm.auto import tqdm
from transformers import PreTrainedModel, Seq2SeqTrainer, TrainerCallback
from transformers.trainer import TRAINER_STATE_NAME
from transformers.utils import logging

from ..data.batching import TokenBudgetSampler
from ..data.whole_files import TMP
from ..model.layers import EncoderLayer
from ..model.loss import IGNORED_LABEL
from ..model.search import KERNELS
from ..translation.alignments import kernel
from .checkpoints import checkpoints, publish, rotate, select, writing
from .muon import muon_with_adam
from .r_drop import r_drop_loss
from .recipe import TrainingRecipe
from .splits import lengths_of
from .tasks import TranslationTask

logger = logging.get_logger(__name__)


class DivergenceError(ValueError):
    """A loss that is no number, or that no training comes back from."""


def model_vocabulary(model) -> int:
    """V, the number of tokens that a model chooses from."""
    return model.get_output_embeddings().out_features


class RecipeTrainer(Seq2SeqTrainer):
    """Trains on token ids (columns of ids, and `length`) and evaluates on text as well.

    Args:
        task: what is trained, see `tasks.py`.
        validation_text: pairs (`source`, `target`), the first `eval_pairs` of which are decoded at each evaluation.
        The rest are those of `Seq2SeqTrainer`; `processing_class` is the tokenizer.
    """

    def __init__(self, *args, task: TranslationTask, validation_text: Dataset, **kwargs):
        super().__init__(*args, **kwargs)
        self.task = task
        self.recipe = task.recipe.training
        if self.recipe.torch_compile:
            for layer in layers_of(self.model):
                layer.compile(dynamic=True)  # one code for all layers of a kind and all lengths
        self.training_collator = task.training_collator(self.processing_class)
        self.count_anew()
        self.frequencies = entropy(chain.from_iterable(self.eval_dataset[task.predicted]))
        self.validation_text = validation_text.select(range(min(self.recipe.eval_pairs, len(validation_text))))

    def create_optimizer(self, model=None) -> torch.optim.Optimizer:
        if self.recipe.optimizer == "muon" and self.optimizer is None:
            self.optimizer = muon_with_adam(self.model if model is None else model, self.args)
        return super().create_optimizer(model)

    def create_scheduler(self, num_training_steps: int, optimizer=None):
        return super().create_scheduler(self.recipe.decay_steps or num_training_steps, optimizer)

    def get_train_dataloader(self) -> DataLoader:
        of_an_update = self.args.gradient_accumulation_steps * self.args.world_size
        sampler = TokenBudgetSampler(
            lengths_of(self.train_dataset), self.recipe.max_tokens, self.recipe.seed, multiple=of_an_update
        )
        self.add_callback(TellsTheEpoch(sampler))
        return self.accelerator.prepare(self.loader(self.train_dataset, sampler, self.training_collator))

    def loader(self, dataset: Dataset, sampler: TokenBudgetSampler, collator: Callable) -> DataLoader:
        return DataLoader(
            dataset.remove_columns("length"),
            batch_sampler=sampler,
            collate_fn=collator,
            num_workers=self.args.dataloader_num_workers,
        )

    def training_step(self, model, inputs, num_items_in_batch) -> torch.Tensor:
        loss = super().training_step(model, inputs, num_items_in_batch)
        tokens = int((inputs["labels"] != IGNORED_LABEL).sum())
        self.target_tokens += tokens
        # The loss is this batch's part of the mean over all batches of the step: made nats per token of its own.
        nats = float(loss) * float(num_items_in_batch) / self.accelerator.num_processes / tokens
        # Nobody who learns stays above twice the loss of a uniform guess, nor do two such guesses from each other.
        alpha = self.recipe.r_drop if self.drops() else 0.0
        if not nats < 2 * self.guess() * (1 + alpha):
            norm = torch.nn.utils.get_total_norm([p.grad for p in self.model.parameters() if p.grad is not None])
            what = f"a loss of {nats:.4g} nats a token and a gradient norm of {norm:.4g}"
            raise DivergenceError(self.diverged(self.state.global_step + 1, what))
        return loss

    def last_norm(self) -> str:
        norms = [entry["grad_norm"] for entry in self.state.log_history if "grad_norm" in entry]
        return f" (the last gradient norm was {norms[-1]:.4g})" if norms else ""

    def guess(self) -> float:
        """The loss of a uniform guess, log V nats a token."""
        return math.log(model_vocabulary(self.accelerator.unwrap_model(self.model)))

    def _clip_grad_norm(self, model):
        norm = super()._clip_grad_norm(model)
        if not math.isfinite(norm):  # clipped by it, gradients are no numbers, and weights would not be for long
            step = self.state.global_step + 1
            raise DivergenceError(self.diverged(step, f"a gradient norm of {float(norm):.4g}"))
        return norm

    def diverged(self, step: int, what: str) -> str:
        remedies = ["lower training.learning_rate", "lengthen training.warmup_steps"]
        if self.accelerator.unwrap_model(self.model).config.residual == "post":
            remedies.append("set model.residual=pre")
        good = checkpoints(Path(self.args.output_dir))
        if self.task.recipe.diversification:
            good = []  # a training with teachers begins with them, and from no model
        start = f", or in another folder (-o) --from {good[-1]}, which is from before" if good else ""
        return (
            f"training diverged: step {step} has {what} at a learning rate of {self._get_learning_rate():.3g}. Start "
            f"anew{start}: {', or '.join(remedies)}"
        )

    def check_progress(self, loss: float) -> None:
        """Raise where the loss of an evaluation is none, or where a model that had learned knows little more than how
        frequent words are: before that is saved."""
        history = self.state.log_history
        best = min((entry["eval_loss"] for entry in history if "eval_loss" in entry), default=math.inf)
        what = f"a validation loss of {loss}"
        # A model that collapses gives each word its frequency, or worse; one that overfits knows its training set.
        trained = next((entry["loss"] for entry in reversed(history) if "loss" in entry), math.inf)
        lost = best < 0.9 * self.frequencies < min(loss, trained) and loss > 1.2 * best
        if lost:
            what = f"lost what it had learned: its validation loss went from {best:.4g} to {loss:.4g} nats a token"
        if lost or not math.isfinite(loss):
            raise DivergenceError(self.diverged(self.state.global_step, what + self.last_norm()))

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Seconds since the last time that something was logged, and target tokens a second beside the loss.

        transformers' `train_samples_per_second` takes each batch for one of `per_device_train_batch_size`: left out.
        """
        seconds = time.monotonic() - self.counted_since
        speed = {}
        if "loss" in logs:  # which all processes log together
            tokens = self.accelerator.reduce(torch.tensor(self.target_tokens, device=self.args.device)).item()
            speed["tokens_per_second"] = round(tokens / seconds, 1)
        logs = {name: value for name, value in logs.items() if name != "train_samples_per_second"}
        super().log({**logs, **speed, "seconds": round(seconds, 3)}, start_time)
        self.count_anew()

    def count_anew(self) -> None:
        self.target_tokens, self.counted_since = 0, time.monotonic()

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        if model.training:  # the loss of an evaluation is that of the next token alone, so that it can be compared
            if self.drops():
                return self.r_drop_loss(model, dict(inputs), num_items_in_batch)
            smoothed = {"label_smoothing": self.recipe.label_smoothing, "skip_logits": True}
            inputs = {**self.with_source_dropout(inputs), **smoothed}
        return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)

    def with_source_dropout(self, inputs: dict) -> dict:
        """The batch with tokens of its sources hidden, each with probability `source_dropout`, but never </s>: a
        translator is not to rely on any single word  (Gal and Ghahramani 2016, section 4.2, who hide all of a word's
        places in a sentence; one by one in Sennrich, Haddow and Birch 2016).

        What is hidden is read as a token of padding that can be attended to: its place still counts.
        """
        if not self.recipe.source_dropout:
            return inputs
        ids, tokenizer = inputs["input_ids"], self.processing_class
        drawn = torch.rand(ids.shape, device=ids.device) < self.recipe.source_dropout
        hidden = drawn & (ids != tokenizer.eos_token_id)
        return {**inputs, "input_ids": ids.masked_fill(hidden, tokenizer.pad_token_id)}

    def drops(self) -> bool:
        """Whether this update is one with R-Drop."""
        return self.recipe.r_drop > 0 and self.state.global_step >= self.recipe.r_drop_after

    def r_drop_loss(self, model, inputs: dict, num_items_in_batch) -> torch.Tensor:
        labels, plain = inputs.pop("labels"), self.accelerator.unwrap_model(model)
        inputs["decoder_input_ids"] = plain.prepare_decoder_input_ids_from_labels(labels)
        twice = self.with_source_dropout({name: torch.cat([x, x]) for name, x in inputs.items()})
        kept: list[torch.Tensor] = []  # `output_hidden_states` would keep those of all layers, and break compiled ones
        hook = plain.model.decoder.register_forward_hook(lambda *call: kept.append(call[-1].last_hidden_state))
        try:
            model(**twice, use_cache=False, logits_to_keep=1)
        finally:
            hook.remove()
        [x] = kept  # (2 B, T, D)
        with self.accelerator.autocast():
            total = r_drop_loss(plain.lm_head, x, labels, self.recipe.label_smoothing, self.recipe.r_drop)
        return total / num_items_in_batch * self.accelerator.num_processes  # this one's part of the mean over tokens

    def evaluate(self, eval_dataset=None, ignore_keys=None, metric_key_prefix="eval") -> dict[str, float]:
        """Loss in nats per target token over the whole set, what the task measures, and some of its outputs."""
        dataset = self.eval_dataset if eval_dataset is None else eval_dataset
        with self.model_as_made() as model:
            loss = self.nats_per_token(model, dataset)
            self.check_progress(loss)
            text, batches = self.validation_text, self.batches(dataset)
            measured, shown = self.task.measure(model, self.processing_class, text, batches)
            metrics = {"loss": loss, **measured}
        metrics = {f"{metric_key_prefix}_{name}": value for name, value in metrics.items()}
        self.log(metrics)
        if self.is_world_process_zero():
            for sample in shown:
                tqdm.write(f"  {sample}")
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        self.count_anew()  # the time of an evaluation is not that of training
        return metrics

    @contextmanager
    def model_as_made(self) -> Iterator[PreTrainedModel]:
        """The model for evaluation, without what mixed precision has made of its `forward`, and without what was
        compiled for training: it decodes in float32, by the fast search, as its users will. FlashAttention has no
        float32."""
        model = self.accelerator.unwrap_model(self.model).eval()
        changed, trained_by = vars(model).pop("forward", None), model.config._attn_implementation
        compiled = {layer: layer._compiled_call_impl for layer in layers_of(model)}
        for layer in compiled:
            layer._compiled_call_impl = None
        try:
            with kernel(model, trained_by if trained_by in KERNELS else "sdpa"):
                yield model
        finally:
            for layer, call in compiled.items():
                layer._compiled_call_impl = call
            if changed is not None:
                model.forward = changed

    def batches(self, dataset: Dataset) -> Iterator[dict]:
        """All of a validation set, the same batches each time."""
        lengths = lengths_of(dataset)
        sampler = TokenBudgetSampler(lengths, max(self.recipe.max_tokens, int(lengths.max())), seed=0)
        for batch in self.loader(dataset, sampler, self.data_collator):
            yield self._prepare_inputs(dict(batch))

    @torch.no_grad()
    def nats_per_token(self, model, dataset: Dataset, exchanged: bool = False) -> float:
        """Loss over the whole set; if `exchanged`, of targets with the source of a neighbour."""
        sums = torch.zeros(2, dtype=torch.float64, device=self.args.device)  # of nats, and of tokens
        number, rank = self.args.world_size, self.args.process_index
        batches = islice(self.batches(dataset), rank, None, number)
        for batch in exchange_sources(batches) if exchanged else batches:
            with self.accelerator.autocast():
                sums[0] += model(**batch, skip_logits=True, num_items_in_batch=1).loss
            sums[1] += (batch["labels"] != IGNORED_LABEL).sum()
        total, tokens = self.accelerator.reduce(sums).tolist()
        return total / tokens if tokens else math.nan

    def chosen_checkpoints(self) -> list[Path]:
        """Those that the final mean is taken of, as things stand."""
        recipe, task = self.recipe, self.task
        run = Path(self.args.output_dir)
        count, every = recipe.average_checkpoints, recipe.eval_steps
        return select(run, recipe.average, count, task.metric, task.greater_is_better, every)

    def _get_output_dir(self, trial) -> str:
        """transformers writes a checkpoint in place; here it does so in a folder aside (see `_save_checkpoint`)."""
        return os.path.join(self.args.output_dir, f"{TMP}checkpoint-{self.state.global_step}")

    def _save_checkpoint(self, model, trial) -> None:
        """Written aside, synced, renamed; older checkpoints are deleted only then.

        Raises:
            OSError: if the disk is full, say; the last good checkpoint stays.
        """
        run = Path(self.args.output_dir)
        name = f"checkpoint-{self.state.global_step}"
        aside = Path(self._get_output_dir(trial))
        with writing(run / name):
            super()._save_checkpoint(model, trial)
            self.accelerator.wait_for_everyone()  # each process has written its random state
            self.state.best_model_checkpoint = None  # a path aside; which one is the best, `select` finds out
            if self.is_world_process_zero():
                self.state.save_to_json(str(aside / name / TRAINER_STATE_NAME))
                publish(aside / name, run / name)
                aside.rmdir()
                rotate(run, self.chosen_checkpoints())


def layers_of(model: PreTrainedModel) -> list[EncoderLayer]:
    """All layers, of one stack or two; a decoder's are of a subclass."""
    return [part for part in model.modules() if isinstance(part, EncoderLayer)]


def entropy(tokens: Iterable[int]) -> float:
    """What a model that knows the frequency of each token, and nothing else, has as its loss: nats a token."""
    counts = torch.tensor(list(Counter(tokens).values()), dtype=torch.float64)
    return float(torch.distributions.Categorical(counts).entropy())


def exchange_sources(batches: Iterable[dict]) -> Iterator[dict]:
    """Each pair with the source of its neighbour in the batch; one that is a batch of its own, with that of the batch
    before it, and left out where there is none."""
    before: dict = {}
    for batch in batches:
        sources = {name: batch[name] for name in ("input_ids", "attention_mask")}
        if len(batch["labels"]) > 1:
            yield batch | {name: x.roll(1, 0) for name, x in sources.items()}
        elif before:
            yield batch | before
        before = {name: x[:1] for name, x in sources.items()}


class TellsTheEpoch(TrainerCallback):
    """The number of the epoch, on which the order of the batches depends: that of several processes that resume in the
    middle of one does not hear of it from transformers, whose call ends at a wrapper of accelerate."""

    def __init__(self, sampler: TokenBudgetSampler):
        self.sampler = sampler

    def on_epoch_begin(self, args, state, control, **kwargs):
        self.sampler.set_epoch(int(state.epoch or 0))


# Settings that count updates, and what becomes of a training that has no more of them.
BEHIND_THE_END = {
    "warmup_steps": "the learning rate rises to the end, short of its peak; train longer, or warm up in fewer",
    "r_drop_after": "R-Drop does not begin; train longer, or let it begin after fewer",
}


class WarnsOfLength(TrainerCallback):
    """Says what would begin behind the last update: how many `num_train_epochs` are, batches alone tell."""

    def __init__(self, recipe: TrainingRecipe):
        self.recipe = recipe

    def on_train_begin(self, args, state, control, **kwargs):
        for name, what in BEHIND_THE_END.items():
            begins = getattr(self.recipe, name)
            if begins >= state.max_steps and state.is_world_process_zero:
                logger.warning(f"training.{name}={begins}, and training has {state.max_steps} updates: {what}")


class StopOnInterrupt(TrainerCallback):
    """The first Ctrl-C (or SIGTERM) saves a checkpoint after the current step and ends; the second ends at once.

    A terminal sends Ctrl-C to all processes, and their launcher sends it on to those that it has started: what comes
    within `echo` seconds is no second one.
    """

    def __init__(self):
        self.asked = False  # this process
        self.stopped = False  # all of them, after the same step
        self.heard = -math.inf  # when, in seconds
        self.handlers = {}

    def on_train_begin(self, args, state, control, **kwargs):
        self.tells = state.is_world_process_zero
        self.echo = 1 if args.world_size == 1 else 15  # a launcher may be long about it on a busy machine
        for number in (signal.SIGINT, signal.SIGTERM):
            self.handlers[number] = signal.signal(number, self.stop)

    def stop(self, number, frame):
        now = time.monotonic()
        if now - self.heard < self.echo:
            return
        self.heard = now
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        if self.tells:
            tqdm.write("stopping: saving a checkpoint after this step (once more to stop at once)")

    def ask_all(self, args) -> None:
        """Whether any process has heard of it: each does at another moment, even in the middle of the next line."""
        heard = torch.tensor(int(self.asked), device=args.device)
        if args.world_size > 1:
            torch.distributed.all_reduce(heard, torch.distributed.ReduceOp.MAX)
        self.stopped = bool(heard)

    def on_step_end(self, args, state, control, **kwargs):
        self.ask_all(args)
        if self.stopped:  # what was summed up since the last log is in no checkpoint
            control.should_log = control.should_save = control.should_training_stop = True
        return control

    def on_train_end(self, args, state, control, **kwargs):
        self.ask_all(args)  # while the last checkpoint was evaluated and saved

    def restore(self) -> None:
        """What a signal did before the training, however that ended."""
        for number, handler in self.handlers.items():
            signal.signal(number, handler)
