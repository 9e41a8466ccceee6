"""What jobs leave on the computers of agents is removed, and nothing beside it."""

import os
from pathlib import Path

import agent_jobs


def test_a_link_that_could_not_be_removed_leads_nowhere(tmp_path: Path) -> None:
    file, directory = tmp_path / "file", tmp_path / "directory"
    file.write_text("not the job's")
    directory.mkdir()
    (directory / "other").write_text("not the job's either")
    file.chmod(0o444)
    directory.chmod(0o555)
    for target in (file, directory):
        own = tmp_path / "job" / target.name
        own.parent.mkdir(exist_ok=True)
        own.symlink_to(target)
        agent_jobs.make_removable(os.unlink, str(own), None)
        assert not own.is_symlink()
    assert (file.stat().st_mode & 0o777, directory.stat().st_mode & 0o777) == (0o444, 0o555)
    assert os.listdir(directory) == ["other"]


def test_a_directory_without_rights_is_removed(tmp_path: Path) -> None:
    own = tmp_path / "job"
    (own / "within").mkdir(parents=True)
    own.chmod(0o000)
    agent_jobs.make_removable(os.scandir, str(own), None)
    assert not own.exists()
