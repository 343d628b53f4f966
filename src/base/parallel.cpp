#include "base/parallel.hpp"

#include <cstdlib>
#include <new>

namespace capstan {

namespace {
struct ThreadScratch {
  char* data = nullptr;
  index_t bytes = 0;
  ~ThreadScratch() { std::free(data); }
};
}  // namespace

#if !defined(KOKKOS_ENABLE_CUDA)
char* thread_scratch(index_t bytes) {
  thread_local ThreadScratch scratch;
  if (bytes > scratch.bytes) {
    std::free(scratch.data);
    const index_t rounded = (bytes + 4095) / 4096 * 4096;
    scratch.data = static_cast<char*>(std::aligned_alloc(64, rounded));
    if (scratch.data == nullptr) throw std::bad_alloc();
    scratch.bytes = rounded;
  }
  return scratch.data;
}
#endif

}  // namespace capstan
