"""The endpoints of the server: all sockets that Almighty binds (docs/design/bus.rst, "Endpoints")."""

from oar.lib.base.errors import AlreadyRunning, OarError
from oar.lib.bus import sockets
from oar.lib.bus.line_port import LinePort
from oar.lib.config.files import Config


class Endpoints:
    """The bound sockets: ``requests`` from outside, ``lines`` of nodes, ``control`` of the server's own processes."""

    def __init__(self, context: sockets.Context, config: Config) -> None:
        """Bind all sockets.  Raises AlreadyRunning, ConfigError."""
        self._open: list[sockets.Pull | sockets.Router | LinePort] = []
        self.requests: list[sockets.Pull] = []
        try:
            for host, port in (
                (config.server_hostname, config.appendice_server_port),
                (config.bipbip_commander_server, config.bipbip_commander_port),
                (config.greta_server, config.greta_port),
            ):
                if port:
                    self.requests.append(sockets.Pull(context, host, port))
                    self._open.append(self.requests[-1])
            self.lines = _bind_lines(config)
            self._open.append(self.lines)
            self.control = sockets.Router(context, sockets.control_endpoint(config))
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
