"""What tells the processes of a job which GPUs of their node are theirs."""

import node_base
import node_devices
import pytest

from oar.lib.submission import job_environment

NUMBERED = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def told(*values: str, hidden: bool = False, amd: bool = False) -> dict[str, str]:
    """Return the variables of a job whose resources here have these values of ``gpudevice``."""
    return node_devices.gpu_variables(values, hidden, amd)


def visible(cuda: str, rocm: str, ordinals: str) -> dict[str, str]:
    return {"CUDA_VISIBLE_DEVICES": cuda, "ROCR_VISIBLE_DEVICES": rocm, "GPU_DEVICE_ORDINAL": ordinals}


@pytest.mark.parametrize(
    "values", [("2", "10"), ("10", "2", "2"), ("10+2",), ("2, 10",), ("/dev/nvidia2", "/dev/dri/renderD138")]
)
def test_gpus_are_told_once_by_their_numbers_in_order(values: tuple[str, ...]) -> None:
    assert told(*values) == visible("2,10", "2,10", "0,1") | NUMBERED


def test_where_the_others_are_hidden_the_libraries_count_what_is_left() -> None:
    assert told("2", "10", hidden=True) == visible("0,1", "0,1", "0,1") | NUMBERED


def test_the_libraries_of_amd_count_in_what_their_first_variable_leaves() -> None:
    assert told("2", "3", amd=True) == visible("0,1", "2,3", "0,1") | NUMBERED


def test_an_instance_of_a_gpu_is_told_by_its_name_and_its_devices_are_only_opened() -> None:
    name = "MIG-6a3b1f2e-6b1c-5d2e-9d3a-0a1b2c3d4e5f"
    assert told(f"0,/dev/nvidia-caps/nvidia-cap21,{name}", f"0,{name}") == visible(name, "", "")
    assert told(f"0 {name}", hidden=True) == visible(name, "", "")


def test_instances_of_older_drivers_have_names_too() -> None:
    assert told("MIG-GPU-8932f937-d72c/1/0", "MIG-GPU-8932f937-d72c/2/0") == visible(
        "MIG-GPU-8932f937-d72c/1/0,MIG-GPU-8932f937-d72c/2/0", "", ""
    )


def test_whole_gpus_may_have_names_that_both_makers_know() -> None:
    assert told("GPU-1234abcd") == visible("GPU-1234abcd", "GPU-1234abcd", "0")


def test_a_gpu_counts_behind_one_that_is_opened_for_its_instance() -> None:
    assert told("0,MIG-1", "1", hidden=True)["CUDA_VISIBLE_DEVICES"] == "1,MIG-1"


def test_a_job_without_a_gpu_is_told_that_it_has_none() -> None:
    assert told() == visible("", "", "")


@pytest.mark.parametrize("value", ["a100", "²", "/dev/other", "'; reboot", "9" * 5000])
def test_what_is_neither_number_nor_name_says_nothing(value: str) -> None:
    assert told(value) == {}
    assert node_devices.refused_numbers({"/dev/nvidia0": (195, 0)}, [value]) == [(195, 0)]


def test_a_job_that_is_submitted_in_a_job_does_not_inherit_its_gpus_and_nodes() -> None:
    of_job = {**node_base.mpi_variables("/nodes"), **dict.fromkeys(node_devices.VARIABLES, "3")}
    assert job_environment.chosen(["ALL"], {**of_job, "MINE": "1"}) == {"MINE": "1"}
    assert job_environment.chosen(["CUDA_VISIBLE_DEVICES"], of_job) == {"CUDA_VISIBLE_DEVICES": "3"}
