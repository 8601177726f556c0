// Answers launches read from standard input with the vendor's own occupancy calculator.
//
// A record is 14 little-endian 32-bit integers (see `INPUTS` in header_oracle.py); the answer is 11
// (`OUTPUTS`). Device properties come with the record, so that no GPU is needed.
#include <cstdint>
#include <cstdio>
#include <vector>

#include "cuda_occupancy.h"

int main() {
    std::vector<int32_t> in(14), out(11);
    while (std::fread(in.data(), sizeof(int32_t), in.size(), stdin) == in.size()) {
        cudaOccDeviceProp device;
        device.computeMajor = in[0];
        device.computeMinor = in[1];
        device.maxThreadsPerBlock = 1024;
        device.maxThreadsPerMultiprocessor = in[2];
        device.regsPerBlock = 65536;
        device.regsPerMultiprocessor = 65536;
        device.warpSize = 32;
        device.sharedMemPerBlock = 48 * 1024;
        device.sharedMemPerMultiprocessor = in[3];
        device.numSms = 1;
        device.sharedMemPerBlockOptin = in[4];
        device.reservedSharedMemPerBlock = in[5];

        cudaOccFuncAttributes function;
        function.maxThreadsPerBlock = 1024;
        function.numRegs = in[7];
        function.sharedSizeBytes = in[8];
        function.partitionedGCConfig = PARTITIONED_GC_OFF;
        function.shmemLimitConfig = in[13] ? FUNC_SHMEM_LIMIT_OPTIN : FUNC_SHMEM_LIMIT_DEFAULT;
        function.maxDynamicSharedSizeBytes = in[9];
        function.numBlockBarriers = in[10];
        function.virtualResourceCount = in[11];

        cudaOccDeviceState state;
        state.cacheConfig = CACHE_PREFER_NONE;
        state.carveoutConfig = in[12];

        cudaOccResult result = {};
        cudaOccError status = cudaOccMaxActiveBlocksPerMultiprocessor(
            &result, &device, &function, &state, in[6], in[9]);
        out[0] = status;
        out[1] = result.activeBlocksPerMultiprocessor;
        out[2] = static_cast<int32_t>(result.limitingFactors);
        out[3] = result.blockLimitWarps;
        out[4] = result.blockLimitBlocks;
        out[5] = result.blockLimitRegs;
        out[6] = result.blockLimitSharedMem;
        out[7] = result.blockLimitBarriers;
        out[8] = result.blockLimitVirtual;
        out[9] = result.allocatedRegistersPerBlock;
        out[10] = static_cast<int32_t>(result.allocatedSharedMemPerBlock);
        std::fwrite(out.data(), sizeof(int32_t), out.size(), stdout);
    }
    return 0;
}
