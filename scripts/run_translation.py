"""Train or fine-tune a translation model the Hugging Face way: dataclasses of arguments, `Seq2SeqTrainer`, nothing of
our recipes. Runs alone and under `accelerate launch`.

    python scripts/run_translation.py --model_name_or_path runs/demo/model --train_files train.en train.de \\
        --validation_files val.en val.de --source_lang en --target_lang de --output_dir runs/hf \\
        --do_train --do_eval --predict_with_generate --label_smoothing_factor 0.1 --max_steps 1000
"""

import sys
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
from torch.utils.data import SequentialSampler
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    HfArgumentParser,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    set_seed,
)
from transformers.utils import logging

import vanilla_transformer  # noqa: F401  registers the model with the Auto classes
from vanilla_transformer.data.checks import CorpusReport
from vanilla_transformer.data.corpora import read_corpus
from vanilla_transformer.evaluation import translation_scores
from vanilla_transformer.training.checkpoints import checkpoints
from vanilla_transformer.training.splits import encode_pairs, tokenize, version_of
from vanilla_transformer.training.start import check_positions
from vanilla_transformer.translation.languages import set_languages
from vanilla_transformer.translation.shares import PATIENCE, leave

logger = logging.get_logger(__name__)


@dataclass
class ModelArguments:
    """Which model to start from."""

    model_name_or_path: str = field(metadata={"help": "Folder or Hub id of a sequence-to-sequence model."})


@dataclass
class DataArguments:
    """Parallel text, in any form that `read_corpus` knows."""

    validation_files: list[str] = field(metadata={"help": "Two parallel text files, or one table, folder or Hub id."})
    train_files: list[str] | None = field(default=None, metadata={"help": "The same to train on, with --do_train."})
    source_lang: str = field(default="en", metadata={"help": "Language (column) to translate from."})
    target_lang: str = field(default="fr", metadata={"help": "Language (column) to translate to."})
    dataset_config_name: str | None = field(default=None, metadata={"help": "Config of a data set on the Hub."})
    src_lang: str | None = field(
        default=None, metadata={"help": "What the tokenizer of a model of many languages calls that of the source."}
    )
    tgt_lang: str | None = field(default=None, metadata={"help": "The same for the language to translate to."})
    max_length: int = field(default=128, metadata={"help": "Longest side of a training pair, in tokens."})
    max_train_pairs: int | None = field(default=None, metadata={"help": "Read no more training pairs than this."})


class TrainerInFileOrder(Seq2SeqTrainer):
    """Translations come in the order of their references, of which `compute_metrics` is told nothing; with
    `--train_sampling_strategy group_by_length` transformers would shuffle what is evaluated as well."""

    def _get_eval_sampler(self, eval_dataset):
        return SequentialSampler(eval_dataset)


def main() -> None:
    parser = HfArgumentParser((ModelArguments, DataArguments, Seq2SeqTrainingArguments))
    parser.set_defaults(ddp_timeout=int(PATIENCE.total_seconds()))
    model_args, data_args, args = parser.parse_args_into_dataclasses()
    if not (args.do_train or args.do_eval):
        sys.exit("nothing to do: give --do_train, --do_eval or both")
    if args.do_predict:
        sys.exit("--do_predict is not done here: translate with `vanilla-transformer translate MODEL FILE`")
    if args.do_train and not data_args.train_files:
        sys.exit("--do_train needs pairs to train on: give --train_files")
    if args.predict_with_generate and args.dataloader_drop_last:
        sys.exit(
            "--dataloader_drop_last drops sentences that are evaluated as well, so that not all would be scored: "
            "leave it out, or --predict_with_generate"
        )
    earlier = checkpoints(Path(args.output_dir))
    if args.do_train and earlier and not args.resume_from_checkpoint:
        sys.exit(
            f"{args.output_dir} exists and holds checkpoints: go on with --resume_from_checkpoint {earlier[-1]}, or "
            "choose another --output_dir"
        )
    set_seed(args.seed)
    tokenizer = AutoTokenizer.from_pretrained(model_args.model_name_or_path)
    # In a file's half precision, Adam's steps of a small rate would be rounded away; with --bf16 weights stay float32.
    model = AutoModelForSeq2SeqLM.from_pretrained(model_args.model_name_or_path, dtype=torch.float32)
    try:
        set_languages(model, tokenizer, data_args.src_lang, data_args.tgt_lang)
    except ValueError as error:
        sys.exit(str(error))

    def pairs(where: list[str], split: str, max_pairs: int | None = None):
        languages, report = (data_args.source_lang, data_args.target_lang), CorpusReport()
        options = dict(config_name=data_args.dataset_config_name, max_pairs=max_pairs, report=report)
        corpus = read_corpus(where, *languages, split=split, **options)
        report.warn()
        return corpus

    try:
        with args.main_process_first(desc="tokenizing"):
            encode = partial(encode_pairs, tokenizer=tokenizer)
            version = version_of(tokenizer, f"{data_args.src_lang} to {data_args.tgt_lang}")
            text = pairs(data_args.validation_files, "validation")
            encoded = {"validation": tokenize(text, encode, None, "validation", version)}
            references = list(text["target"])  # with the words that are <unk> in labels
            if args.do_train:
                text = pairs(data_args.train_files, "train", data_args.max_train_pairs)
                encoded["train"] = tokenize(text, encode, data_args.max_length, "train", version)
        check_positions(model, encoded)
    except (OSError, ValueError) as error:  # of files, and of what stands in them
        sys.exit(str(error))
    encoded = {name: rows.remove_columns("length") for name, rows in encoded.items()}
    count = len(references)

    def compute_metrics(prediction) -> dict[str, float]:
        # Several processes fill the last batch with sentences from the start, and `Seq2SeqTrainer` keeps these.
        ids = prediction.predictions[:count]
        ids[ids < 0] = tokenizer.pad_token_id  # -100 is no token
        texts = tokenizer.batch_decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return {score.name.lower(): score.score for score in translation_scores(texts, references)}

    trainer = TrainerInFileOrder(
        model=model,
        args=args,
        train_dataset=encoded.get("train"),
        eval_dataset=encoded["validation"],
        processing_class=tokenizer,
        data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
        compute_metrics=compute_metrics if args.predict_with_generate else None,
    )
    twice = -count % (args.world_size * args.per_device_eval_batch_size)
    if twice and args.world_size > 1 and args.do_eval:  # as `Seq2SeqTrainer` does it
        logger.warning(
            f"eval_loss counts {twice} sentences twice, which fill up the last batch of {args.world_size} processes; "
            "the scores of translations do not"
        )
    if args.do_train:
        trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
        trainer.save_model()
    if args.do_eval:
        metrics = trainer.evaluate()
        trainer.log_metrics("eval", metrics)
        trainer.save_metrics("eval", metrics)
    trainer.accelerator.wait_for_everyone()
    leave()


if __name__ == "__main__":
    sys.exit(main())
