"""Try to change something outside the sandbox, or to reach the parent or a server; reading.py describes `place`.

Return values are ignored. attack.py checks the effects from outside.
"""

import ctypes
import os
import signal
import socket
import sys


def writes_the_victim(place):
    with open(place["victim"], "a") as file:
        file.write("changed")


def writes_beside_it(place):
    with open(os.path.join(place["folder"], "new"), "w") as file:
        file.write("new")


def writes_by_the_c_library(place):
    libc = ctypes.CDLL(None)
    libc.write(libc.open(place["victim"].encode(), 1), b"changed", 7)


def writes_by_sqlite(place):
    import sqlite3

    sqlite3.connect(os.path.join(place["folder"], "new")).execute("create table x (y)")


def writes_by_readline(place):
    import readline

    readline.write_history_file(os.path.join(place["folder"], "new"))


def renames_onto_the_victim(place):
    with open("mine", "w") as file:
        file.write("changed")
    os.rename("mine", place["victim"])


def removes_the_victim(place):
    os.remove(place["victim"])


def truncates_the_victim(place):
    ctypes.CDLL(None).truncate(place["victim"].encode(), 0)


def opens_the_victim_to_all(place):
    ctypes.CDLL(None).chmod(place["victim"].encode(), 0o777)


def ages_the_victim(place):
    ctypes.CDLL(None).utimensat(-100, place["victim"].encode(), None, 0)


def makes_a_folder(place):
    os.mkdir(os.path.join(place["folder"], "new"))


def shares_memory(place):
    import _posixshmem

    fd = _posixshmem.shm_open(f"/{place['name']}", os.O_CREAT | os.O_RDWR, mode=0o600)
    os.write(fd, b"new")


def logs_its_crash(place):
    import faulthandler

    with open(os.path.join(place["folder"], "new"), "w") as file:
        faulthandler.dump_traceback(file)


def kills_the_parent(place):
    os.kill(place["parent"], signal.SIGUSR1)


def kills_the_parent_by_the_c_library(place):
    ctypes.CDLL(None).kill(place["parent"], int(signal.SIGUSR1))


def kills_the_parent_by_a_descriptor(place):
    libc = ctypes.CDLL(None)
    libc.syscall(424, libc.syscall(434, place["parent"], 0), int(signal.SIGUSR1), None, 0)


def limits_the_parent(place):
    import resource

    hard = resource.prlimit(place["parent"], resource.RLIMIT_NOFILE)[1]
    resource.prlimit(place["parent"], resource.RLIMIT_NOFILE, (99, hard))


def slows_the_parent(place):
    ctypes.CDLL(None).setpriority(0, place["parent"], 15)


def connects(place):
    with socket.create_connection(("127.0.0.1", place["port"]), 1) as one:
        one.send(b"TOKEN")


def connects_by_the_c_library(place):
    libc = ctypes.CDLL(None)
    fd = libc.socket(2, 1, 0)
    address = (2).to_bytes(2, sys.byteorder) + place["port"].to_bytes(2, "big") + bytes((127, 0, 0, 1)) + bytes(8)
    if libc.connect(fd, address, 16) == 0:
        libc.write(fd, b"TOKEN", 5)


def speaks_to_an_abstract_socket(place):
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(f"\0{place['name']}")
        one.send(b"TOKEN")


def speaks_to_one_by_the_c_library(place):
    libc = ctypes.CDLL(None)
    fd, address = libc.socket(1, 1, 0), (1).to_bytes(2, sys.byteorder) + b"\0" + place["name"].encode()
    if libc.connect(fd, address, len(address)) == 0:
        libc.write(fd, b"TOKEN", 5)


# ------------------------------------------------------------------------------------------ further attempts


def signals_the_parent_by_a_pipe(place):
    """Make the parent the owner of a pipe, and choose the signal that the owner receives when data arrive."""
    import fcntl

    read, write = os.pipe()
    libc = ctypes.CDLL(None)
    libc.fcntl(read, fcntl.F_SETOWN, place["parent"])
    libc.fcntl(read, 10, int(signal.SIGUSR1))  # F_SETSIG
    libc.fcntl(read, fcntl.F_SETFL, os.O_NONBLOCK | os.O_ASYNC)
    os.write(write, b"x")


def signals_the_parent_by_a_queue(place):
    info = ctypes.create_string_buffer(128)
    ctypes.memmove(info, (int(signal.SIGUSR1)).to_bytes(4, sys.byteorder) + bytes(4) + b"\xff" * 4, 12)
    ctypes.CDLL(None).syscall(129, place["parent"], int(signal.SIGUSR1), info)


def exchanges_the_victim(place):
    with open("mine", "w") as file:
        file.write("changed")
    ctypes.CDLL(None).renameat2(-100, b"mine", -100, place["victim"].encode(), 2)


def opens_the_victim_by_its_path_descriptor(place):
    libc = ctypes.CDLL(None)
    fd = libc.open(place["victim"].encode(), 0o10000000)
    libc.chmod(f"/proc/self/fd/{fd}".encode(), 0o777)


def makes_a_semaphore(place):
    libc = ctypes.CDLL(None)
    libc.sem_open.restype = ctypes.c_void_p
    libc.sem_open(f"/{place['name']}".encode(), os.O_CREAT, 0o600, 1)


def idles_the_parent(place):
    libc = ctypes.CDLL(None)
    libc.sched_setscheduler(place["parent"], 5, (ctypes.c_int * 1)(0))  # SCHED_IDLE


def binds_the_parent_to_a_core(place):
    ctypes.CDLL(None).sched_setaffinity(place["parent"], 8, (1).to_bytes(8, sys.byteorder))


def speaks_by_datagrams(place):
    libc = ctypes.CDLL(None)
    fd = libc.socket(1, 2, 0)
    address = (1).to_bytes(2, sys.byteorder) + b"\0" + place["name"].encode() + b".d"
    libc.sendto(fd, b"TOKEN", 5, 0, address, len(address))
