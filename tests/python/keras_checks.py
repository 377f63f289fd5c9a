"""The checks that test_keras.py makes with each of Keras's backends, which KERAS_BACKEND names.

SPDX-License-Identifier: MIT
"""

import inspect
import os
import tempfile
import unittest

import find_package  # noqa: F401
import numpy as np
from libadamod import _c
from libadamod import numpy as an

os.environ.setdefault("JAX_ENABLE_X64", "1")
import keras  # noqa: E402
from libadamod.keras import AdaMod  # noqa: E402

STEPS = 30


def numbers():
    rng = np.random.default_rng(1)
    gradients = rng.standard_normal((STEPS, 6))
    gradients[:5, 0] = 0
    return rng.standard_normal(6), gradients


def trained(optimizer, p, gradients, dtype):
    variable = keras.Variable(p, dtype=dtype)
    for g in gradients:
        optimizer.apply([keras.ops.convert_to_tensor(g, dtype)], [variable])
    return variable


def far(one, other):
    return np.max(np.abs(np.asarray(one, np.float64) - other)) / np.max(np.abs(other))


def number(variable):
    return keras.ops.convert_to_numpy(keras.ops.cast(variable, "float64"))


class Agreement(unittest.TestCase):
    def setUp(self):
        self.addCleanup(keras.config.set_floatx, keras.config.floatx())
        keras.config.set_floatx("float64")  # of learning rates, too

    def compare(self, arguments, options, dtype="float64", tolerance=1e-12):
        p, gradients = numbers()
        optimizer = AdaMod(**arguments)
        found = trained(optimizer, p, gradients, dtype)
        p = p.astype(dtype)
        state = an.states("adamod", p)
        for t, g in enumerate(gradients, 1):
            now = {name: value(t, g) if callable(value) else value for name, value in options.items()}
            an.update("adamod", p, g.astype(dtype), state, t, **now)
        self.assertLess(far(number(found), p), tolerance)
        for name, expected in state.items():
            self.assertLess(far(number(getattr(optimizer, f"_{name}")[0]), expected), tolerance, name)

    def test_flavours(self):
        for flavour in _c.options("adamod")["flavour"].choices:
            with self.subTest(flavour):
                self.compare({"flavour": flavour}, {"flavour": flavour})

    def test_arguments(self):
        for arguments, options in (
            (dict(learning_rate=0.1, beta_1=0.5, beta_2=0.7), dict(lr=0.1, beta1=0.5, beta2=0.7)),
            (dict(beta_1=0.0, beta_2=0.0, beta_3=0.0), dict(beta1=0, beta2=0, beta3=0)),
            (dict(epsilon=0.1, beta_3=0.9), dict(eps=0.1, beta3=0.9)),
            (dict(learning_rate=0.1, weight_decay=0.2), dict(lr=0.1, weight_decay=0.2)),
            (dict(clipvalue=0.5), dict(clip_value=0.5)),
        ):
            with self.subTest(**arguments):
                self.compare(arguments, options)
        # Keras 3.15 computes the factor in float32 with PyTorch.
        clipping = dict(grad_scale=lambda t, g: min(1, 0.5 / an.norm(g)))
        self.compare(dict(global_clipnorm=0.5), clipping, tolerance=1e-7)

    def test_schedule(self):
        schedule = keras.optimizers.schedules.PolynomialDecay(0.1, 20, 0.01)
        self.compare({"learning_rate": schedule}, {"lr": lambda t, g: 0.1 + (0.01 - 0.1) * min(t - 1, 20) / 20})

    def test_float32(self):
        """Each of 30 updates rounds a few times."""
        self.compare({}, {}, "float32", STEPS * 2**-24 * 4)

    def test_low_precision(self):
        """States are float32; a parameter is rounded in every update, by up to half of its last bit."""
        p, gradients = numbers()
        for dtype, bits in (("bfloat16", 8), ("float16", 11)):
            optimizer = AdaMod(0.1, beta_3=0.9)
            found = trained(optimizer, p, gradients, dtype)
            self.assertEqual((found.dtype, optimizer._exp_avg_lr[0].dtype), (dtype, "float32"))
            expected = trained(AdaMod(0.1, beta_3=0.9), p, gradients, "float64")
            self.assertLess(far(number(found), number(expected)), 4 * STEPS * 2.0**-bits)


class Arguments(unittest.TestCase):
    def test_defaults_are_the_librarys(self):
        known = _c.options("adamod")
        names = {"learning_rate": "lr", "beta_1": "beta1", "beta_2": "beta2", "beta_3": "beta3", "epsilon": "eps"}
        parameters = inspect.signature(AdaMod).parameters
        for argument, option in {**names, "flavour": "flavour"}.items():
            self.assertEqual(parameters[argument].default, known[option].value)

    def test_config(self):
        optimizer = AdaMod(0.1, 0.8, 0.9, 0.95, 1e-6, "published", 0.1, clipnorm=1.0, name="other")
        again = AdaMod.from_config(optimizer.get_config())
        self.assertEqual(again.get_config(), optimizer.get_config())
        self.assertEqual((again.beta_3, again.flavour, again.weight_decay), (0.95, "published", 0.1))
        again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
        self.assertIs(type(again), AdaMod)
        self.assertEqual(again.get_config(), optimizer.get_config())
        schedule = keras.optimizers.schedules.CosineDecay(0.1, 100)
        again = AdaMod.from_config(AdaMod(schedule).get_config())
        self.assertEqual(again.get_config(), AdaMod(schedule, name=again.name).get_config())

    def test_refusals(self):
        for arguments, text in (
            (dict(beta_3=1.0), "beta3 is 1, expected"),
            (dict(epsilon=0.0), "eps is 0"),
            (dict(flavour="papers"), "flavour"),
            (dict(beta_1="0,9"), "beta1"),
            (dict(amsgrad=True), "amsgrad"),
        ):
            with self.subTest(**arguments), self.assertRaisesRegex((ValueError, TypeError), text):
                AdaMod(**arguments)


class Training(unittest.TestCase):
    def setUp(self):
        keras.utils.set_random_seed(1)
        rng = np.random.default_rng(3)
        self.x = rng.standard_normal((64, 4)).astype("float32")
        self.y = self.x @ rng.standard_normal((4, 1)).astype("float32")

    def model(self, **arguments):
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
        model.compile(optimizer=AdaMod(0.05, beta_3=0.9, **arguments), loss="mse")
        return model

    def fit(self, model, epochs):
        return model.fit(self.x, self.y, batch_size=16, epochs=epochs, shuffle=False, verbose=0).history["loss"]

    def test_it_learns_and_goes_on_where_it_was_saved(self):
        model = self.model(weight_decay=1e-4)
        losses = self.fit(model, 10)
        self.assertLess(losses[-1], losses[0] / 4)
        with tempfile.TemporaryDirectory() as folder:
            model.save(f"{folder}/model.keras")
            again = keras.models.load_model(f"{folder}/model.keras")
        self.assertIs(type(again.optimizer), AdaMod)
        self.assertEqual(int(again.optimizer.iterations), 40)
        self.assertEqual(self.fit(again, 3), self.fit(model, 3))
        for one, other in zip(again.get_weights(), model.get_weights()):
            np.testing.assert_array_equal(one, other)

    def test_accumulated_gradients(self):
        model = self.model(gradient_accumulation_steps=2)
        losses = self.fit(model, 10)
        self.assertLess(losses[-1], losses[0] / 2)


if __name__ == "__main__":
    unittest.main()
