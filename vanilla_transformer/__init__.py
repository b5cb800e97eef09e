"""The Transformer of "Attention Is All You Need" for Hugging Face transformers 5.

Importing this package registers its classes with the Auto classes and brings `pipeline("translation")` back. It is the
only place that touches transformers' globals.
"""

from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer
from transformers.models.auto import modeling_auto

from ._version import __version__
from .model.configuration_vanilla_transformer import VanillaTransformerConfig
from .model.modeling_vanilla_transformer import VanillaTransformerForSeq2SeqLM, VanillaTransformerModel
from .model.tokenization_vanilla_transformer import VanillaTransformerTokenizer


__all__ = [
    "__version__",
    "VanillaTransformerConfig",
    "VanillaTransformerForSeq2SeqLM",
    "VanillaTransformerModel",
    "VanillaTransformerTokenizer",
]


def register_models() -> None:
    config = VanillaTransformerConfig
    AutoConfig.register(config.model_type, config, exist_ok=True)
    AutoModel.register(config, VanillaTransformerModel, exist_ok=True)
    AutoModelForSeq2SeqLM.register(config, VanillaTransformerForSeq2SeqLM, exist_ok=True)
    AutoTokenizer.register(config, VanillaTransformerTokenizer, exist_ok=True)
    # Trainer, pipelines and model cards look a class up in these tables of names, not in what `register` fills.
    modeling_auto.MODEL_MAPPING_NAMES[config.model_type] = VanillaTransformerModel.__name__
    modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES[config.model_type] = (
        VanillaTransformerForSeq2SeqLM.__name__
    )
    config.register_for_auto_class()  # saved checkpoints bring the code of these classes along
    VanillaTransformerModel.register_for_auto_class("AutoModel")
    VanillaTransformerForSeq2SeqLM.register_for_auto_class("AutoModelForSeq2SeqLM")


register_models()
