"""The documentation site: `sphinx-build -W --keep-going docs site`.

The pages are Markdown that also reads on its own. A build adds content from the code: the API reference from the
docstrings, and labels, weight plot, example and options to the page of each loss.
"""

from __future__ import annotations

import base64
import importlib.metadata
import inspect
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))  # benchmarks/, which is not installed

project = author = "contml"
version = release = importlib.metadata.version("contml")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "search.md"]  # search.html is the search page of the site: see PAGES
html_theme = "furo"
html_title = f"contml {release}"
html_show_copyright = False
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"

myst_enable_extensions = ["dollarmath"]
myst_fence_as_directive = ["math"]
myst_heading_anchors = 3

autodoc_default_options = {"members": True, "no-value": True}
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
napoleon_use_ivar = True  # the attributes of a dataclass are in its docstring
default_role = "code"
highlight_language = "none"

LABELS = {
    "graded": "graded; classes are refused",
    "any": "graded, or classes",
    "binary": "classes, or graded labels that `ThresholdLabels` or `NearestLabels` binarizes",
    "classes": "classes",
}


def example(name: str) -> str:
    """Return a program that calls a loss, by its name in a config."""
    from contml.config import data_arguments
    from contml.losses import LOSSES, PairLoss

    loss, needed = LOSSES[name], data_arguments(LOSSES[name])
    assert issubclass(loss, PairLoss)
    if loss.requires in ("graded", "any"):
        labels = "contml.NumberLabels(torch.rand(40) * 80)  # ages"
    else:
        labels = "contml.ClassLabels(torch.arange(10).repeat_interleave(4))  # ten classes"
    values = {"num_classes": "10", "embedding_dim": "64", "train_labels": "labels"}
    required = [key for key in values if needed.get(key) or (key == "train_labels" and key in needed)]
    arguments = ", ".join(f"{key}={values[key]}" for key in required)
    return f"""import torch

import contml

embeddings = torch.randn(40, 64, requires_grad=True)  # of a network
labels = {labels}
loss_function = contml.{loss.__name__}({arguments})
loss = loss_function(embeddings, labels)
loss.backward()
"""


def weight_plot(name: str) -> str:
    """Return the plot of `benchmarks.pair_weights`, as an image in Markdown. Return "" for a loss without a plot."""
    from benchmarks.pair_weights import curves, weights_plot
    from contml import InputError

    try:
        drawn = curves([name])
    except InputError:
        return ""
    file = io.BytesIO()
    weights_plot(drawn).savefig(file, format="png")
    return f"![Weight against similarity](data:image/png;base64,{base64.b64encode(file.getvalue()).decode()})"


def loss_page(name: str, text: str) -> str:
    """Return the page of a loss, with the parts that come from the code."""
    from contml.losses import LOSSES

    loss = LOSSES[name]
    title, rest = text.split("\n", 1)
    reference = f"{{py:class}}`contml.{loss.__name__} <contml.losses.{loss.__name__}>`"
    task = "classes" if loss.requires in ("binary", "classes") else "pose"
    return f"""{title}

{reference}; in a config `loss: {name}`. Labels: {LABELS[loss.requires]}.
[Symbols](../losses.md#the-family).
{rest}
{weight_plot(name)}

## Example

```python
{example(name)}```

On the command line: `contml train {task}/synthetic loss={name}`.

## Options

```{{eval-rst}}
.. autoclass:: contml.losses.{loss.__name__}
   :no-members:
   :no-index:
```
"""


def front_door() -> str:
    """Return the names of `contml`, each with the first sentence of its docstring."""
    import contml

    names = sorted((name for name in contml.__all__ if name[0] != "_"), key=str.lower)
    lines = [f"   ~{_public_name(name)}" for name in names]
    return "\n".join(["```{eval-rst}", ".. autosummary::", "   :nosignatures:", "", *lines, "```", "", ""])


def _public_name(name: str) -> str:
    """Return the place of a name of `contml` in the API reference: in its package, or in `contml` itself."""
    import contml

    package = ".".join(getattr(contml, name).__module__.split(".")[:2])
    return f"contml.{name}" if package == "contml._support" else f"{package}.{name}"


#: Files that are pages of the site by another name. A link to any other file outside of docs/ downloads it.
PAGES = {
    "../README.md": "index.md",
    "../CONTRIBUTING.md": "contributing.md",
    "../SECURITY.md": "security.md",
    "search.md": "index_and_search.md",
}


#: The Markdown of the pages, as it is shown.
MARKDOWN: dict[str, str] = {}


def notebook(text: str) -> dict[str, Any]:
    """Return a page as a Jupyter notebook. Blocks of Python become cells of code. Links to other pages become text."""
    cells: list[dict[str, Any]] = []
    for number, part in enumerate(re.split(r"```python\n(.*?)```\n?", text, flags=re.DOTALL)):
        kind = "code" if number % 2 else "markdown"
        source = part.strip("\n") if kind == "code" else re.sub(r"\[([^]]*)\]\(\.\.?/[^)]*\)", r"\1", part).strip()
        if source:
            extra = {"execution_count": None, "outputs": []} if kind == "code" else {}
            lines = source.splitlines(keepends=True)
            cells.append({"id": f"cell-{number}", "cell_type": kind, "metadata": {}, "source": lines, **extra})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def write_notebooks(app: Any, error: Exception | None) -> None:
    """Write the pages of docs/notebooks/ as notebooks, which the pages link."""
    if error is not None or app.builder.format != "html":
        return
    for page in sorted(Path(app.srcdir, "notebooks").glob("*.md")):
        path = Path(app.outdir, "notebooks", f"{page.stem}.ipynb")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(notebook(page.read_text(encoding="utf-8")), indent=1), encoding="utf-8")


def home() -> str:
    """Return the README up to its list of pages."""
    text = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    return text.split("## Where next")[0].replace("](docs/", "](")


def _target(link: re.Match[str]) -> str:
    file = link[0]
    return PAGES.get(file, f"path:{file}" if file.startswith("../") else file)


def read_page(_app: Any, page: str, content: list[str]) -> None:
    """Add the parts that come from the code to a page, and resolve links to files outside of docs/."""
    if page == "index":
        content[0] = home() + content[0]
    if "/" not in page:
        content[0] = re.sub(r"(?<=\]\()[\w./]+", _target, content[0])
    if page.startswith("notebooks/"):
        name = page.removeprefix("notebooks/")
        title, rest = content[0].split("\n", 1)
        content[0] = f'{title}\n\n<a href="{name}.ipynb" download>This page as a notebook</a>\n{rest}'
    if page.startswith("losses/"):
        content[0] = loss_page(page.removeprefix("losses/"), content[0])
    elif page == "api/contml":
        content[0] = content[0].replace("```{eval-rst}", f"{front_door()}```{{eval-rst}}")
    if not page.startswith("api/"):
        MARKDOWN[page] = content[0]


def write_markdown(app: Any, error: Exception | None) -> None:
    """Write each page also as Markdown, and the list of these pages, llms.txt, for programs that read."""
    if error is not None or app.builder.format != "html":
        return
    lines = ["# contml", ""]
    for page, text in sorted(MARKDOWN.items(), key=lambda item: (item[0] != "index", "/" in item[0], item[0])):
        text = re.sub(r"```\{include\} (.*)\n```", lambda file: Path(app.srcdir, file[1]).read_text("utf-8"), text)
        text = re.sub(r"```\{toctree\}.*?```\n*", "", text, flags=re.DOTALL)
        text = re.sub(r"!\[[^]]*\]\(data:[^)]*\)\n*", "", text)  # a plot
        path = Path(app.outdir, f"{page}.md")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("](path:", "]("), encoding="utf-8")
        lines.append(f"- [{re.search(r'^# (.*)', text, re.MULTILINE)[1]}]({page}.md)")
    Path(app.outdir, "llms.txt").write_text("\n".join([*lines, ""]), encoding="utf-8")


#: The sections of Google's docstring style. Their indented lines are not a block of code.
_SECTION = re.compile(r"(Args|Attributes|Raises|Returns|Yields):$")
#: Code in backticks, or a character that has a meaning in reStructuredText.
_MARKUP = re.compile(r"(`[^`]+`)|([*|\\]|(?<=\w)_(?!\w))")


def read_docstring(_app: Any, what: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    """Convert a docstring from plain text.

    Backticks are code. Indented lines after an empty line are a block of code.
    """
    result: list[str] = []
    section = block = False
    for number, line in enumerate(inspect.cleandoc("\n".join(lines)).split("\n")):
        indented = line.startswith(" ")
        if line and not indented:
            section, block = bool(_SECTION.match(line)), False
        elif indented and not section and not block and number and not result[-1]:
            block = True
            result += ["::", ""]
        result.append(line if block else _MARKUP.sub(lambda m: f"`{m[1]}`" if m[1] else f"\\{m[2]}", line))
    # In a first line napoleon takes "word: text" for a type and its attribute.
    lines[:] = [*(["\\ "] if what in ("attribute", "property") else []), *result, ""]


def skip_member(_app: Any, _what: str, _name: str, value: object, _skip: bool, _options: Any) -> bool | None:
    """Omit the fields of named tuples, whose docstrings are not ours: "Alias for field number 0"."""
    return True if type(value).__name__ == "_tuplegetter" else None


def write_math(translator: Any, node: Any) -> None:
    """Write a formula as MathML, which browsers show without a script. An unknown command of LaTeX is an error."""
    from docutils.nodes import SkipNode, math_block
    from docutils.utils.math.latex2mathml import tex2mathml

    block = isinstance(node, math_block)
    formula = tex2mathml(node.astext(), as_block=block)
    translator.body.append(f'<div class="formula">{formula}</div>' if block else formula)
    raise SkipNode


def setup(app: Any) -> None:
    """Connect the functions above to Sphinx."""
    from pygments.lexers.special import TextLexer

    app.add_html_math_renderer("mathml", inline_renderers=(write_math, None), block_renderers=(write_math, None))
    app.add_lexer("csv", TextLexer)
    app.connect("source-read", read_page)
    app.connect("build-finished", write_markdown)
    app.connect("build-finished", write_notebooks)
    app.connect("autodoc-process-docstring", read_docstring, priority=400)  # before napoleon's
    app.connect("autodoc-skip-member", skip_member)
