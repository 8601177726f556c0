// Exercises bulk and tensor copies, cluster barriers, setmaxnreg, for plant.py. Never run.
// nvcc -std=c++17 -arch=sm_90a -cubin bulk_copies.cu
#define K __global__ void
#include <cuda.h>
K tma(const __grid_constant__ CUtensorMap m,const __grid_constant__ CUtensorMap m2,char*g,int x,int y,int z,int w,int v,float*o){extern __shared__ __align__(128) char s[];unsigned p=__cvta_generic_to_shared(s),b=p+1024;
 asm volatile("cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes [%0],[%1,{%2}],[%3];"::"r"(p),"l"(&m),"r"(x),"r"(b));
 asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0],[%1,{%2,%4}],[%3];"::"r"(p),"l"(&m),"r"(x),"r"(b),"r"(y));
 asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0],[%1,{%2,%4,%5}],[%3];"::"r"(p),"l"(&m),"r"(x),"r"(b),"r"(y),"r"(z));
 asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0],[%1,{%2,%4,%5,%6}],[%3];"::"r"(p),"l"(&m),"r"(x),"r"(b),"r"(y),"r"(z),"r"(w));
 asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0],[%1,{%2,%4,%5,%6,%7}],[%3];"::"r"(p),"l"(&m),"r"(x),"r"(b),"r"(y),"r"(z),"r"(w),"r"(v));
 asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0],[%1,{%2,%4}],[%3],%5;"::"r"(p),"l"(&m),"r"(x),"r"(b),"r"(y),"h"((short)3));
 asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0],[%1,{%2,%4}],[%3],%5;"::"r"(p),"l"(&m),"r"(x),"r"(b),"r"(y),"l"(0x12F0000000000000ull));
 asm volatile("cp.async.bulk.tensor.4d.im2col.shared::cluster.global.mbarrier::complete_tx::bytes [%0],[%1,{%2,%4,%5,%6}],[%3],{%7,%8};"::"r"(p),"l"(&m),"r"(x),"r"(b),"r"(y),"r"(z),"r"(w),"h"((short)1),"h"((short)2));
 asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0,{%1,%2}],[%3];"::"l"(&m2),"r"(x),"r"(y),"r"(p));
 asm volatile("cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%0,{%1}],[%3];"::"l"(&m2),"r"(x),"r"(y),"r"(p));
 asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0,{%1,%2,%4}],[%3];"::"l"(&m2),"r"(x),"r"(y),"r"(p),"r"(z));
 asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0,{%1,%2}],[%3];"::"l"(&m2),"r"(x),"r"(y),"r"(p));
 asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global [%0,{%1,%2}];"::"l"(&m2),"r"(x),"r"(y));
 asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0],[%1],%2,[%3];"::"r"(p),"l"(g),"r"(x),"r"(b));
 asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0],[%1],%2;"::"l"(g),"r"(p),"r"(x));
 asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0],[%1],%2,[%3];"::"r"(p+4096),"r"(p),"r"(x),"r"(b));
 asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%0],[%1],%2;"::"l"(g),"r"(p),"r"(x));
 asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0],[%1],%2;"::"l"(g),"r"(p),"r"(x));
 asm volatile("cp.async.bulk.prefetch.L2.global [%0],%1;"::"l"(g),"r"(x));
 asm volatile("cp.async.bulk.commit_group;");asm volatile("cp.async.bulk.wait_group 1;");asm volatile("cp.async.bulk.wait_group.read 0;");asm volatile("prefetch.tensormap [%0];"::"l"(&m));asm volatile("fence.proxy.async;");asm volatile("fence.proxy.async.shared::cta;");asm volatile("fence.mbarrier_init.release.cluster;");asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0],128;"::"l"(g));asm volatile("tensormap.replace.tile.global_address.global.b1024.b64 [%0],%1;"::"l"(g),"l"(g+99));asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0],[%1],128;"::"l"(g),"r"(p));
 asm volatile("barrier.cluster.arrive.release;");asm volatile("barrier.cluster.wait.acquire;");asm volatile("barrier.cluster.arrive.relaxed;");asm volatile("barrier.cluster.wait;");o[0]=s[x];
 asm volatile("{.reg .pred p;elect.sync _|p,0xffffffff;@p st.global.u32 [%0],%1;}"::"l"(o+5),"r"(x));}
K smr(float*f){if(threadIdx.x<128){asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");}else{asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");f[0]=f[1];}}
