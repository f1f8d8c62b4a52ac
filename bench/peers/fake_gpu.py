"""A torch that claims a GPU, and a bench_gpu that answers with made-up figures: for tests of the tables."""
import contextlib
import io
import pathlib
import sys
import tempfile
import types
from unittest import mock


def install_torch():
    """Call this before the module under test is imported."""
    torch = types.ModuleType("torch")
    torch.__version__, torch.manual_seed = "0", lambda seed: None
    torch.cuda = types.SimpleNamespace(is_available=lambda: True, get_device_name=lambda: "no GPU", empty_cache=lambda: None, synchronize=lambda: None)
    sys.modules["torch"] = torch


def compare(test, module, program, arguments, patches):
    """Runs main() of a module with this program, the text of a Python script, as its bench_gpu. patches: (object, name, value) of
    what stands for the peers. Returns what is printed, what is complained about, and the folder."""
    made = tempfile.TemporaryDirectory()
    test.addCleanup(made.cleanup)
    folder = pathlib.Path(made.name)
    file = folder / "bench_gpu"
    file.write_text(program.format(python=sys.executable), encoding="utf-8")
    file.chmod(0o755)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(sys, "argv", [f"{module.__name__}.py", "--program", str(file), "--out", str(folder), *arguments]))
        for patched in patches:
            stack.enter_context(mock.patch.object(*patched))
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(err))
        module.main()
    return out.getvalue(), err.getvalue(), folder
