"""Parameters on CUDA devices: what the CPU computes, what PyTorch's fused optimizers compute, and what only GPUs have:
streams, graphs, gradient scalers whose verdict is on the device. Skipped where there is no GPU.

SPDX-License-Identifier: MIT
"""

import contextlib
import copy
import gc
import io
import math
import unittest

import find_package  # noqa: F401
import libadamod.torch as lt
import torch
from libadamod import _c
from support import CLASSES, assert_near, make_params, only_near_on_cuda, same_bits, set_grads
from test_q8 import RULES as EIGHT_BITS

SHAPES = ((5, 3), (70,), (), (0, 3), (4, 3, 2, 2), (3000,))


def setUpModule():
    if not torch.cuda.is_available():
        raise unittest.SkipTest("PyTorch sees no GPU")
    try:
        _c.load_cuda()
        _c.check(_c.lib.adamod_cuda_status())
    except RuntimeError as error:
        raise unittest.SkipTest(str(error)) from None


def on(device, params):
    """Copies of parameters, with their layout."""
    return [torch.nn.Parameter(p.detach().to(device, copy=True)) for p in params]


def set_grads_of(params, step):
    """The gradients that set_grads gives on the CPU, wherever the parameters are; in new memory."""
    twins = [torch.nn.Parameter(p.detach().cpu()) for p in params]
    set_grads(twins, step)
    for p, twin in zip(params, twins):
        p.grad = torch.empty_like(p).copy_(twin.grad)


def run(optimizer, params, steps, first=1):
    for t in range(first, first + steps):
        set_grads_of(params, t)
        optimizer.step()


def side_stream():
    """A stream that is not the default one, as graphs are captured and warmed up on."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    return stream


def warm_up(step, times=2):
    stream = side_stream()
    with torch.cuda.stream(stream):
        for _ in range(times):
            step()
    torch.cuda.current_stream().wait_stream(stream)


def capture(step):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph


@contextlib.contextmanager
def nothing_waits():
    """Fails if PyTorch has to wait for the GPU."""
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


class Cuda(unittest.TestCase):
    def assert_same(self, a, b, what, exact=True):
        """Tensors, anywhere: equal bit for bit, or in f64 to some last bits."""
        a, b = a.detach().cpu(), b.detach().cpu()
        if exact and a.dtype not in (torch.float64, torch.complex128):
            if not same_bits(a, b):
                wrong = (a != b).reshape(-1)
                i = int(wrong.nonzero()[0]) if a.shape == b.shape and wrong.any() else 0
                self.fail(f"{what}: {int(wrong.sum())} of {a.numel()} differ, {i}: {a.flatten()[i]}, {b.flatten()[i]}")
        else:
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-15, msg=lambda m: f"{what}: {m}")

    def assert_same_optimizers(self, one, params, other, others, what):
        for i, (p, q) in enumerate(zip(params, others)):
            near = only_near_on_cuda(one, p)
            check = assert_near if near else self.assert_same
            check(p, q, f"{what}: parameter {i}")
            self.assertEqual(one.state[p].keys(), other.state[q].keys(), what)
            for name, value in one.state[p].items():
                if name == "step":
                    self.assertEqual(value, other.state[q][name], what)
                else:
                    self.assertEqual(value.device, p.device)
                    check = assert_near if near and name == "master" else self.assert_same
                    check(value, other.state[q][name], f"{what}: {name} of parameter {i}")


class AsOnTheCpu(Cuda):
    def compare(self, cls, params, steps=12, what="", **options):
        others = on("cuda", params)
        one, other = cls(params, **options), cls(others, **options)
        run(one, params, steps)
        run(other, others, steps)
        self.assert_same_optimizers(one, params, other, others, f"{cls.__name__} {what}{options}")

    def test_every_rule_and_type(self):
        for cls in CLASSES:
            for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
                self.compare(cls, make_params(*SHAPES, dtype=dtype), what=f"{dtype} ")

    def test_options(self):
        for cls, options in (
            (lt.AdaMod, {"flavour": "published", "weight_decay": 0.1}),
            (lt.AdaMod, {"flavour": "adamd"}),
            (lt.AdaMod, {"decay": "l2", "weight_decay": 0.1, "clip_value": 0.5, "maximize": True}),
            (lt.AdaMod, {"state_type": "bf16", "seed": 3}),
            (lt.Adam, {"amsgrad": True}),
            (lt.SGD, {"momentum": 0.9, "nesterov": True}),
            (lt.RMSprop, {"centered": True, "momentum": 0.9}),
            (lt.AdaShift, {"spatial": "none"}),
            (lt.Adafactor, {"beta1": 0.9}),
            (lt.AdaMod, {"clip_norm": 0.5}),
            (lt.Prodigy, {"clip_norm": 0.5}),
        ):
            self.compare(cls, make_params(*SHAPES), **options)

    def test_random_rounding(self):
        for cls in (lt.AdaMod, lt.SGD):
            for options in ({"low_precision": "stochastic"}, {"low_precision": "stochastic", "state_type": "bf16"}):
                self.compare(cls, make_params(*SHAPES, dtype=torch.bfloat16), **options)

    def test_states_in_8_bits(self):
        for cls, options, _ in EIGHT_BITS:
            for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
                if dtype is torch.float64 and cls is not lt.SGD:  # whose last bits differ, and so what they round to
                    continue
                options = {"state_type": "q8", "min_8bit_size": 0, **options}
                self.compare(cls, make_params(*SHAPES, dtype=dtype), what=f"{dtype} ", **options)
        image = make_params((8, 5, 6, 7))[0].detach()
        channels_last = image.to(memory_format=torch.channels_last)
        params = [torch.nn.Parameter(t) for t in (channels_last, image[:, ::2])]
        self.compare(lt.AdaMod, params, state_type="q8", min_8bit_size=0)
        # Small ones beside a large one in one group, whose states are of other types.
        self.compare(lt.AdaMod, make_params((5,), (64, 64), (63, 65)), state_type="q8")

    def test_complex(self):
        generator = torch.Generator().manual_seed(3)
        for dtype in (torch.complex64, torch.complex128):
            params = [torch.nn.Parameter(torch.randn(7, 5, dtype=dtype, generator=generator))]
            self.compare(lt.AdaMod, params)

    def test_layouts(self):
        """Channels-last and transposed in place, with gaps through a copy; the others stay as they were."""
        base = make_params((6, 4, 5, 5), (9, 7), (8, 12))
        both = []
        for device in ("cpu", "cuda"):
            a, b, c = (p.detach().to(device, copy=True) for p in base)
            whole = c.clone()
            params = [a.to(memory_format=torch.channels_last), b.t(), whole[:, ::2]]
            params = [p.requires_grad_() for p in params]
            optimizer = lt.AdaMod(params, lr=0.01)
            for t in range(1, 6):
                for k, p in enumerate(params):
                    g = torch.Generator().manual_seed(100 * t + k)
                    grad = torch.randn(p.shape, generator=g).to(device)
                    p.grad = grad.to(memory_format=torch.channels_last) if k == 0 and t % 2 else grad
                optimizer.step()
            both.append((optimizer, params, whole, c))
        (one, params, whole, _), (other, others, whole2, c2) = both
        self.assert_same_optimizers(one, params, other, others, "layouts")
        self.assert_same(whole, whole2, "what lies between")
        self.assertTrue(torch.equal(whole2[:, 1::2], c2[:, 1::2]))
        self.assertEqual(other.state[others[0]]["exp_avg"].stride(), others[0].stride())

    def test_gradients_that_come_and_go(self):
        params = make_params((5,), (6, 2), (7,))
        others = on("cuda", params)
        one, other = lt.AdaMod(params), lt.AdaMod(others)
        for t in range(1, 13):
            for optimizer, tensors in ((one, params), (other, others)):
                set_grads_of(tensors, t)
                tensors[t % 3].grad = None
                optimizer.step()
        self.assert_same_optimizers(one, params, other, others, "some at a time")

    def test_states_that_lie_anywhere(self):
        """At addresses that are not aligned for vectors, as parts of a larger array are."""
        for options in ({}, {"state_type": "q8", "min_8bit_size": 0}):
            self.states_that_lie_anywhere(options)

    def states_that_lie_anywhere(self, options):
        params = make_params((60,), (61,)) + make_params((62,), dtype=torch.bfloat16)
        others = on("cuda", params)
        one, other = lt.AdaMod(params, **options), lt.AdaMod(others, **options)
        run(one, params, 6)
        run(other, others, 3)
        for i, p in enumerate(others):
            for name, state in other.state[p].items():
                if name != "step":
                    room = torch.empty(state.numel() + 4, dtype=state.dtype, device="cuda")
                    other.state[p][name] = room[i + 1 : i + 1 + state.numel()].copy_(state)
        run(other, others, 3, first=4)
        self.assert_same_optimizers(one, params, other, others, "anywhere")

    def test_a_gradient_of_another_type(self):
        params = make_params((50,), dtype=torch.float32)
        others = on("cuda", params)
        one, other = lt.AdaMod(params), lt.AdaMod(others)
        for t in range(1, 7):
            for optimizer, (p,) in ((one, params), (other, others)):
                set_grads_of([p], t)
                if t > 3:
                    p.data = p.data.bfloat16()
                    p.grad = p.grad.bfloat16()
                optimizer.step()
        self.assert_same_optimizers(one, params, other, others, "from f32 to bf16")


class AsTorch(Cuda):
    def test_fused(self):
        cases = [
            (lt.Adam, torch.optim.Adam, {}),
            (lt.Adam, torch.optim.Adam, {"amsgrad": True, "weight_decay": 0.1}),
            (lt.AdamW, torch.optim.AdamW, {"weight_decay": 0.1}),
            (lt.AdamW, torch.optim.AdamW, {"maximize": True}),
            (lt.SGD, torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
        ]
        for ours, theirs, options in cases:
            for dtype, rtol in ((torch.float32, 2e-6), (torch.float64, 1e-12)):
                params = on("cuda", make_params((50, 3), (333,), dtype=dtype))
                others = on("cuda", params)
                one = ours(params, **options)
                try:
                    other = theirs(others, fused=True, **options)
                except TypeError:  # SGD, before PyTorch 2.3
                    other = theirs(others, **options)
                for t in range(1, 11):
                    set_grads_of(params, t)
                    set_grads_of(others, t)
                    one.step()
                    other.step()
                    for p, q in zip(params, others):
                        torch.testing.assert_close(p, q, rtol=rtol, atol=rtol, msg=lambda m: f"{ours}, step {t}: {m}")

    @unittest.skipUnless(hasattr(torch.optim, "Muon"), "this PyTorch has no Muon")
    def test_muon(self):
        """Both round to bf16 at the same places, but not always to the same side."""
        for options in ({}, {"nesterov": False, "adjust_lr_fn": "match_rms_adamw"}, {"ns_steps": 1, "momentum": 0.5}):
            params = on("cuda", make_params((50, 30), (33, 33), (20, 300), (260, 130)))
            before = [p.detach().clone() for p in params]
            others = on("cuda", params)
            one = lt.Muon(params, lr=0.1, weight_decay=0.1, **options)
            other = torch.optim.Muon(others, lr=0.1, weight_decay=0.1, **options)
            for t in range(1, 6):
                set_grads_of(params, t)
                set_grads_of(others, t)
                one.step()
                other.step()
            for p, q, start in zip(params, others, before):
                apart = ((p - q).norm() / (q - start).norm()).detach()
                self.assertLess(float(apart), 0.03, f"{options} {tuple(p.shape)}")
                name = "momentum_buffer"
                torch.testing.assert_close(one.state[p][name], other.state[q][name], rtol=1e-5, atol=1e-6)

    def test_checkpoints_go_both_ways(self):
        (p,) = on("cuda", make_params((50,)))
        (q,) = on("cuda", [p])
        theirs = torch.optim.AdamW([p], fused=True)
        run(theirs, [p], 3)
        ours = lt.AdamW([q])
        q.data.copy_(p.data)
        ours.load_state_dict(copy.deepcopy(theirs.state_dict()))
        run(ours, [q], 3, first=4)
        run(theirs, [p], 3, first=4)
        torch.testing.assert_close(p, q, rtol=1e-6, atol=1e-7)
        self.assertEqual(ours.state[q]["step"], 6)
        back = torch.optim.AdamW([p])
        back.load_state_dict(ours.state_dict())
        run(back, [p], 1, first=7)


class Groups(Cuda):
    def test_groups_that_are_added_and_a_scheduler(self):
        params = make_params((5,), (6,), (7,))
        others = on("cuda", params)
        results = []
        for tensors in (params, others):
            a, b, c = tensors
            optimizer = lt.AdaMod([{"params": [a]}, {"params": [b], "lr": 0.1, "betas": (0.5, 0.9)}], lr=0.01)
            scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)
            for t in range(1, 10):
                if t == 5:
                    optimizer.add_param_group({"params": [c], "lr": 0.3})
                set_grads_of(tensors, t)
                optimizer.step()
                if t < 5:
                    scheduler.step()
            results.append(optimizer)
        self.assert_same_optimizers(results[0], params, results[1], others, "groups")
        self.assertEqual([results[1].state[p]["step"] for p in others], [9, 9, 5])

    def test_cpu_and_gpu_in_one_group(self):
        params = make_params((5,), (6,), (7,))
        mixed = [params[0].detach().clone().requires_grad_(), *on("cuda", params[1:])]
        one, other = lt.AdaMod(params), lt.AdaMod(mixed)
        run(one, params, 5)
        run(other, mixed, 5)
        self.assert_same_optimizers(one, params, other, mixed, "mixed")

    def test_prodigy_on_two_devices(self):
        """d is one number: as on one device, to a rounding error."""
        params = make_params((5,), (6, 4), (7,), dtype=torch.float64)
        mixed = [params[0].detach().clone().requires_grad_(), *on("cuda", params[1:])]
        one, other = lt.Prodigy(params, d0=1e-2), lt.Prodigy(mixed, d0=1e-2)
        run(one, params, 12)
        run(other, mixed, 12)
        self.assertGreater(float(one.state[params[0]]["d"]), 2e-2)
        for p, q in zip(params, mixed):
            torch.testing.assert_close(p.detach(), q.detach().cpu(), rtol=1e-10, atol=1e-12)
            torch.testing.assert_close(one.state[p]["d"], other.state[q]["d"].cpu(), rtol=1e-10, atol=0)

    def test_clipping_over_handles(self):
        """Two rules, and two devices; the factor is a float32 there."""
        params = make_params((5, 3), (6,), (7,))
        for tensors in (on("cuda", params), [*on("cuda", params[:1]), *on("cpu", params[1:])]):
            each = [make_params((5, 3), (6,), (7,)), tensors]
            for some in each:
                groups = [{"params": some[:1]}, {"params": some[1:], "amsgrad": True}]
                run(lt.Adam(groups, lr=0.1, clip_norm=0.3), some, 5)
            for p, q in zip(*each):
                torch.testing.assert_close(p.detach(), q.detach().cpu(), rtol=1e-5, atol=1e-6)

    def test_two_gpus(self):
        if torch.cuda.device_count() < 2:
            self.skipTest("one GPU")
        params = make_params((5,), (6,), (7,))
        spread = [*on("cuda:0", params[:1]), *on("cuda:1", params[1:])]
        one, other = lt.AdaMod(params), lt.AdaMod(spread)
        run(one, params, 5)
        run(other, spread, 5)
        self.assert_same_optimizers(one, params, other, spread, "two devices")

    def test_a_model_that_moves(self):
        params = make_params((5,), (6, 2))
        others = [p.detach().clone().requires_grad_() for p in params]
        one, other = lt.AdaMod(params), lt.AdaMod(others)
        run(one, params, 9)
        for first, device in ((1, "cpu"), (4, "cuda"), (7, "cpu")):
            for p in others:
                p.grad = None
                p.data = p.data.to(device)
            run(other, others, 3, first=first)
        self.assert_same_optimizers(one, params, other, others, "to the GPU and back")


class Streams(Cuda):
    def test_nothing_waits(self):
        params = on("cuda", make_params(*SHAPES))
        lr = torch.tensor(0.01, device="cuda")
        optimizer = lt.AdaMod([{"params": params[:3]}, {"params": params[3:], "lr": lr}])
        run(optimizer, params, 2)
        with nothing_waits():
            for t in range(5):
                optimizer.param_groups[0]["lr"] = 0.1 / (t + 1)
                lr.mul_(0.5)
                for p in params:
                    p.grad = p.grad * 2
                optimizer.step()

    def test_the_current_stream_is_used(self):
        params = on("cuda", make_params((1 << 20,)))
        others = on("cuda", params)
        one, other = lt.AdaMod(params), lt.AdaMod(others)
        for t in range(6):
            gradient = torch.full_like(params[0], float(t + 1))
            others[0].grad = gradient.clone()
            other.step()
            stream = side_stream()
            with torch.cuda.stream(stream):
                torch.cuda._sleep(2_000_000)  # so that who does not wait is early
                params[0].grad = gradient.clone()
                one.step()
            torch.cuda.current_stream().wait_stream(stream)
        self.assert_same(params[0], others[0], "other streams")

    def test_optimizers_that_come_and_go(self):
        (p,) = on("cuda", make_params((1000,)))
        p.grad = torch.ones_like(p)
        lt.AdaMod([p]).step()
        gc.collect()
        torch.cuda.synchronize()
        before = torch.cuda.mem_get_info()[0]
        for _ in range(50):
            lt.AdaMod([p]).step()
        gc.collect()
        torch.cuda.synchronize()
        self.assertGreaterEqual(torch.cuda.mem_get_info()[0], before - (32 << 20))


class Graphs(Cuda):
    def captured(self, cls=lt.AdaMod, **options):
        """An optimizer whose step is in a graph, and a twin that steps as ever; replay(t, g) for both."""
        params = on("cuda", make_params((40, 3), (70,), ()))
        others = on("cuda", params)
        one, other = cls(params, **options), cls(others, **options)
        for p in params:
            p.grad = torch.zeros_like(p)
        set_grads_static(params, 1)
        warm_up(one.step, 2)
        set_grads_static(others, 1)
        other.step()
        other.step()
        graph = capture(one.step)
        return one, params, other, others, graph

    def test_replays_are_steps(self):
        in_8_bits = {"state_type": "q8", "min_8bit_size": 0}
        cases = [(cls, {}) for cls in CLASSES]
        cases += [(cls, {**in_8_bits, **o}) for cls, o, _ in EIGHT_BITS]
        for cls, options in cases:
            one, params, other, others, graph = self.captured(cls, **options)
            for t in range(3, 9):
                set_grads_static(params, t)
                graph.replay()
                set_grads_static(others, t)
                other.step()
            saved = one.state_dict()
            self.assertEqual([s["step"] for s in saved["state"].values()], [8] * 3, cls.__name__)
            self.assert_same_optimizers(one, params, other, others, f"{cls.__name__} in a graph")

    def test_a_learning_rate_that_changes(self):
        for kind in ("tensor", "number"):
            lr = torch.tensor(0.05, device="cuda") if kind == "tensor" else 0.05
            one, params, other, others, graph = self.captured(lr=lr)
            other.param_groups[0]["lr"] = float(lr)
            schedulers = [torch.optim.lr_scheduler.ExponentialLR(o, 0.7) for o in (one, other)]
            for t in range(3, 9):
                set_grads_static(params, t)
                graph.replay()
                set_grads_static(others, t)
                other.step()
                for scheduler in schedulers:
                    scheduler.step()
                if kind == "tensor":
                    other.param_groups[0]["lr"] = float(lr)  # f32, as the graph reads it
                    self.assertLess(float(lr), 0.05)
                else:
                    one.push_options()
            one.state_dict()
            self.assert_same_optimizers(one, params, other, others, f"lr as a {kind}")

    def test_adabound_and_a_tensor(self):
        lr = torch.tensor(0.05, device="cuda", dtype=torch.float64)
        one, params, other, others, graph = self.captured(lt.AdaBound, lr=lr)
        other.param_groups[0]["lr"] = 0.05
        for t in range(3, 9):
            lr.mul_(0.5)
            other.param_groups[0]["lr"] = float(lr)
            set_grads_static(params, t)
            graph.replay()
            set_grads_static(others, t)
            other.step()
        for p, q in zip(params, others):
            torch.testing.assert_close(p, q, rtol=1e-6, atol=1e-7)

    def test_a_whole_training_step(self):
        """Backward included: gradients are in the graph's memory."""
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)).cuda()
        twin = copy.deepcopy(model)
        optimizers = [lt.AdaMod(m.parameters(), lr=0.01) for m in (model, twin)]
        x = torch.randn(32, 8, device="cuda")

        def step(m, optimizer):
            optimizer.zero_grad(set_to_none=True)
            m(x).pow(2).mean().backward()
            optimizer.step()

        warm_up(lambda: step(model, optimizers[0]), 3)
        optimizers[0].zero_grad(set_to_none=True)
        graph = capture(lambda: step(model, optimizers[0]))
        for _ in range(10):
            graph.replay()
        for _ in range(13):
            step(twin, optimizers[1])
        for p, q in zip(model.parameters(), twin.parameters()):
            torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-6)
        self.assertEqual(optimizers[0].state_dict()["state"][0]["step"], 13)
        step(model, optimizers[0])  # and on without the graph
        self.assertEqual(optimizers[0].state_dict()["state"][0]["step"], 14)

    def test_steps_between_replays(self):
        one, params, other, others, graph = self.captured()
        for t in range(3, 11):
            set_grads_static(params, t)
            graph.replay() if t % 3 else one.step()
            set_grads_static(others, t)
            other.step()
        self.assertEqual(one.state_dict()["state"][0]["step"], 10)
        self.assert_same_optimizers(one, params, other, others, "in turns")

    def test_what_cannot_be_captured_is_refused(self):
        (p,) = on("cuda", make_params((5,)))
        p.grad = torch.ones_like(p)
        optimizer = lt.AdaMod([p])
        torch.cuda.synchronize()
        with self.assertRaisesRegex(RuntimeError, "take a step outside"):
            capture(optimizer.step)
        torch.cuda.synchronize()
        optimizer = lt.AdaMod([p])
        warm_up(optimizer.step)
        optimizer.param_groups[0]["lr"] = 0.5
        with self.assertRaisesRegex(RuntimeError, r"lr: not allowed while .* push_options\(\)"):
            capture(optimizer.step)

    def test_after_loading_a_graph_does_no_harm(self):
        one, params, _, _, graph = self.captured()
        one.load_state_dict(copy.deepcopy(one.state_dict()))
        set_grads_static(params, 3)
        one.step()
        graph.replay()  # with states of its own
        torch.cuda.synchronize()
        self.assertEqual(one.state_dict()["state"][0]["step"], 3)


def set_grads_static(params, step):
    """Gradients in the memory they have."""
    twins = [torch.nn.Parameter(p.detach().cpu()) for p in params]
    set_grads(twins, step)
    for p, twin in zip(params, twins):
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        p.grad.copy_(twin.grad)


class Scalers(Cuda):
    def scaler(self):
        scaler = torch.amp.GradScaler("cuda", init_scale=1024.0, growth_interval=1000)
        scaler.scale(torch.zeros((), device="cuda"))  # it begins with the first loss
        return scaler

    def steps(self, unscale, waits, fused=True, **options):
        params = make_params((20,), (5, 3))
        others = on("cuda", params)
        one, other = lt.AdaMod(params, **options), lt.AdaMod(others, fused=fused, **options)
        scaler = self.scaler()
        for t in range(1, 8):
            set_grads(params, t)
            set_grads_of(others, t)
            for p in others:
                p.grad.mul_(scaler.get_scale())
            if t == 3:
                others[0].grad[2] = math.inf
            else:
                one.step()
            if unscale:
                scaler.unscale_(other)
            with contextlib.nullcontext() if waits or t == 1 else nothing_waits():
                scaler.step(other)
            scaler.update()
        self.assertEqual(scaler.get_scale(), 512.0)
        self.assertEqual(other.state_dict()["state"][0]["step"], 6)
        self.assert_same_optimizers(one, params, other, others, "scaled")
        run(one, params, 1, first=8)
        run(other, others, 1, first=8)  # without it again
        self.assert_same_optimizers(one, params, other, others, "no longer scaled")

    def test_a_step_that_is_not_finite_is_skipped_on_the_device(self):
        self.steps(unscale=False, waits=False)
        self.steps(unscale=False, waits=False, state_type="q8", min_8bit_size=0)

    def test_after_unscale(self):
        self.steps(unscale=True, waits=False)

    def test_without_fused_the_scaler_does_it(self):
        self.steps(unscale=False, waits=True, fused=False)
        self.steps(unscale=True, waits=True, fused=False)

    def test_cpu_parameters_beside(self):
        params = make_params((20,), (6,))
        mixed = [params[0].detach().clone().requires_grad_(), *on("cuda", params[1:])]
        one, other = lt.AdaMod(params), lt.AdaMod(mixed)
        for t in range(1, 6):
            set_grads(params, t)
            set_grads_of(mixed, t)
            for p in mixed:
                p.grad.mul_(64.0)
            other.grad_scale = torch.tensor(64.0, device="cuda")
            other.found_inf = torch.tensor(float(t == 3), device="cuda")
            other.step()
            if t != 3:
                one.step()
        other.state_dict()
        self.assert_same_optimizers(one, params, other, mixed, "mixed and scaled")


class Copies(Cuda):
    def test_state_to_the_cpu_and_back(self):
        for state_type in ("auto", "bf16", "q8"):
            self.state_to_the_cpu_and_back(state_type)

    def state_to_the_cpu_and_back(self, state_type):
        params = on("cuda", make_params((5, 3), (700,))) + on("cuda", make_params((9,), dtype=torch.bfloat16))
        others = on("cpu", params)
        one, other = (lt.AdaMod(each, state_type=state_type, min_8bit_size=0) for each in (params, others))
        run(one, params, 3)
        run(other, others, 3)
        file = io.BytesIO()
        torch.save(one.state_dict(), file)
        file.seek(0)
        other.load_state_dict(torch.load(file, map_location="cpu"))
        run(other, others, 3, first=4)
        for p, q in zip(params, others):
            p.data.copy_(q.data)
        one.load_state_dict(copy.deepcopy(other.state_dict()))
        run(one, params, 3, first=7)
        run(other, others, 3, first=7)
        self.assert_same_optimizers(one, params, other, others, "moved")

    def test_from_f32_to_8_bits_and_back(self):
        """Converted on either device, states are the same."""
        for first, then in (("auto", "q8"), ("q8", "auto"), ("bf16", "q8")):
            params = make_params((40, 30), (7,), ())
            others = on("cuda", params)
            one, other = (lt.AdaMod(each, state_type=first, min_8bit_size=0) for each in (params, others))
            for optimizer, tensors in ((one, params), (other, others)):
                run(optimizer, tensors, 3)
                optimizer.param_groups[0]["state_type"] = then
                run(optimizer, tensors, 3, first=4)
            self.assert_same_optimizers(one, params, other, others, f"from {first} to {then}")

    def test_deepcopy(self):
        model = torch.nn.Linear(4, 3).cuda()
        optimizer = lt.AdaMod(model.parameters())
        run(optimizer, list(model.parameters()), 3)
        model2, optimizer2 = copy.deepcopy((model, optimizer))
        run(optimizer, list(model.parameters()), 3, first=4)
        run(optimizer2, list(model2.parameters()), 3, first=4)
        for p, q in zip(model.parameters(), model2.parameters()):
            self.assert_same(p, q, "a copy")
        self.assertEqual(optimizer2.state[model2.weight]["step"], 6)

    def test_histograms(self):
        for state_type in ("auto", "q8"):
            self.histograms(state_type)

    def histograms(self, state_type):
        params = make_params((500,), (7, 8))
        others = on("cuda", params)
        one, other = (lt.AdaMod(x, beta3=0.9, state_type=state_type, min_8bit_size=0) for x in (params, others))
        run(one, params, 5)
        run(other, others, 5)
        self.assert_alike(one.lr_histogram(), other.lr_histogram())

    def assert_alike(self, a, b):
        self.assertGreater(a.elements, 0)
        self.assertEqual((a.elements, sum(a.eta), sum(a.step)), (b.elements, sum(b.eta), sum(b.step)))
        self.assertAlmostEqual(a.bounded, b.bounded, places=2)
        for name in ("eta_min", "eta_median", "eta_max", "step_min", "step_median", "step_max"):
            self.assertAlmostEqual(getattr(a, name) / getattr(b, name), 1, places=4, msg=name)

    def test_histograms_that_are_collected(self):
        for cls in (lt.Adadelta, lt.Adafactor):
            params = make_params((300, 70), (7, 8))
            others = on("cuda", params)
            one, other = ([{"params": x[:1]}, {"params": x[1:], "lr": 0.1}] for x in (params, others))
            one, other = cls(one), cls(other)
            run(other, others, 1)
            with self.assertRaisesRegex(RuntimeError, "collect_learning_rates"):
                other.lr_histogram()
            run(one, params, 1)
            for optimizer, tensors in ((one, params), (other, others)):
                optimizer.collect_learning_rates()
                run(optimizer, tensors, 4, first=2)
            for group in (None, 0, 1):
                self.assert_alike(one.lr_histogram(group), other.lr_histogram(group))
            self.assert_same_optimizers(one, params, other, others, f"{cls.__name__}, collected")
            other.collect_learning_rates(False)
            run(other, others, 1, first=6)
            self.assertRaises(RuntimeError, other.lr_histogram)

    def test_histograms_of_replays(self):
        params = on("cuda", make_params((300, 70)))
        twins = on("cpu", params)
        optimizer, twin = lt.Adadelta(params), lt.Adadelta(twins)
        optimizer.collect_learning_rates()
        twin.collect_learning_rates()
        set_grads_of(params, 1)
        set_grads(twins, 1)
        warm_up(optimizer.step, 2)
        graph = capture(optimizer.step)
        for _ in range(3):
            graph.replay()
        for _ in range(5):
            twin.step()
        self.assert_alike(optimizer.lr_histogram(), twin.lr_histogram())


class Offload(Cuda):
    """States in host memory: the bits are those of states on the GPU."""

    def same(self, one, params, other, others, what):
        torch.cuda.synchronize()
        for p, q in zip(params, others):
            self.assert_same(p, q, what)
            self.assertEqual(one.state[p].keys(), other.state[q].keys(), what)
            for name, value in other.state[q].items():
                self.assertTrue(name == "step" or not value.numel() or value.is_pinned(), f"{what}: {name}")
                self.assert_same(one.state[p][name], value, f"{what}: {name}")

    def pair(self, cls, dtype=torch.float32, **options):
        params = on("cuda", make_params(*SHAPES, dtype=dtype))
        others = on("cuda", params)
        return cls(params, **options), params, cls(others, offload=True, **options), others

    def test_every_rule(self):
        for cls in CLASSES:
            for dtype in (torch.float32, torch.bfloat16):
                one, params, other, others = self.pair(cls, dtype)
                run(one, params, 5)
                run(other, others, 5)
                self.same(one, params, other, others, f"{cls.__name__} {dtype}")

    def test_states_in_8_bits(self):
        for cls, options, _ in EIGHT_BITS:
            one, params, other, others = self.pair(cls, state_type="q8", min_8bit_size=0, **options)
            run(one, params, 5)
            run(other, others, 5)
            self.same(one, params, other, others, cls.__name__)

    def test_memory(self):
        p = torch.nn.Parameter(torch.ones(2**20, device="cuda"))
        p.grad = torch.ones_like(p)
        optimizer = lt.AdaMod([p], offload=True)
        optimizer.step()
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        optimizer.step()
        self.assertLess(torch.cuda.memory_allocated() - before, 2**20)
        del optimizer
        self.assertLess(before - torch.cuda.memory_allocated(), 2**20)

    def test_on_and_off_and_checkpoints(self):
        one, params, other, others = self.pair(lt.AdaMod)
        for t in range(1, 9):
            if t == 3:
                other.load_state_dict(copy.deepcopy(other.state_dict()))
            other.param_groups[0]["offload"] = t not in (5, 6)
            run(one, params, 1, t)
            run(other, others, 1, t)
        self.same(one, params, other, others, "on and off")

    def test_a_graph(self):
        params = on("cuda", make_params((40, 3), (70,)))
        others = on("cuda", params)
        one, other = lt.AdaMod(params), lt.AdaMod(others, offload=True)
        for p in others:
            p.grad = torch.zeros_like(p)
        set_grads_static(others, 1)
        warm_up(other.step, 2)
        graph = capture(other.step)
        set_grads_static(params, 1)
        one.step()
        one.step()
        for t in range(3, 7):
            set_grads_static(params, t)
            one.step()
            set_grads_static(others, t)
            graph.replay()
        other.state_dict()
        self.same(one, params, other, others, "in a graph")

    def test_what_else_reads_states(self):
        for dtype in (torch.float32, torch.bfloat16):
            one, params, other, others = self.pair(lt.ScheduleFreeAdamW, dtype)
            run(one, params, 3)
            run(other, others, 3)
            self.assertEqual(one.lr_histogram().eta, other.lr_histogram().eta)
            for switch in ("eval", "train"):
                for optimizer in (one, other):
                    getattr(optimizer, switch)()
                for p, q in zip(params, others):
                    self.assert_same(p, q, switch)
        one, params, other, others = self.pair(lt.Sophia)
        for t in (1, 2):
            run(one, params, 1, t)
            run(other, others, 1, t)
            one.update_hessian()
            other.update_hessian()
        for p, q in zip(params, others):
            torch.testing.assert_close(p.detach(), q.detach(), rtol=1e-5, atol=1e-7)


class Errors(Cuda):
    def test_the_parameter_is_named(self):
        (p,) = on("cuda", make_params((8,)))
        q = p.detach()[4:].requires_grad_()
        optimizer = lt.AdaMod([p, q])
        p.grad, q.grad = torch.ones_like(p), torch.ones_like(q)
        before = p.detach().clone()
        with self.assertRaisesRegex(ValueError, "parameter 1 of group 0: its parameters overlap those of parameter 0"):
            optimizer.step()
        self.assertTrue(torch.equal(p, before))

    def test_a_gradient_left_on_the_cpu(self):
        (p,) = make_params((8,))
        optimizer = lt.AdaMod([p])
        p.grad = torch.ones_like(p)
        p.data = p.data.cuda()
        with self.assertRaisesRegex(RuntimeError, "parameter 0 of group 0 is on cuda:0, and its gradient on cpu"):
            optimizer.step()

    def test_a_learning_rate_out_of_bounds_on_the_device(self):
        (p,) = on("cuda", make_params((8,)))
        lr = torch.tensor(0.1, device="cuda")
        optimizer = lt.AdaMod([p], lr=lr)
        p.grad = torch.ones_like(p)
        optimizer.step()
        lr.fill_(-1)
        before = p.detach().clone()
        optimizer.step()
        torch.cuda.synchronize()
        with self.assertRaisesRegex(ValueError, "lr is -1"):
            optimizer.step()
        self.assertTrue(torch.equal(p, before))
        lr.fill_(0.1)
        optimizer.step()
        self.assertEqual(optimizer.state_dict()["state"][0]["step"], 2)

    def test_a_tensor_of_many(self):
        (p,) = on("cuda", make_params((8,)))
        with self.assertRaisesRegex(ValueError, "lr is a tensor of 3 elements, expected one"):
            lt.AdaMod([p], lr=torch.ones(3, device="cuda"))


if __name__ == "__main__":
    unittest.main()
