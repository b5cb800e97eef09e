"""Every snippet of the README is run: shell and Python as they stand there, with steps of training cut down."""

import io
import re
import shlex
import subprocess
import sys

import pytest
import torch
from tiny import ENGLISH, FRENCH, ROOT, run_python, tiny_model
from tiny_marian import marian_checkpoint

from vanilla_transformer.cli import main

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", README, re.M | re.S)


def blocks(language: str) -> list[str]:
    return [text for found, text in BLOCKS if found == language]


def in_seconds(text: str) -> str:
    """The snippet with sizes and steps that a test can wait for."""
    text = text.replace("preset: small", "preset: tiny, d_model: 16, encoder_ffn_dim: 16, decoder_ffn_dim: 16")
    text = text.replace("vocab_size: 8000", "vocab_size: 300")
    text = re.sub(r"max_steps: \d+", "max_steps: 2, eval_steps: 2, eval_pairs: 2", text)
    short = "--set training.max_steps=2 --set training.eval_steps=2 --set 'corpus.sizes={train: 400, validation: 20}'"
    text = re.sub(r"(train (char-lm|mlm) .*)", rf"\1 {short}", text)
    return text.replace("training.max_steps=30000", "training.max_steps=3")


@pytest.fixture(scope="module")
def workplace(tmp_path_factory, tokenizer):
    """A folder as the README assumes it: the demo's model, test files, one's own text."""
    folder = tmp_path_factory.mktemp("readme")
    model = folder / "runs" / "demo" / "model"
    torch.manual_seed(0)
    network = tiny_model(vocab_size=len(tokenizer))
    network.generation_config.max_length = 10
    network.save_pretrained(model)
    tokenizer.save_pretrained(model)
    # A folder of that name is found before the Hub is asked.
    marian_checkpoint(folder / "Helsinki-NLP" / "opus-mt-en-fr")
    for name, count in (("runs/demo/test", 1), ("train", 5), ("valid", 1)):
        for language, lines in (("en", ENGLISH), ("fr", FRENCH)):
            (folder / f"{name}.{language}").write_text("\n".join(lines * count) + "\n", encoding="utf-8")
    rows = (f'{{"en": "{s}", "fr": "{t}"}}\n' for s, t in zip(ENGLISH, FRENCH, strict=True))
    (folder / "pairs.jsonl").write_text("".join(rows), encoding="utf-8")
    for text in blocks("yaml"):
        name = re.match(r"# (\S+)\n", text)
        assert name, "a YAML snippet begins with its file's name"
        (folder / name[1]).write_text(in_seconds(text), encoding="utf-8")
    return folder


@pytest.fixture
def run_shell(workplace, monkeypatch):
    def run(text: str) -> None:
        """Without a new Python for each line, whose imports would take longer than all the rest."""
        for line in in_seconds(text.replace("\\\n", "")).splitlines():
            told, _, command = line.rpartition(" | ")
            if told:
                _, words = shlex.split(told)  # echo "..."
                monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(f"{words}\n".encode())))
            program, *words = shlex.split(command, comments=True)
            if program == "python":
                assert subprocess.run([sys.executable, *words]).returncode == 0
            else:
                assert program == "vanilla-transformer" and main(words) in (None, 0), line

    monkeypatch.chdir(workplace)
    return run


@pytest.mark.parametrize("number", range(len(blocks("bash"))))
def test_shell_snippet(number, run_shell):
    run_shell(blocks("bash")[number])


@pytest.mark.parametrize("number", range(len(blocks("python"))))
def test_python_snippet(number, workplace, run_shell):
    text = in_seconds(blocks("python")[number]).replace('"runs/hf",', '"runs/hf", use_cpu=True,')
    for needed in blocks("bash"):  # which another process may have run
        outputs = re.findall(r"-o (runs/[\w-]+)", needed)
        if any(f'"{output}/' in text and not (workplace / output).exists() for output in outputs):
            run_shell(needed)
    out = run_python(text, workplace, OMP_NUM_THREADS="1")
    assert "print(" not in text or out.strip()


def test_the_map_of_equations_names_things_that_exist():
    """Equation -> NumPy function -> torch class or function -> test."""
    rows = re.findall(
        r"^\| (.+?) \| (.+?) \| (.+?) \| (.+?) \|$", README.split("## Right, by three")[1].split("\n## ")[0], re.M
    )[2:]
    code = {
        room: "".join(path.read_text(encoding="utf-8") for path in (ROOT / room).glob("*.py"))
        for room in ("vanilla_transformer/reference", "vanilla_transformer/model", "tests/reference")
    }
    assert len(rows) > 12
    for _, *columns in rows:
        for names, (room, text) in zip(columns, code.items(), strict=True):
            for name in re.findall(r"`([\w.]+)`", names):
                assert re.search(rf"(def|class) {name.split('.')[-1]}\b", text), (room, name)


def test_make_targets_of_the_readme_exist():
    makefile = (ROOT / "Makefile").read_text()
    for text in blocks("sh"):
        for target in re.findall(r"^make (\S+)", text, re.M):
            assert re.search(rf"^{target}:", makefile, re.M), target
    assert "make test" in (ROOT / ".ci" / "run").read_text()


def test_every_block_is_of_a_kind_that_is_run():
    assert {language for language, _ in BLOCKS} == {"sh", "bash", "python", "yaml"}


def test_the_main_road_is_also_the_docstring_of_the_model():
    from vanilla_transformer.model import modeling_vanilla_transformer

    steps = re.findall(r"^\| ([^|]+) \|", README[README.index("## The main road") :].split("##")[1], re.M)
    for step in steps:
        assert f"| {step} |" in modeling_vanilla_transformer.__doc__


def test_figures_of_the_phrasebook_are_counted():
    from vanilla_transformer.data.phrasebook.lexicon import lexicon

    words = lexicon()
    for count, name in (
        (len(words.nouns), "nouns"),
        (len(words.adjectives), "adjectives"),
        (len(words.verbs), "verbs"),
    ):
        assert re.search(rf"\b{count}\s+{name}", README), (count, name)
