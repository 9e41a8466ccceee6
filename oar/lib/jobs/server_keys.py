"""Values of oar.conf that apply to all frontends: the server stores its own values in the database."""

from typing import TYPE_CHECKING

from oar.lib.config.deciding import OF_SERVER
from oar.lib.config.files import Config
from oar.lib.history.records import PolicyKind

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction


def stored_texts(tx: "Transaction") -> dict[str, str]:
    """Return the server's values of the stored keys, by option name; return {} before the first scheduling pass."""
    stored = {item.name: text for item, text in tx.history.last_policies([PolicyKind.KEY]).items()}
    options = (option for option in Config.options() if option.name in OF_SERVER and option.key in stored)
    return {option.name: stored[option.key] for option in options}


def with_server_values(config: Config, texts: dict[str, str]) -> Config:
    """Return a configuration with the values of the server; ignore values that this version cannot parse."""
    values = {}
    for option in Config.options():
        if option.name in texts:
            try:
                values[option.name] = option.read(texts[option.name])
            except ValueError:
                continue
    return config.replace(**values)


def differences(config: Config, texts: dict[str, str]) -> list[str]:
    """Return one line for each key whose local value differs from the value of the server."""
    lines = []
    for option in Config.options():
        own = option.text(getattr(config, option.name))
        if option.name in texts and own != texts[option.name]:
            lines.append(
                f'{option.key}: "{own}": the server has "{texts[option.name]}", which is used. Correct this file.'
            )
    return lines
