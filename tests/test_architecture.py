"""The house's order: imports point downwards only, importing is light, the paper's map names things that exist."""

import ast
import re
import sys
from pathlib import Path

import pytest
from tiny import ROOT, run_python

PACKAGE = ROOT / "vanilla_transformer"
FLOORS = ["reference", "model", "processor", "data", "interop", "translation", "evaluation", "training"]
FLOORS += ["inspection", "cli"]
BESIDE = {"interop": "data", "model": "reference"}  # rooms that are no higher than others: they know nothing of them
HEAVY = ["matplotlib", "sacrebleu", "datasets", "evaluate", "accelerate", "scipy", "sklearn", "pandas", "gradio"]


def floor(module: Path) -> str:
    return module.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_floors(module: Path):
    depth = len(module.relative_to(PACKAGE).parts)
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level == depth and node.module:
            yield node.module.split(".")[0]
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
        yield from (name.split(".")[1] for name in names if name.startswith("vanilla_transformer."))


def imported_packages(module: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(module.read_text(encoding="utf-8"))))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and not node.level and node.module]
    return {name.split(".")[0] for name in names}


@pytest.mark.parametrize("module", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_downwards(module):
    here = floor(module)
    if here in ("__main__", "_version"):
        return
    allowed = ["_version", "model"] if here == "__init__" else FLOORS[: FLOORS.index(here) + 1]
    assert set(imported_floors(module)) <= set(allowed) - {BESIDE.get(here)}


@pytest.mark.parametrize("module", sorted((PACKAGE / "model").glob("*.py")), ids=lambda path: path.name)
def test_what_ships_in_a_checkpoint_needs_torch_and_transformers_only(module):
    text = module.read_text(encoding="utf-8")
    assert imported_packages(module) <= {*sys.stdlib_module_names, "torch", "transformers", "huggingface_hub"}
    assert "from __future__ import annotations" not in text
    if module.name != "__init__.py":
        assert text.startswith("# Copyright 2026 ")


@pytest.mark.parametrize("module", sorted((PACKAGE / "reference").glob("*.py")), ids=lambda path: path.name)
def test_the_reference_needs_numpy_alone_and_nothing_of_this_package(module):
    reads_files = {"safetensors", "tokenizers"} if module.name == "load.py" else set()
    assert imported_packages(module) <= {*sys.stdlib_module_names, "numpy", *reads_files}
    nodes = ast.walk(ast.parse(module.read_text(encoding="utf-8")))
    assert all(node.level <= 1 for node in nodes if isinstance(node, ast.ImportFrom))


def test_importing_the_package_loads_nothing_heavier_than_transformers(tmp_path):
    code = (
        "import sys\n"
        "from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer, GenerationMixin\n"
        "from transformers import PreTrainedModel, Pipeline, TokenizersBackend, pipelines\n"
        "before = set(sys.modules)\n"
        "import vanilla_transformer\n"
        f"print([name for name in {HEAVY} if name in set(sys.modules) - before])"
    )
    assert run_python(code, tmp_path).strip() == "[]"


def test_reading_attention_maps_does_not_load_datasets(tmp_path):
    code = "import sys, vanilla_transformer.inspection.maps\nprint('datasets' in sys.modules)"
    assert run_python(code, tmp_path).strip() == "False"


def test_the_papers_map_in_the_readme_names_what_exists():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = readme[readme.index("## From the paper to the code") : readme.index("Where the code departs")]
    source = "\n".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    rows = [line.split("|")[2] for line in table.splitlines() if line.startswith("| ") and "---" not in line][1:]
    names = [name for row in rows for name in re.findall(r"`([^`]+)`", row)]
    assert len(names) > 25
    for name in names:
        if name.endswith((".py", "/")):
            assert (PACKAGE / name).exists(), name
        else:
            last = re.split(r"[.(]", name.strip(".").removesuffix("()"))[-1 if "(" not in name else 0]
            assert re.search(rf"(class|def) {last}\b|\b{last} = ", source), name


def test_no_file_is_longer_than_one_reads_in_a_sitting():
    long = {path.name: n for path in PACKAGE.rglob("*.py") if (n := len(path.read_text("utf-8").splitlines())) > 450}
    assert long == {}


def test_no_broad_except_and_no_assert_in_what_users_run():
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            assert not isinstance(node, ast.Assert), path
            if isinstance(node, ast.ExceptHandler):
                assert node.type is not None and ast.unparse(node.type) not in ("Exception", "BaseException"), path
