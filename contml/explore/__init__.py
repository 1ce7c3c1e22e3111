"""A page to look through what a model retrieves: a map, neighbours by embedding beside neighbours by label."""

from contml.explore.items import Explored, ItemNeighbours, ModelView, explore_index, explore_runs
from contml.explore.page import write_page
from contml.explore.serving import server

__all__ = ["Explored", "ItemNeighbours", "ModelView", "explore_index", "explore_runs", "server", "write_page"]
