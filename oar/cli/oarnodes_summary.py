"""oarnodes --summary: a line for each node, and one for all."""

from collections.abc import Mapping, Sequence

from oar.cli.common.render import visible
from oar.lib.nodes.occupancy import SHOWN, NodeOccupancy, total

DRAINING = "no new jobs"


def table(nodes: Sequence[NodeOccupancy], reasons: Mapping[str, str]) -> str:
    """Return the table, '' without nodes; zeros are shown as dashes.

    ``reasons``: why nodes are drained or in maintenance.
    """
    if not nodes:
        return ""
    width = max(len("Node"), len("total"), *(len(visible(node.node)) for node in nodes))
    heads = ["total", "reserved", *(condition.value for condition in SHOWN)]
    lines = [f"{'Node':<{width}} " + " ".join(f"{head:>9}" for head in heads)]
    lines += [_line(node, width, reasons.get(node.node, "")) for node in nodes]
    if len(nodes) > 1:
        lines.append(_line(total(nodes), width))
    return "\n".join(lines) + "\n"


def _line(node: NodeOccupancy, width: int, reason: str = "") -> str:
    numbers = [node.total, node.reserved, *(node.numbers[condition] for condition in SHOWN)]
    cells = " ".join(f"{number or '-':>9}" for number in numbers)
    notes = ": ".join(filter(None, (DRAINING if node.is_draining else "", visible(reason))))
    return f"{visible(node.node):<{width}} {cells}{f'  {notes}' if notes else ''}"
