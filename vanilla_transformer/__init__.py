"""The Transformer of "Attention Is All You Need" for Hugging Face transformers 5.

Importing this package registers its classes with the Auto classes and brings `pipeline("translation")` back. It is the
only place that touches transformers' globals.
"""

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    pipelines,
)
from transformers.models.auto import modeling_auto

from ._version import __version__
from .model.configuration_vanilla_transformer import (
    VanillaTransformerConfig,
    VanillaTransformerDecoderConfig,
    VanillaTransformerEncoderConfig,
)
from .model.modeling_vanilla_transformer import VanillaTransformerForSeq2SeqLM, VanillaTransformerModel
from .model.modeling_vanilla_transformer_decoder import VanillaTransformerDecoderModel, VanillaTransformerForCausalLM
from .model.modeling_vanilla_transformer_encoder import VanillaTransformerEncoderModel, VanillaTransformerForMaskedLM
from .model.pipeline_translation import TranslationPipeline
from .model.tokenization_vanilla_transformer import VanillaTransformerTokenizer

__all__ = [
    "TranslationPipeline",
    "VanillaTransformerConfig",
    "VanillaTransformerDecoderConfig",
    "VanillaTransformerDecoderModel",
    "VanillaTransformerEncoderConfig",
    "VanillaTransformerEncoderModel",
    "VanillaTransformerForCausalLM",
    "VanillaTransformerForMaskedLM",
    "VanillaTransformerForSeq2SeqLM",
    "VanillaTransformerModel",
    "VanillaTransformerTokenizer",
    "__version__",
]

# Trainer, pipelines and model cards look a class up in tables of names, not in what `register` fills.
FAMILY = [
    (AutoModel, modeling_auto.MODEL_MAPPING_NAMES, VanillaTransformerModel),
    (AutoModel, modeling_auto.MODEL_MAPPING_NAMES, VanillaTransformerDecoderModel),
    (AutoModel, modeling_auto.MODEL_MAPPING_NAMES, VanillaTransformerEncoderModel),
    (
        AutoModelForSeq2SeqLM,
        modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
        VanillaTransformerForSeq2SeqLM,
    ),
    (AutoModelForCausalLM, modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, VanillaTransformerForCausalLM),
    (AutoModelForMaskedLM, modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES, VanillaTransformerForMaskedLM),
]


def register_models() -> None:
    for auto_class, names, model in FAMILY:
        config = model.config_class
        AutoConfig.register(config.model_type, config, exist_ok=True)
        AutoTokenizer.register(config, VanillaTransformerTokenizer, exist_ok=True)
        auto_class.register(config, model, exist_ok=True)
        names[config.model_type] = model.__name__
        config.register_for_auto_class()  # saved checkpoints bring the code of these classes along
        model.register_for_auto_class(auto_class.__name__)


def register_translation_task() -> None:
    """transformers 5 removed the task `translation`: it refuses the name before it looks at its registry of tasks, and
    no longer reads languages from a name such as `translation_en_to_fr`."""
    registry = pipelines.PIPELINE_REGISTRY
    if getattr(registry.check_task, "parses_translation", False):
        return
    pipelines.REMOVED_TASKS.pop("translation", None)
    registry.register_pipeline("translation", TranslationPipeline, pt_model=AutoModelForSeq2SeqLM, type="text")
    t5 = {"model": ("google-t5/t5-base", "a9723ea")}  # without a model, as in transformers 4.57
    registry.supported_tasks["translation"]["default"] = {("en", target): t5 for target in ("fr", "de", "ro")}
    check_task = registry.check_task

    def check_translation_task(task: str):
        words = task.split("_")
        if len(words) == 4 and words[0] == "translation" and words[2] == "to":
            return "translation", registry.supported_tasks["translation"], (words[1], words[3])
        return check_task(task)

    check_translation_task.parses_translation = True  # type: ignore[attr-defined]
    registry.check_task = check_translation_task


def prefer_installed_pipeline() -> None:
    """A checkpoint may bring a copy of the pipeline for users without this package; here the installed one wins, as a
    registered model class does in the Auto classes, and nobody is asked for `trust_remote_code`."""
    load = VanillaTransformerConfig.from_dict.__func__

    def from_dict(cls, config_dict, **kwargs):
        rest = {key: value for key, value in config_dict.items() if key != "custom_pipelines"}
        others = {**(config_dict.get("custom_pipelines") or {})}  # which are somebody else's
        others.pop("translation", None)
        return load(cls, rest | ({"custom_pipelines": others} if others else {}), **kwargs)

    VanillaTransformerConfig.from_dict = classmethod(from_dict)


register_models()
register_translation_task()
prefer_installed_pipeline()
