// cplusplus.cpp - the library from C++17: a handle that frees itself and throws, and a small network that learns sin(x).
//
//     c++ -std=c++17 -O2 cplusplus.cpp $(pkg-config --cflags --libs adamod) -o cplusplus
//
// SPDX-License-Identifier: MIT
#include <adamod.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

// ---- All that a C++ program needs around the C interface ----

inline void check(adamod_status status) {
    if (status != ADAMOD_OK) throw std::runtime_error(adamod_last_error());
}

class Optimizer {
  public:
    explicit Optimizer(const std::string &rule) {
        adamod_optimizer *raw = nullptr;
        check(adamod_create(&raw, rule.c_str()));
        handle.reset(raw);
    }
    void set(const std::string &option, double value) { check(adamod_set(get(), option.c_str(), value)); }
    void set_text(const std::string &option, const std::string &text) {
        check(adamod_set_text(get(), option.c_str(), text.c_str()));
    }
    // The arrays stay where they are: neither vector may be resized afterwards.
    void add(const std::string &name, std::vector<float> &param, const std::vector<float> &grad) {
        const auto count = static_cast<std::int64_t>(param.size());
        check(adamod_add(get(), name.c_str(), param.data(), grad.data(), 1, &count));
    }
    void step() { check(adamod_step(get())); }
    adamod_optimizer *get() const { return handle.get(); }

  private:
    struct Free {
        void operator()(adamod_optimizer *opt) const { adamod_free(opt); }
    };
    std::unique_ptr<adamod_optimizer, Free> handle;
};

// ---- A network with one hidden layer: y = sum of v_j tanh(w_j x + b_j) ----

struct Parameter {
    std::vector<float> value, grad;
    explicit Parameter(std::size_t n) : value(n), grad(n) {}
};

struct Network {
    static constexpr std::size_t hidden = 16;
    Parameter w{hidden}, b{hidden}, v{hidden};

    Network() {
        for (std::size_t j = 0; j < hidden; j++) { // spread over the interval, so that every unit bends somewhere else
            w.value[j] = j % 2 ? 1.0F : -1.0F;
            b.value[j] = static_cast<float>(j) / 4 - 2;
        }
    }
    double operator()(double x) const {
        double y = 0;
        for (std::size_t j = 0; j < hidden; j++) y += v.value[j] * std::tanh(w.value[j] * x + b.value[j]);
        return y;
    }
    // The mean squared error against sin at n points, and its gradient.
    double learn(int n) {
        double loss = 0;
        for (auto *p : {&w, &b, &v}) p->grad.assign(hidden, 0.0F);
        for (int i = 0; i < n; i++) {
            const double x = -3 + 6.0 * i / (n - 1), y = (*this)(x), error = y - std::sin(x), slope = 2 * error / n;
            loss += error * error / n;
            for (std::size_t j = 0; j < hidden; j++) {
                const double t = std::tanh(w.value[j] * x + b.value[j]), inner = slope * v.value[j] * (1 - t * t);
                v.grad[j] += static_cast<float>(slope * t);
                b.grad[j] += static_cast<float>(inner);
                w.grad[j] += static_cast<float>(inner * x);
            }
        }
        return loss;
    }
};

int main() try {
    Network net;
    Optimizer opt("adamod");
    opt.set("lr", 0.01);
    opt.set("beta3", 0.99);
    opt.set_text("nonfinite", "error"); // a NaN is an exception, not a ruined network
    opt.add("w", net.w.value, net.w.grad);
    opt.add("b", net.b.value, net.b.grad);
    opt.add("v", net.v.value, net.v.grad);

    std::printf("update   mean squared error\n");
    for (int t = 0; t <= 3000; t++) {
        const double loss = net.learn(64);
        if (t % 500 == 0) std::printf("%6d   %.1e\n", t, loss);
        opt.step();
    }
    std::printf("\n     x   network   sin(x)\n");
    for (const double x : {-3.0, -1.5, 0.5, 1.0, 2.5}) std::printf("%6.1f %9.2f %8.2f\n", x, net(x), std::sin(x));

    try {
        opt.set("beta4", 0.5);
    } catch (const std::exception &e) {
        std::printf("\nand this is what an error says:\n%s\n", e.what());
    }
    return 0;
} catch (const std::exception &e) {
    std::fprintf(stderr, "cplusplus: %s\n", e.what());
    return 1;
}
