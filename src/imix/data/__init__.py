"""Data sets, files, data frames and arrays as training and test samples.

The names in `__init__.pyi` are imported on first use, so that `imix.data.named` can be imported without torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
