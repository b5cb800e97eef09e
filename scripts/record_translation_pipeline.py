"""Record what the translation pipeline of transformers 4.57 answers to every form of call.

Run once, in an environment of its own, from the root of the repository:

    python -m venv v4 && v4/bin/pip install transformers==4.57.6 torch sentencepiece protobuf "datasets<4"
    v4/bin/python scripts/record_translation_pipeline.py

Writes `tests/model/translation_pipeline_4_57.json`: for each architecture and form of call, the nesting, types, keys
and lengths of the answer, or the exception; and the translations of three texts by models with fixed random weights.
"""

import json
import sys
import tempfile
import warnings
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "tests" / "model" / "translation_pipeline_4_57.json"


def main() -> None:
    if not version("transformers").startswith("4.57."):
        raise SystemExit(f"got transformers {version('transformers')}, expected 4.57.x: see the top of this script.")
    sys.path.insert(0, str(RECORD.parent))
    import foreign_models
    from transformers.utils import logging

    logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    answers, texts = {}, {}
    with tempfile.TemporaryDirectory() as scratch:
        for name in foreign_models.ARCHITECTURES:
            make = foreign_models.Maker(name, foreign_models.build(name, Path(scratch) / name))
            answers[name] = {form: foreign_models.ask(make, form) for form in foreign_models.FORMS}
            texts[name] = foreign_models.texts(make)
    names = ("transformers", "tokenizers", "torch", "datasets", "sentencepiece")
    record = {"versions": {name: version(name) for name in names}, "answers": answers, "texts": texts}
    RECORD.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    print(f"wrote {RECORD}: {sum(map(len, answers.values()))} answers")


if __name__ == "__main__":
    main()
