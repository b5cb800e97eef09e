"""`scripts/upstream_conformance.py` itself: what it fetches, what it counts, when it succeeds without a test."""

import io
import subprocess
import sys
import tarfile
from xml.etree import ElementTree

import pytest
from tiny import ROOT

sys.path.insert(0, str(ROOT / "scripts"))

import upstream_conformance

SCRIPT = [sys.executable, str(ROOT / "scripts" / "upstream_conformance.py")]


def distribution(folder, *names):
    """A source distribution of a transformers that has these files."""
    archive = folder / "transformers-9.9.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for name in names:
            member = tarfile.TarInfo(f"transformers-9.9/{name}")
            member.size = 4
            tar.addfile(member, io.BytesIO(b"pass"))
    return archive


@pytest.mark.parametrize("option, code", [(["--quick"], 0), ([], 1)])
def test_without_a_package_index(option, code, tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    done = subprocess.run([*SCRIPT, *option, "--cache", str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert done.returncode == code
    assert ("UPSTREAM CONFORMANCE WAS NOT TESTED" in done.stderr) is (code == 0)
    assert "could not download the source of transformers" in done.stderr


def test_only_the_top_folder_of_tests_is_unpacked_and_stubs_stand_in_for_the_rest(tmp_path, monkeypatch):
    names = [f"tests/{name}" for name in upstream_conformance.NEEDED]
    archive = distribution(tmp_path, *names, "setup.py", "tests/../../evil.py", "tests/models/test_x.py")
    monkeypatch.setattr(upstream_conformance, "download", lambda number, folder: archive)
    folder = upstream_conformance.fetch("9.9", tmp_path / "cache")
    found = {str(path.relative_to(folder / "upstream_tests")) for path in folder.rglob("*.py")}
    assert found == {*upstream_conformance.NEEDED, *upstream_conformance.STUBS}


def test_a_distribution_that_has_moved_its_tests(tmp_path, monkeypatch):
    archive = distribution(tmp_path, "tests/test_modeling_common.py")
    monkeypatch.setattr(upstream_conformance, "download", lambda number, folder: archive)
    with pytest.raises(
        upstream_conformance.ConformanceError, match=r"has no test_configuration_common.py, test_train"
    ):
        upstream_conformance.fetch("9.9", tmp_path / "cache")
    assert not list((tmp_path / "cache").iterdir())


def test_the_cache_is_never_in_the_project():
    done = subprocess.run([*SCRIPT, "--cache", str(ROOT / "runs")], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert "outside of the project" in done.stderr


CASES = """<suite>
<testcase name="test_a" time="1"/>
<testcase name="test_b" time="1"><failure message="E: 1 != 2&#10;more"/><skipped message="part"/></testcase>
<testcase name="test_c" time="1"><error message="broken fixture"/></testcase>
<testcase name="test_d" time="1"><skipped message="ours: because"/></testcase>
<testcase name="test_e" time="1"><skipped message="test requires accelerator"/></testcase>
<testcase name="test_f" time="1"><skipped message="Model has no experts"/></testcase>
</suite>"""


def test_what_is_counted():
    result = upstream_conformance.Result("encoder-only")
    for case in ElementTree.fromstring(CASES):
        upstream_conformance.read(case, result)
    assert result.failed == {"test_b": "E: 1 != 2", "test_c": "broken fixture"}
    assert result.summary(whole=True, skips=False).startswith(
        "encoder-only: 1 passed, 2 failed, 3 skipped (1 by us, 1 for want of hardware or packages, 1 not applicable)"
    )


def test_too_few_tests_are_no_success():
    few = upstream_conformance.Result("encoder-only", passed=upstream_conformance.AT_LEAST - 1)
    assert few.problems(whole=True) and not few.problems(whole=False)
