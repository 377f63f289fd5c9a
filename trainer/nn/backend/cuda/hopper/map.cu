#include "nn/backend/cuda/hopper/map.h"
#include "nn/backend/cuda/hopper/following.cuh"

typedef CUresult (*encode_function)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                                    const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
                                    CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/* The driver's: nothing is linked against it. NULL: it has none. */
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

bool hopper_map(CUtensorMap *map, const void *array, const map_shape *s) {
    cuuint64_t size[4], stride[3];
    cuuint32_t box[4], every[4] = {1, 1, 1, 1};
    for (int i = 0; i < 4; i++) {
        size[i] = (cuuint64_t)s->size[i];
        box[i] = (cuuint32_t)s->box[i];
        if (i > 0) stride[i - 1] = (cuuint64_t)s->stride[i] * 2;
    }
    return encode() && encode()(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, (void *)array, size, stride, box, every,
                                CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

cudaError_t hopper_launch(const void *kernel, unsigned blocks, int threads, int cluster, int bytes, void **arguments,
                          cudaStream_t stream) {
    cudaLaunchAttribute attributes[2] = {};
    unsigned n = 0;
    if (cluster > 1) {
        attributes[n].id = cudaLaunchAttributeClusterDimension;
        attributes[n].val.clusterDim.x = (unsigned)cluster;
        attributes[n].val.clusterDim.y = attributes[n].val.clusterDim.z = 1;
        n++;
    }
    if (may_follow(kernel, stream)) {
        attributes[n].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attributes[n].val.programmaticStreamSerializationAllowed = 1;
        n++;
    }
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3((unsigned)threads);
    config.dynamicSmemBytes = (size_t)bytes;
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = n;
    const cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    return e == cudaSuccess ? cudaLaunchKernelExC(&config, kernel, arguments) : e;
}
