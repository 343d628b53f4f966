#include "train/checkpoint_index.hpp"

#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>

#include "base/error.hpp"
#include "base/hash.hpp"

namespace capstan {

namespace fs = std::filesystem;

namespace ckpt {

namespace {

constexpr std::int64_t kFormat = 1;

template <class T, class F>
void put_column(H5File& file, const std::string& name, Element element,
                const std::vector<StoredPiece>& pieces, F&& value) {
  std::vector<T> column;
  for (const StoredPiece& p : pieces) column.push_back(static_cast<T>(value(p)));
  file.put(name, element, {static_cast<std::int64_t>(column.size())}, column.data());
}

template <class T>
std::vector<T> read_column(const H5File& file, const std::string& name, Element element) {
  const Extents shape = file.info(name).shape;
  std::vector<T> column(count_of(shape));
  file.read(name, element, column.data(), Extents(shape.size(), 0), shape);
  return column;
}

/// Every tensor whole, as a virtual dataset over its pieces.
void put_tensors(H5File& file, const Index& index) {
  std::vector<std::vector<H5File::Source>> sources(index.tensors.size());
  for (const StoredPiece& p : index.pieces)
    sources.at(p.tensor).push_back({shard_name(p.shard),
                                    piece_path(p.shard, index.tensors[p.tensor].name),
                                    p.row0, p.rows});
  for (std::size_t t = 0; t < index.tensors.size(); ++t) {
    const StoredTensor& tensor = index.tensors[t];
    file.create_virtual(tensor.name, tensor.element, tensor.shape, sources[t]);
    file.set(tensor.name, "checksum", tensor.checksum);
  }
}

/// The tables that Capstan reads. It does not open the virtual datasets: HDF5 does not
/// survive every damage to their mappings.
void put_tables(H5File& file, const Index& index) {
  std::vector<std::string> names, types;
  std::vector<std::uint64_t> checksums;
  std::vector<std::int64_t> axes, extents;
  for (const StoredTensor& t : index.tensors) {
    names.push_back(t.name);
    types.push_back(name_of(t.element));
    checksums.push_back(t.checksum);
    axes.push_back(static_cast<std::int64_t>(t.shape.size()));
    extents.insert(extents.end(), t.shape.begin(), t.shape.end());
  }
  const auto n = static_cast<std::int64_t>(names.size());
  file.put_texts("pieces/names", names);
  file.put_texts("pieces/types", types);
  file.put("pieces/checksums", Element::u64, {n}, checksums.data());
  file.put("pieces/axes", Element::i64, {n}, axes.data());
  file.put("pieces/extents", Element::i64, {static_cast<std::int64_t>(extents.size())},
           extents.data());
  const auto& all = index.pieces;
  put_column<std::int32_t>(file, "pieces/tensor", Element::i32, all,
                           [](const auto& p) { return p.tensor; });
  put_column<std::int32_t>(file, "pieces/shard", Element::i32, all,
                           [](const auto& p) { return p.shard; });
  put_column<std::int64_t>(file, "pieces/row0", Element::i64, all,
                           [](const auto& p) { return p.row0; });
  put_column<std::int64_t>(file, "pieces/rows", Element::i64, all,
                           [](const auto& p) { return p.rows; });
  put_column<std::uint64_t>(file, "pieces/hash", Element::u64, all,
                            [](const auto& p) { return p.hash; });
}

[[noreturn]] void damaged(const H5File& file) {
  throw Error(Exit::file, file.path() + " is damaged");
}

Element element_named(const std::string& name, const H5File& file) {
  for (const Element e : {Element::f64, Element::f32, Element::bf16, Element::i64,
                          Element::i32, Element::u64, Element::u8})
    if (name == name_of(e)) return e;
  damaged(file);
}

void read_tensors(const H5File& file, Index& index) {
  const auto names = file.read_texts("pieces/names"),
             types = file.read_texts("pieces/types");
  const auto checksums =
      read_column<std::uint64_t>(file, "pieces/checksums", Element::u64);
  const auto axes = read_column<std::int64_t>(file, "pieces/axes", Element::i64);
  const auto extents = read_column<std::int64_t>(file, "pieces/extents", Element::i64);
  const std::size_t n = names.size();
  if (types.size() != n || checksums.size() != n || axes.size() != n) damaged(file);
  std::size_t at = 0;
  for (std::size_t t = 0; t < n; ++t) {
    if (axes[t] < 1 || axes[t] > static_cast<std::int64_t>(extents.size() - at))
      damaged(file);
    const auto first = extents.begin() + static_cast<std::ptrdiff_t>(at);
    index.tensors.push_back({names[t], element_named(types[t], file),
                             Extents(first, first + axes[t]), checksums[t]});
    at += static_cast<std::size_t>(axes[t]);
  }
}

void read_pieces(const H5File& file, Index& index) {
  const auto tensor = read_column<std::int32_t>(file, "pieces/tensor", Element::i32);
  const auto shard = read_column<std::int32_t>(file, "pieces/shard", Element::i32);
  const auto row0 = read_column<std::int64_t>(file, "pieces/row0", Element::i64);
  const auto rows = read_column<std::int64_t>(file, "pieces/rows", Element::i64);
  const auto hash = read_column<std::uint64_t>(file, "pieces/hash", Element::u64);
  const std::size_t n = tensor.size();
  if (shard.size() != n || row0.size() != n || rows.size() != n || hash.size() != n)
    damaged(file);
  for (std::size_t i = 0; i < n; ++i) {
    if (tensor[i] < 0 || tensor[i] >= static_cast<std::int32_t>(index.tensors.size()) ||
        shard[i] < 0 || shard[i] >= index.shards())
      damaged(file);
    index.pieces.push_back({tensor[i], shard[i], row0[i], rows[i], hash[i]});
  }
}

/// Hash of all that meta.h5 says but the virtual datasets.
std::uint64_t hash_of(const Index& index) {
  std::uint64_t hash = 0;
  const auto add = [&hash](const auto& x) { hash = hash_bytes(&x, sizeof x, hash); };
  const auto add_all = [&hash](const auto& list) {
    hash = hash_bytes(list.data(), list.size() * sizeof list[0], hash);
  };
  for (const auto& [name, value] : index.attributes) {
    if (name == "format" || name == "index_hash") continue;
    add_all(name);
    std::visit(
        [&](const auto& x) {
          if constexpr (std::is_arithmetic_v<std::decay_t<decltype(x)>>)
            add(x);
          else
            add_all(x);
        },
        value);
  }
  for (const StoredTensor& t : index.tensors) {
    add_all(t.name);
    add(static_cast<std::int64_t>(t.element));
    add_all(t.shape);
    add(t.checksum);
  }
  for (const StoredPiece& p : index.pieces)
    add_all(std::vector<std::uint64_t>{
        static_cast<std::uint64_t>(p.tensor), static_cast<std::uint64_t>(p.shard),
        static_cast<std::uint64_t>(p.row0), static_cast<std::uint64_t>(p.rows), p.hash});
  return hash;
}

/// Tensors whose pieces do not cover their rows once.
void coverage_problems(const Index& index, std::vector<std::string>& problems) {
  std::vector<std::vector<std::pair<index_t, index_t>>> rows(index.tensors.size());
  for (const StoredPiece& p : index.pieces)
    if (p.rows > 0) rows.at(p.tensor).push_back({p.row0, p.rows});
  for (std::size_t t = 0; t < rows.size(); ++t) {
    std::sort(rows[t].begin(), rows[t].end());
    index_t next = 0;
    for (const auto& [row0, n] : rows[t]) {
      if (row0 != next) break;
      next += n;
    }
    if (next != index.tensors[t].shape.at(0))
      problems.push_back(index.tensors[t].name + ": its pieces do not cover " +
                         text_of(index.tensors[t].shape) + " once");
  }
}

}  // namespace

index_t StoredTensor::row_bytes() const {
  index_t n = static_cast<index_t>(bytes_of(element));
  for (std::size_t a = 1; a < shape.size(); ++a) n *= shape[a];
  return n;
}

index_t Index::shards() const {
  const auto* n = value_of<std::int64_t>(attributes, "shards");
  return n == nullptr ? 0 : *n;
}

std::uint64_t Index::save_id() const {
  const auto* id = value_of<std::uint64_t>(attributes, "save_id");
  return id == nullptr ? 0 : *id;
}

std::string shard_name(index_t shard) {
  return format("shard_%05lld.h5", static_cast<long long>(shard));
}

std::string piece_path(index_t shard, const std::string& tensor) {
  return format("rank_%05lld/", static_cast<long long>(shard)) + tensor;
}

void write_index(const std::string& folder, const Index& index) {
  index_t bytes = (index_t(256) << 10) +
                  4096 * static_cast<index_t>(index.tensors.size()) +
                  512 * static_cast<index_t>(index.pieces.size());
  for (const auto& [name, value] : index.attributes)
    if (const auto* text = std::get_if<std::string>(&value))
      bytes += 2 * static_cast<index_t>(text->size());
  H5File file(folder + "/meta.h5", H5File::Mode::create, bytes);
  try {
    put_tensors(file, index);
    put_tables(file, index);
    for (const auto& [name, value] : index.attributes) file.set("/", name, value);
    file.set("/", "index_hash", hash_of(index));
    file.set("/", "format", kFormat);
    file.close();
  } catch (const Error&) {
    file.discard();
    throw;
  }
}

Index read_index(const std::string& folder) {
  if (!fs::is_directory(folder)) throw Error(Exit::file, "no such checkpoint: " + folder);
  const H5File file(folder + "/meta.h5", H5File::Mode::read);
  Index index;
  for (const std::string& name : file.attributes("/"))
    if (auto value = file.get("/", name))
      index.attributes.emplace(name, std::move(*value));
  const auto* version = value_of<std::int64_t>(index.attributes, "format");
  if (version == nullptr || !file.has("pieces/names"))
    throw Error(Exit::file, file.path() + " is not of a checkpoint of Capstan");
  if (*version != kFormat)
    throw Error(Exit::file, format("%s has format %lld; this program reads format %lld",
                                   file.path().c_str(), static_cast<long long>(*version),
                                   static_cast<long long>(kFormat)));
  read_tensors(file, index);
  read_pieces(file, index);
  const auto* hash = value_of<std::uint64_t>(index.attributes, "index_hash");
  if (hash == nullptr || *hash != hash_of(index)) damaged(file);
  return index;
}

std::vector<std::string> structure_problems(const std::string& folder,
                                            const Index& index) {
  std::vector<std::string> problems;
  coverage_problems(index, problems);
  std::set<std::string> expected = {"meta.h5"};
  for (index_t s = 0; s < index.shards(); ++s) {
    expected.insert(shard_name(s));
    try {
      open_shard(folder, index, s);
    } catch (const Error& e) {
      problems.push_back(e.what());
    }
  }
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (entry.path().extension() == ".h5" && expected.count(name) == 0)
      problems.push_back("extra file: " + entry.path().string());
  }
  return problems;
}

H5File open_shard(const std::string& folder, const Index& index, index_t shard) {
  H5File file(folder + "/" + shard_name(shard), H5File::Mode::read);
  const auto id = file.get("/", "save_id");
  const auto* mark = id ? std::get_if<std::uint64_t>(&*id) : nullptr;
  if (mark == nullptr || *mark != index.save_id())
    throw Error(Exit::file, "foreign file, from another save: " + file.path());
  return file;
}

}  // namespace ckpt

}  // namespace capstan
