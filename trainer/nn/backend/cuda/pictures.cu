/* Pictures out of a data set of bytes on the device (ops/pictures.c): gathered, cut, mirrored and normalised in one launch,
 * a pixel a thread. */
#include "nn/backend/cuda/cuda.h"
extern "C" {
#include "nn/ops/picture_window.h"
}

struct picture_shape {
    nn_picture_options options;
    int64_t rows, height, width;
    const uint64_t *random;
    uint64_t node;
    bool training;
};

template <typename T>
__global__ static void picture_kernel(const __grid_constant__ picture_shape s, const uint8_t *images,
                                      const int32_t *indices, const int32_t *draws, T *to) {
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, size = s.options.size;
    const int64_t row = i / (size * size), y = i / size % size, x = i % size;
    if (row >= s.rows) return;
    const uint64_t key = nn_stream_key(*s.random, s.node);
    const nn_window w = nn_draw_window(&s.options, s.training, s.height, s.width, key, draws[row]);
    const int64_t a = w.top + y, b = w.left + (w.mirror ? size - 1 - x : x);
    const bool inside = a >= 0 && a < s.height && b >= 0 && b < s.width;
    const uint8_t *pixel = images + ((indices[row] * s.height + a) * s.width + b) * 3;
    for (int k = 0; k < 3; k++) {
        const float v = nn_normal_byte(inside ? pixel[k] : 0, s.options.mean[k], s.options.deviation[k]);
        to[i * 3 + k] = narrow<T>(v);
    }
}

template <typename T> static void run(const nn_call *c) {
    const nn_array *images = &c->input[0];
    const picture_shape s = {
        *NN_ATTR(pictures, c), c->output[0].rows, images->shape->dim[1], images->shape->dim[2], c->device->random,
        c->device->node,       c->training};
    const int64_t n = s.rows * s.options.size * s.options.size;
    if (n > 0)
        picture_kernel<T><<<(unsigned)parts(n, 256), 256, 0, stream_of(c)>>>(
            s, (const uint8_t *)images->data, (const int32_t *)c->input[1].data, (const int32_t *)c->input[2].data,
            (T *)c->output[0].data);
}

const nn_kernels nn_cuda_pictures = {.forward = NN_BY_TYPE(output[0], run)};
