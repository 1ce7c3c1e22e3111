"""Renderers: how the label of an item is drawn on its picture. Each is a frozen dataclass that a split can hold."""
