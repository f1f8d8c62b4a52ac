# What the stub has beside the extension's own names: the type of arrays (bindings/stub_types.h).
tessera._native.__prefix__|_native.__prefix__:
    \from typing import Any, Protocol
    class Array(Protocol):
        """Any array with DLPack: of numpy, of torch, a tessera.Tensor, ..."""

        def __dlpack__(self) -> object: ...
