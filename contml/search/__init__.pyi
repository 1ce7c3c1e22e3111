from contml.search.calibration import Calibration as Calibration, LabelDistance as LabelDistance
from contml.search.embedder import Embedder as Embedder, load as load
from contml.search.embedding_files import embed_to_file as embed_to_file
from contml.search.index import Index as Index, SearchResult as SearchResult
from contml.search.inputs import named_images as named_images
