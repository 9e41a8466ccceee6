"""A program that its processes compute together by MPI, for tests with a real mpirun."""

#: What a program of Open MPI does, without a compiler: each process adds its number to the sum of all. Before it tells
#: the sum, it waits until the file is gone that its argument names.
MPI_SUM = """#!/usr/bin/python3
import ctypes, os, socket, sys, time

mpi = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)
names = ("ompi_mpi_comm_world", "ompi_mpi_int", "ompi_mpi_op_sum")
world, integer, add = (ctypes.byref(ctypes.c_char.in_dll(mpi, name)) for name in names)
mpi.MPI_Init(None, None)
while sys.argv[1:] and os.path.exists(sys.argv[1]):
    time.sleep(0.1)
rank, total = ctypes.c_int(), ctypes.c_int()
mpi.MPI_Comm_rank(world, ctypes.byref(rank))
mpi.MPI_Allreduce(ctypes.byref(rank), ctypes.byref(total), 1, integer, add, world)
print(socket.gethostname(), rank.value, total.value, flush=True)
mpi.MPI_Finalize()
"""
