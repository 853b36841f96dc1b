"""The graph in formats of other programs."""

from __future__ import annotations

import json
from itertools import combinations
from typing import Any
from xml.etree import ElementTree

from palimpsest.ops.graphs.drawing import MOST_LINES
from palimpsest.ops.graphs.formats import graphml, json_ld, svg

NODES: list[dict[str, Any]] = [
    {
        "id": "1",
        "name": 'Ana <&"\x07> 東京',
        "type": "person",
        "aliases": ["Ani"],
        "mentions": 3,
        "summary": "a baker",
    },
    {"id": "2", "name": "Porto", "type": "unknown", "aliases": [], "mentions": 1, "summary": None},
]
EDGES = [
    {"source": "1", "target": "2", "relation": "lives in", "mentions": 2, "confidence": 0.8},
    {"source": "1", "target": "2", "relation": "born in", "mentions": 1, "confidence": 1.0},
]


def test_graphml_has_every_name_and_relation() -> None:
    space = {"g": "http://graphml.graphdrawing.org/xmlns"}
    root = ElementTree.fromstring(graphml(NODES, EDGES).encode())
    keys = {key.get("id") for key in root.findall("g:key", space)}
    data = [(each.get("key"), each.text) for each in root.iterfind(".//g:data", space)]
    assert {key for key, _ in data} == keys
    assert ("node-name", 'Ana <&"> 東京') in data
    assert ("node-aliases", "Ani") in data
    assert [each.get("target") for each in root.iterfind(".//g:edge", space)] == ["2", "2"]
    assert ("edge-relation", "lives in") in data


def test_json_ld_has_every_name_and_relation() -> None:
    ana, porto = json.loads(json_ld(NODES, EDGES))["@graph"]
    assert (ana["@type"], ana["name"], ana["alternateName"]) == (
        "Person",
        NODES[0]["name"],
        ["Ani"],
    )
    assert ana["relation:lives_in"] == ana["relation:born_in"] == [{"@id": porto["@id"]}]
    assert porto == {"@id": porto["@id"], "@type": "Thing", "name": "Porto"}


SVG = "{http://www.w3.org/2000/svg}"


def test_svg_has_every_name_and_relation_as_text() -> None:
    drawing = svg(NODES, EDGES)
    root = ElementTree.fromstring(drawing)
    shown = [each.text for each in root.iter(f"{SVG}text")]
    assert shown == ["lives in, born in", 'Ana <&"> 東京', "Porto"]
    assert drawing == svg(NODES, EDGES)
    assert ElementTree.fromstring(svg([], [])) is not None


def test_svg_tells_what_it_leaves_out() -> None:
    nodes = [{**NODES[0], "id": str(number)} for number in range(40)]
    pairs = [*combinations([node["id"] for node in nodes], 2)]
    edges = [{"source": one, "target": other, "relation": "knows"} for one, other in pairs]
    root = ElementTree.fromstring(svg(nodes, edges))
    assert len([*root.iter(f"{SVG}line")]) == MOST_LINES
    told = [*root.iter(f"{SVG}text")][-1].text
    assert told is not None
    assert told.endswith(f": {len(pairs) - MOST_LINES}")
