"""Renderers, which draw the label of an item on its picture. Each is a frozen dataclass that a split can hold."""
