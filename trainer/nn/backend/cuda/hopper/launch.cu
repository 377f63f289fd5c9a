#include "nn/backend/cuda/hopper/launch.cuh"
#include "nn/backend/cuda/sum_parts.cuh"

typedef CUresult (*encode_function)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                                    const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
                                    CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/* cuTensorMapEncodeTiled of the driver, which nothing is linked against. NULL: it has none. */
static encode_function find_encode(void) {
    void *f = NULL;
    cudaDriverEntryPointQueryResult result;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000, cudaEnableDefault, &result) !=
            cudaSuccess ||
        result != cudaDriverEntryPointSuccess)
        f = NULL;
    cudaGetLastError();
    return (encode_function)f;
}

static encode_function encode(void) {
    static const encode_function found = find_encode();
    return found;
}

bool hopper_is_here(void) {
    int device = 0, major = 0, minor = 0;
    return cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
           cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) == cudaSuccess && major == 9 &&
           minor == 0 && encode();
}

static bool make_map(CUtensorMap *map, CUtensorMapDataType type, size_t bytes, CUtensorMapSwizzle swizzle,
                     const void *array, const tensor_map_shape &s) {
    cuuint64_t size[4], stride[3];
    cuuint32_t box[4], element_strides[4] = {1, 1, 1, 1};
    for (int i = 0; i < 4; i++) {
        size[i] = (cuuint64_t)s.size[i];
        box[i] = (cuuint32_t)s.box[i];
        if (i > 0) stride[i - 1] = (cuuint64_t)s.stride[i] * bytes;
    }
    return encode() &&
           encode()(map, type, 4, (void *)array, size, stride, box, element_strides, CU_TENSOR_MAP_INTERLEAVE_NONE,
                    swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

bool make_tensor_map(CUtensorMap *map, const void *array, const tensor_map_shape &s) {
    return make_map(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, sizeof(bf16), CU_TENSOR_MAP_SWIZZLE_128B, array, s);
}

bool make_float_map(CUtensorMap *map, const float *array, int64_t cols, int64_t rows, int box) {
    return make_map(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, sizeof(float), CU_TENSOR_MAP_SWIZZLE_NONE, array,
                    {{cols, rows, 1, 1}, {1, cols, cols, cols}, {box, 1, 1, 1}});
}

bool make_image_map(CUtensorMap *map, const void *array, int64_t channels, int64_t stride, int64_t width,
                    int64_t images, int box_images, int box_rows) {
    return make_tensor_map(map, array,
                           {{channels, width, images, width},
                            {1, stride, width * width * stride, width * stride},
                            {64, (int)width, box_images, box_rows}});
}

cudaError_t hopper_launch(const void *kernel, unsigned blocks, int threads, int cluster, int bytes, void **arguments,
                          cudaStream_t stream) {
    const bool dependent = may_launch_dependent(kernel, stream);
    const cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (e != cudaSuccess) return e;
    return launch_grid(kernel, blocks, (unsigned)threads, (unsigned)cluster, (size_t)bytes, arguments, dependent,
                       stream);
}

__global__ static void __launch_bounds__(PARTS_BLOCK)
    sum_kernel(const float *from, int64_t parts, int64_t fours, target<float> to) {
    sum_parts(from, parts, fours, blockIdx.x, to);
}

cudaError_t hopper_sum_parts(const float *from, int64_t n, int64_t fours, target<float> to, cudaStream_t stream) {
    sum_kernel<<<(unsigned)parts(fours, PARTS_COLS), PARTS_BLOCK, 0, stream>>>(from, n, fours, to);
    return cudaGetLastError();
}
