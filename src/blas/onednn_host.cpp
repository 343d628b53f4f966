// float and bf16 by oneDNN. dnnl_sgemm makes no primitive: a new shape costs nothing,
// which suits experts, whose numbers of rows change at every step. Its kernels are
// generated once per process. Its sister for bf16 is exported, but in no header:
// CMake looks for it (CAPSTAN_DNNL_BF16).
#include "blas/product.hpp"

#if CAPSTAN_DNNL && !CAPSTAN_CUBLAS
#include <dnnl.h>

#include <cstdio>

#include "base/error.hpp"

#if CAPSTAN_DNNL_BF16
extern "C" dnnl_status_t DNNL_API dnnl_gemm_bf16bf16f32(
    char op_a, char op_b, dnnl_dim_t m, dnnl_dim_t n, dnnl_dim_t k, float alpha,
    const std::uint16_t* a, dnnl_dim_t lda, const std::uint16_t* b, dnnl_dim_t ldb,
    float beta, float* c, dnnl_dim_t ldc);
#endif

namespace capstan::blas {

namespace {
char letter(Op op) {
  return op == Op::N ? 'N' : 'T';
}
}  // namespace

void library::multiply(const Product<float>& p) {
  const dnnl_status_t status =
      dnnl_sgemm(letter(p.op_a), letter(p.op_b), p.m, p.n, p.k, p.alpha, p.a, p.lda, p.b,
                 p.ldb, p.beta, p.c, p.ldc);
  require(status == dnnl_success, "oneDNN refused a matrix product");
}

#if CAPSTAN_DNNL_BF16
/// Processors without the instructions for it: not implemented.
void library::multiply(const Product<bf16, float>& p) {
  const dnnl_status_t status =
      dnnl_gemm_bf16bf16f32(letter(p.op_a), letter(p.op_b), p.m, p.n, p.k, p.alpha,
                            &p.a->bits, p.lda, &p.b->bits, p.ldb, p.beta, p.c, p.ldc);
  if (status == dnnl_unimplemented) return multiply_widened(p);
  require(status == dnnl_success, "oneDNN refused a matrix product");
}
const char* backend_bf16() {
  return backend_float();
}
#endif

const char* backend_float() {
  static char name[32];
  const dnnl_version_t* v = dnnl_version();
  std::snprintf(name, sizeof name, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
  return name;
}

}  // namespace capstan::blas
#endif
