"""A recipe: all choices of a training in one validated place, read from YAML and from `--set section.key=value`."""

import dataclasses
import math
import os
import re
import types
from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import resources
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import yaml
from huggingface_hub.errors import StrictDataclassError

from ..data.corpora import read_lines
from ..data.vocabulary import Template, check_vocab_size
from ..model.configuration_vanilla_transformer import (
    PRESETS,
    FamilyConfig,
    VanillaTransformerConfig,
    VanillaTransformerDecoderConfig,
    VanillaTransformerEncoderConfig,
    innermost,
)

SPLITS = ("train", "validation", "test")
CONFIGURATIONS: dict[str, type[FamilyConfig]] = {
    "translation": VanillaTransformerConfig,
    "causal-lm": VanillaTransformerDecoderConfig,
    "masked-lm": VanillaTransformerEncoderConfig,
}
TEMPLATE_OF: dict[str, Template] = {"translation": "translation", "causal-lm": "causal", "masked-lm": "masked"}
SHIPPED = resources.files("vanilla_transformer") / "recipes"


@dataclass
class CorpusRecipe:
    """Where the pairs come from. `files` reads `train` and `validation` (and `test`): each two parallel text files, or
    one table, folder or Hub id; relative names are looked up in `folder`."""

    name: Literal["files", "phrasebook", "copy", "reverse"] = "files"
    source_lang: str = "en"
    target_lang: str = "fr"
    side: Literal["source", "target"] = "target"  # the one that a language model reads
    folder: str | None = None
    train: list[str] | None = None
    validation: list[str] | None = None
    test: list[str] | None = None
    config_name: str | None = None  # of a data set on the Hub
    max_pairs: int | None = None  # of the training set
    max_length: int = 128  # tokens a side; longer training pairs are dropped, and counted
    sizes: dict[str, int] | None = None  # pairs per split of an embedded corpus
    seed: int = 0


@dataclass
class TokenizerRecipe:
    """A joint vocabulary to be learned from the training pairs, or the folder of one that exists."""

    vocab_size: int = 8000
    path: str | None = None


@dataclass
class TrainingRecipe:
    """Section 5 of the paper, in the names of transformers' `TrainingArguments`."""

    max_steps: int | None = None
    num_train_epochs: float | None = None
    max_tokens: int = 4096  # padded tokens a side in a batch (25,000 in section 5.1)
    gradient_accumulation_steps: int = 1
    learning_rate: float | None = None  # at its peak; None: d_model^-0.5 warmup_steps^-0.5 (equation 3)
    lr_scheduler_type: Literal["inverse_sqrt", "linear", "cosine"] = "inverse_sqrt"
    decay_steps: int | None = None  # updates after which linear and cosine reach 0; None: max_steps, the last one
    warmup_steps: int = 4000
    optimizer: Literal["adam", "muon"] = "adam"  # muon, for the matrices of layers: fewer, somewhat longer steps
    adam_beta1: float = 0.9
    adam_beta2: float = 0.98
    adam_epsilon: float = 1e-9
    max_grad_norm: float = 1.0
    label_smoothing: float = 0.1
    r_drop: float = 0.0  # alpha of R-Drop (Liang et al. 2021), 5 there for translation; doubles the work of a step
    r_drop_after: int = 0  # updates before R-Drop begins: in its first epochs a model has nothing to be kept from
    source_dropout: float = 0.0  # of the source's tokens (Gal and Ghahramani 2016); 0.1 in Sennrich et al. 2016
    bpe_dropout: float = 0.0  # of the merges that make a token of its parts (Provilkov et al. 2020); 0.1 there
    bf16: Literal[True, False, "auto"] = False  # matrix products in bfloat16, weights in float32; auto: if faster here
    attn_implementation: Literal["sdpa", "eager", "flash_attention_2", "flex_attention"] = "sdpa"
    torch_compile: bool = False  # each layer by torch.compile: pays on GPUs, for models that keep them busy
    seed: int = 0
    eval_steps: int = 500  # evaluate and save every so many steps
    eval_pairs: int = 500  # validation pairs that are decoded, greedily, at each evaluation
    patience: int | None = None  # stop after so many evaluations without a better BLEU
    report_to: Literal["none", "tensorboard"] = "none"
    average: Literal["last", "best"] = "last"
    average_checkpoints: int = 5  # the final model is their mean (section 6.1), or the newest weights: see `finish`


@dataclass
class DecodingRecipe:
    """What `generation_config.json` of the trained model will say. Scores are divided by length ** length_penalty."""

    num_beams: int = 4
    length_penalty: float = 1.0
    max_length: int = 512


@dataclass
class DiversificationRecipe:
    """Data diversification (Nguyen et al. 2020): teachers of both directions are trained first, and translate the
    training set into further pairs. `training` and `model` say what in their recipe is not that of the model."""

    forward_teachers: int = 1  # from source to target, of as many seeds; one goes back
    training: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)


@dataclass
class Recipe:
    """Everything that a training depends on. `model` names a preset and overrides of its fields."""

    task: Literal["translation", "causal-lm", "masked-lm"] = "translation"
    corpus: CorpusRecipe = field(default_factory=CorpusRecipe)
    tokenizer: TokenizerRecipe | None = field(default_factory=TokenizerRecipe)
    model: dict[str, Any] | None = field(default_factory=lambda: {"preset": "base"})
    training: TrainingRecipe = field(default_factory=TrainingRecipe)
    decoding: DecodingRecipe = field(default_factory=DecodingRecipe)
    diversification: DiversificationRecipe | None = None

    def __post_init__(self):
        problems = []
        training, corpus = self.training, self.corpus
        if (training.max_steps is None) == (training.num_train_epochs is None):
            problems.append("training needs either max_steps or num_train_epochs, and not both")
        if corpus.name == "files":
            missing = [split for split in ("train", "validation") if not getattr(corpus, split)]
            problems += [f"corpus.{split} is missing" for split in missing]
            given = [name for name in ("sizes", "seed") if getattr(corpus, name)]
            problems += [
                f"corpus.{name} is for corpora that are made, and corpus.name=files reads one" for name in given
            ]
        else:
            given = [split for split in SPLITS if getattr(corpus, split)]
            given += [name for name in ("folder", "config_name", "max_pairs") if getattr(corpus, name) is not None]
            problems += [f"corpus.{s} is set, but corpus.name={corpus.name} brings its own pairs" for s in given]
        for split, size in (corpus.sizes or {}).items():
            if split not in SPLITS:
                problems.append(unknown_key("corpus.sizes.", str(split), SPLITS))
            elif type(size) is not int or size < 1:
                problems.append(f"corpus.sizes.{split}={size!r}: expected a whole number of pairs, at least 1")
        positive = [
            (
                training,
                "max_steps num_train_epochs max_tokens gradient_accumulation_steps learning_rate decay_steps "
                "warmup_steps eval_steps eval_pairs patience average_checkpoints max_grad_norm adam_epsilon",
            ),
            (self.decoding, "num_beams max_length"),
            (corpus, "max_length max_pairs"),
        ]
        for section, names in positive:
            for name in names.split():
                value = getattr(section, name)
                if value is not None and not 0 < value < math.inf:
                    problems.append(f"{name}={value}: expected a positive number")
        for name in ("label_smoothing", "source_dropout", "bpe_dropout", "adam_beta1", "adam_beta2"):
            if not 0 <= getattr(training, name) < 1:
                problems.append(f"{name}={getattr(training, name)}: expected a number in [0, 1)")
        if training.seed < 0 or corpus.seed < 0:
            problems.append(f"training.seed={training.seed}, corpus.seed={corpus.seed}: expected numbers from 0 on")
        if self.task != "translation" and self.decoding != DecodingRecipe():
            problems.append(f"decoding is read by task=translation only, and the task is {self.task}: leave it out")
        for name in ("source_dropout", "bpe_dropout", "r_drop"):
            if self.task != "translation" and getattr(training, name):
                problems.append(f"training.{name} is for task=translation, and the task is {self.task}: leave it out")
        if not 0 <= training.r_drop < math.inf:
            problems.append(f"training.r_drop={training.r_drop}: expected a number from 0 on")
        after, steps = training.r_drop_after, training.max_steps
        if after < 0 or 0 < (steps or 0) <= after:
            problems.append(f"training.r_drop_after={after}: expected an update of training, 0 to max_steps - 1")
        elif after and not training.r_drop:
            problems.append(f"training.r_drop_after={after} is read with training.r_drop only, which is 0: set it too")
        if training.decay_steps is not None:
            problems += problems_of_decay(training)
        if self.decoding.max_length == 1:
            problems.append("max_length=1 of decoding has room for the start token alone: expected at least 2")
        if self.task == "translation" and corpus.side != "target":
            problems.append(f"corpus.side={corpus.side} is for language models; translation reads both: leave it out")
        if self.tokenizer and self.tokenizer.path and self.tokenizer.vocab_size != TokenizerRecipe.vocab_size:
            problems.append(
                f"tokenizer.vocab_size={self.tokenizer.vocab_size} is of a vocabulary that is learned, and "
                f"tokenizer.path={self.tokenizer.path} names one: give tokenizer={{path: {self.tokenizer.path}}} alone"
            )
        if self.tokenizer and not self.tokenizer.path:
            try:
                check_vocab_size(self.tokenizer.vocab_size, TEMPLATE_OF[self.task])
            except ValueError as error:
                problems.append(f"tokenizer: {error}")
        if self.decoding.num_beams == 1 and self.decoding.length_penalty != DecodingRecipe.length_penalty:
            problems.append(
                f"length_penalty={self.decoding.length_penalty} ranks the beams of a search, and num_beams=1 has "
                "none: leave it out"
            )
        if not math.isfinite(self.decoding.length_penalty):
            problems.append(f"length_penalty={self.decoding.length_penalty}: expected a finite number")
        if corpus.max_length > training.max_tokens:
            problems.append(
                f"corpus.max_length={corpus.max_length} exceeds training.max_tokens={training.max_tokens}: one pair "
                "would not fit into a batch"
            )
        if self.model is not None:
            try:
                config = self.model_config(vocab_size=1000)
            except (ValueError, StrictDataclassError) as error:  # a wrong preset, field or value
                problems.append(str(innermost(error)))
            else:
                if config.positions == "learned" and config.max_position_embeddings < corpus.max_length:
                    problems.append(
                        f"corpus.max_length={corpus.max_length} exceeds model.max_position_embeddings="
                        f"{config.max_position_embeddings}, where learned positions end: raise this one, or lower that"
                    )
        if self.diversification is not None:
            count = self.diversification.forward_teachers
            if count < 1:
                problems.append(f"diversification.forward_teachers={count}: expected a number of teachers, at least 1")
            if self.model is None or self.tokenizer is None:
                problems.append("diversification trains from the start: give the recipe sections model and tokenizer")
            if self.task != "translation":
                problems.append(f"diversification is for task=translation, and the task is {self.task}: leave it out")
            elif not problems:
                try:
                    self.teacher()
                except ValueError as error:
                    problems.append(f"diversification: {error}")
        if problems:
            raise ValueError("invalid recipe: " + "; ".join(problems))

    def teacher(self) -> "Recipe":
        """The recipe of the teachers that `diversification` asks for: this one, but for what stands there."""
        tree, taught = self.to_dict(), self.diversification or DiversificationRecipe()
        other = {"training": taught.training, "model": taught.model}
        lengths = {"max_steps", "num_train_epochs"}
        if lengths & other["training"].keys():
            tree["training"] |= dict.fromkeys(lengths | {"decay_steps"})  # which is that of the model's own length
        for section, values in other.items():
            tree[section] = {**(tree[section] or {}), **values}
        return build(Recipe, {**tree, "diversification": None}, "")

    def model_config(self, vocab_size: int, **token_ids: int | None) -> FamilyConfig:
        config_class = CONFIGURATIONS[self.task]
        fields = dict(self.model or {})
        preset = fields.pop("preset", "base")
        if isinstance(preset, (list, dict)):  # which are no keys of a dictionary
            raise ValueError(f"model.preset: got {preset!r}, expected one of {', '.join(PRESETS)}")
        known = config_class.own_fields() | config_class.attribute_map.keys()
        for key in fields:
            if key.endswith(("vocab_size", "token_id", "is_encoder_decoder")):
                raise ValueError(f"model.{key} is decided by the tokenizer and the task: leave it out of the recipe")
            if key not in known:
                raise ValueError(unknown_key("model.", key, known))
            if (meant := config_class.attribute_map.get(key, key)).startswith("encoder_") and meant != key:
                both = f"model.{meant} and model.{meant.replace('encoder', 'decoder', 1)}"
                raise ValueError(f"model.{key} is that of the encoder alone: give {both} in its place")
        if not fields.get("share_encoder_decoder_embeddings", True):
            raise ValueError("model.share_encoder_decoder_embeddings=false: training knows one joint vocabulary only")
        return config_class.preset(preset, **{"vocab_size": vocab_size, **token_ids, **fields})

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def problems_of_decay(training: TrainingRecipe) -> list[str]:
    """What contradicts `decay_steps`, which is set."""
    given = f"decay_steps={training.decay_steps}"
    if training.lr_scheduler_type == "inverse_sqrt":
        return [f"{given} is read by lr_scheduler_type=linear and cosine, and inverse_sqrt never ends: leave it out"]
    if training.max_steps is None:
        return [f"{given} counts updates, and num_train_epochs epochs: give max_steps in its place"]
    if training.decay_steps < training.max_steps:  # type: ignore[operator]
        return [f"{given} is less than max_steps={training.max_steps}: the last updates would have a rate of 0"]
    return []


def recipe_names() -> list[str]:
    return sorted(entry.name.removesuffix(".yaml") for entry in SHIPPED.iterdir() if entry.name.endswith(".yaml"))


def load_recipe(name: str, settings: Sequence[str] = ()) -> Recipe:
    """A shipped recipe by its name, or one's own by its path, with `settings` such as `training.max_steps=100`.

    Raises:
        FileNotFoundError: for an unknown name.
        ValueError: for keys that no section has (with the nearest one that exists), and for values of a wrong type.
    """
    path = Path(name)
    if name in recipe_names():
        text = (SHIPPED / f"{name}.yaml").read_text(encoding="utf-8")
    elif path.is_file():
        text = "\n".join(read_lines(path))
    else:
        near = get_close_matches(name, recipe_names(), n=1)
        raise FileNotFoundError(
            f"no recipe {name!r}: expected a YAML file, or one of {', '.join(recipe_names())}"
            + (f"; did you mean {near[0]!r}?" if near else "")
        )
    tree = parse(text, name) or {}
    if not isinstance(tree, dict):
        raise ValueError(f"{name} is no recipe: expected sections such as `corpus:` and `training:`")
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise ValueError(f"got --set {setting}: expected section.key=value, such as training.max_steps=100")
        tree = with_setting(tree, key.split("."), parse(value, f"--set {setting}"), setting)
    return build(Recipe, tree, "")


def with_setting(tree: dict, path: list[str], value: Any, setting: str, above: str = "") -> dict:
    """`tree` with `value` where `path`, key by key, leads."""
    key, *rest = path
    if not rest:
        return {**tree, key: value}
    below = tree.get(key) or {}
    if not isinstance(below, dict):
        raise ValueError(f"got --set {setting}, but {above}{key} is {below!r}, expected keys and values")
    return {**tree, key: with_setting(below, rest, value, setting, f"{above}{key}.")}


def parse(text: str, where: str) -> Any:
    try:
        return yaml.load(text, OncePerKey)
    except yaml.YAMLError as error:
        raise ValueError(f"{where} is no YAML: {' '.join(str(error).split())}") from None


class OncePerKey(yaml.SafeLoader):
    """YAML takes the last of two equal keys, without a word; and 3e-4, without a point, as text."""

    def construct_mapping(self, node, deep=False):
        keys = [key.value for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        twice = sorted({key for key in keys if keys.count(key) > 1})
        if twice:
            raise yaml.YAMLError(f"{', '.join(map(repr, twice))} stands there twice, line {node.start_mark.line + 1}")
        return super().construct_mapping(node, deep)


OncePerKey.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+"), list("-+0123456789")
)


def unknown_key(path: str, key: str, names) -> str:
    near = get_close_matches(key, list(names), n=1, cutoff=0.6)
    hint = f"did you mean {path + near[0]!r}?" if near else f"expected one of {', '.join(sorted(names))}"
    return f"unknown key {path + key!r}: {hint}"


def build(section: type, tree: Any, path: str):
    """An instance of the dataclass `section` from nested dictionaries; `path` stands before its keys in messages."""
    if not isinstance(tree, dict):
        raise ValueError(f"{path.rstrip('.') or 'recipe'}: got {tree!r}, expected keys and values")
    hints = get_type_hints(section)
    values = {}
    for key, value in tree.items():
        if key not in hints:
            raise ValueError(unknown_key(path, str(key), hints))
        values[key] = convert(value, hints[key], path + key)
    return section(**values)


def convert(value: Any, hint: Any, key: str) -> Any:
    """`value` as the type `hint`; YAML reads 1 as a whole number where a fraction is meant, and 1e4 as a fraction."""
    origin, options = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        if value is None:
            if type(None) in options:
                return None
        else:
            return convert(value, next(option for option in options if option is not type(None)), key)
    elif origin is Literal:
        if value in options:
            return value
        raise ValueError(f"{key}: got {value!r}, expected one of {', '.join(map(str, options))}")
    elif isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return build(hint, value if value is not None else {}, key + ".")
    elif origin is dict and isinstance(value, dict):
        return value
    elif origin is list and (
        isinstance(value, str) or (isinstance(value, list) and all(type(x) is str for x in value))
    ):
        return [value] if isinstance(value, str) else value
    elif hint is int and isinstance(value, float) and value.is_integer():
        return int(value)
    elif hint is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    elif isinstance(hint, type) and isinstance(value, hint) and not (hint is int and isinstance(value, bool)):
        return value
    names = {list: "a list of names", dict: "keys and values, such as {preset: tiny}"}
    raise ValueError(f"{key}: got {value!r}, expected {names.get(origin) or getattr(hint, '__name__', hint)}")


def expand(path: str) -> str:
    """`path` with `$VARIABLES` and `~` filled in.

    Raises:
        ValueError: if a variable is not set.
    """
    expanded = os.path.expanduser(os.path.expandvars(path))
    if "$" in expanded:
        raise ValueError(
            f"{path}: the environment variable is not set: export it, or name the folder with --set corpus.folder=DIR"
        )
    return expanded
