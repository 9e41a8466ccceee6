"""The environment of the user who called oarsub, and the variables of the job that ``--env`` takes of it.

sudo passes on nothing of the environment.  The wrapper in BINDIR, which still runs as the user, hands it over in two
variables: they are data for the user's own job and give no right, whatever they hold.
"""

from collections.abc import Mapping, Sequence
from os import geteuid

from oar.cli.common.command import Context
from oar.lib.base.errors import BadRequest

#: The environment as ``env -0`` prints it, in base64; and the path of ~/.oarsubrc if there is one.
ENVIRONMENT, DEFAULTS = "OAR_SUBMIT_ENV", "OAR_SUBMIT_DEFAULTS"
#: Bytes of an environment that the wrapper hands over, without the one more by which a longer one is recognised.
LONGEST = 96_000


def caller_environment(context: Context) -> Mapping[str, str]:
    """Return the environment of the user.  Raises BadRequest."""
    encoded = context.environment.get(ENVIRONMENT)
    if encoded is None:
        return context.environment if context.user.uid == geteuid() else {}
    import base64

    try:
        data = base64.b64decode(encoded)
    except ValueError:
        return {}
    if len(data) > LONGEST:
        raise BadRequest(f"your environment is longer than {LONGEST} bytes: name the variables, --env NAME=value.")
    pairs = (pair.decode("utf-8", "surrogateescape").partition("=") for pair in data.split(b"\0") if pair)
    return {name: value for name, _, value in pairs if name not in (ENVIRONMENT, DEFAULTS)}


def job_variables(context: Context, requests: Sequence[str], script: str | None) -> dict[str, str]:
    """Return the variables of the job; ``requests``: each --env, ``script``: the text that is stored with the job.

    Raises BadRequest.
    """
    if not requests and script is None:
        return {}
    from oar.lib.submission import job_environment

    variables = job_environment.chosen(requests, caller_environment(context))
    return variables if script is None else {**variables, job_environment.SCRIPT: script}
