"""The record of one call of oarsub, with which all of its parts work."""

import os
from typing import NamedTuple

from oar.cli.common.command import Context
from oar.cli.oarsub_parts.options import OarsubOptions
from oar.cli.oarsub_parts.printer import Printer
from oar.lib.user_files.files import UserFiles


class OarsubCall(NamedTuple):
    """One call of oarsub: user, configuration and database, options, files of the user, output."""

    context: Context
    options: OarsubOptions
    files: UserFiles
    printer: Printer

    @property
    def host(self) -> str:
        """The name of this host for the server, which calls an oarsub that waits."""
        return self.context.runtime.config.oarsub_local_address or os.uname().nodename


def begin(context: Context, options: OarsubOptions) -> OarsubCall:
    """Return the call with these options."""
    return OarsubCall(context, options, context.files, Printer(context, options))
