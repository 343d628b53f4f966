// The counter of floating-point operations. Products are issued by the host thread alone.
#include "blas/product.hpp"

namespace capstan::blas {

namespace {
double issued = 0;
}

void count_flops(double flops) {
  issued += flops;
}
double flops_issued() {
  return issued;
}
void reset_flops_issued() {
  issued = 0;
}

}  // namespace capstan::blas
