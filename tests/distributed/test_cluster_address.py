"""What happens before Ray is asked to join a cluster."""

from __future__ import annotations

import socket

import pytest

from framestow.distributed.ray import check_reachable
from framestow.errors import InvalidSettingsError


def test_an_address_where_nothing_listens_is_refused_at_once_instead_of_tried_for_ten_minutes():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        check_reachable(address)

    with pytest.raises(InvalidSettingsError, match=f"address is {address}: no Ray cluster answers there"):
        check_reachable(address)
    with pytest.raises(InvalidSettingsError, match=r"address is 127\.0\.0\.1:70000: no Ray cluster answers there"):
        check_reachable("127.0.0.1:70000")


@pytest.mark.parametrize("address", ["auto", "ray://10.0.0.1:10001", "local"])
def test_addresses_without_host_and_port_are_left_to_ray(address):
    check_reachable(address)
