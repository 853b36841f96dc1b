"""The graph of a scope in formats of other programs: GraphML, JSON-LD and SVG."""

from __future__ import annotations

import json
from collections.abc import Sequence
from io import BytesIO
from typing import Any, Final
from xml.etree import ElementTree

from palimpsest.ops.graphs.drawing import neighbourhood

_SVG: Final = "http://www.w3.org/2000/svg"
_GRAPHML: Final = "http://graphml.graphdrawing.org/xmlns"
_NODE: Final = {"name": "string", "type": "string", "aliases": "string", "mentions": "long"}
_EDGE: Final = {"relation": "string", "mentions": "long", "confidence": "double"}
_XML_FORBIDS: Final = {*range(32)} - {9, 10, 13} | {0xFFFE, 0xFFFF}
_SCHEMA_ORG: Final = {
    "person": "Person",
    "place": "Place",
    "organization": "Organization",
    "product": "Product",
    "event": "Event",
}


def graphml(nodes: Sequence[Any], edges: Sequence[Any]) -> str:
    """GraphML 1.0, as yEd, Gephi and networkx read it; aliases are joined by "; "."""
    root = ElementTree.Element("graphml", {"xmlns": _GRAPHML})
    for kind, fields in (("node", _NODE), ("edge", _EDGE)):
        for name, of_type in fields.items():
            about = {"id": f"{kind}-{name}", "for": kind, "attr.name": name, "attr.type": of_type}
            ElementTree.SubElement(root, "key", about)
    graph = ElementTree.SubElement(root, "graph", {"edgedefault": "directed"})
    for node in nodes:
        element = ElementTree.SubElement(graph, "node", {"id": node["id"]})
        _data(element, "node", _NODE, {**node, "aliases": "; ".join(node["aliases"])})
    for edge in edges:
        ends = {"source": edge["source"], "target": edge["target"]}
        _data(ElementTree.SubElement(graph, "edge", ends), "edge", _EDGE, edge)
    ElementTree.indent(root)
    written = BytesIO()
    ElementTree.ElementTree(root).write(written, encoding="utf-8", xml_declaration=True)
    return written.getvalue().decode("utf-8")


def _data(element: ElementTree.Element, kind: str, fields: Any, values: Any) -> None:
    for name in fields:
        data = ElementTree.SubElement(element, "data", {"key": f"{kind}-{name}"})
        data.text = _xml_text(str(values[name]))


def json_ld(nodes: Sequence[Any], edges: Sequence[Any]) -> str:
    """JSON-LD 1.1 with the types and names of schema.org; relations are terms of the scope."""
    entities = {
        node["id"]: {
            "@id": _urn(node["id"]),
            "@type": _SCHEMA_ORG.get(node["type"], "Thing"),
            "name": node["name"],
            **({"alternateName": node["aliases"]} if node["aliases"] else {}),
            **({"description": node["summary"]} if node["summary"] else {}),
        }
        for node in nodes
    }
    for edge in edges:
        term = "relation:" + edge["relation"].replace(" ", "_")
        entities[edge["source"]].setdefault(term, []).append({"@id": _urn(edge["target"])})
    context = {"@vocab": "https://schema.org/", "relation": "urn:palimpsest:relation:"}
    document = {"@context": context, "@graph": [*entities.values()]}
    return json.dumps(document, ensure_ascii=False, indent=2)


def _urn(entity_id: str) -> str:
    return f"urn:palimpsest:entity:{entity_id}"


_MOST_LABELLED: Final = 80
"""Lines that are labelled; more labels would cover each other."""
_COLORS: Final = {
    **{"person": "#4c78a8", "place": "#54a24b", "organization": "#b279a2", "product": "#f58518"},
    **{"event": "#e45756", "project": "#72b7b2", "system": "#9d755d", "tool": "#eeca3b"},
}
_STYLE: Final = (
    "text{paint-order:stroke;stroke:#fff;stroke-width:3px;fill:#222}"
    ".relation{font-size:10px;fill:#666;text-anchor:middle}line{stroke:#bbb}"
)
_ARROW: Final = {
    **{"id": "arrow", "viewBox": "0 0 8 8", "refX": "17", "refY": "4", "fill": "#999"},
    **{"markerWidth": "8", "markerHeight": "8", "orient": "auto"},
}


def svg(nodes: Sequence[Any], edges: Sequence[Any]) -> str:
    """A drawing that stands alone: nodes by type, relations as arrows."""
    drawing = neighbourhood(nodes, edges)
    box = " ".join(map(str, drawing.box))
    about = {"xmlns": _SVG, "viewBox": box, "font-family": "sans-serif", "font-size": "12"}
    root = ElementTree.Element("svg", about)
    _element(root, "style", _STYLE)
    _element(_element(root, "marker", "", **_ARROW), "path", "", d="M0 0L8 4L0 8z")
    labelled = len(drawing.edges) <= _MOST_LABELLED
    for line in drawing.edges:
        ends = {name: getattr(line, name) for name in ("x1", "y1", "x2", "y2")}
        drawn = _element(root, "line", "", **ends, **{"marker-end": "url(#arrow)"})
        _element(drawn, "title", line.edge.label)
        if labelled:
            x, y = line.label_at
            _element(root, "text", line.label, x=x, y=y, **{"class": "relation"})
    for each in drawing.nodes:
        group = _element(root, "g", "", transform=f"translate({each.x} {each.y})")
        _element(group, "title", each.node.title)
        _element(group, "circle", "", r=8, fill=_COLORS.get(each.node.kind, "#bab0ac"))
        place = {"x": each.label_x, "y": each.label_y, "text-anchor": each.anchor}
        _element(group, "text", each.label, **place, transform=f"rotate({each.angle})")
    if drawing.left_out:
        left, top, _, height = drawing.box
        told = f"Relations with fewer mentions that are not drawn: {drawing.left_out}"
        _element(root, "text", told, x=left + 10, y=top + height - 10)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _element(
    parent: ElementTree.Element, name: str, text: str, **attributes: object
) -> ElementTree.Element:
    values = {key: str(value) for key, value in attributes.items()}
    element = ElementTree.SubElement(parent, name, values)
    element.text = _xml_text(text)
    return element


def _xml_text(text: str) -> str:
    return text.translate(dict.fromkeys(_XML_FORBIDS))
