"""A page to look through what a model retrieves: a map, neighbours by embedding beside neighbours by label."""

from contml.app.explore.items import Explored, ItemNeighbours, ModelView, explore_index, explore_runs
from contml.app.explore.page import write_page
from contml.app.explore.serving import server

__all__ = ["Explored", "ItemNeighbours", "ModelView", "explore_index", "explore_runs", "server", "write_page"]
