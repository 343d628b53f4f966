#pragma once
/// \file Inside of the io floor: the HDF5 lock, checked handles, type translation.
#define H5_USE_110_API 1  // newer libraries keep these signatures
#include <hdf5.h>

#include <mutex>
#include <string>
#include <utility>

#include "io/element.hpp"

namespace capstan::h5 {

/// Held during every HDF5 call. The library keeps its state by process, so this lock is
/// the process's, too.
class Guard {
 public:
  Guard();

 private:
  std::unique_lock<std::recursive_mutex> lock_;
};

/// Throws Error(Exit::file): "cannot <what> of FILE: <HDF5's innermost reason>".
[[noreturn]] void fail(const std::string& what, const std::string& file);
inline void check(herr_t code, const std::string& what, const std::string& file) {
  if (code < 0) fail(what, file);
}

/// An identifier that is closed at the end of its scope.
class Handle {
 public:
  using Close = herr_t (*)(hid_t);
  Handle() = default;
  Handle(hid_t id, Close close, const std::string& what, const std::string& file)
      : id_(id), close_(close) {
    if (id_ < 0) fail(what, file);
  }
  ~Handle() { reset(); }
  Handle(Handle&& other) noexcept
      : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }
  operator hid_t() const { return id_; }
  void reset() {
    if (id_ >= 0) close_(id_);
    id_ = -1;
  }

 private:
  hid_t id_ = -1;
  Close close_ = nullptr;
};

/// A copy of the native memory type; text of `bytes` bytes, padded with zeros.
Handle type_of(Element element, std::size_t bytes = 0);
/// The element type of a stored type; false when Capstan has none for it.
bool element_of(hid_t type, Element& element);
Handle simple_space(const Extents& shape, const Extents& most = {});
/// A property list of links that creates the groups on the way.
Handle parents();

}  // namespace capstan::h5
