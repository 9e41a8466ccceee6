"""The endpoints of the server: all sockets that Almighty binds (docs/design/bus.rst, "Endpoints")."""

from oar.lib.config.files import Config
from oar.lib.facts.errors import AlreadyRunning, OarError
from oar.lib.io import bus
from oar.lib.io.line_port import LinePort


class Endpoints:
    """The bound sockets: ``requests`` from outside, ``lines`` of nodes, ``control`` of the server's own processes."""

    def __init__(self, context: bus.Context, config: Config) -> None:
        """Bind all sockets.  Raises AlreadyRunning, ConfigError."""
        self._open: list[bus.Pull | bus.Router | LinePort] = []
        self.requests: list[bus.Pull] = []
        try:
            for host, port in (
                (config.server_hostname, config.appendice_server_port),
                (config.bipbip_commander_server, config.bipbip_commander_port),
                (config.greta_server, config.greta_port),
            ):
                if port:
                    self.requests.append(bus.Pull(context, host, port))
                    self._open.append(self.requests[-1])
            self.lines = _bind_lines(config)
            self._open.append(self.lines)
            self.control = bus.Router(context, bus.control_endpoint(config))
            self._open.append(self.control)
        except OarError:
            self.close()
            raise

    def close(self) -> None:
        """Close all sockets."""
        for endpoint in self._open:
            endpoint.close()
        self._open.clear()


def _bind_lines(config: Config) -> LinePort:
    try:
        return LinePort(config.server_port, config.allowed_networks)
    except OSError as error:
        raise AlreadyRunning(
            f"cannot listen on port {config.server_port} ({error.strerror}): "
            "an Almighty process must be already started"
        ) from None
