"""imix: contrastive representation learning with i-Mix, for images, audio, tables and any other tensors.

Names are imported on first use, so `import imix` and `imix --help` do not load torch. They are listed in
`__init__.pyi`, which type checkers and editors read too.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
