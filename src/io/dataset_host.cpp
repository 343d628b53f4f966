#include <algorithm>
#include <limits>

#include "base/error.hpp"
#include "io/file.hpp"
#include "io/guard_host.hpp"

namespace capstan {

using h5::check;
using h5::Guard;
using h5::Handle;

namespace {

Handle open_dataset(std::int64_t file, const std::string& name, const std::string& path) {
  return Handle(H5Dopen2(file, name.c_str(), H5P_DEFAULT), H5Dclose,
                "open dataset " + name, path);
}

void select(hid_t space, const Extents& start, const Extents& count,
            const std::string& name, const std::string& path) {
  const std::vector<hsize_t> from(start.begin(), start.end()),
      n(count.begin(), count.end());
  if (H5Sget_simple_extent_ndims(space) != static_cast<int>(count.size()))
    throw Error(Exit::file, "dataset " + name + " of " + path + " does not have " +
                                std::to_string(count.size()) + " axes");
  if (!count.empty())
    check(H5Sselect_hyperslab(space, H5S_SELECT_SET, from.data(), nullptr, n.data(),
                              nullptr),
          "select a part of " + name, path);
}

/// NaN for floats, -1 (all bits set) for the rest.
void set_hole_value(hid_t list, Element element, const std::string& path) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::int64_t hole = -1;
  const bool real = element == Element::f64 || element == Element::f32;
  const Handle type = h5::type_of(real ? Element::f64 : Element::i64);
  check(H5Pset_fill_value(list, type, real ? static_cast<const void*>(&nan) : &hole),
        "set a fill value", path);
}

}  // namespace

void H5File::create(const std::string& name, Element element, const Extents& shape,
                    const Extents& chunk) {
  const Guard guard;
  const Handle list(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "make a property list",
                    path_);
  if (!chunk.empty()) {
    const std::vector<hsize_t> c(chunk.begin(), chunk.end());
    check(H5Pset_chunk(list, static_cast<int>(c.size()), c.data()),
          "set chunks of " + name, path_);
  }
  const Handle set(H5Dcreate2(id_, name.c_str(), h5::type_of(element),
                              h5::simple_space(shape), h5::parents(), list, H5P_DEFAULT),
                   H5Dclose, "create dataset " + name, path_);
}

void H5File::write(const std::string& name, Element element, const void* data,
                   const Extents& start, const Extents& count) {
  const Guard guard;
  const Handle set = open_dataset(id_, name, path_);
  const Handle space(H5Dget_space(set), H5Sclose, "open dataset " + name, path_);
  select(space, start, count, name, path_);
  if (count_of(count) == 0) return;
  check(H5Dwrite(set, h5::type_of(element), h5::simple_space(count), space, H5P_DEFAULT,
                 data),
        "write dataset " + name, path_);
}

void H5File::read(const std::string& name, Element element, void* data,
                  const Extents& start, const Extents& count) const {
  const Guard guard;
  const Handle set = open_dataset(id_, name, path_);
  const Handle space(H5Dget_space(set), H5Sclose, "open dataset " + name, path_);
  select(space, start, count, name, path_);
  if (count_of(count) == 0) return;
  check(H5Dread(set, h5::type_of(element), h5::simple_space(count), space, H5P_DEFAULT,
                data),
        "read dataset " + name, path_);
}

void H5File::put(const std::string& name, Element element, const Extents& shape,
                 const void* data) {
  create(name, element, shape);
  write(name, element, data, Extents(shape.size(), 0), shape);
}

void H5File::put_texts(const std::string& name, const std::vector<std::string>& texts) {
  const Guard guard;
  std::size_t longest = 1;
  for (const std::string& t : texts) longest = std::max(longest, t.size());
  std::string all;
  for (const std::string& t : texts) {
    all += t;
    all.resize(all.size() + longest - t.size(), '\0');
  }
  const Handle type = h5::type_of(Element::text, longest);
  const Handle set(H5Dcreate2(id_, name.c_str(), type,
                              h5::simple_space({static_cast<std::int64_t>(texts.size())}),
                              h5::parents(), H5P_DEFAULT, H5P_DEFAULT),
                   H5Dclose, "create dataset " + name, path_);
  if (texts.empty()) return;
  check(H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, all.data()),
        "write dataset " + name, path_);
}

std::vector<std::string> H5File::read_texts(const std::string& name) const {
  const Guard guard;
  const Info about = info(name);
  if (about.element != Element::text || about.shape.size() != 1)
    throw Error(Exit::file,
                "dataset " + name + " of " + path_ + " is not a list of texts");
  const Handle set = open_dataset(id_, name, path_);
  std::string all(about.shape[0] * about.text_bytes, '\0');
  if (!all.empty())
    check(H5Dread(set, h5::type_of(Element::text, about.text_bytes), H5S_ALL, H5S_ALL,
                  H5P_DEFAULT, all.data()),
          "read dataset " + name, path_);
  std::vector<std::string> texts;
  for (std::int64_t i = 0; i < about.shape[0]; ++i) {
    const std::string padded = all.substr(i * about.text_bytes, about.text_bytes);
    texts.push_back(padded.substr(0, padded.find('\0')));
  }
  return texts;
}

H5File::Info H5File::info(const std::string& name) const {
  const Guard guard;
  const Handle set = open_dataset(id_, name, path_);
  const Handle space(H5Dget_space(set), H5Sclose, "open dataset " + name, path_);
  const Handle type(H5Dget_type(set), H5Tclose, "open dataset " + name, path_);
  Info info;
  if (!h5::element_of(type, info.element))
    throw Error(Exit::file, "dataset " + name + " of " + path_ + " has a foreign type");
  if (info.element == Element::text) info.text_bytes = H5Tget_size(type);
  std::vector<hsize_t> shape(std::max(0, H5Sget_simple_extent_ndims(space)));
  H5Sget_simple_extent_dims(space, shape.data(), nullptr);
  info.shape.assign(shape.begin(), shape.end());
  return info;
}

void H5File::create_virtual(const std::string& name, Element element,
                            const Extents& shape, const std::vector<Source>& sources) {
  const Guard guard;
  const Handle list(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "make a property list",
                    path_);
  set_hole_value(list, element, path_);
  const Handle space = h5::simple_space(shape);
  for (const Source& source : sources) {
    if (source.rows == 0) continue;
    Extents start(shape.size(), 0), part = shape;
    start[0] = source.row0;
    part[0] = source.rows;
    select(space, start, part, name, path_);
    check(H5Pset_virtual(list, space, source.file.c_str(), source.dataset.c_str(),
                         h5::simple_space(part)),
          "map a part of " + name, path_);
  }
  check(H5Sselect_all(space), "select all of " + name, path_);
  const Handle set(H5Dcreate2(id_, name.c_str(), h5::type_of(element), space,
                              h5::parents(), list, H5P_DEFAULT),
                   H5Dclose, "create dataset " + name, path_);
}

}  // namespace capstan
