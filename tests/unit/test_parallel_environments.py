"""How the slots of an advance reservation are laid on hosts of which some are of a list of masters."""

from oar.lib.reservations.environments import Hosts, Layout, master_layouts, shapes_of


def hosts_of(layouts: tuple[Layout, ...]) -> list[list[tuple[Hosts, int, int]]]:
    """Return for each layout where its groups lie, the number of their hosts, and the slots on each."""
    return [[(where, levels[0].quantity, levels[-1].quantity) for where, levels in layout] for layout in layouts]


def test_the_host_of_the_master_is_one_of_those_of_the_rule() -> None:
    (shape,) = shapes_of("2", 6, hosts=4)
    assert hosts_of(master_layouts(shape, 1, 4)) == [[(Hosts.MASTERS, 1, 2), (Hosts.OTHERS, 2, 2)]]


def test_what_does_not_fit_on_other_hosts_lies_on_hosts_of_the_list() -> None:
    (shape,) = shapes_of("1", 3, hosts=4)
    assert hosts_of(master_layouts(shape, 2, 4)) == [
        [(Hosts.MASTERS, 1, 1), (Hosts.OTHERS, 2, 1)],
        [(Hosts.MASTERS, 2, 1), (Hosts.OTHERS, 1, 1)],
    ]
    assert hosts_of(master_layouts(shape, 4, 4)) == [[(Hosts.MASTERS, 3, 1)]]


def test_a_list_of_unknown_length_is_tried_with_each_number_of_hosts() -> None:
    (shape,) = shapes_of("1", 3, hosts=4)
    assert [layout[0] for layout in hosts_of(master_layouts(shape, None, 4))] == [
        (Hosts.MASTERS, number, 1) for number in (1, 2, 3)
    ]


def test_more_hosts_than_there_are_make_one_layout() -> None:
    (shape,) = shapes_of("1", 9, hosts=4)
    assert len(master_layouts(shape, 1, 4)) == 1


def test_slots_that_fill_hosts_may_lie_beside_the_master() -> None:
    (shape,) = shapes_of("$fill_up", 3, hosts=4)
    assert hosts_of(master_layouts(shape, 1, 4)) == [[(Hosts.MASTERS, 1, 1), (Hosts.ANY, 2, 2)]]
