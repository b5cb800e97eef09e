"""Run the tests that transformers writes for its own models, `ModelTesterMixin`, `ConfigTester` and
`TrainingTesterMixin`, on the models of this package.

    python scripts/upstream_conformance.py                       # the paper's three models and their variants
    python scripts/upstream_conformance.py --quick               # the paper's three models, as continuous integration
    python scripts/upstream_conformance.py --model decoder-only -k resize

An installed transformers has no tests. They are read from the source distribution of the very version that is
installed, which pip downloads once into a cache outside of this project. `tests/conformance/upstream.py` configures
them for our models, and `tests/conformance/exceptions.py` lists what is skipped or overridden, and why.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
CONFORMANCE = ROOT / "tests" / "conformance"
sys.path.insert(0, str(CONFORMANCE))

from exceptions import OVERRIDDEN, SKIPPED, exceptions_of  # noqa: E402  needs the path above

QUICK = ["encoder-decoder", "decoder-only", "encoder-only"]
MODELS = QUICK + [f"{model} {variant}" for model in QUICK for variant in ("rotary", "relative", "learned")]
# What a whole run of one model passes at least: fewer means that upstream's tests have moved, not that all is well.
AT_LEAST = 100

NEEDED = ["test_configuration_common.py", "test_modeling_common.py", "test_training_mixin.py"]
# The distribution holds the top folder of upstream's tests alone. These stand in for what that imports from below.
STUBS = {
    "__init__.py": "",
    "exporters/__init__.py": "",
    "exporters/test_export.py": "class ExportTesterMixin:\n    pass\n",
    "generation/__init__.py": "",
    "generation/test_utils.py": "class GenerationTesterMixin:\n    pass\n",
    "utils/__init__.py": "",
    # The fields of every configuration, none at its default, which ConfigTester expects to read back.
    "utils/test_configuration_utils.py": """config_common_kwargs = {
    "architectures": ["AnyModel"],
    "chunk_size_feed_forward": 5,
    "dtype": "float16",
    "id2label": {0: "label"},
    "label2id": {"label": 0},
    "output_attentions": True,
    "output_hidden_states": True,
    "problem_type": "regression",
    "return_dict": False,
}
""",
}
# How pip says that it did not get through to any index, rather than that an index does not have the file.
NOT_REACHED = re.compile(r"\(from versions: none\)|\w+(Timeout|Connection|Proxy|SSL|NameResolution|Protocol)Error")
# How upstream's tests say that the machine or its packages cannot run them; other skips say it of the model.
OF_MACHINE = re.compile(r"^test (requires|is slow)|not supported on")


class ConformanceError(RuntimeError):
    """The tests cannot be run, or did not come to an end."""


class UnreachableError(ConformanceError):
    """No package index answers."""


def main() -> int:
    arguments = parse()
    models = arguments.model or (QUICK if arguments.quick else MODELS)
    content: dict = {"transformers": version("transformers"), "models": []}
    try:
        results = run(fetch(version("transformers"), arguments.cache), models, arguments)
        content["models"] = [vars(result) for result in results]
    except UnreachableError as error:
        if not arguments.quick:
            print(f"error: {error}", file=sys.stderr)
            return 1
        bar = "!" * 100
        print(f"{bar}\nUPSTREAM CONFORMANCE WAS NOT TESTED: {error}\n{bar}", file=sys.stderr)
        results = []
        content["not_tested"] = str(error)
    except ConformanceError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if arguments.json:
        arguments.json.write_text(json.dumps(content, indent=2) + "\n", "utf-8")
    whole = arguments.keyword is None
    for result in results:
        print(result.summary(whole, arguments.skips))
    return 1 if any(result.problems(whole) for result in results) else 0


def parse() -> argparse.Namespace:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vanilla_transformer" / "upstream_tests"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the paper's three models alone; "
                        "without a package index it says so aloud and succeeds")  # fmt: skip
    parser.add_argument("--model", action="append", choices=MODELS, metavar="NAME",
                        help=f"run this one (repeatable): {', '.join(MODELS)}")  # fmt: skip
    parser.add_argument("-k", dest="keyword", metavar="EXPRESSION", help="only tests that match, as of pytest")
    parser.add_argument("--skips", action="store_true", help="also list what upstream itself skipped, and why")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there as well")
    parser.add_argument(
        "--cache", type=Path, default=cache, help=f"where upstream's tests are kept (default: {cache})"
    )
    parser.add_argument("--workers", type=int, default=2, help="processes that run tests (default: 2)")
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="give up after this long (default: 1800, "
                        "with --quick 600)")  # fmt: skip
    arguments = parser.parse_args()
    if arguments.cache.resolve().is_relative_to(ROOT):
        parser.error(f"got --cache {arguments.cache}, expected a folder outside of the project: upstream's tests are "
                     "not ours to keep")  # fmt: skip
    arguments.timeout = arguments.timeout or (600 if arguments.quick else 1800)
    return arguments


def fetch(number: str, cache: Path) -> Path:
    """A folder to import the package `upstream_tests` from, of this version of transformers.

    Raises:
        UnreachableError: if the tests are not in the cache and no package index answers.
        ConformanceError: if the source distribution is not there, or lacks the tests.
    """
    folder = cache / f"transformers-{number}"
    tests = folder / "upstream_tests"
    if not tests.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            unpacked = Path(scratch) / "unpacked"
            unpack(download(number, Path(scratch)), unpacked / tests.name)
            if not folder.is_dir():  # another run may have been faster
                unpacked.rename(folder)
    for name, text in STUBS.items():
        stub = tests / name
        if not stub.is_file() or stub.read_text("utf-8") != text:
            stub.parent.mkdir(exist_ok=True)
            stub.write_text(text, "utf-8")
    return folder


def download(number: str, folder: Path) -> Path:
    """The source distribution, from the package indexes that pip is configured for."""
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", "transformers", "--retries", "1"]
    command = [*pip, "--dest", str(folder), f"transformers=={number}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    except subprocess.TimeoutExpired:
        raise UnreachableError(f"pip did not finish within 300 s: {' '.join(command)}") from None
    if done.returncode:
        error = UnreachableError if NOT_REACHED.search(done.stderr) else ConformanceError
        raise error(f"pip could not download the source of transformers {number}:\n{done.stderr.strip()[-1500:]}")
    return next(folder.glob("transformers-*.tar.gz"))


def unpack(archive: Path, target: Path) -> None:
    """Write the modules of the distribution's top folder of tests to `target`."""
    target.mkdir(parents=True)
    with tarfile.open(archive) as tar:
        for member in tar:
            parts = Path(member.name).parts
            if len(parts) == 3 and parts[1] == "tests" and parts[2].endswith(".py"):
                source = tar.extractfile(member)
                if source is not None:  # a file, not a folder
                    (target / parts[2]).write_bytes(source.read())
    missing = [name for name in NEEDED if not (target / name).is_file()]
    if missing:
        raise ConformanceError(
            f"{archive.name} has no {', '.join(missing)} among its tests: upstream has moved them; follow it here"
        )


@dataclass
class Result:
    """Of one model. The skips are grouped by reason."""

    model: str
    passed: int = 0
    seconds: float = 0.0
    failed: dict[str, str] = field(default_factory=dict)
    skipped_by_us: Counter = field(default_factory=Counter)
    skipped_for_machine: Counter = field(default_factory=Counter)
    skipped_as_not_applicable: Counter = field(default_factory=Counter)
    overridden: dict[str, str] = field(default_factory=dict)

    def skip(self, reason: str) -> None:
        if reason.startswith("ours: "):
            self.skipped_by_us[reason.removeprefix("ours: ")] += 1
        elif OF_MACHINE.search(reason):
            self.skipped_for_machine[reason] += 1
        else:
            self.skipped_as_not_applicable[reason] += 1

    def problems(self, whole: bool) -> list[str]:
        problems = [f"failed {test}: {message}" for test, message in self.failed.items()]
        if whole and not problems and self.passed < AT_LEAST:
            problems.append(f"passed {self.passed} tests, expected at least {AT_LEAST}: see --skips")
        return problems

    def summary(self, whole: bool, skips: bool) -> str:
        groups = [self.skipped_by_us, self.skipped_for_machine, self.skipped_as_not_applicable]
        ours, machine, rest = (group.total() for group in groups)
        lines = [
            f"{self.model}: {self.passed} passed, {len(self.failed)} failed, {ours + machine + rest} skipped "
            f"({ours} by us, {machine} for want of hardware or packages, {rest} not applicable), {self.seconds:.0f} s"
        ]
        lines += [f"    PROBLEM {problem}" for problem in self.problems(whole)]
        for verb, tests in (("skipped", exceptions_of(self.model, SKIPPED)), ("overridden", self.overridden)):
            for why in dict.fromkeys(tests.values()):
                lines.append(f"    {verb} {', '.join(test for test in tests if tests[test] == why)}: {why}")
        if skips:
            lines += [f"    upstream skipped {count}: {why}" for group in groups[1:] for why, count in group.items()]
        return "\n".join(lines)


def run(tests: Path, models: list[str], arguments: argparse.Namespace) -> list[Result]:
    """Run pytest in a process of its own, and read its report."""
    classes = {re.sub("[- ]", "", model.title()): model for model in models}
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(tests), os.environ.get("PYTHONPATH")])),
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.xml"
        command = [sys.executable, "-m", "pytest", f"--junitxml={report}", "-n", str(arguments.workers), "--tb=short"]
        # Our own options are not for upstream's tests, which have markers of their own; nor is the memory of failures.
        command += ["-o", "addopts=-q", "-p", "no:cacheprovider", "-W", "ignore", "-o", "faulthandler_timeout=300"]
        command += ["-k", arguments.keyword] if arguments.keyword else []
        code = finish([*command, *(f"{CONFORMANCE / 'upstream.py'}::{name}" for name in classes)], environment,
                      arguments.timeout)  # fmt: skip
        if code not in (0, 1):
            raise ConformanceError(f"pytest ended with exit code {code}: what it printed above says why")
        results = {name: Result(model, overridden=exceptions_of(model, OVERRIDDEN)) for name, model in classes.items()}
        for case in ElementTree.parse(report).iter("testcase"):
            read(case, results[case.get("classname", "").rpartition(".")[2]])
    print(f"\ntransformers {version('transformers')}: its own tests on our models")
    return list(results.values())


def read(case: ElementTree.Element, result: Result) -> None:
    """Count one test, whose element holds a child for each failure, or each part that was skipped."""
    result.seconds += float(case.get("time", 0))
    children = {child.tag: child.get("message", "") for child in reversed(case)}  # of several the first one's message
    failure = children.get("failure", children.get("error"))
    if failure is not None:
        result.failed[case.get("name", "")] = failure.partition("\n")[0]
    elif "skipped" in children:
        result.skip(children["skipped"])
    else:
        result.passed += 1


def finish(command: list[str], environment: dict[str, str], timeout: float) -> int:
    """Run to the end; whatever happens, no process of the command is left behind."""
    process = subprocess.Popen(command, env=environment, cwd=ROOT, start_new_session=True)
    try:
        return process.wait(timeout)
    except subprocess.TimeoutExpired:
        raise ConformanceError(f"the tests did not finish within {timeout:.0f} s: see --timeout") from None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


if __name__ == "__main__":
    sys.exit(main())
