"""oarexec: one job's life on its head node, with real processes, accounts and control groups."""

from tests.process.node_box import NodeBox, wait_until

READY = "oarexec is initialized and ready to do the job"


def test_the_command_runs_as_the_user_in_the_job_s_group_with_its_files(box: NodeBox) -> None:
    command = 'id -un; pwd; cat "$OAR_NODEFILE"; cat /proc/self/cpuset; echo problem >&2; exit 3'
    job = box.job_data(101, command=command)
    box.start(job)
    ended = box.ended(job)
    assert (ended["code"], ended["status"]) == (0, "768")
    home = box.home("alice")
    assert (home / "out").read_text().split() == ["alice", str(home), "node1", f"{box.cpuset_path}/alice_101"]
    assert (home / "err").read_text() == "problem\n"
    assert (home / "out").stat().st_uid == 5002
    box.clean(job)


def test_nothing_of_the_job_is_left_after_clean(box: NodeBox) -> None:
    job = box.job_data(102, command="setsid sleep 1000 & exit 0")
    box.start(job)
    box.ended(job)
    assert box.sh("pgrep -u alice sleep")
    assert box.clean(job).exit == 0
    assert not [name for name in box.runtime.iterdir() if "102" in name.name]
    assert not [group for group in box.groups() if "102" in group.name]
    assert box.sh("pgrep -u alice || true") == ""
    assert box.probe(job)["answer"] == "never"


def test_the_command_text_is_data_whatever_is_in_it(box: NodeBox) -> None:
    job = box.job_data(
        103, command="printf '%s\\n' \"it's\" '\"' '\\' '$HOME' 'é'\necho \"$OAR_JOB_NAME\"", job_name="a'b\"c;d $x"
    )
    job["stdout_file"] = "out %jobid%"
    box.start(job)
    box.ended(job)
    assert (box.home("alice") / "out 103").read_text() == "it's\n\"\n\\\n$HOME\né\na'b\"c;d $x\n"
    box.clean(job)


def test_without_go_nothing_of_the_user_runs(box: NodeBox) -> None:
    job = box.job_data(104, command="touch ran", attempt=2)
    for word in ("ABORT", "GO 1"):
        with box.launch(job) as launch:
            launch.until(READY)
            launch.dialogue.send(word)
            assert launch.end().exit == 3
        assert box.probe(job)["answer"] == "aborted"
        job["attempt"] += 1
    assert not (box.home("alice") / "ran").exists()
    box.clean(job)


def test_kill_ends_the_payload_and_says_so_in_the_error_file(box: NodeBox) -> None:
    job = box.job_data(105, command="sleep 1000 & sleep 1000", stderr_file="err105")
    box.start(job)
    assert box.ctl(job, "TERM") == 0
    ended = box.ended(job)
    assert (ended["code"], ended["status"], ended["processes"]) == (3, "N", 0)
    wait_until(lambda: "Job 105 KILLED ##" in (box.home("alice") / "err105").read_text())
    box.clean(job)
    assert box.ctl(job, "TERM") == 1
