# Copyright 2026 The vanilla_transformer authors. MIT License.
"""The `translation` pipeline, text in and text out, for transformers 5, which removed it.

It answers as that of transformers 4.57 did, for every encoder-decoder model of transformers. On purpose different:
no text is lost (over-long input raises, lists inside lists are translated whole), empty input gives empty output,
the length of a translation depends on its source where nobody set it (section 6.1 of "Attention Is All You Need"),
and languages that a tokenizer does not know raise.
"""

import enum
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset, IterableDataset
from transformers import GenerationConfig, Pipeline, PreTrainedModel
from transformers.dynamic_module_utils import custom_object_save
from transformers.utils import logging

from .decoding import (
    EXTRA_TOKENS,
    count_capped,
    is_of_family,
    length_of_checkpoint,
    position_limit,
    token_limit,
    too_many_tokens,
)
from .language_tokens import token_of

logger = logging.get_logger(__name__)


class ReturnType(enum.Enum):
    """What an answer holds: ids under `translation_token_ids`, or text under `translation_text`."""

    TENSORS = 0
    TEXT = 1


class TranslationPipeline(Pipeline):
    """`pipeline("translation", model=...)`, also as `"translation_en_to_fr"`.

    | input                                                | answer                                           |
    |------------------------------------------------------|--------------------------------------------------|
    | `str`                                                | `[{"translation_text": str}]`                    |
    | `list[str]`, a column of a `datasets.Dataset`        | `[{...}, {...}]`, one dict for each text         |
    | the same with `num_return_sequences=n > 1`           | `[[{...}, ...], ...]`, n dicts for each text     |
    | a list with lists of strings inside                  | `[[{...}, ...], ...]`, one list for each element |
    | generator, iterator, `torch` dataset, `KeyDataset`   | lazy iterator of `[{...}]`, one list a text      |

    Args of the constructor or of a call, of which the call wins:
        src_lang, tgt_lang: languages, for multilingual tokenizers; else those in the name of the task.
        return_tensors: `{"translation_token_ids": (T,)}` instead of text.
        truncation: cut over-long sources (counted in a warning) instead of raising.
        clean_up_tokenization_spaces: passed to `tokenizer.decode`.
        stop_sequence: text whose first token ends a translation.
        batch_size, num_workers: as in every pipeline.
        **generate_kwargs: for `model.generate`, such as `num_beams` (4 unless the checkpoint says otherwise).

    Raises:
        TypeError: for input that is none of the above.
        ValueError: for a source longer than the model's table of positions, or with a token that the model has no
            embedding for; for a model that is no encoder-decoder; for a language that a multilingual tokenizer does
            not know.
    """

    model: Any
    tokenizer: Any  # never None here, unlike in the base class
    prefix: str
    _load_tokenizer: Any = True
    _load_processor: Any = False
    _load_image_processor: Any = False
    _load_video_processor: Any = False
    _load_feature_extractor: Any = False
    _pipeline_calls_generate = True
    # No length here, unlike the 256 tokens of transformers 4.57: `_length_left_open` sees to that.
    _default_generation_config = GenerationConfig(num_beams=4)

    def __init__(self, model: PreTrainedModel, *args: Any, **kwargs: Any):
        if not (getattr(model.config, "is_encoder_decoder", False) and model.can_generate()):
            raise ValueError(
                f"got {type(model).__name__}, expected an encoder-decoder model with a language modeling head, as "
                "AutoModelForSeq2SeqLM loads. For decoder-only models use pipeline('text-generation')."
            )
        super().__init__(model, *args, **kwargs)
        # Old checkpoints (t5-small) keep a prefix and settings for each task in config.json.
        self._of_task = dict((getattr(self.model.config, "task_specific_params", None) or {}).get(self.task, {}))
        self.prefix = self._of_task.pop("prefix", self.prefix) or ""
        # "translation_en_to_fr" names the languages that neither constructor nor call name.
        words = self.task.split("_")
        if len(words) == 4:
            self._preprocess_params = {"src_lang": words[1], "tgt_lang": words[3], **self._preprocess_params}
        self._source_limit = position_limit(self.model.get_encoder(), self.model.config)
        self._target_limit = position_limit(self.model.get_decoder(), self.model.config)

    def _sanitize_parameters(
        self,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
        truncation: bool | str | None = None,
        return_tensors: bool | None = None,
        return_text: bool | None = None,  # accepted and without effect, as in transformers 4.57
        return_type: ReturnType | None = None,
        clean_up_tokenization_spaces: bool | None = None,
        stop_sequence: str | None = None,
        **generate_kwargs: Any,
    ) -> tuple[dict, dict, dict]:
        if return_type is None and return_tensors is not None:
            return_type = ReturnType.TENSORS if return_tensors else ReturnType.TEXT
        for name in ("num_beams", "num_return_sequences"):
            number = generate_kwargs.get(name)
            if number is not None and number < 1:
                raise ValueError(f"got {name}={number}, expected at least 1 (num_beams=1 is greedy search).")
        if stop_sequence is not None:
            tokens = self.tokenizer.encode(stop_sequence, add_special_tokens=False)
            if not tokens:
                raise ValueError(
                    f"got stop_sequence={stop_sequence!r}, of which this tokenizer makes no token: expected text "
                    "whose first token ends a translation."
                )
            generate_kwargs["eos_token_id"] = tokens[0]
            if len(tokens) > 1:
                logger.warning(f"stop_sequence={stop_sequence!r} is several tokens: only the first one will stop.")
        if self.assistant_model is not None:
            generate_kwargs["assistant_model"] = self.assistant_model
        if self.assistant_tokenizer is not None:
            generate_kwargs |= {"tokenizer": self.tokenizer, "assistant_tokenizer": self.assistant_tokenizer}
        preprocess = {"src_lang": src_lang, "tgt_lang": tgt_lang, "truncation": truncation}
        postprocess = {"return_type": return_type, "clean_up_tokenization_spaces": clean_up_tokenization_spaces}
        return _without_none(preprocess), generate_kwargs, _without_none(postprocess)

    def __call__(
        self,
        inputs: str | list | Sequence | Iterable,
        *args: Any,
        num_workers: int | None = None,
        batch_size: int | None = None,
        **kwargs: Any,
    ) -> "list | LazyAnswers":
        """Translate: the table of the class says what comes back for what. Order is kept; streams are read lazily."""
        if args:
            logger.warning(f"ignored {len(args)} extra positional argument(s): pass several texts as one list.")
        of_self = (self._preprocess_params, self._forward_params, self._postprocess_params)
        of_call = self._sanitize_parameters(**kwargs)
        preprocess, forward, postprocess = ({**mine, **given} for mine, given in zip(of_self, of_call, strict=True))
        if hasattr(self.tokenizer, "_build_translation_inputs"):
            for language in filter(None, (preprocess.get("src_lang"), preprocess.get("tgt_lang"))):
                token_of(self.tokenizer, language)  # raises for what would be a piece of a word
        tally: Counter = Counter()
        forward["tally"] = tally
        self.call_count += 1

        if isinstance(inputs, str):
            answer = self.run_single(inputs, preprocess, forward, postprocess)
            self._warn_of(tally)
            return answer

        # A column of a `datasets.Dataset` is a Sequence, that of an IterableDataset is known by its name only.
        if isinstance(inputs, Sequence) and not isinstance(inputs, (tuple, bytes, bytearray)):
            inputs = list(inputs)
        elif isinstance(inputs, Iterator) or type(inputs).__name__ == "IterableColumn":
            inputs = Stream(inputs)
        if not isinstance(inputs, (list, Dataset)):
            raise TypeError(
                f"got {type(inputs).__name__}, expected a string, a list of strings, a column of a dataset, a "
                "generator or a torch dataset of strings: convert with list(...), or choose a column with "
                "KeyDataset(dataset, column)."
            )

        workers = next(n for n in (num_workers, self._num_workers, 0) if n is not None)
        size = next(n for n in (batch_size, self._batch_size, 1) if n is not None)
        answers = self.get_iterator(inputs, workers, size, preprocess, forward, postprocess)
        if not isinstance(inputs, list):
            return LazyAnswers(inputs, answers, lambda: self._warn_of(tally))
        collected = list(answers)
        self._warn_of(tally)
        if all(isinstance(text, str) for text in inputs) and all(len(answer) == 1 for answer in collected):
            return [answer[0] for answer in collected]
        return collected

    def preprocess(  # type: ignore[override]
        self,
        inputs: str | list[str],
        src_lang: str | None = None,
        tgt_lang: str | None = None,
        truncation: bool | str | None = None,
    ) -> dict[str, list]:
        """One text, or a list inside a list -> {"rows": one for each text}, unpadded; `None` for a blank text."""
        texts = [inputs] if isinstance(inputs, str) else inputs
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise TypeError(f"got {inputs!r} of type {type(inputs).__name__}, expected a string or a list of strings.")
        return {"rows": [self._encode(text, src_lang, tgt_lang, truncation) for text in texts]}

    def _encode(
        self, text: str, src_lang: str | None, tgt_lang: str | None, truncation: bool | str | None
    ) -> "Source | None":
        if not text.strip():
            return None  # nothing to translate; the model would make something up

        def tokenize(**settings: Any) -> dict[str, Any]:
            build = getattr(self.tokenizer, "_build_translation_inputs", None)
            if build is None:
                return dict(self.tokenizer(self.prefix + text, **settings))
            # Multilingual tokenizers add the id of the target language as `forced_bos_token_id`.
            return dict(build(text, return_tensors=None, src_lang=src_lang, tgt_lang=tgt_lang, **settings))

        # `verbose=False`: the tokenizer would foretell index errors that do not come.
        encoded = tokenize(truncation=False, verbose=False)
        length, limit, trained = len(encoded["input_ids"]), self._source_limit, self.tokenizer.model_max_length
        longest = trained if limit is None else min(limit, trained)
        cut = length > longest and truncation not in (None, False, "do_not_truncate")
        if cut:
            encoded = tokenize(truncation=truncation, max_length=longest)
        elif limit is not None and length > limit:
            raise ValueError(
                f"got a text of {length} tokens, {_beginning(text)}, expected at most {limit}: the table of positions "
                f"of {type(self.model).__name__} ends there. Split the text, or pass truncation=True to translate its "
                "beginning only."
            )
        if not encoded["input_ids"]:
            return None
        known = token_limit(self.model.get_encoder())
        if (highest := max(encoded["input_ids"])) >= known:
            token = self.tokenizer.convert_ids_to_tokens(highest)
            what = f"the tokenizer makes the token {token!r}, number {highest}, of {_beginning(text)}"
            raise too_many_tokens(what, known)
        encoded.pop("token_type_ids", None)
        return Source(encoded, cut=cut, unusual=length > trained and not cut)

    def _forward(  # type: ignore[override]
        self, model_inputs: dict[str, list], tally: Counter, **generate_kwargs: Any
    ) -> dict[str, list]:
        """{"rows": rows} or, batched, {"rows": [rows, ...]} -> {"output_ids": (n, T) for each row}, nested alike."""
        rows = model_inputs["rows"]
        batched = bool(rows) and isinstance(rows[0], list)
        items = rows if batched else [rows]
        wanted = [row for item in items for row in item if row is not None]
        if "generation_config" not in generate_kwargs:  # one given in the call replaces what the constructor got
            generate_kwargs = {**self._generate_kwargs, **generate_kwargs}
        length_given = _sets_length(generate_kwargs)
        if "generation_config" not in generate_kwargs:
            generate_kwargs = {**self._of_task, **generate_kwargs}
        n = self._get_set_generation_params(generate_kwargs).get("num_return_sequences") or 1
        found = iter(self._generate(wanted, n, tally, length_given, generate_kwargs) if wanted else ())
        blank = torch.empty(n, 0, dtype=torch.long)
        output_ids = [[blank if row is None else next(found) for row in item] for item in items]
        return {"output_ids": output_ids if batched else output_ids[0]}

    def _generate(
        self, rows: list["Source"], n: int, tally: Counter, length_given: bool, generate_kwargs: dict[str, Any]
    ) -> torch.Tensor:
        """B rows -> ids (B, n, T). `length_given`: whether the caller sets a length."""
        tensors, settings = {}, {}
        for name, value in rows[0].inputs.items():
            if isinstance(value, list):  # ids and mask: (B, S)
                tensors[name] = pad_sequence(
                    [torch.tensor(row.inputs[name]) for row in rows],
                    batch_first=True,
                    padding_value=(self.tokenizer.pad_token_id or 0) if name == "input_ids" else 0,
                    padding_side=self.tokenizer.padding_side,
                ).to(self.device)
            elif name not in generate_kwargs:  # the target language, one for the whole call
                settings[name] = value
        tally.update(texts=len(rows), cut=sum(row.cut for row in rows), unusual=sum(row.unusual for row in rows))

        known = self._get_set_generation_params({**generate_kwargs, **settings})
        length = None if length_given else self._length_left_open(known, tensors["input_ids"].shape[1])
        if length is not None:
            settings |= {"max_new_tokens": length, "max_length": None}
            known |= {"max_new_tokens": length}
        output_ids = self.model.generate(**tensors, **self._prepare_generate_kwargs(generate_kwargs, **settings))
        output_ids = getattr(output_ids, "sequences", output_ids)  # of return_dict_in_generate=True
        if not length_given:  # whoever sets a length in the call knows it
            new = known.get("max_new_tokens")
            limit = known["max_length"] if new is None else new + 1  # the start token and the new ones
            ends = [known.get(name) for name in ("eos_token_id", "pad_token_id", "forced_eos_token_id")]
            tally.update(outputs=len(output_ids), capped=count_capped(output_ids, limit, *ends))
        return output_ids.reshape(len(rows), n, -1)

    def _length_left_open(self, known: dict[str, Any], source_length: int) -> int | None:
        """S + 50 tokens if the checkpoint sets no length (`known`: its settings, and the caller's), else `None`.

        A `max_length` of our own models is an upper bound of that number, as in their `generate`.
        """
        set_length = length_of_checkpoint(self.model.config, known.get("max_length"))
        if known.get("max_new_tokens") is not None or (set_length is not None and not is_of_family(self.model.config)):
            return None
        # The start token takes a place of the total length, and of the decoder's table of positions.
        totals = [total for total in (set_length, self._target_limit) if total is not None]
        return min([source_length + EXTRA_TOKENS, *(total - 1 for total in totals)])

    def postprocess(  # type: ignore[override]
        self,
        model_outputs: dict[str, list],
        return_type: ReturnType = ReturnType.TEXT,
        clean_up_tokenization_spaces: bool = False,
    ) -> list[dict[str, Any]]:
        """Ids (n, T) of each row -> one dict for each of the n translations, row after row."""
        records = []
        for ids in (sequence for row in model_outputs["output_ids"] for sequence in row):
            if return_type == ReturnType.TENSORS:
                records.append({"translation_token_ids": ids})
                continue
            text = self.tokenizer.decode(
                ids, skip_special_tokens=True, clean_up_tokenization_spaces=clean_up_tokenization_spaces
            )
            records.append({"translation_text": text if len(ids) else ""})
        return records

    def _warn_of(self, tally: Counter) -> None:
        """Say once a call how many texts and translations met a limit."""
        of_texts, trained = f"of {tally['texts']} texts", self.tokenizer.model_max_length
        if tally["cut"]:
            logger.warning(
                f"{tally['cut']} {of_texts} had more tokens than fit and lost their end, as truncation was asked for."
            )
        if tally["unusual"]:
            logger.warning(
                f"{tally['unusual']} {of_texts} had more than the {trained} tokens that the tokenizer gives as "
                "model_max_length. They were translated whole, but the model may not be trained for such lengths."
            )
        if tally["capped"]:
            logger.warning(
                f"{tally['capped']} of {tally['outputs']} translations reached the limit of their length before their "
                "end. Pass max_new_tokens=... to allow more."
            )
        tally.clear()  # a dataset may be run through again

    def save_pretrained(
        self, save_directory: str | os.PathLike, include_pipeline: bool = False, **kwargs: Any
    ) -> None:
        """Save model and tokenizer, and on request this pipeline with them.

        Args:
            include_pipeline: copy this file into the folder and name it in config.json, so that
                `pipeline("translation", model=..., trust_remote_code=True)` works for users of transformers 5
                who have not installed the package; to publish, upload the folder. Off by default: models that are
                not ours then need `trust_remote_code=True`, or `pipeline_class=`, from users of the package too.
            **kwargs: for the `save_pretrained` of model and tokenizer.
        """
        os.makedirs(save_directory, exist_ok=True)
        config = self.model.config
        before = getattr(config, "custom_pipelines", None)
        if include_pipeline or "translation" in (before or {}):
            custom_object_save(self, save_directory)
            impl = f"{type(self).__module__.rsplit('.', 1)[-1]}.{type(self).__name__}"
            ours = {"translation": {"impl": impl, "pt": ["AutoModelForSeq2SeqLM"], "type": "text"}}
            config.custom_pipelines = {**(before or {}), **ours}
        try:
            self.model.save_pretrained(save_directory, **kwargs)
        finally:  # the next save of this model may be without the file
            if before is not None:
                config.custom_pipelines = before
            elif include_pipeline:
                del config.custom_pipelines
        self.tokenizer.save_pretrained(save_directory, **kwargs)


@dataclass
class Source:
    """A text in ids, unpadded. Not a dict or list, through which the base class would search for tensors to move."""

    inputs: dict[str, Any]  # of the tokenizer: lists of S numbers, and perhaps the id of the target language
    cut: bool  # lost its end, as asked for
    unusual: bool  # longer than the tokenizer's model_max_length


class Stream(IterableDataset):
    """An iterable of unknown length as a torch dataset: pipelines read nothing from it ahead of time."""

    def __init__(self, texts: Iterable):
        self.texts = texts

    def __iter__(self) -> Iterator:
        return iter(self.texts)


class LazyAnswers:
    """Iterates over answers as they are made, then calls `finish`; has the length of its dataset, if that has one."""

    def __init__(self, texts: Any, answers: Iterable[list[dict]], finish: Callable[[], None]):
        self.texts, self.answers, self.finish = texts, answers, finish

    def __len__(self) -> int:
        return len(self.texts)

    def __iter__(self) -> Iterator[list[dict]]:
        yield from self.answers
        self.finish()


def _sets_length(generate_kwargs: dict[str, Any]) -> bool:
    given = generate_kwargs.get("generation_config")
    return any(
        generate_kwargs.get(name) is not None or getattr(given, name, None) is not None
        for name in ("max_length", "max_new_tokens")
    )


def _without_none(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}


def _beginning(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "…")
