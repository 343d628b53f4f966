// float by oneDNN. dnnl_sgemm makes no primitive: a new shape costs nothing, which suits
// experts, whose numbers of rows change at every step. Its kernels are generated once per
// process.
#include "blas/product.hpp"

#if CAPSTAN_DNNL && !CAPSTAN_CUBLAS
#include <dnnl.h>

#include <cstdio>

#include "base/error.hpp"

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

const char* backend_float() {
  static char name[32];
  const dnnl_version_t* v = dnnl_version();
  std::snprintf(name, sizeof name, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
  return name;
}

}  // namespace capstan::blas
#endif
