"""A picture of what `bench retrieval` measured. Needs matplotlib (the extra `bench`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

from palimpsest.ops.bench.found import KS
from palimpsest.ops.distribution import install_hint
from palimpsest.ops.requests import JsonObject

if TYPE_CHECKING:
    from matplotlib.axes import Axes

METHODS = ("keyword", "vector", "rrf", "hybrid")
Methods: TypeAlias = Mapping[str, Mapping[str, object]]


def write_plot(results: Sequence[JsonObject], path: Path) -> None:
    """Recall@k by method, and recall@10 by category, a row each data set, as a PNG. Raises
    ValueError without matplotlib, saying what to install."""
    try:
        import matplotlib as mpl

        mpl.use("Agg")
        from matplotlib import pyplot as plt
    except ImportError as error:
        raise ValueError(f"a plot needs matplotlib: {install_hint('bench')}") from error
    size = (11, 4.2 * len(results))
    figure, rows = plt.subplots(len(results), 2, figsize=size, layout="constrained", squeeze=False)
    for result, (left, right) in zip(results, rows, strict=True):
        methods = cast("dict[str, dict[str, object]]", result["methods"])
        shown = {name: methods[name] for name in METHODS if name in methods}
        _draw_recall(left, shown)
        _draw_categories(right, shown)
        settings = cast("dict[str, object]", result["settings"])
        left.set_title(f"{settings['data']}: {result['questions']} questions")
        right.set_title(str(settings["embedding"]))
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _draw_recall(axes: Axes, methods: Methods) -> None:
    for name, found in methods.items():
        axes.plot(range(len(KS)), [found[f"recall@{k}"] for k in KS], marker="o", label=name)
    axes.set(xticks=range(len(KS)), xlabel="k", ylabel="recall@k", ylim=(0, 1))
    axes.set_xticklabels([str(k) for k in KS])
    axes.legend()
    axes.grid(alpha=0.3)


def _draw_categories(axes: Axes, methods: Methods) -> None:
    width = 0.8 / max(len(methods), 1)
    for number, (name, found) in enumerate(methods.items()):
        by_category = cast("dict[str, dict[str, float]]", found["by_category"])
        places = [place + number * width for place in range(len(by_category))]
        heights = [means.get("recall@10", 0.0) for means in by_category.values()]
        axes.bar(places, heights, width, label=name)
        axes.set_xticks([p + 0.4 - width / 2 for p in range(len(by_category))], list(by_category))
    axes.set(ylabel="recall@10", ylim=(0, 1))
    axes.grid(alpha=0.3, axis="y")
