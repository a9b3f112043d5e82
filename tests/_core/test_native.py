"""Kernels built on this machine: what lies in the cache is loaded only when it is whole."""

import os
import stat
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from allometry._core import native, user_cache

needs_compiler = pytest.mark.skipif(native.find_compiler() is None, reason="no C++ compiler")


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """An empty cache folder and a source of one function."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("ALLOMETRY_NATIVE", raising=False)
    source = tmp_path / "seven.cpp"
    # As large as a real one, so that half of it is some pages short.
    source.write_text('extern "C" { char much[100000] = {1}; int seven() { return 7; } }')
    return source


def load(source, symbols=("seven",)):
    return native.load_kernels.__wrapped__(source, (), symbols)


def kept(source):
    (file,) = (source.parent / "allometry").iterdir()
    return file


@needs_compiler
def test_a_library_is_built_once_and_privately(fresh, monkeypatch):
    made = load(fresh)
    assert made is not None
    assert made.seven() == 7
    assert stat.S_IMODE(kept(fresh).parent.stat().st_mode) == 0o700
    monkeypatch.setattr(native, "_build", lambda *_: pytest.fail("it is there already"))
    assert load(fresh) is not None


def _halve(file, _):
    os.truncate(file, file.stat().st_size // 2)


def _empty(file, _):
    os.truncate(file, 0)


def _flip(file, _):
    data = bytearray(file.read_bytes())
    for at in range(0, len(data), 97):
        data[at] ^= 0xFF
    file.write_bytes(data)


def _flip_one(file, _):
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def _without_symbol(file, source):
    """A whole library, with the right checksum in its name, of another source."""
    other = source.with_name("eight.cpp")
    other.write_text('extern "C" int eight() { return 8; }')
    stem = file.stem.rpartition("-")[0]
    file.unlink()
    native._build(native.find_compiler() or "", other, file.parent, stem, ())


@needs_compiler
@pytest.mark.parametrize("damage", [_halve, _empty, _flip, _flip_one, _without_symbol])
def test_a_damaged_library_is_built_again_once_with_a_word(fresh, damage):
    """In a process of its own: loading half a library ends the process that does it."""
    code = (
        "import sys, warnings; from pathlib import Path; from allometry._core import native\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    made = native.load_kernels(Path(sys.argv[1]), (), ('seven',))\n"
        "print(made.seven(), *[w.message for w in caught], sep='|')"
    )
    assert load(fresh) is not None
    whole = kept(fresh).read_bytes()
    # This process has mapped the file: damage a copy, or it ends with a bus error at exit.
    copy = kept(fresh)
    copy.unlink()
    copy.write_bytes(whole)
    damage(copy, fresh)
    spoilt = kept(fresh)
    command = [sys.executable, "-c", code, str(fresh)]
    first, second = (subprocess.run(command, capture_output=True, text=True) for _ in range(2))
    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout == f"7|The kernels in {spoilt} were damaged; they are built again.\n"
    assert (second.returncode, second.stdout) == (0, "7\n")
    assert kept(fresh).read_bytes() == whole


@needs_compiler
def test_a_source_without_the_symbol_gives_no_library(fresh):
    assert load(fresh, ("seven", "eight")) is None


@needs_compiler
def test_a_build_is_on_the_disk_before_it_has_its_name(fresh, monkeypatch):
    done, replace, fsync = [], Path.replace, os.fsync

    def note(handle):
        done.append(Path(f"/proc/self/fd/{handle}").readlink().name)
        fsync(handle)

    def move(self, target):
        done.append("moved")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(Path, "replace", move)
    assert load(fresh) is not None
    assert done[0].startswith("seven-")
    assert done[1:] == ["moved", "allometry"]


@needs_compiler
@pytest.mark.parametrize(
    "why",
    ["refused", "no compiler", "broken", "open folder", "no home", "unknown user", "unwritable"],
)
def test_without_a_library_there_is_none_and_no_error(fresh, monkeypatch, why):
    if why == "refused":
        monkeypatch.setenv("ALLOMETRY_NATIVE", "0")
    if why == "no compiler":
        monkeypatch.setenv("CXX", "no-such-compiler")
    if why == "broken":
        fresh.write_text("this is no C++")
    if why == "open folder":
        (fresh.parent / "allometry").mkdir()
        (fresh.parent / "allometry").chmod(0o777)
    if why == "no home":
        (fresh.parent / "allometry").write_text("a file in the way")
    if why == "unknown user":  # as in many containers
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.delenv("HOME", raising=False)
        monkeypatch.setattr("pwd.getpwuid", lambda uid: {}[uid])
    if why == "unwritable":
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setenv("HOME", "/proc")  # not writable, not even for root
    assert load(fresh) is None


@needs_compiler
def test_a_relative_cache_is_ignored(fresh, monkeypatch):
    home = fresh.parent / "home"
    home.mkdir()
    monkeypatch.chdir(fresh.parent)
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    monkeypatch.setenv("HOME", str(home))
    assert load(fresh) is not None
    assert (home / ".cache" / "allometry").is_dir()
    assert not Path("here").exists()


def test_attention_falls_back_to_torch_without_a_home():
    code = (
        "import pwd, torch; pwd.getpwuid = lambda uid: {}[uid]\n"
        "from allometry.models.transformer import fused_attention\n"
        "print(fused_attention.applies(torch.zeros(1, 8, 3, 8)))"
    )
    bare = {k: v for k, v in os.environ.items() if k not in ("HOME", "XDG_CACHE_HOME")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=bare, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("False\n", 0), done.stderr


@pytest.fixture(params=["", "torch's own"])
def no_choice(request, monkeypatch):
    """The variable is not set, or torch has set it to its default while it was imported."""
    default = str(Path(tempfile.gettempdir(), "torchinductor_me")) if request.param else ""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", default)


def test_torchs_compiler_keeps_its_files_in_the_users_cache(fresh, no_choice):
    chosen = user_cache.compiler_cache()
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(chosen)
    assert chosen == fresh.parent / "allometry" / "inductor"
    assert stat.S_IMODE(chosen.stat().st_mode) == 0o700


@pytest.mark.parametrize("home", ["/proc", "open"])
def test_torchs_compiler_has_a_private_temporary_folder_without_a_home(
    fresh, no_choice, monkeypatch, home
):
    if home == "open":
        (fresh.parent / "allometry" / "inductor").mkdir(parents=True)
        (fresh.parent / "allometry" / "inductor").chmod(0o777)
    else:
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setenv("HOME", home)
    chosen = user_cache.compiler_cache()
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(chosen)
    assert chosen.name.startswith("allometry-")
    assert stat.S_IMODE(chosen.stat().st_mode) == 0o700


@pytest.mark.slow
@needs_compiler
def test_compiling_leaves_nothing_in_the_temporary_folder_of_all_users(tmp_path):
    code = (
        "import torch; from torch import fx; from allometry.train.packed import trace\n"
        "class Plus(torch.nn.Module):\n"
        "    def forward(self, x): return (x.sin() + 1,)\n"
        "print(*trace.compiled(fx.symbolic_trace(Plus()))(torch.zeros(2))[0].tolist())"
    )
    for name in ("home", "all"):
        (tmp_path / name).mkdir()
    own = {"HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path / "all")}
    left = {k: v for k, v in os.environ.items() if "CACHE" not in k}
    # Headers are compiled for each folder anew, which takes longer than all else.
    own["TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS"] = "0"
    done = subprocess.run(
        [sys.executable, "-c", code], env=left | own, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("1.0 1.0\n", 0), done.stderr
    assert list((tmp_path / "all").iterdir()) == []
    assert list((tmp_path / "home" / ".cache" / "allometry" / "inductor").rglob("*.so"))


def test_a_folder_that_the_user_chose_for_torchs_compiler_is_left_alone(monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/mine")
    assert user_cache.compiler_cache() == Path("/mine")
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == "/mine"


@needs_compiler
def test_a_library_that_another_builds_is_waited_for(fresh, monkeypatch):
    built, build = [], native._build

    def slowly(*arguments):
        built.append(1)
        time.sleep(0.3)
        return build(*arguments)

    monkeypatch.setattr(native, "_build", slowly)
    with ThreadPoolExecutor(3) as pool:
        libraries = list(pool.map(load, [fresh] * 3))
    assert [library.seven() for library in libraries] == [7, 7, 7]
    assert built == [1]
