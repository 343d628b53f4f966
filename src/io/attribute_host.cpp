#include "base/error.hpp"
#include "io/file.hpp"
#include "io/guard_host.hpp"

namespace capstan {

using h5::check;
using h5::Guard;
using h5::Handle;

namespace {

/// How an attribute value is stored.
struct Stored {
  Element element = Element::i64;
  std::size_t bytes = 0;  ///< of a string
  Extents shape;          ///< empty: scalar
  const void* data = nullptr;
};

Stored stored(const Attribute& value) {
  Stored s;
  if (const auto* text = std::get_if<std::string>(&value)) {
    s = {Element::text, text->size(), {}, text->c_str()};
  } else if (const auto* list = std::get_if<std::vector<std::int64_t>>(&value)) {
    s = {Element::i64, 0, {static_cast<std::int64_t>(list->size())}, list->data()};
  } else if (const auto* real = std::get_if<double>(&value)) {
    s = {Element::f64, 0, {}, real};
  } else if (const auto* natural = std::get_if<std::uint64_t>(&value)) {
    s = {Element::u64, 0, {}, natural};
  } else {
    s = {Element::i64, 0, {}, std::get_if<std::int64_t>(&value)};
  }
  return s;
}

std::string without_padding(std::string text) {
  text.resize(text.find_last_not_of('\0') + 1);
  return text;
}

}  // namespace

void H5File::set(const std::string& object, const std::string& name,
                 const Attribute& value) {
  const Guard guard;
  const std::string what = "write attribute " + name + " of " + object;
  if (H5Aexists_by_name(id_, object.c_str(), name.c_str(), H5P_DEFAULT) > 0)
    check(H5Adelete_by_name(id_, object.c_str(), name.c_str(), H5P_DEFAULT), what, path_);
  const Stored s = stored(value);
  const Handle type = h5::type_of(s.element, s.bytes);
  const Handle attribute(
      H5Acreate_by_name(id_, object.c_str(), name.c_str(), type,
                        h5::simple_space(s.shape), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
      H5Aclose, what, path_);
  check(H5Awrite(attribute, type, s.data), what, path_);
}

std::optional<Attribute> H5File::get(const std::string& object,
                                     const std::string& name) const {
  const Guard guard;
  const std::string what = "read attribute " + name + " of " + object;
  if (H5Aexists_by_name(id_, object.c_str(), name.c_str(), H5P_DEFAULT) <= 0) return {};
  const Handle attribute(
      H5Aopen_by_name(id_, object.c_str(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT),
      H5Aclose, what, path_);
  const Handle type(H5Aget_type(attribute), H5Tclose, what, path_);
  const Handle space(H5Aget_space(attribute), H5Sclose, what, path_);
  const hssize_t n = H5Sget_simple_extent_npoints(space);
  Element element;
  if (!h5::element_of(type, element) || n < 0) return {};
  const bool scalar = H5Sget_simple_extent_ndims(space) == 0;
  if (element == Element::text && scalar) {
    std::string text(H5Tget_size(type), '\0');
    check(H5Aread(attribute, type, text.data()), what, path_);
    return without_padding(text);
  }
  const auto read_as = [&](Element as, void* out) {
    check(H5Aread(attribute, h5::type_of(as), out), what, path_);
  };
  if (!scalar && element != Element::text) {
    std::vector<std::int64_t> list(n);
    read_as(Element::i64, list.data());
    return list;
  }
  if (element == Element::f64 || element == Element::f32) {
    double x = 0;
    read_as(Element::f64, &x);
    return x;
  }
  if (element == Element::u64) {
    std::uint64_t x = 0;
    read_as(Element::u64, &x);
    return x;
  }
  if (element == Element::text) return {};
  std::int64_t x = 0;
  read_as(Element::i64, &x);
  return x;
}

std::vector<std::string> H5File::attributes(const std::string& object) const {
  const Guard guard;
  std::vector<std::string> names;
  const auto visit = [](hid_t, const char* name, const H5A_info_t*, void* out) -> herr_t {
    static_cast<std::vector<std::string>*>(out)->push_back(name);
    return 0;
  };
  check(H5Aiterate_by_name(id_, object.c_str(), H5_INDEX_NAME, H5_ITER_INC, nullptr,
                           visit, &names, H5P_DEFAULT),
        "list the attributes of " + object, path_);
  return names;
}

}  // namespace capstan
