from .loading import load as load
from .source import Data as Data
from .source import Source as Source
from .source import TensorSource as TensorSource
from .tables.table import Table as Table
