"""Try to get forbidden data or resources. Each attempt gets `place` and returns the secret or "TOKEN..." on success.

place : {"secret": a file, "folder": its folder, "victim": another file, "library": a folder, "parent": a process id,
"address": a memory address, "port": a server's port, "name": a socket's name}.  A real submission has to guess them.
"""

import ctypes
import os
import sys


def plainly(place):
    with open(place["secret"]) as file:
        return file.read()


def with_pathlib(place):
    from pathlib import Path

    return Path(place["secret"]).read_text()


def with_tables_emptied(place):
    main = sys.modules["__main__"]
    for name, value in list(vars(main).items()):
        if isinstance(value, tuple):
            setattr(main, name, ())
    return plainly(place)


def with_realpath_patched(place):
    os.path.realpath = os.path.abspath = os.path.isabs = lambda path: "/x"
    os.fsdecode = os.fspath = lambda path: "/x"
    return plainly(place)


def with_str_patched(place):
    class Text(str):
        def startswith(self, *words):
            return True

        def __str__(self):
            return "submission.py"

    with open(Text(place["secret"])) as file:
        return file.read()


def with_a_path_object(place):
    class Path:
        def __fspath__(self):
            return place["secret"]

        __str__ = __repr__ = lambda self: "submission.py"

    return os.read(os.open(Path(), 0), 9999).decode()


def from_the_root(place):
    return os.read(os.open(place["secret"][1:], 0, dir_fd=os.open("/", 0)), 9999).decode()


def upwards(place):
    return os.read(os.open("../" * 30 + place["secret"][1:], 0), 9999).decode()


def by_other_builtins(place):
    """Replace `int` and `bool`, in case an audit hook uses them to decide whether a path is opened, and for what."""
    import builtins

    builtins.int, builtins.bool = str, lambda x: False
    return os.read(os.open(place["secret"], 0), 9999).decode()


def by_a_link(place):
    os.symlink(place["secret"], "link")
    with open("link") as file:
        return file.read()


def by_a_hard_link(place):
    os.link(place["secret"], "link")
    with open("link") as file:
        return file.read()


def by_renaming(place):
    os.rename(place["secret"], "mine")
    with open("mine") as file:
        return file.read()


def by_changing_the_folder(place):
    os.chdir(place["folder"])
    with open(os.path.basename(place["secret"])) as file:
        return file.read()


def in_another_interpreter(place):
    try:
        import _xxsubinterpreters as some
    except ImportError:
        import _interpreters as some
    code = f"import shutil; shutil.copy({place['secret']!r}, 'mine')"
    some.run_string(some.create(), code)
    with open("mine") as file:
        return file.read()


def _process(start, place):
    read, write = os.pipe()
    os.set_inheritable(write, True)
    start([b"/bin/sh", b"-c", f"cat {place['secret']} >&{write}".encode()], write)
    os.close(write)
    return os.read(read, 9999).decode()


def by_fork_exec(place):
    import subprocess

    def start(words, fd):
        out = os.dup(fd)
        subprocess.Popen(words, pass_fds=[out, fd])

    return _process(start, place)


def by_fork_exec_itself(place):
    import _posixsubprocess

    def start(words, fd):
        a, b = os.pipe()
        common = (words, [words[0]], True, tuple(sorted((b, fd))), None, None, -1, -1, -1, -1, -1, -1, a, b, True, True)
        _posixsubprocess.fork_exec(*common, -1, None, None, None, -1, None, True)

    return _process(start, place)


def by_spawnv(place):
    from multiprocessing.util import spawnv_passfds

    return _process(lambda words, fd: spawnv_passfds(words[0], words, [fd]), place)


def by_fork(place):
    read, write = os.pipe()
    if not os.fork():
        with open(place["secret"], "rb") as file:
            os.write(write, file.read())
        os._exit(0)
    os.close(write)
    return os.read(read, 9999).decode()


def by_the_shell(place):
    os.system(f"cat {place['secret']} > mine")
    with open("mine") as file:
        return file.read()


def by_posix_spawn(place):
    os.waitpid(os.posix_spawn("/bin/cp", ["cp", place["secret"], "mine"], {}), 0)
    with open("mine") as file:
        return file.read()


def by_the_c_library(place):
    libc = ctypes.CDLL(None)
    buffer = ctypes.create_string_buffer(9999)
    size = libc.read(libc.open(place["secret"].encode(), 0), buffer, 9999)
    return buffer.raw[: max(size, 0)].decode()


def by_a_system_call(place):
    call = ctypes.pythonapi.syscall
    buffer = ctypes.create_string_buffer(9999)
    size = call(0, call(257, -100, place["secret"].encode(), 0, 0), buffer, 9999)
    return buffer.raw[: max(size, 0)].decode()


def by_numpy(place):
    import numpy as np

    return np.fromfile(place["secret"], dtype=np.uint8).tobytes().decode()


def by_numpy_map(place):
    import numpy as np

    return np.memmap(place["secret"], mode="r").tobytes().decode()


def by_readline(place):
    import readline

    readline.read_history_file(place["secret"])
    return "\n".join(readline.get_history_item(i + 1) for i in range(readline.get_current_history_length()))


def by_importing(place):
    sys.path.insert(0, place["folder"])
    return __import__(os.path.basename(place["secret"]).removesuffix(".py")).TOKEN


def by_a_loader(place):
    from importlib.machinery import SourceFileLoader

    return SourceFileLoader("loaded", place["secret"]).load_module().TOKEN


def by_linecache(place):
    import linecache

    return "".join(linecache.getlines(place["secret"]))


def of_the_library(place):
    sys.path.append(place["library"])
    import minintk

    return f"TOKEN {minintk.__version__}"


def of_the_library_without_the_finder(place):
    for finder in list(sys.meta_path):
        for cell in getattr(getattr(finder, "find_spec", None), "__closure__", None) or ():
            if isinstance(cell.cell_contents, tuple | frozenset):
                cell.cell_contents = ()
    sys.meta_path[:] = [finder for finder in sys.meta_path if "importlib" in str(getattr(finder, "__module__", ""))]
    sys.path.append(place["library"])
    import minintk

    return f"TOKEN {minintk.__version__}"


def names_in_the_frames(place):
    """Search the frames of the worker for the paths of the assignment's folder or the library."""
    frame, found = sys._getframe(), [sys.argv, sys.path, dict(os.environ)]
    while frame:
        found += [frame.f_code.co_filename, *frame.f_locals.items()] if frame.f_code.co_filename != __file__ else []
        frame = frame.f_back
    text = repr(found).replace(repr(place), "")  # excludes the arguments of this call
    return "TOKEN" if place["library"] + os.sep + "minintk" in text or place["folder"] in text else ""


def names_below_the_root(place):
    return "TOKEN" if os.listdir(place["folder"]) else ""


def of_the_parent_by_proc(place):
    with open(f"/proc/{place['parent']}/cmdline") as file:
        return "TOKEN" + file.read()


def of_the_parents_environment(place):
    fd = os.open("/proc", os.O_RDONLY)
    return "TOKEN" + os.read(os.open(f"{place['parent']}/environ", 0, dir_fd=fd), 99).decode()


def of_its_own_maps(place):
    with open("/proc/self/maps") as file:
        return "TOKEN" + file.read(9)


def memory_of_the_parent(place):
    from ctypes import byref, c_size_t, c_void_p

    class Part(ctypes.Structure):
        _fields_ = [("base", c_void_p), ("size", c_size_t)]

    buffer = ctypes.create_string_buffer(8)
    local, remote = Part(ctypes.addressof(buffer), 8), Part(place["address"], 8)
    got = ctypes.CDLL(None).process_vm_readv(place["parent"], byref(local), 1, byref(remote), 1, 0)
    return "TOKEN" if got > 0 else ""


def ptrace_of_the_parent(place):
    return "TOKEN" if ctypes.CDLL(None).ptrace(0x4206, place["parent"], None, None) == 0 else ""  # PTRACE_SEIZE


def files_of_the_parent(place):
    libc = ctypes.CDLL(None)
    return "TOKEN" if libc.syscall(438, libc.syscall(434, place["parent"], 0), 0, 0) >= 0 else ""  # pidfd_getfd


def with_the_frame_of_the_hook(place):
    """Change variables in other frames, as Python 3.13 allows, including the tables of the audit hook."""
    try:
        plainly(place)
    except PermissionError as error:
        trace = error.__traceback__
        while trace:
            for name in ("begins", "outside", "up"):
                if name in trace.tb_frame.f_locals and trace.tb_frame.f_code.co_filename != __file__:
                    trace.tb_frame.f_locals[name] = (lambda *words: False) if name == "begins" else "?"
            trace = trace.tb_next
    return plainly(place)


def with_cells_of_the_finder(place):
    for cell in sys.meta_path[0].find_spec.__closure__ or ():
        cell.cell_contents = frozenset(["reading", os.path.basename(place["secret"]).removesuffix(".py")])
    return by_importing(place)


# ------------------------------------------------------------------------------------------ further attempts


def through_the_root_of_proc(place):
    libc = ctypes.CDLL(None)
    return _all_of(libc, libc.open(f"/proc/self/root{place['secret']}".encode(), 0))


def _all_of(libc, fd):
    buffer = ctypes.create_string_buffer(9999)
    size = libc.pread(fd, buffer, 9999, ctypes.c_long(0))
    return buffer.raw[: max(size, 0)].decode()


def by_openat2(place):
    libc = ctypes.CDLL(None)
    return _all_of(libc, libc.syscall(437, -100, place["secret"].encode(), bytes(24), 24))


def by_a_path_descriptor(place):
    """Open a file with O_PATH, which Landlock allows. Then link and reopen it through its descriptor."""
    libc = ctypes.CDLL(None)
    fd = libc.open(place["secret"].encode(), 0o10000000)
    libc.linkat(fd, b"", -100, b"mine", 0x1000)
    again = libc.open(f"/proc/self/fd/{fd}".encode(), 0)
    return _all_of(libc, again) or _all_of(libc, libc.open(b"mine", 0))


def by_a_file_handle(place):
    libc = ctypes.CDLL(None)
    handle, mount = ctypes.create_string_buffer((128).to_bytes(4, sys.byteorder), 136), ctypes.c_int()
    libc.name_to_handle_at(-100, place["secret"].encode(), handle, ctypes.byref(mount), 0)
    return _all_of(libc, libc.open_by_handle_at(libc.open(os.path.dirname(place["secret"]).encode(), 0), handle, 0))


def in_a_raw_thread(place):
    import threading

    got = []
    libc = ctypes.CDLL(None)
    thread = threading.Thread(target=lambda: got.append(_all_of(libc, libc.open(place["secret"].encode(), 0))))
    thread.start()
    thread.join()
    return got[0]


def by_clone(place):
    libc = ctypes.CDLL(None)
    read, write = os.pipe()
    if libc.syscall(56, 17, None, None, None, None) == 0:
        os.write(write, _all_of(libc, libc.open(place["secret"].encode(), 0)).encode())
        os._exit(0)
    os.close(write)
    return os.read(read, 9999).decode()


def by_a_program_in_memory(place):
    libc = ctypes.CDLL(None)
    fd = os.memfd_create("program", 0)
    os.write(fd, f"#!/bin/sh\ncat {place['secret']}\n".encode())
    words = (ctypes.c_char_p * 3)(b"sh", b"-c", None)
    libc.syscall(322, fd, b"", words, None, 0x1000)
    return ""


def in_another_namespace(place):
    return "TOKEN" if ctypes.CDLL(None).unshare(0x10000000 | 0x00020000) == 0 else ""  # user and mount namespaces


def in_a_ring(place):
    """Set up io_uring, which opens files without the system calls that a filter checks."""
    return "TOKEN" if ctypes.CDLL(None).syscall(425, 4, bytes(120)) >= 0 else ""


def watching_the_folder(place):
    """Use inotify, which Landlock does not restrict, to learn the names of files that are opened in a folder."""
    libc = ctypes.CDLL(None)
    return "TOKEN" if libc.inotify_add_watch(libc.inotify_init1(0), place["folder"].encode(), 0x20) >= 0 else ""


def names_beside_its_own(place):
    libc = ctypes.CDLL(None)
    return "TOKEN" if libc.open(os.path.dirname(os.getcwd()).encode(), 0) >= 0 else ""


def files_left_open(place):
    libc = ctypes.CDLL(None)
    return "".join(_all_of(libc, fd) for fd in range(256))


def more_than_its_limits(place):
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (2**40, 2**40))
    return "TOKEN"


def more_than_its_limits_by_the_c_library(place):
    libc = ctypes.CDLL(None)
    return "TOKEN" if libc.prlimit(0, 1, (ctypes.c_ulonglong * 2)(2**40, 2**40), None) == 0 else ""


def by_preloading(place):
    """Read the file with the loader of extension modules, after naming the file in LD_PRELOAD."""
    os.environ["LD_PRELOAD"] = place["secret"]
    import importlib.machinery

    return importlib.machinery.ExtensionFileLoader("x", place["secret"]).get_data(place["secret"]).decode()


def by_encodings(place):
    import codecs

    with codecs.open(place["secret"], encoding="utf-8") as file:
        return file.read()


def by_a_trace(place):
    """Set trace and profile functions, in case Python also calls them in the hook's frames."""
    sys.settrace(lambda frame, event, arg: None)
    sys.setprofile(lambda frame, event, arg: None)
    return plainly(place)


# ------------------------------------------------------------------------------------------- attempts of another author


def by_a_device_of_its_own(place):
    """As root, make a device file in the working folder, here /dev/full. Others give access to disks or memory."""
    os.mknod("device", 0o020600, os.makedev(1, 7))
    fd = os.open("device", os.O_RDONLY)
    return "TOKEN" if os.read(fd, 1) == bytes(1) else ""


def by_a_cloned_mount(place):
    """As root, clone the folder as a detached mount (open_tree), and open a file through it."""
    libc = ctypes.CDLL(None)
    tree = libc.syscall(428, -100, place["folder"].encode(), 1)
    return _all_of(libc, libc.openat(tree, b"answers.py", 0))


def by_a_file_in_memory(place):
    """Allocate memory that the memory limit does not cover, in a memfd_create file that is never mapped."""
    fd = os.memfd_create("more")
    return "TOKEN" if os.write(fd, bytes(2**20)) == 2**20 else ""


def by_a_folder_of_its_own(place):
    """Create a folder. If folders are nested deeper than Python can delete, the grader fails and the folders remain."""
    os.mkdir("deep")
    return "TOKEN"


def by_a_file_that_stays(place):
    """As root, create an immutable file (FS_IOC_SETFLAGS), which cannot be deleted until the flag is removed."""
    libc, fd = ctypes.CDLL(None), os.open("stays", os.O_CREAT | os.O_RDWR)
    done = libc.ioctl(fd, 0x40086602, ctypes.byref(ctypes.c_long(0x10)))
    libc.ioctl(fd, 0x40086602, ctypes.byref(ctypes.c_long(0)))
    return "TOKEN" if done == 0 else ""


def addresses_of_the_parent(place):
    head, size = ctypes.c_void_p(), ctypes.c_size_t()
    done = ctypes.CDLL(None).syscall(274, place["parent"], ctypes.byref(head), ctypes.byref(size))
    return "TOKEN" if done == 0 and head.value else ""
