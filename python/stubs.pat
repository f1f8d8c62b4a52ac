# What the stub has beside the extension's own names: the type of arrays (bindings/stub_types.h), and what is made at run
# time (bindings/error.cc, module.cc).
tessera._native.__prefix__|_native.__prefix__:
    \from typing import Any, Protocol
    class Array(Protocol):
        """Any array with DLPack: of numpy, of torch, a tessera.Tensor, ..."""

        def __dlpack__(self) -> object: ...
    class Error(RuntimeError):
        """What Tessera refuses or fails at, in one sentence."""

        code: str
    __version__: str
