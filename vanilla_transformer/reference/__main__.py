"""`python -m vanilla_transformer.reference DIR "a sentence"`: a translation that NumPy alone computes."""

import argparse
import sys

from .model import NumpyTransformer
from .names import DECODER_ONLY


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m vanilla_transformer.reference",
        description="Translate a sentence with a checkpoint of vanilla_transformer, by the paper's formulas in NumPy "
        "and float64; with a decoder-only checkpoint, go on with it. No cache, no batch: slow.",
    )
    parser.add_argument("folder", metavar="DIR", help="folder with config.json, model.safetensors, tokenizer.json")
    parser.add_argument("text", metavar="TEXT", help="a sentence of the source language")
    options = parser.parse_args(arguments)
    try:
        model = NumpyTransformer.from_pretrained(options.folder)
        write = model.go_on if model.config["model_type"] == DECODER_ONLY else model.translate
        print(write(options.text))
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
