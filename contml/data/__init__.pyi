from contml.data.batch import TRANSFORMS as TRANSFORMS, CropTransform as CropTransform, Transform as Transform
from contml.data.cache import CacheReport as CacheReport
from contml.data.decode import ImageItem as ImageItem
from contml.data.draw import check_queries as check_queries, draw as draw, draw_queries as draw_queries
from contml.data.drawings import drawn as drawn
from contml.data.loader import Images as Images
from contml.data.sources import (
    BoxCrop as BoxCrop,
    ImageFile as ImageFile,
    ImageSource as ImageSource,
    Pixels as Pixels,
    Square as Square,
    SquareCrop as SquareCrop,
    Stamp as Stamp,
    Vector as Vector,
)
from contml.data.split import (
    Batch as Batch,
    Split as Split,
    Task as Task,
    View as View,
    query_split as query_split,
    refuse_equal as refuse_equal,
)
