"""oarsub -k, -i, -e: the SSH key of a job, read before the submission and written to a file after it."""

from typing import TYPE_CHECKING

from oar.cli.oarsub_parts.call import OarsubCall
from oar.lib.base.errors import BadRequest
from oar.lib.submission.checks import BadSubmission, Code
from oar.lib.submission.proposal import ImportedKey, KeyWish, Proposal
from oar.lib.user_files.files import UserFiles

if TYPE_CHECKING:
    from oar.lib.submission.submit import Submitted

TWO_KEYS = "you cannot import a job key both inline and from a file at the same time."
#: How the options of a private key begin that ask for a job key even without -k.
_ASKING = ("--ssh_pr", "--ssh-pr")


def add_key(call: OarsubCall, proposal: Proposal) -> Proposal:
    """Return the proposal with the job key that the options ask for.  Raises BadSubmission."""
    options, environment = call.options, call.context.environment
    asks = options.use_job_key or any(word.startswith(_ASKING) for word in call.context.arguments)
    wish = KeyWish(asks, options.key_inline, options.public_key, options.key_file, options.key_export)
    default_path = environment.get("OAR_JOB_KEY_FILE") or None
    forced = call.context.runtime.config.oarsub_force_job_key or default_path is not None
    try:
        is_granted = wish.is_granted(forced=forced)
    except BadRequest as error:
        raise BadSubmission(Code.REQUEST, str(error)) from None
    if not is_granted:
        return proposal._replace(use_job_key=False)
    if options.key_inline and options.key_file:
        raise BadSubmission(Code.REQUEST, TWO_KEYS)
    private, path = options.key_inline, options.key_file or (None if options.key_inline else default_path)
    if path:
        call.printer.explain(f"Import job key from file: {path}")
        private = _read(call.files, path)
    else:
        call.printer.explain("Import job key inline." if private else "Generate a job key...")
    imported = None if private is None else ImportedKey(private, options.public_key)
    return proposal._replace(use_job_key=True, imported_key=imported)


def _read(files: UserFiles, path: str) -> str:
    """Return the private key in a file of the user.  Raises BadSubmission."""
    try:
        return files.read(path).data.decode("utf-8", "surrogateescape")
    except OSError:
        from oar.lib.submission.job_keys import BAD_KEY

        raise BadSubmission(Code.REQUEST, f"{BAD_KEY}\n# The file {path} cannot be read.") from None


def export_keys(call: OarsubCall, submitted: "Submitted") -> None:
    """Write the private key of each job to the file of ``-e``, in which ``%jobid%`` stands for the job."""
    pattern = call.options.key_export
    if pattern is None:
        return
    for job_id, key in submitted.keys.items():
        path = pattern.replace("%jobid%", str(job_id))
        call.printer.explain(f"Export job key to file: {path}")
        try:
            call.files.write_secret(path, key.private)
        except OSError:
            call.context.warn(f"cannot write the key of job {job_id} to {path}.")
