"""transformers' own tests of a model, `ModelTesterMixin`, `ConfigTester` and `TrainingTesterMixin`, on our models.

Run by `scripts/upstream_conformance.py`, which fetches them: without the package `upstream_tests` on the path nothing
here can run, so this file has a name that pytest does not collect by itself.
"""

import unittest
from unittest import mock

import torch
from exceptions import OVERRIDDEN, SKIPPED, exceptions_of
from upstream_tests.test_configuration_common import ConfigTester
from upstream_tests.test_modeling_common import ModelTesterMixin, ids_tensor, random_attention_mask
from upstream_tests.test_training_mixin import TrainingTesterMixin

from vanilla_transformer import (
    VanillaTransformerConfig,
    VanillaTransformerDecoderConfig,
    VanillaTransformerDecoderModel,
    VanillaTransformerEncoderConfig,
    VanillaTransformerEncoderModel,
    VanillaTransformerForCausalLM,
    VanillaTransformerForMaskedLM,
    VanillaTransformerForSeq2SeqLM,
    VanillaTransformerModel,
)


class Tiny:
    """What the mixins call `model_tester`: the sizes of a tiny model, its configuration, and a batch."""

    is_training = True
    batch_size = 3
    seq_length = 7
    vocab_size = 99
    hidden_size = 32
    num_hidden_layers = 2
    num_attention_heads = 4
    ffn_dim = 64

    def __init__(self, config_class, choice: dict, model_with_loss):
        self.config_class = config_class
        self.choice = choice
        self.causal_lm_class = model_with_loss  # what TrainingTesterMixin trains, of whatever kind

    def fields(self) -> dict:
        terms = dict(layers=self.num_hidden_layers, heads=self.num_attention_heads, ffn_dim=self.ffn_dim)
        sizes = {field: size for term, size in terms.items() for field in self.config_class.size_fields[term]}
        return {"vocab_size": self.vocab_size, "d_model": self.hidden_size, **sizes, **self.choice}

    def get_config(self):
        return self.config_class(**self.fields())

    def prepare_config_and_inputs_for_common(self):
        config = self.get_config()
        inputs = {"input_ids": self.ids(), "attention_mask": self.mask()}
        if config.is_encoder_decoder:
            inputs |= {"decoder_input_ids": self.ids(), "decoder_attention_mask": self.mask()}
        return config, inputs

    def ids(self) -> torch.Tensor:
        return ids_tensor([self.batch_size, self.seq_length], self.vocab_size).clamp(min=3)  # none of them special

    def mask(self) -> torch.Tensor:
        return random_attention_mask([self.batch_size, self.seq_length])


def write_eps(config) -> None:
    config.norm_eps = 1.0


class Conformance(ModelTesterMixin, TrainingTesterMixin):
    """Needs the name of a model, its configuration, and its classes, of which the last has a loss."""

    name: str
    config_class: type
    choice: dict = {}  # fields of the configuration that are not the paper's
    model_tester = None  # abstract in TrainingTesterMixin

    @classmethod
    def setUpClass(cls):
        tests = [test for test in dir(cls) if test.startswith("test_")]
        for name in exceptions_of(cls.name, SKIPPED) | exceptions_of(cls.name, OVERRIDDEN):
            if not any(test.startswith(name) for test in tests):
                raise ValueError(f"exceptions.py lists {name}, which these tests of upstream do not have: drop it")

    def setUp(self):
        for name, reason in exceptions_of(self.name, SKIPPED).items():
            if self._testMethodName.startswith(name):
                self.skipTest(f"ours: {reason}")
        self.enterContext(mock.patch("upstream_tests.test_modeling_common.set_config_for_less_flaky_test", write_eps))
        self.model_tester = Tiny(self.config_class, self.choice, self.all_model_classes[-1])

    def test_config(self):
        ConfigTester(self, config_class=self.config_class, **self.model_tester.fields()).run_common_tests()

    def test_tp_plan_matches_params(self):
        with mock.patch.object(self.config_class, "base_model_tp_plan", {}):
            super().test_tp_plan_matches_params()

    def test_tied_head_has_a_tp_plan_entry(self):
        with mock.patch.object(self.config_class, "base_model_tp_plan", {}):
            super().test_tied_head_has_a_tp_plan_entry()


class EncoderDecoder(Conformance, unittest.TestCase):
    name = "encoder-decoder"
    config_class = VanillaTransformerConfig
    all_model_classes = (VanillaTransformerModel, VanillaTransformerForSeq2SeqLM)
    is_encoder_decoder = True

    def test_training_overfit(self):
        generate = VanillaTransformerForSeq2SeqLM.generate

        def from_source(model, prompt, **settings):
            source = self._create_text_training_batch(1, self.training_overfit_seq_length, Tiny.vocab_size)[
                "input_ids"
            ]
            start = torch.tensor([[model.config.decoder_start_token_id]])
            return generate(model, source, decoder_input_ids=torch.cat([start, prompt], dim=1), **settings)[:, 1:]

        self.model_tester.choice = {**self.choice, "dropout": 0.0}
        with mock.patch.object(VanillaTransformerForSeq2SeqLM, "generate", from_source):
            super().test_training_overfit()


class DecoderOnly(Conformance, unittest.TestCase):
    name = "decoder-only"
    config_class = VanillaTransformerDecoderConfig
    all_model_classes = (VanillaTransformerDecoderModel, VanillaTransformerForCausalLM)


class EncoderOnly(Conformance, unittest.TestCase):
    name = "encoder-only"
    config_class = VanillaTransformerEncoderConfig
    all_model_classes = (VanillaTransformerEncoderModel, VanillaTransformerForMaskedLM)


# Each word of the configuration that brings weights, buffers or masks of its own, in one variant at least.
ROTARY = dict(positions="rotary", residual="pre", norm="rmsnorm", feed_forward="swiglu", attention_bias=False)
RELATIVE = dict(positions="relative", feed_forward="gelu", output_bias=True, tie_word_embeddings=False)
LEARNED = dict(positions="learned", max_position_embeddings=64, feed_forward="silu")


class EncoderDecoderRotary(EncoderDecoder):
    name = "encoder-decoder rotary"
    choice = ROTARY


class EncoderDecoderRelative(EncoderDecoder):
    name = "encoder-decoder relative"
    choice = RELATIVE | dict(share_encoder_decoder_embeddings=False)


class EncoderDecoderLearned(EncoderDecoder):
    name = "encoder-decoder learned"
    choice = LEARNED | dict(tie_word_embeddings=False)


class DecoderOnlyRotary(DecoderOnly):
    name = "decoder-only rotary"
    choice = ROTARY


class DecoderOnlyRelative(DecoderOnly):
    name = "decoder-only relative"
    choice = RELATIVE | dict(sliding_window=4)


class DecoderOnlyLearned(DecoderOnly):
    name = "decoder-only learned"
    choice = LEARNED


class EncoderOnlyRotary(EncoderOnly):
    name = "encoder-only rotary"
    choice = ROTARY


class EncoderOnlyRelative(EncoderOnly):
    name = "encoder-only relative"
    choice = RELATIVE


class EncoderOnlyLearned(EncoderOnly):
    name = "encoder-only learned"
    choice = LEARNED
