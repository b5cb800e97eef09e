"""The one list of upstream tests that our models do not run as they are, each with its reason.

Read by `upstream.py`, which refuses a name that upstream no longer has, and by `scripts/upstream_conformance.py`,
which prints them under each model. A key is the name of a model, or the beginning of one, for its variants as well; a
test stands for all whose names begin with it. What a machine lacks (a GPU, an optional package), and what says nothing
of a model, upstream skips by itself: that stands nowhere here.
"""

NO_GENERATION_TESTS = "asks for GenerationTesterMixin, which the source distribution of transformers does not hold"
NO_SCALED_ROTATION = (
    "the family's rope_parameters are rope_type 'default' with a rope_theta, for positions='rotary' alone; upstream "
    "takes the presence of the field for the ability to scale, or to rotate a part of, any model's positions"
)
TWO_VOCABULARIES = "upstream knows one matrix of embeddings for both sides; here each has its own"
ONE_NAME_OF_EPS = (
    "upstream writes eps to the config under every name that any model has for it; 'rms_norm_eps' and 'norm_epsilon' "
    "are near misses of our 'norm_eps', which loading refuses by design: here eps is written to 'norm_eps' alone"
)
PLAN_ON_CLASS = (
    "upstream looks for a plan in the config, where two stacks cannot have one, and would skip: here the models have "
    "theirs, and it is tested"
)

SKIPPED = {
    "": {
        "test_model_rope_scaling_from_config": NO_SCALED_ROTATION,
        "test_model_rope_with_partial_rotation": NO_SCALED_ROTATION,
    },
    "encoder-decoder": {"test_generation_tester_mixin_inheritance": NO_GENERATION_TESTS},
    "decoder-only": {"test_generation_tester_mixin_inheritance": NO_GENERATION_TESTS},
    "encoder-decoder relative": {
        "test_inputs_embeds_matches_input_ids": TWO_VOCABULARIES,
        "test_resize_embeddings_untied": TWO_VOCABULARIES,
    },
}

OVERRIDDEN = {
    "": {
        "test_batching_equivalence": ONE_NAME_OF_EPS,
        "test_eager_matches_sdpa_inference": ONE_NAME_OF_EPS,
        "test_flash_attn_2_inference_equivalence": ONE_NAME_OF_EPS,
        "test_tied_head_has_a_tp_plan_entry": PLAN_ON_CLASS,
        "test_tp_plan_matches_params": PLAN_ON_CLASS,
    },
    "encoder-decoder": {
        "test_training_overfit": "upstream prompts with the first token of what was learned, which an encoder-decoder "
        "reads as its source: here `generate` gets the source as well, and the start token is cut off its answer. "
        "Without dropout, whose noise stands in the gradient of the one step that upstream compares",
    },
}


def exceptions_of(model: str, table: dict[str, dict[str, str]]) -> dict[str, str]:
    """Test -> reason, of one model."""
    return {test: reason for key, tests in table.items() if model.startswith(key) for test, reason in tests.items()}
