"""Two processes on a CPU (gloo), as `accelerate launch` starts them, do what one does."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from accelerate import DistributedType
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import launch_command_parser
from tiny import ENGLISH, ROOT, SMALL, tiny_model
from transformers import TrainerControl

from vanilla_transformer.data.corpora import read_lines
from vanilla_transformer.training.checkpoints import checkpoints
from vanilla_transformer.training.trainer import StopOnInterrupt

# Batches of half the size, of which a step takes two: of one process one after the other, of two processes one each.
SETTINGS = [*SMALL, "training.max_tokens=128", "corpus.max_length=64", "model.dropout=0.0", "training.eval_steps=1"]
SETTINGS += ["training.max_steps=8", "training.eval_pairs=5", "corpus.sizes={train: 120, validation: 21, test: 10}"]
TWO = ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--num_machines", "1"]
TWO += ["--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0"]


def environment() -> dict[str, str]:
    alone = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    return {**os.environ, **alone, "PYTHONPATH": str(ROOT / "tests")}


def finished(*words: str) -> subprocess.CompletedProcess:
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, env=environment(), timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    return done


def run(*words: str) -> str:
    """What it writes; the lines of several processes may run into each other."""
    return finished(*words).stdout


def as_words(settings: list[str]) -> list[str]:
    return [word for setting in settings for word in ("--set", setting)]


def train(folder: Path, *how: str, settings=(), resume=False) -> tuple[list[dict], dict]:
    words = as_words([*SETTINGS, *settings])
    words += ["--resume"] if resume else []
    out = run(*how, "-m", "vanilla_transformer", "train", "copy", "-o", str(folder), *words)
    assert out.count("the model is in") == 1
    state = json.loads((checkpoints(folder)[-1] / "trainer_state.json").read_text())
    return state["log_history"], json.loads((folder / "result.json").read_text())


@pytest.mark.parametrize("name", ["ddp", "fsdp"])
def test_configurations_for_gpus_say_what_accelerate_knows(name):
    """It refuses unknown keys but those of its sections; the layers to be wrapped are ones of the model."""
    config = load_config_from_file(str(ROOT / "scripts" / "accelerate" / f"{name}.yaml"))
    assert config.distributed_type == {"ddp": DistributedType.MULTI_GPU, "fsdp": DistributedType.FSDP}[name]
    assert config.fsdp_config.keys() <= vars(launch_command_parser().parse_args(["script.py"])).keys()
    layers = config.fsdp_config.get("fsdp_transformer_layer_cls_to_wrap", "").split(",")
    assert {type(module).__name__ for module in tiny_model().modules()} >= set(filter(None, layers))


@pytest.mark.parametrize("setting", ["optimizer=adam", "optimizer=muon", "r_drop=3"])
def test_two_processes_have_the_losses_of_one(setting, tmp_path):
    settings = [f"training.{setting}"]
    one, result = train(tmp_path / "one", settings=[*settings, "training.gradient_accumulation_steps=2"])
    two, other = train(tmp_path / "two", *TWO, settings=settings)
    for name in ("loss", "grad_norm", "eval_loss"):
        values = [[entry[name] for entry in log if name in entry] for log in (one, two)]
        assert len(values[0]) == 8
        assert values[0] == pytest.approx(values[1], abs=1e-4)
    assert other["validation"]["mean"]["loss"] == pytest.approx(result["validation"]["mean"]["loss"], abs=1e-4)


def test_teachers_in_two_processes(tmp_path):
    """Data diversification: each trains on its share, and translates its share, of one and the same corpus."""
    settings = ["corpus.name=phrasebook", "corpus.source_lang=en", "corpus.target_lang=fr", "decoding.max_length=20"]
    log, _ = train(tmp_path / "run", *TWO, settings=[*settings, "diversification={}"])
    assert [entry["step"] for entry in log if "loss" in entry] == list(range(1, 9))
    folder = tmp_path / "run.teachers"
    for name in ("train.source", "forward.target", "backward.source"):
        assert len(list(read_lines(folder / name))) == 120
    added = json.loads((folder / "teachers.json").read_text())["pairs"]["teachers"]
    provenance = json.loads((tmp_path / "run" / "provenance.json").read_text())
    assert provenance["processes"] == 2 and provenance["data"]["train"]["pairs"] == 120 + added


ONE_DIES = """
import os, signal, sys
from vanilla_transformer.cli import main
from vanilla_transformer.training.trainer import RecipeTrainer

def dies(self, *args):
    if os.environ["RANK"] == "1" and self.state.global_step == 10:
        os.kill(os.getpid(), signal.SIGKILL)
    return training_step(self, *args)

training_step, RecipeTrainer.training_step = RecipeTrainer.training_step, dies
sys.exit(main(sys.argv[1:]))
"""


def test_two_processes_of_which_one_is_killed_go_on_with_what_would_have_come(tmp_path):
    """In the middle of the second epoch, whose order is not that of the first, and with the dropout of each."""
    settings = ("training.max_steps=12", "training.eval_steps=3", "model.dropout=0.3")
    log, _ = train(tmp_path / "whole", *TWO, settings=settings)
    script = tmp_path / "dies.py"
    script.write_text(ONE_DIES)
    words = ["train", "copy", "-o", str(tmp_path / "run"), *as_words([*SETTINGS, *settings])]
    killed = [sys.executable, *TWO, str(script), *words]
    assert subprocess.run(killed, capture_output=True, env=environment(), timeout=240).returncode != 0
    newest = checkpoints(tmp_path / "run")[-1]
    assert newest.name == "checkpoint-9" and all((newest / f"rng_state_{rank}.pth").exists() for rank in (0, 1))
    resumed, _ = train(tmp_path / "run", *TWO, settings=settings, resume=True)
    epochs = [entry["epoch"] for entry in log if entry["step"] == 9]
    assert 1 < epochs[0] < 2
    losses = [[entry["loss"] for entry in part if "loss" in entry] for part in (log, resumed)]
    assert len(losses[0]) == 4 and losses[0] == losses[1]


def test_the_script_of_hugging_faces_trainer_has_the_losses_of_one(tokenizer, parallel_files, tmp_path):
    """Batches of 2 in one process, of 1 in each of two: the same sentences in a step. Five sentences, in batches of 2
    on either side, are evaluated once each."""
    model = tiny_model(vocab_size=len(tokenizer), dropout=0.0)
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    files = [str(file) for file in parallel_files]
    few = [f"{file}.few" for file in files]
    for file, short in zip(files, few, strict=True):
        Path(short).write_text("".join(Path(file).read_text().splitlines(keepends=True)[:5]))
    found = []
    for how, rows in (((), 2), (TWO, 1)):
        folder = tmp_path / f"batches-of-{rows}"
        words = f"--model_name_or_path {tmp_path / 'model'} --output_dir {folder} --use_cpu --do_train --do_eval "
        words += f"--per_device_train_batch_size {rows} --per_device_eval_batch_size 2 --max_steps 5 "
        words += "--logging_steps 1 --learning_rate 0.01 --predict_with_generate --label_smoothing_factor 0.1 "
        words += "--generation_max_length 20"  # else outputs without an end are as long as their batch allows
        command = [*how, str(ROOT / "scripts" / "run_translation.py"), *words.split()]
        told = finished(*command, "--train_files", *files, "--validation_files", *few).stderr
        assert ("eval_loss counts 3 sentences twice" in told) == (how == TWO)
        log = json.loads((folder / "checkpoint-5" / "trainer_state.json").read_text())["log_history"]
        scores = json.loads((folder / "eval_results.json").read_text())
        found.append([*(entry["loss"] for entry in log if "loss" in entry), scores["eval_bleu"], scores["eval_chrf2"]])
    assert len(found[0]) == 7 and found[0] == pytest.approx(found[1], abs=1e-4) and found[0][-1] > 0


def test_an_interrupt_while_the_processes_ask_each_other(monkeypatch):
    """It comes too late for this step, and is not forgotten in the next."""
    stop, late = StopOnInterrupt(), [True, False, False]
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda *_: late.pop(0) and stop.stop(signal.SIGINT, None))
    arguments = SimpleNamespace(world_size=2, device="cpu")
    stop.on_train_begin(arguments, SimpleNamespace(is_world_process_zero=False), None)
    try:
        control = stop.on_step_end(arguments, None, TrainerControl())
        assert not stop.stopped and not control.should_save
        control = stop.on_step_end(arguments, None, TrainerControl())
        assert stop.stopped and control.should_save and control.should_training_stop
    finally:
        stop.restore()


def test_an_interrupt_of_the_launcher_saves_a_checkpoint(tmp_path):
    """Ctrl-C reaches every process, and the launcher sends it on to those that have heard it already."""
    words = ["-m", "vanilla_transformer", "train", "copy", "-o", str(tmp_path / "run"), *as_words(SETTINGS)]
    words += as_words(["training.max_steps=5000", "training.eval_steps=5"])
    process = subprocess.Popen(
        [sys.executable, *TWO, *words], stderr=subprocess.PIPE, text=True, env=environment(), start_new_session=True
    )
    try:
        deadline = time.monotonic() + 120
        while not checkpoints(tmp_path / "run"):
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=90)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert errors.count("stopped after step") == 1, errors[-3000:]
    found = re.search(r"stopped after step (\d+), which is saved. Go on with: (.*)", errors)
    step = int(found[1])
    assert checkpoints(tmp_path / "run")[-1].name == f"checkpoint-{step}"
    assert process.returncode != 0
    program, launch, *words = shlex.split(found[2])
    assert (program, launch) == ("accelerate", "launch")
    out = run(*TWO[:2], "--main_process_port", "0", *words, "--set", f"training.max_steps={step + 2}")
    assert out.count("the model is in") == 1
    assert checkpoints(tmp_path / "run")[-1].name == f"checkpoint-{step + 2}"


SHARES = """
import atexit
import torch
from vanilla_transformer.translation.shares import in_shares, processes_of_launch
atexit.register(lambda: print("left" if not torch.distributed.is_initialized() else "stayed"))  # the last of all
state = processes_of_launch()
for count in range(6):
    seen = []
    found = in_shares(lambda share: [seen.append(i) or 10 * i for i in share], range(count))
    assert found == [10 * i for i in range(count)], found
    assert seen == list(range(state.process_index, count, 2)), seen
print(state.num_processes)
"""


def test_shares_are_put_together_in_order_whatever_remains(tmp_path):
    script = tmp_path / "shares.py"
    script.write_text(SHARES)
    out = run(*TWO, str(script))
    assert out.count("2") == 2
    assert out.count("left") == 2  # a group that stays to the end of the interpreter may abort it


TRANSLATE = """
import sys
from pathlib import Path
from vanilla_transformer.cli import main
from vanilla_transformer.translation import parts
parts.PART = 2
model, folder, name = sys.argv[1:]
for count in (0, 1, 7):
    source = Path(folder, f"{count}.source")
    if main(["translate", model, str(source), "--beams", "2", "-o", str(source.with_suffix(f".{name}"))]):
        sys.exit(f"failed at {count}")
source = str(Path(folder, "7.source"))
main(["evaluate", model, source, source, "--beams", "2", "--json", str(Path(folder, f"scores.{name}"))])
"""


@pytest.fixture
def of_many_words(tokenizer, tmp_path) -> Path:
    """A model that says something else of each sentence, by which their order can be told; it does not end by itself,
    nor does the longest of its batch."""
    torch.manual_seed(3)
    model = tiny_model(vocab_size=len(tokenizer))
    model.generation_config.max_length = 8
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_two_processes_translate_and_evaluate_in_order(tmp_path, of_many_words):
    script = tmp_path / "translate.py"
    script.write_text(TRANSLATE)
    for count in (0, 1, 7):
        (tmp_path / f"{count}.source").write_text("".join(f"{line}\n" for line in [*ENGLISH, ""][:count]))
    run(str(script), str(of_many_words), str(tmp_path), "one")
    run(*TWO, str(script), str(of_many_words), str(tmp_path), "two")
    for count in (0, 1, 7):
        assert (tmp_path / f"{count}.two").read_text() == (tmp_path / f"{count}.one").read_text()
        assert (tmp_path / f"{count}.two").read_text().count("\n") == count
    assert not list(tmp_path.glob("*.parts"))
    assert len(set((tmp_path / "7.one").read_text().splitlines())) == len(ENGLISH) + 1
    scores = [json.loads((tmp_path / f"scores.{name}").read_text()) for name in ("one", "two")]
    assert scores[0]["examples"] == scores[1]["examples"] and scores[0]["scores"] == scores[1]["scores"]
    assert scores[0]["pairs"] == len(ENGLISH)


KILLED = """
import os, signal, sys
from vanilla_transformer.cli import main
from vanilla_transformer.translation import files, parts
parts.PART = 2
write, at = files.write_whole, sys.argv.pop()

def killed(part, text):
    if part.stem == at:
        os.kill(os.getpid(), signal.SIGKILL)
    write(part, text)

files.write_whole = killed
sys.exit(main(["translate", *sys.argv[1:], "--beams", "2"]))
"""


@pytest.mark.parametrize("how", [TWO, []], ids=["two", "one"])
def test_a_translation_by_two_processes_that_was_killed_goes_on(how, tmp_path, of_many_words):
    """By as many processes as before, or by others: nothing is lost that was written, and nothing is there twice."""
    source, script, output = (tmp_path / name for name in ("source", "translate.py", "output"))
    source.write_text("".join(f"{line}\n" for line in [*ENGLISH, *ENGLISH[:3]]))
    script.write_text(KILLED)
    words = [str(script), str(of_many_words), str(source), "-o"]
    run(*words, str(tmp_path / "whole"), "nowhere")
    killed = [sys.executable, *TWO, *words, str(output), "000002"]
    done = subprocess.run(killed, capture_output=True, text=True, env=environment(), timeout=240)
    assert done.returncode != 0 and not output.exists()
    there = sorted(path.stem for path in (tmp_path / "output.parts").glob("0*.txt"))
    assert "000000" in there and "000002" not in there
    done = subprocess.run(
        [sys.executable, *how, *words, str(output), "nowhere"], capture_output=True, text=True, env=environment()
    )
    assert done.returncode == 0 and f"{len(there)} of 5 parts are there already" in done.stdout + done.stderr
    assert output.read_bytes() == (tmp_path / "whole").read_bytes()
    assert output.read_text().count("\n") == len(ENGLISH) + 3


# Each block and the whole are sharded, as accelerate's FSDP2 does by the model's `_no_split_modules`. On a CPU it
# falls back to DDP without a word, so that torch is called here.
SHARDED = """
import torch, torch.distributed as dist
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor
from tiny import random_ids, tiny_model
from transformers import set_seed

dist.init_process_group("gloo")
rank, number = dist.get_rank(), dist.get_world_size()
set_seed(0)
whole, model = (tiny_model(dropout=0.0) for _ in range(2))
model.load_state_dict(whole.state_dict())
blocks = [part for part in model.modules() if type(part).__name__ in model._no_split_modules]
assert len(blocks) == 4
for part in [*blocks, model]:
    fully_shard(part, mesh=torch.distributed.device_mesh.init_device_mesh("cpu", (number,)))
register_fsdp_forward_method(model, "generate")
for name, p in model.named_parameters():
    assert isinstance(p, DTensor) and p.to_local().shape[0] < p.shape[0], name
assert sum(p.to_local().numel() for p in model.parameters()) < 0.6 * sum(p.numel() for p in whole.parameters())

optimizers = [torch.optim.AdamW(m.parameters(), lr=1e-2) for m in (whole.train(), model.train())]
for step in range(8):
    set_seed(step)
    source, target = random_ids(4, 7), random_ids(4, 5)
    losses = []
    for m, rows, optimizer in zip((whole, model), (slice(None), slice(rank, None, number)), optimizers):
        loss = m(input_ids=source[rows], labels=target[rows], label_smoothing=0.1, skip_logits=True).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    dist.all_reduce(losses[1])
    assert abs(losses[1] / number - losses[0]) < 1e-4, (step, losses)
for m in (whole, model):
    m.eval()
for beams in (1, 3):
    found = [m.generate(source, num_beams=beams, max_new_tokens=8) for m in (whole, model)]
    assert torch.equal(*found)
print("sharded")
dist.destroy_process_group()
"""


@pytest.mark.skipif(
    not hasattr(torch.cpu.Stream, "record_event"), reason="this torch shards parameters on GPUs only, as 2.6 does"
)
def test_parameters_are_sharded_and_learn_the_same(tmp_path):
    script = tmp_path / "sharded.py"
    script.write_text(SHARDED)
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", str(script)]
    assert run(*words).count("sharded") == 2
