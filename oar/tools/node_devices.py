"""Which GPUs of a node a job may use: the others are refused to its processes (``JRM_DEVICES``).

Its processes are told which they are by the variables that the libraries of the GPUs' makers read.

Version 2 of control groups refuses devices by a program of the kernel's BPF machine, made and attached here through
the ``bpf`` system call; version 1 by lines in ``devices.deny``.
"""

import os
import re
import stat
import struct

import node_base
import node_cgroups
import node_kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from node_base import Data

    #: (major, minor)
    DeviceNumber = tuple[int, int]

BPF_PROG_LOAD, BPF_PROG_ATTACH = 5, 8
BPF_PROG_TYPE_CGROUP_DEVICE, BPF_CGROUP_DEVICE, BPF_F_ALLOW_MULTI = 15, 6, 2
SYSTEM_CALL = {"x86_64": 321, "aarch64": 280, "ppc64le": 361, "riscv64": 280, "s390x": 351}
CHARACTER_DEVICE = 2
#: Devices that are GPUs or their parts; the groups are the index.
CANDIDATES = (
    (re.compile(r"/dev/nvidia([0-9]+)\Z"), 0),
    (re.compile(r"/dev/dri/card([0-9]+)\Z"), 0),
    (re.compile(r"/dev/dri/renderD([0-9]+)\Z"), 128),
)
NUMBER = re.compile(r"[0-9]{1,9}\Z")
#: GPUs, and instances of them, that the libraries know by their names.
NAMED = re.compile(r"(GPU|MIG)-[A-Za-z0-9/-]+\Z")
#: What the processes of a job read.
CUDA, CUDA_ORDER, ROCM, ROCM_ORDINAL = (
    *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"),
    *("ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"),
)
VARIABLES = (CUDA, CUDA_ORDER, ROCM, ROCM_ORDINAL)
NVIDIA_DRIVER, AMD_DRIVER = "/dev/nvidiactl", "/dev/kfd"
ALWAYS_REFUSED = ("/dev/nvidia-caps/nvidia-cap1", "/dev/nvidia-caps/nvidia-cap2")


def restrict(groups: "node_cgroups.Groups", leaf: str, allowed: "Iterable[str]") -> None:
    """Refuse a leaf all GPUs of this node but the allowed ones, values of ``gpudevice``.

    Raises NodeError if the kernel cannot do that.
    """
    refused = refused_numbers(candidates(), allowed)
    if not refused:
        return
    if isinstance(groups, node_cgroups.GroupsV2):
        attach(groups.tracker(leaf), device_program(refused))
    elif isinstance(groups, node_cgroups.GroupsV1) and "devices" in groups.mounts:
        for major, minor in refused:
            node_kernel.write(groups.directory("devices", leaf) + "/devices.deny", "c %d:%d rwm" % (major, minor))
    else:
        raise node_cgroups.unusable("JRM_DEVICES is set but the devices hierarchy is not mounted")


def allowed_devices(data: "Data") -> "list[str] | None":
    """Return the values of ``gpudevice`` of the job's resources on this node; None if it is not used here.

    ``gpu_hosts`` of the data: nodes that have GPUs, but none for this job.
    """
    node = node_base.this_node()
    resources = [resource for resource in data["resources"] if resource.get("network_address") == node]
    devices = [str(resource["gpudevice"]) for resource in resources if resource.get("gpudevice") not in (None, "")]
    if not devices and node not in (data.get("gpu_hosts") or []):
        return None
    return devices


def candidates() -> "dict[str, DeviceNumber]":
    """Return the character devices of this node that are GPUs: path -> number."""
    devices = {}
    for directory in ("/dev", "/dev/dri", "/dev/nvidia-caps"):
        for name in os.listdir(directory) if os.path.isdir(directory) else []:
            path = directory + "/" + name
            if index_of(path) is not None or directory == "/dev/nvidia-caps":
                status = os.stat(path)
                if stat.S_ISCHR(status.st_mode):
                    devices[path] = (os.major(status.st_rdev), os.minor(status.st_rdev))
    return devices


def index_of(path: str) -> "int | None":
    """Return which GPU a device is, or is a part of; None if it is none."""
    for pattern, first in CANDIDATES:
        match = pattern.match(path)
        if match:
            return int(match.group(1)) - first
    return None


def refused_numbers(devices: "Mapping[str, DeviceNumber]", allowed: "Iterable[str]") -> "list[DeviceNumber]":
    """Return the devices that a job with these values of ``gpudevice`` may not open."""
    words = {word for value in allowed for word in words_of(value)}
    indexes = {int(word) for word in words if NUMBER.match(word)}
    refused = set()
    for path, device in devices.items():
        index = index_of(path)
        is_allowed = path in words or (index is not None and index in indexes)
        if path in ALWAYS_REFUSED or (index is not None and not is_allowed):
            refused.add(device)
    return sorted(refused)


def words_of(value: str) -> "list[str]":
    """Return the words of a value of ``gpudevice``."""
    return [word for word in re.split(r"[,+\s]+", value) if word]


def gpu_variables(values: "Iterable[str]", hidden: bool, amd: bool) -> "dict[str, str]":
    """Return what tells a job its GPUs here, by its values of ``gpudevice``; nothing if they name none we know.

    A job without GPUs is told so: the variables are empty.  ``hidden``: it is refused the others, which the libraries
    then do not count.  ``amd``: the GPUs here are of that maker, whose libraries read all of the variables, and count
    in the others what ROCR_VISIBLE_DEVICES leaves.
    """
    words = [words_of(value) for value in values]
    opened = sorted({index for some in words for index in map(number_of, some) if index is not None})
    named = [word for some in words for word in some if NAMED.match(word)]
    by_number = {number_of(word) for some in words if not any(map(NAMED.match, some)) for word in some}
    numbers = [str(opened.index(index) if hidden else index) for index in opened if index in by_number]
    names = list(dict.fromkeys(named))
    if not numbers and not names and any(words):
        return {}
    rocm = numbers + [name for name in names if name.startswith("GPU-")]
    ordinals = ",".join(map(str, range(len(rocm))))
    variables = {CUDA: ordinals if amd else ",".join(numbers + names), ROCM: ",".join(rocm), ROCM_ORDINAL: ordinals}
    if numbers:
        variables[CUDA_ORDER] = "PCI_BUS_ID"
    return variables


def number_of(word: str) -> "int | None":
    """Return the number of the GPU that a word of ``gpudevice`` names; None for what has a name, or is no GPU."""
    return int(word) if NUMBER.match(word) else index_of(word)


def has_amd() -> bool:
    """Return whether the GPUs of this node are AMD's."""
    return os.path.exists(AMD_DRIVER) and not os.path.exists(NVIDIA_DRIVER)


def instruction(code: int, target: int = 0, source: int = 0, offset: int = 0, value: int = 0) -> bytes:
    """Return an instruction of the BPF machine; ``target`` and ``source`` are registers."""
    return struct.pack("=BBhi", code, source << 4 | target, offset, value)


def device_program(refused: "Sequence[DeviceNumber]") -> bytes:
    """Return a program for the BPF machine: 0 for each refused character device, else 1.

    Its context is {type and access, major, minor}.
    """
    program = [
        instruction(0x61, target=2, source=1, offset=0),  # r2 = *(u32 *)(context + 0)
        instruction(0x54, target=2, value=0xFFFF),  # r2 &= 0xffff: the type
        instruction(0x61, target=3, source=1, offset=4),  # r3 = major
        instruction(0x61, target=4, source=1, offset=8),  # r4 = minor
    ]
    for major, minor in refused:
        program += [
            instruction(0x55, target=2, offset=4, value=CHARACTER_DEVICE),  # not a character device: next
            instruction(0x55, target=3, offset=3, value=major),
            instruction(0x55, target=4, offset=2, value=minor),
            instruction(0xB7, target=0, value=0),
            instruction(0x95),
        ]
    return b"".join([*program, instruction(0xB7, target=0, value=1), instruction(0x95)])


def attach(directory: str, program: bytes) -> None:
    """Load a program and attach it to a control group; it lives as long as the group."""
    import ctypes

    code = ctypes.create_string_buffer(program)
    licence = ctypes.create_string_buffer(b"GPL")
    load = struct.pack(
        "=IIQQIIQI",
        BPF_PROG_TYPE_CGROUP_DEVICE,
        len(program) // 8,
        ctypes.addressof(code),
        ctypes.addressof(licence),
        *(0, 0, 0, 0),
    )
    descriptor = bpf(BPF_PROG_LOAD, load)
    group = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        bpf(BPF_PROG_ATTACH, struct.pack("=IIII", group, descriptor, BPF_CGROUP_DEVICE, BPF_F_ALLOW_MULTI))
    finally:
        os.close(group)
        os.close(descriptor)


def bpf(command: int, attributes: bytes) -> int:
    """Make the ``bpf`` system call; return what it returns.  Raises NodeError if it fails."""
    import ctypes

    number = SYSTEM_CALL.get(os.uname().machine)
    if number is None:
        raise node_cgroups.unusable("JRM_DEVICES: the bpf system call of %s is not known" % os.uname().machine)
    libc = ctypes.CDLL(None, use_errno=True)
    block = ctypes.create_string_buffer(attributes, 128)
    result = int(libc.syscall(number, command, block, 128))
    if result < 0:
        raise node_cgroups.unusable("bpf: %s" % os.strerror(ctypes.get_errno()))
    return result
