"""Processes on the CPU, connected by gloo, for tests of what is spread over several.

They are forked from one that has imported PyTorch, so that a pair of them starts in a fraction of a second. They end
within a limit, or are ended: where each was is then printed. They see no GPU, and reach each other by the loopback, so
that neither a GPU that others use nor the name of a machine without a network can make them wait.

SPDX-License-Identifier: MIT
"""

import contextlib
import datetime
import faulthandler
import functools
import multiprocessing
import os
import sys
import tempfile
import time
import traceback

import find_package  # noqa: F401
import torch.distributed as dist

WORLD = 2
LIMIT = float(os.environ.get("ADAMOD_TEST_SECONDS", 240))  # of one run
_GRACE = 10  # seconds between what ends a process from within and what ends it from without

_PRELOADED = (
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
    "torch.distributed.optim",
    "torch.distributed.checkpoint.state_dict",
    "torch._dynamo",  # which the first step or DTensor would import, in each process for itself
    "libadamod.torch",
)


@contextlib.contextmanager
def _environment():
    """As processes should find it."""
    here = os.path.dirname(os.path.abspath(__file__))
    ours = {
        "CUDA_VISIBLE_DEVICES": "",
        "GLOO_SOCKET_IFNAME": os.environ.get("GLOO_SOCKET_IFNAME", "lo" if sys.platform == "linux" else ""),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")])),
    }
    before = {name: os.environ.get(name) for name in ours}
    os.environ.update({name: value for name, value in ours.items() if value or name == "CUDA_VISIBLE_DEVICES"})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@functools.lru_cache(maxsize=None)
def _context():
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["preloaded"])
    return context


def _start(rank, world, folder, functions, limit):
    """Writes down a failure, then ends the process at once: gloo's threads may still release tensors, and abort if they
    do so while Python shuts down."""
    faulthandler.enable()
    faulthandler.dump_traceback_later(limit, exit=True)
    failed = 0
    try:
        most = datetime.timedelta(seconds=limit)
        meeting = f"file://{folder}/rendezvous"
        dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=world, timeout=most)
        for function in functions:
            function(rank)
            dist.barrier()
        dist.destroy_process_group()
    except BaseException:
        failed = 1
        with open(f"{folder}/failed-{rank}", "w") as file:
            file.write(traceback.format_exc())
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(failed)


def _wait(started, limit):
    """Waits until all have ended, or one has failed, or their time is over."""
    end = time.monotonic() + limit + _GRACE
    while any(process.is_alive() for process in started):
        failed = any(process.exitcode for process in started)
        end = min(end, time.monotonic() + 2) if failed else end  # others may wait for it for ever
        if time.monotonic() > end:
            return
        time.sleep(0.02)


@functools.lru_cache(maxsize=None)
def mesh(*shape):
    """The mesh of a run's processes, of this shape; each is made once."""
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh("cpu", shape or (dist.get_world_size(),))


def placed(t, where, placements):
    """A tensor that all processes have, as a DTensor, without a collective."""
    from torch.distributed.tensor import DTensor

    return DTensor.from_local(t, where, run_check=False).redistribute(where, placements).clone()


def run(*functions, world=WORLD, limit=LIMIT):
    """Runs each function(rank) in turn, in connected processes. An exception in one of them is raised here."""
    names = ", ".join(getattr(function, "func", function).__name__ for function in functions)
    with tempfile.TemporaryDirectory() as folder:
        context = _context()
        started = [
            context.Process(target=_start, args=(rank, world, folder, functions, limit), daemon=True)
            for rank in range(world)
        ]
        began = time.monotonic()
        with _environment():
            for process in started:
                process.start()
        try:
            _wait(started, limit)
        finally:
            late = [process for process in started if process.is_alive()]
            for process in late:
                process.kill()
            for process in started:
                process.join()
        problems = []
        for rank, process in enumerate(started):
            told = f"{folder}/failed-{rank}"
            if os.path.exists(told):
                with open(told) as file:
                    problems.append(f"process {rank} of {names}:\n{file.read()}")
            elif process.exitcode and process not in late:
                problems.append(f"process {rank} of {names} ended with {process.exitcode}")
        if not problems and late:
            problems.append(f"{names}: {len(late)} of {world} processes had not ended")
        if problems and time.monotonic() - began >= limit:
            problems.insert(0, f"{names}: not done after {limit:g} s; above is where each process was")
        if problems:
            raise AssertionError("\n".join(problems))
