"""How busy the GPUs of this node are, as their drivers report: NVIDIA's library (NVML), the files of AMD's driver.

The use that a driver reports covers only a short time before the query: with NVIDIA between 1/6 s and 1 s, depending on
the GPU, with AMD less than 1 s.  It is the share of this time in which the GPU did anything at all.

Where neither is here, or a driver does not answer, the use is not known.  No process is started: ``nvidia-smi`` takes a
second of processor on a node with eight GPUs, the library some milliseconds.  It is left after each look: while it
holds the devices, the mode of a GPU cannot be changed.
"""

import glob
import os
import re

import node_base
import node_devices
import node_kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any, Union

    from node_base import JobFiles

    #: Of a GPU: its use (per mille), the bytes of its memory that are taken; None: not known.
    Reading = tuple[int | None, int | None]
    #: By the words that ``gpudevice`` may name a GPU with.
    Readings = dict[str, Reading]

NVML = "libnvidia-ml.so.1"
UUID_SIZE = 96
MOST_GPUS = 256
#: The render node of a GPU is the device that programs compute with.  The number of its card may be another one, as
#: where the first card is the display of the board.
AMD_FILES = "/sys/class/drm/renderD*/device/gpu_busy_percent"
RENDER_NODE = re.compile(r"/renderD([0-9]+)/device/")
CARD_NAME = re.compile(r"card[0-9]+\Z")
DRI, CARD = "/dev/dri/", "/dev/dri/card"


class Drivers:
    """The drivers of the GPUs here."""

    def __init__(self, nvml: str = NVML, amd: str = AMD_FILES) -> None:
        self.library = library_of(nvml)
        self.amd = amd

    def read(self) -> "Readings":
        """Return what the drivers report now, by each name of a GPU."""
        readings = dict(nvidia(self.library))
        for path in glob.glob(self.amd)[:MOST_GPUS]:
            match = RENDER_NODE.search(path)
            if match is not None:
                device = os.path.dirname(path)
                percent = node_kernel.number(path)
                reading = (per_mille(percent), node_kernel.number(device + "/mem_info_vram_used"))
                for name in amd_names(device, "renderD" + match.group(1)):
                    readings.setdefault(name, reading)
        return readings


def amd_names(device: str, render_node: str) -> "list[str]":
    """Return the names of an AMD GPU: its number, its render node and its card."""
    number = node_devices.number_of(DRI + render_node)
    names = os.listdir(device + "/drm") if os.path.isdir(device + "/drm") else []
    return [str(number), DRI + render_node] + [DRI + name for name in names if CARD_NAME.match(name)]


def per_mille(percent: "int | None") -> "int | None":
    return None if percent is None else 10 * min(percent, 100)


def library_of(name: str) -> "Any":
    """Return NVIDIA's library; None where it is not."""
    import ctypes  # not for the sessions of nodes without a watch

    try:
        return ctypes.CDLL(name)
    except OSError:
        return None


def nvidia(library: "Any") -> "Iterator[tuple[str, Reading]]":
    """Return what NVML tells of each GPU, by its names; nothing without the library."""
    if library is None or library.nvmlInit_v2():
        return
    try:
        for device in devices_of(library):
            reading = reading_of(library, device)
            for name in names_of(library, device):
                yield name, reading
    finally:
        library.nvmlShutdown()


def devices_of(library: "Any") -> "Iterator[Any]":
    import ctypes

    count = ctypes.c_uint()
    if library.nvmlDeviceGetCount_v2(ctypes.byref(count)):
        return
    for index in range(min(count.value, MOST_GPUS)):
        device = ctypes.c_void_p()
        if library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)) == 0:
            yield device


def names_of(library: "Any", device: "Any") -> "list[str]":
    """Return the number of a GPU as in ``/dev``, and its own name."""
    import ctypes

    minor, uuid = ctypes.c_uint(), ctypes.create_string_buffer(UUID_SIZE)
    names = []
    if library.nvmlDeviceGetMinorNumber(device, ctypes.byref(minor)) == 0:
        names.append(str(minor.value))
    if library.nvmlDeviceGetUUID(device, uuid, UUID_SIZE) == 0:
        names.append(uuid.value.decode("ascii", "replace"))
    return names


def reading_of(library: "Any", device: "Any") -> "Reading":
    """Return what NVML tells of a GPU: percent of GPU and of memory bandwidth; total, free and used bytes."""
    import ctypes

    use, memory = (ctypes.c_uint * 2)(), (ctypes.c_ulonglong * 3)()
    has_use = library.nvmlDeviceGetUtilizationRates(device, use) == 0
    has_memory = library.nvmlDeviceGetMemoryInfo(device, memory) == 0
    return per_mille(use[0] if has_use else None), (memory[2] if has_memory else None)


def gpus_of(files: "JobFiles") -> "list[str]":
    """Return the GPUs of a job on this node, each by one name, as ``Drivers.read`` names them.

    The server counts them in the same way (``oar/lib/jobs/usage.py``).
    """
    names: "dict[str, str]" = {}
    for value in node_base.values_here(files, "gpudevice"):
        for word in node_devices.words_of(value):
            number = node_devices.number_of(word)
            key = word if number is None else str(number)
            if key not in names or not word.startswith(CARD):
                names[key] = word if word.startswith(DRI) else key
    return list(names.values())


def summary(names: "Sequence[str]", readings: "Readings") -> "list[Union[int, None]]":
    """Return the number of GPUs of a job, their mean use and the memory that is taken of them; nothing of none.

    A figure is None unless it is known of all of them.
    """
    if not names:
        return []
    found = [readings.get(name, (None, None)) for name in names]
    uses = [use for use, _ in found if use is not None]
    memories = [memory for _, memory in found if memory is not None]
    return [
        len(names),
        sum(uses) // len(names) if len(uses) == len(names) else None,
        sum(memories) if len(memories) == len(names) else None,
    ]
