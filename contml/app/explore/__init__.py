"""A page to look through the items that a model retrieves: a map, and neighbours by embedding and by label."""

from contml.app.explore.items import Explored, ItemNeighbours, ModelView, explore_runs
from contml.app.explore.page import write_page
from contml.app.explore.serving import server

__all__ = ["Explored", "ItemNeighbours", "ModelView", "explore_runs", "server", "write_page"]
