"""An index of vectors: exact search, removal, metadata; and the images in one."""

from contml.search.index import Index, SearchResult

__all__ = ["Index", "SearchResult"]
