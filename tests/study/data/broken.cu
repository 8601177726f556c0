// Does not compile: the factor 3 names a type that isn't there.
extern "C" __global__ void broken(float *y)
{
#if UNROLL == 3
    undeclared_t z;
#endif
    y[threadIdx.x] = UNROLL;
}
