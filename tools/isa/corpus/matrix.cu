// Exercises mma of every size, ldmatrix, cp.async and mbarrier, for plant.py. Never run.
// nvcc -std=c++17 -arch=sm_90 -cubin matrix.cu
#include <mma.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#define K __global__ void
using namespace nvcuda;
template<class A,class C,int M,int N,int KK> K wm(A*a,A*b,C*c){wmma::fragment<wmma::matrix_a,M,N,KK,A,wmma::row_major> fa;wmma::fragment<wmma::matrix_b,M,N,KK,A,wmma::col_major> fb;wmma::fragment<wmma::accumulator,M,N,KK,C> fc;wmma::fill_fragment(fc,0);for(int i=0;i<4;i++){wmma::load_matrix_sync(fa,a+i*16,16);wmma::load_matrix_sync(fb,b+i*99,16);wmma::mma_sync(fc,fa,fb,fc);}wmma::store_matrix_sync(c,fc,16,wmma::mem_row_major);}
template __global__ void wm<__half,float,16,16,16>(__half*,__half*,float*);
template __global__ void wm<__half,__half,32,8,16>(__half*,__half*,__half*);
template __global__ void wm<signed char,int,16,16,16>(signed char*,signed char*,int*);
template __global__ void wm<unsigned char,int,8,32,16>(unsigned char*,unsigned char*,int*);
template __global__ void wm<double,double,8,8,4>(double*,double*,double*);
#define M(name,NA,NB,NC,str,TA,ca,TC,cc) K name(TA*a,TC*c){TA x[NA],y[NB];TC z[NC];for(int i=0;i<NA;i++)x[i]=a[i*33+threadIdx.x];for(int i=0;i<NB;i++)y[i]=a[i*33+threadIdx.x+999];for(int i=0;i<NC;i++)z[i]=c[i*33+threadIdx.x];BODY##NA##NB##NC(str,ca,cc) for(int i=0;i<NC;i++)c[i*33+threadIdx.x]=z[i];}
#define BODY424(s,ca,cc) asm volatile(s " {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};":"+" cc(z[0]),"+" cc(z[1]),"+" cc(z[2]),"+" cc(z[3]):ca(x[0]),ca(x[1]),ca(x[2]),ca(x[3]),ca(y[0]),ca(y[1]));
#define BODY422(s,ca,cc) asm volatile(s " {%0,%1},{%2,%3,%4,%5},{%6,%7},{%0,%1};":"+" cc(z[0]),"+" cc(z[1]):ca(x[0]),ca(x[1]),ca(x[2]),ca(x[3]),ca(y[0]),ca(y[1]));
#define BODY214(s,ca,cc) asm volatile(s " {%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};":"+" cc(z[0]),"+" cc(z[1]),"+" cc(z[2]),"+" cc(z[3]):ca(x[0]),ca(x[1]),ca(y[0]));
#define BODY212(s,ca,cc) asm volatile(s " {%0,%1},{%2,%3},{%4},{%0,%1};":"+" cc(z[0]),"+" cc(z[1]):ca(x[0]),ca(x[1]),ca(y[0]));
#define BODY112(s,ca,cc) asm volatile(s " {%0,%1},{%2},{%3},{%0,%1};":"+" cc(z[0]),"+" cc(z[1]):ca(x[0]),ca(y[0]));
#define BODY844(s,ca,cc) asm volatile(s " {%0,%1,%2,%3},{%4,%5,%6,%7,%8,%9,%10,%11},{%12,%13,%14,%15},{%0,%1,%2,%3};":"+" cc(z[0]),"+" cc(z[1]),"+" cc(z[2]),"+" cc(z[3]):ca(x[0]),ca(x[1]),ca(x[2]),ca(x[3]),ca(x[4]),ca(x[5]),ca(x[6]),ca(x[7]),ca(y[0]),ca(y[1]),ca(y[2]),ca(y[3]));
M(m1,4,2,4,"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",unsigned,"r",float,"f")
M(m2,4,2,4,"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",unsigned,"r",float,"f")
M(m3,4,2,2,"mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16",unsigned,"r",unsigned,"r")
M(m4,2,1,4,"mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32",unsigned,"r",float,"f")
M(m5,4,2,4,"mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32",unsigned,"r",float,"f")
M(m6,2,1,4,"mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32",unsigned,"r",float,"f")
M(m7,4,2,4,"mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32",unsigned,"r",int,"r")
M(m8,4,2,4,"mma.sync.aligned.m16n8k32.row.col.satfinite.s32.u8.s8.s32",unsigned,"r",int,"r")
M(m9,2,1,4,"mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32",unsigned,"r",int,"r")
M(m10,1,1,2,"mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32",unsigned,"r",int,"r")
M(m11,4,2,4,"mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32",unsigned,"r",float,"f")
M(m12,4,2,4,"mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e4m3.f32",unsigned,"r",float,"f")
M(m13,4,2,4,"mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc",unsigned,"r",int,"r")
M(m14,1,1,2,"mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64",double,"d",double,"d")
M(m15,2,1,4,"mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64",double,"d",double,"d")
M(m16,4,2,4,"mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64",double,"d",double,"d")
M(m17,8,4,4,"mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64",double,"d",double,"d")
M(m18,2,1,2,"mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16",unsigned,"r",unsigned,"r")
M(m19,4,2,4,"mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32",unsigned,"r",int,"r")
M(m20,2,1,4,"mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32",unsigned,"r",float,"f")
M(m21,2,1,4,"mma.sync.aligned.m16n8k128.row.col.s32.b1.b1.s32.xor.popc",unsigned,"r",int,"r")
K sp(unsigned*a,float*c){unsigned x[8];float z[4];for(int i=0;i<8;i++)x[i]=a[i*33+threadIdx.x];for(int i=0;i<4;i++)z[i]=c[i*33+threadIdx.x];
 asm volatile("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9,%10,%11},{%0,%1,%2,%3},%12,0x0;":"+f"(z[0]),"+f"(z[1]),"+f"(z[2]),"+f"(z[3]):"r"(x[0]),"r"(x[1]),"r"(x[2]),"r"(x[3]),"r"(x[4]),"r"(x[5]),"r"(x[6]),"r"(x[7]),"r"(a[999]));
 asm volatile("mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5},{%6,%7},{%0,%1,%2,%3},%8,0x1;":"+f"(z[0]),"+f"(z[1]),"+f"(z[2]),"+f"(z[3]):"r"(x[0]),"r"(x[1]),"r"(x[4]),"r"(x[5]),"r"(a[999]));
 asm volatile("mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.f32.e4m3.e4m3.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9,%10,%11},{%0,%1,%2,%3},%12,0x0;":"+f"(z[0]),"+f"(z[1]),"+f"(z[2]),"+f"(z[3]):"r"(x[0]),"r"(x[1]),"r"(x[2]),"r"(x[3]),"r"(x[4]),"r"(x[5]),"r"(x[6]),"r"(x[7]),"r"(a[999]));
 for(int i=0;i<4;i++)c[i*33+threadIdx.x]=z[i];}
K ldm(unsigned*o){extern __shared__ unsigned s[];unsigned p=__cvta_generic_to_shared(s)+threadIdx.x*16,a,b,c,d;asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3},[%4];":"=r"(a),"=r"(b),"=r"(c),"=r"(d):"r"(p));o[0]=a+b+c+d;asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1},[%2];":"=r"(a),"=r"(b):"r"(p+64));o[1]=a+b;asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0},[%1];":"=r"(a):"r"(p+128));o[2]=a;asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0},[%1];":"=r"(a):"r"(p+128));o[2]+=a;
 asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0],{%1,%2,%3,%4};"::"r"(p),"r"(a),"r"(b),"r"(c),"r"(d));asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0],{%1,%2};"::"r"(p),"r"(a),"r"(b));asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0],{%1};"::"r"(p),"r"(a));asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0,%1;":"=r"(a):"r"(d));o[3]=a;}
K cpa(float4*g,float*f,int k){extern __shared__ float4 s4[];unsigned p=__cvta_generic_to_shared(s4)+threadIdx.x*16;asm volatile("cp.async.cg.shared.global [%0],[%1],16;"::"r"(p),"l"(g+threadIdx.x));asm volatile("cp.async.ca.shared.global [%0],[%1],4,%2;"::"r"(p+99),"l"(g+threadIdx.x+3),"r"(k));asm volatile("cp.async.ca.shared.global.L2::128B [%0],[%1],8;"::"r"(p+64),"l"(g+threadIdx.x+3));asm volatile("cp.async.ca.shared.global.L2::256B [%0],[%1],16;"::"r"(p+64),"l"(g+threadIdx.x+3));asm volatile("cp.async.commit_group;");asm volatile("cp.async.wait_group 1;");asm volatile("cp.async.wait_all;");asm volatile("cp.async.mbarrier.arrive.shared.b64 [%0];"::"r"(p));asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];"::"r"(p+8));f[0]=s4[k].x;}
K mb(unsigned long long*o,int k){__shared__ unsigned long long b[4];unsigned p=__cvta_generic_to_shared(b);asm volatile("mbarrier.init.shared.b64 [%0],%1;"::"r"(p),"r"(k));unsigned long long t;asm volatile("mbarrier.arrive.shared.b64 %0,[%1];":"=l"(t):"r"(p));o[0]=t;asm volatile("mbarrier.arrive.expect_tx.shared.b64 _,[%0],%1;"::"r"(p),"r"(k));asm volatile("mbarrier.arrive.shared.b64 %0,[%1],%2;":"=l"(t):"r"(p),"r"(k));o[1]=t;int ok;asm volatile("{.reg .pred q;mbarrier.try_wait.parity.shared.b64 q,[%1],%2;selp.u32 %0,1,0,q;}":"=r"(ok):"r"(p),"r"(k));o[2]=ok;asm volatile("{.reg .pred q;mbarrier.test_wait.shared.b64 q,[%1],%2;selp.u32 %0,1,0,q;}":"=r"(ok):"r"(p),"l"(t));o[3]=ok;asm volatile("{.reg .pred q;mbarrier.try_wait.shared.b64 q,[%1],%2,%3;selp.u32 %0,1,0,q;}":"=r"(ok):"r"(p),"l"(t),"r"(k));o[4]=ok;asm volatile("mbarrier.arrive_drop.shared.b64 %0,[%1];":"=l"(t):"r"(p));o[5]=t;asm volatile("mbarrier.pending_count.b64 %0,%1;":"=r"(ok):"l"(t));o[6]=ok;asm volatile("mbarrier.inval.shared.b64 [%0];"::"r"(p));asm volatile("mbarrier.expect_tx.relaxed.cta.shared.b64 [%0],%1;"::"r"(p),"r"(k));unsigned q;asm volatile("mapa.shared::cluster.u32 %0,%1,%2;":"=r"(q):"r"(p),"r"(k));asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _,[%0];"::"r"(q));asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _,[%0],%1;"::"r"(q),"r"(k));asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0],%1,[%2];"::"r"(q+32),"r"(k),"r"(q));asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0],{%1,%1,%1,%1},[%2];"::"r"(q+32),"r"(k),"r"(q));asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0],%1,[%2];"::"r"(q+32),"l"(t),"r"(q));}
