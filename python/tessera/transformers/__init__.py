"""Models of Hugging Face transformers on Tessera's kernels.

>>> tessera.transformers.patch(model, linear="nvfp4")
>>> print(tessera.transformers.verify(model, ids))
>>> tessera.transformers.unpatch(model)
"""

from .patching import Patch, patch, patch_of, unpatch
from .verifying import Check, Report, verify

__all__ = ["Check", "Patch", "Report", "patch", "patch_of", "unpatch", "verify"]
