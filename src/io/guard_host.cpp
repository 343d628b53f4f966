#include "io/guard_host.hpp"

#include "base/error.hpp"

namespace capstan {

std::size_t bytes_of(Element element) {
  switch (element) {
    case Element::f64:
    case Element::i64:
    case Element::u64:
      return 8;
    case Element::f32:
    case Element::i32:
      return 4;
    case Element::bf16:
      return 2;
    case Element::u8:
      return 1;
    case Element::text:
      return 0;
  }
  return 0;
}

const char* name_of(Element element) {
  switch (element) {
    case Element::f64:
      return "float64";
    case Element::f32:
      return "float32";
    case Element::bf16:
      return "bf16";
    case Element::i64:
      return "int64";
    case Element::i32:
      return "int32";
    case Element::u64:
      return "uint64";
    case Element::u8:
      return "uint8";
    case Element::text:
      return "text";
  }
  return "unknown";
}

std::int64_t count_of(const Extents& extents) {
  std::int64_t n = 1;
  for (const std::int64_t e : extents) n *= e;
  return n;
}

std::string text_of(const Extents& extents) {
  std::string text = "[";
  for (std::size_t i = 0; i < extents.size(); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(extents[i]);
  return text + "]";
}

namespace h5 {

Guard::Guard() {
  static std::recursive_mutex mutex;
  lock_ = std::unique_lock<std::recursive_mutex>(mutex);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

void fail(const std::string& what, const std::string& file) {
  std::string reason;
  const auto take = [](unsigned n, const H5E_error2_t* error, void* out) -> herr_t {
    if (n == 0 && error->desc != nullptr) *static_cast<std::string*>(out) = error->desc;
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take, &reason);
  H5Eclear2(H5E_DEFAULT);
  throw Error(Exit::file, "cannot " + what + " of " + file +
                              (reason.empty() ? "" : ": " + reason.substr(0, 200)));
}

Handle type_of(Element element, std::size_t bytes) {
  hid_t base = H5T_NATIVE_DOUBLE;
  switch (element) {
    case Element::f64:
      break;
    case Element::f32:
      base = H5T_NATIVE_FLOAT;
      break;
    case Element::bf16:
      base = H5T_NATIVE_UINT16;
      break;
    case Element::i64:
      base = H5T_NATIVE_INT64;
      break;
    case Element::i32:
      base = H5T_NATIVE_INT32;
      break;
    case Element::u64:
      base = H5T_NATIVE_UINT64;
      break;
    case Element::u8:
      base = H5T_NATIVE_UINT8;
      break;
    case Element::text:
      base = H5T_C_S1;
      break;
  }
  Handle type(H5Tcopy(base), H5Tclose, "copy a type", "HDF5");
  if (element == Element::text) {
    check(H5Tset_size(type, bytes == 0 ? 1 : bytes), "size a type", "HDF5");
    check(H5Tset_strpad(type, H5T_STR_NULLPAD), "pad a type", "HDF5");
  }
  return type;
}

bool element_of(hid_t type, Element& element) {
  if (H5Tget_class(type) == H5T_STRING) {
    element = Element::text;
    return H5Tis_variable_str(type) == 0;
  }
  const Handle native(H5Tget_native_type(type, H5T_DIR_ASCEND), H5Tclose, "read a type",
                      "HDF5");
  for (const Element e : {Element::f64, Element::f32, Element::bf16, Element::i64,
                          Element::i32, Element::u64, Element::u8})
    if (H5Tequal(native, type_of(e)) > 0) {
      element = e;
      return true;
    }
  return false;
}

Handle simple_space(const Extents& shape, const Extents& most) {
  const std::vector<hsize_t> now(shape.begin(), shape.end());
  std::vector<hsize_t> limit(shape.size());
  for (std::size_t i = 0; i < most.size(); ++i)
    limit[i] = most[i] < 0 ? H5S_UNLIMITED : static_cast<hsize_t>(most[i]);
  const hid_t id = shape.empty()
                       ? H5Screate(H5S_SCALAR)
                       : H5Screate_simple(static_cast<int>(shape.size()), now.data(),
                                          most.empty() ? nullptr : limit.data());
  return Handle(id, H5Sclose, "make a space " + text_of(shape), "HDF5");
}

Handle parents() {
  Handle list(H5Pcreate(H5P_LINK_CREATE), H5Pclose, "make a property list", "HDF5");
  check(H5Pset_create_intermediate_group(list, 1), "set a property", "HDF5");
  return list;
}

}  // namespace h5

}  // namespace capstan
