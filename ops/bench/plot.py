"""A picture of what `bench retrieval` measured. Needs matplotlib (the extra `bench`)."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from palimpsest.ops.queries.requests import JsonObject

METHODS = ("keyword", "vector", "rrf", "hybrid")
KS = (1, 5, 10, 50)


def write_plot(result: JsonObject, path: Path) -> None:
    """Recall@k by method, and recall@10 by category, as a PNG. Raises ValueError without
    matplotlib, saying what to install."""
    try:
        import matplotlib as mpl

        mpl.use("Agg")
        from matplotlib import pyplot as plt
    except ImportError as error:
        raise ValueError("a plot needs matplotlib: pip install 'palimpsest[bench]'") from error
    methods = cast("dict[str, dict[str, object]]", result["methods"])
    shown = [name for name in METHODS if name in methods]
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for name in shown:
        left.plot(
            range(len(KS)), [methods[name][f"recall@{k}"] for k in KS], marker="o", label=name
        )
    left.set(xticks=range(len(KS)), xlabel="k", ylabel="recall@k", ylim=(0, 1))
    left.set_xticklabels([str(k) for k in KS])
    left.legend()
    left.grid(alpha=0.3)
    width = 0.8 / max(len(shown), 1)
    for number, name in enumerate(shown):
        by_category = cast("dict[str, dict[str, float]]", methods[name]["by_category"])
        places = [place + number * width for place in range(len(by_category))]
        heights = [found.get("recall@10", 0.0) for found in by_category.values()]
        right.bar(places, heights, width, label=name)
        right.set_xticks([p + 0.4 - width / 2 for p in range(len(by_category))], list(by_category))
    right.set(ylabel="recall@10", ylim=(0, 1))
    right.grid(alpha=0.3, axis="y")
    settings = cast("dict[str, object]", result["settings"])
    figure.suptitle(f"{result['questions']} questions, {settings['embedding']}")
    figure.savefig(path, dpi=120)
    plt.close(figure)
