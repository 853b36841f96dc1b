"""Draws a neighbourhood: nodes on rings around the first, by their distance from it.

A radial tree: each node has a sector of the circle, which its children share by their numbers of
leaves. The same graph is always drawn alike.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

GAP: Final = 130.0
"""Minimum distance between rings."""
NODE_SPACE: Final = 26.0
"""Minimum length of the ring around a node."""
FEW: Final = 6
"""Labels of a ring with more nodes are turned outwards."""
CHARACTER: Final = 7.5
"""Width of a character of a label, about."""
MARGIN: Final = 30.0
LABEL: Final = 28
"""Maximum number of characters of a label."""
MOST_LINES: Final = 400
"""More can't be told apart. Those that place a node are drawn in any case."""


@dataclass(frozen=True, slots=True)
class Node:
    """A circle with a link, or without one if `href` is empty. `kind` is its class in the style
    sheet, `title` its tooltip."""

    id: str
    label: str
    href: str
    kind: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True)
class Edge:
    """A line from one node to another."""

    source: str
    target: str
    label: str = ""


@dataclass(frozen=True, slots=True)
class PlacedNode:
    """A node at `x` and `y`, its label `anchor`ed at `label_x` and turned by `angle` degrees."""

    node: Node
    x: float
    y: float
    label_x: float
    angle: float
    anchor: Literal["start", "end", "middle"]

    @property
    def label(self) -> str:
        return _cut(self.node.label)

    @property
    def label_y(self) -> int:
        return -16 if self.anchor == "middle" else 4


@dataclass(frozen=True, slots=True)
class PlacedEdge:
    """A line from its source to its target, with its label."""

    edge: Edge
    x1: float
    y1: float
    x2: float
    y2: float

    @property
    def label(self) -> str:
        return _cut(self.edge.label)

    @property
    def label_at(self) -> tuple[float, float]:
        """Nearer to the target, so that lines in both directions keep their labels apart, and away
        from the label of an inner node."""
        return round((self.x1 + 2 * self.x2) / 3, 1), round((self.y1 + 2 * self.y2) / 3, 1)


@dataclass(frozen=True, slots=True)
class Drawing:
    """The content of an SVG image, and its `box`: left, top, width and height. `left_out` counts
    the lines that are not drawn."""

    nodes: tuple[PlacedNode, ...]
    edges: tuple[PlacedEdge, ...]
    box: tuple[int, int, int, int]
    left_out: int = 0


def _cut(text: str) -> str:
    return text if len(text) <= LABEL else f"{text[: LABEL - 1]}…"


def neighbourhood(
    nodes: Sequence[Mapping[str, Any]],
    edges: Sequence[Mapping[str, Any]],
    href: Callable[[Mapping[str, Any]], str] = lambda _: "",
) -> Drawing:
    """The drawing of an answer of ShowGraph; relations from one entity to another are one line."""
    lines: dict[tuple[str, str], list[str]] = {}
    for each in edges:
        pair = (each["source"], each["target"])
        lines.setdefault(pair, []).append(each["relation"].replace("_", " "))
    titles = [f"{each['name']} ({each['type']}), mentions: {each['mentions']}" for each in nodes]
    return drawn(
        [
            Node(each["id"], each["name"], href(each), each["type"], title)
            for each, title in zip(nodes, titles, strict=True)
        ],
        [Edge(*pair, ", ".join(labels)) for pair, labels in lines.items()],
    )


def drawn(nodes: Sequence[Node], edges: Sequence[Edge]) -> Drawing:
    """Places the first node in the middle, and the others around it, also what is not connected
    with it. The first edges are drawn before the others."""
    if not nodes:
        return Drawing((), (), (0, 0, 1, 1))
    parents = _tree([node.id for node in nodes], edges)
    spots = _spread(nodes[0].id, parents)
    crowds = Counter(ring for ring, _ in spots.values())
    # Equal distances between the rings, so that the fullest has room for its nodes.
    fullest = max(count / max(ring, 1) for ring, count in crowds.items())
    step = max(GAP, fullest * NODE_SPACE / math.tau)
    placed = {}
    for node in nodes:
        ring, angle = spots[node.id]
        placed[node.id] = _placed(node, ring * step, angle, crowds[ring])
    known = [edge for edge in edges if edge.source in placed and edge.target in placed]
    tree = {frozenset(pair) for pair in parents.items()}
    ends = ((edge, placed[edge.source], placed[edge.target]) for edge in known)
    lines = tuple(
        PlacedEdge(edge, source.x, source.y, target.x, target.y)
        for number, (edge, source, target) in enumerate(ends)
        if number < MOST_LINES or frozenset((edge.source, edge.target)) in tree
    )
    box = _box([*placed.values()])
    return Drawing(tuple(placed.values()), lines, box, len(known) - len(lines))


def _box(nodes: Sequence[PlacedNode]) -> tuple[int, int, int, int]:
    """Left, top, width and height of the nodes with their labels."""
    xs, ys = [], []
    for node in nodes:
        # Where the node and its label begin and end, about.
        length = len(node.label) * CHARACTER
        if node.anchor == "middle":
            xs += [node.x - length / 2, node.x + length / 2]
            ys.append(node.y)
            continue
        along = (length + 12.0) * (-1.0 if node.anchor == "end" else 1.0)
        turned = math.radians(node.angle)
        xs += [node.x, node.x + along * math.cos(turned)]
        ys += [node.y, node.y + along * math.sin(turned)]
    left, top = min(xs) - MARGIN, min(ys) - MARGIN
    sides = (left, top, max(xs) + MARGIN - left, max(ys) + MARGIN - top)
    return tuple(round(each) for each in sides)  # type: ignore[return-value]


def _tree(ids: Sequence[str], edges: Sequence[Edge]) -> dict[str, str]:
    """The parents of all nodes but the first, each before its children, in a breadth-first tree.
    What is not connected with the first hangs on it too, by the first of its own."""
    around: dict[str, list[str]] = {each: [] for each in ids}
    for edge in edges:
        if edge.source in around and edge.target in around:
            around[edge.source].append(edge.target)
            around[edge.target].append(edge.source)
    parents: dict[str, str] = {}
    for start in ids:
        queue = [] if start in parents else [start]
        parents.setdefault(start, ids[0])
        for each in queue:
            for other in around[each]:
                if other not in parents:
                    parents[other] = each
                    queue.append(other)
    del parents[ids[0]]
    return parents


def _spread(first: str, parents: dict[str, str]) -> dict[str, tuple[int, float]]:
    """The ring and the angle of each node: the middle of its sector, which its children share."""
    leaves = dict.fromkeys((first, *parents), 0)
    for each in reversed(parents):
        leaves[each] = leaves[each] or 1
        leaves[parents[each]] += leaves[each]
    share = math.tau / (leaves[first] or 1)
    spots, free = {first: (0, 0.0)}, {first: 0.0}  # `free`: where the next child's sector begins
    for each, parent in parents.items():
        width = share * leaves[each]
        spots[each] = spots[parent][0] + 1, free[parent] + width / 2
        free[each] = free[parent]
        free[parent] += width
    return spots


def _placed(node: Node, radius: float, angle: float, crowd: int) -> PlacedNode:
    x, y = round(radius * math.cos(angle), 1), round(radius * math.sin(angle), 1)
    if radius == 0.0:
        return PlacedNode(node, x, y, 0.0, 0.0, "middle")
    is_left = x < -1.0
    turned = math.degrees(angle) + (180.0 if is_left else 0.0) if crowd > FEW else 0.0
    anchor: Literal["start", "end"] = "end" if is_left else "start"
    return PlacedNode(node, x, y, -12.0 if is_left else 12.0, round(turned, 1), anchor)
