#include "train/export.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/error.hpp"
#include "base/parallel.hpp"
#include "deck/key.hpp"
#include "io/publish.hpp"
#include "train/checkpoint_index.hpp"

namespace capstan {

namespace fs = std::filesystem;
using namespace ckpt;

namespace {

const std::string kParams = "params/";

/// A tensor's place in a file; offsets count from the end of the header.
struct Placed {
  index_t tensor = 0;  ///< in the checkpoint's index
  index_t begin = 0, end = 0;
};

struct TensorFile {
  std::string name;
  std::vector<Placed> tensors;
  index_t bytes() const { return tensors.empty() ? 0 : tensors.back().end; }
};

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += std::string("\\") + c;
    } else if (code < 0x20) {
      out += format("\\u%04x", code);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

template <class List, class F>
std::string joined(const List& list, const F& f) {
  std::string out;
  for (const auto& item : list) out += (out.empty() ? "" : ", ") + f(item);
  return out;
}

std::string dtype_of(Element element, const std::string& name) {
  switch (element) {
    case Element::f32:
      return "F32";
    case Element::f64:
      return "F64";
    case Element::bf16:
      return "BF16";
    case Element::i32:
      return "I32";
    case Element::i64:
      return "I64";
    default:
      throw Error(Exit::file, "tensor " + name + " has a type that is not exported");
  }
}

std::string canonical(const StoredTensor& tensor) {
  return tensor.name.substr(kParams.size());
}

/// Which tensor goes into which file, in the order of the checkpoint.
std::vector<TensorFile> place(const Index& index, index_t file_bytes) {
  std::vector<TensorFile> files(1);
  for (std::size_t t = 0; t < index.tensors.size(); ++t) {
    const StoredTensor& tensor = index.tensors[t];
    if (tensor.name.rfind(kParams, 0) != 0) continue;
    const index_t size = tensor.shape.at(0) * tensor.row_bytes();
    if (files.back().bytes() > 0 && files.back().bytes() + size > file_bytes)
      files.emplace_back();
    const index_t begin = files.back().bytes();
    files.back().tensors.push_back({static_cast<index_t>(t), begin, begin + size});
  }
  for (std::size_t i = 0; i < files.size(); ++i)
    files[i].name = files.size() == 1
                        ? "model.safetensors"
                        : format("model-%05zu-of-%05zu.safetensors", i + 1, files.size());
  return files;
}

/// 8 bytes of length (little-endian), then JSON, padded so that the data is aligned.
std::string header(const Index& index, const TensorFile& file) {
  const auto entry = [&](const Placed& p) {
    const StoredTensor& t = index.tensors[p.tensor];
    const auto number = [](index_t n) { return std::to_string(n); };
    return quoted(canonical(t)) + ":{\"dtype\":\"" + dtype_of(t.element, t.name) +
           "\",\"shape\":[" + joined(t.shape, number) + "],\"data_offsets\":[" +
           number(p.begin) + "," + number(p.end) + "]}";
  };
  std::string json = "{\"__metadata__\":{\"format\":\"capstan\"}";
  for (const Placed& p : file.tensors) json += "," + entry(p);
  json += "}";
  json.append((8 - json.size() % 8) % 8, ' ');
  std::string out(8, '\0');
  for (int i = 0; i < 8; ++i)
    out[i] = static_cast<char>(std::uint64_t(json.size()) >> (8 * i) & 0xff);
  return out + json;
}

void write_tensors(const std::string& folder, const Index& index, const TensorFile& file,
                   const std::string& path) {
  std::ofstream out(path, std::ios::binary);
  const std::string head = header(index, file);
  out << head;
  std::vector<char> buffer;
  for (const Placed& placed : file.tensors) {
    const index_t row_bytes = index.tensors[placed.tensor].row_bytes();
    for (const StoredPiece& piece : index.pieces) {
      if (piece.tensor != placed.tensor) continue;
      const index_t start = static_cast<index_t>(head.size()) + placed.begin;
      stream_piece(open_shard(folder, index, piece.shard), index, piece, buffer,
                   [&](index_t first, index_t rows, const char* data) {
                     out.seekp(start + (piece.row0 + first) * row_bytes);
                     out.write(data, rows * row_bytes);
                   });
    }
  }
  out.close();
  if (!out) throw Error(Exit::file, "cannot write " + path + ": " + std::strerror(errno));
  sync_path(path);
}

/// Which file has a tensor, in the form that other loaders of several files read.
std::string file_map(const Index& index, const std::vector<TensorFile>& files) {
  index_t total = 0;
  std::string map;
  for (const TensorFile& file : files) {
    total += file.bytes();
    for (const Placed& p : file.tensors)
      map += (map.empty() ? "" : ",\n    ") + quoted(canonical(index.tensors[p.tensor])) +
             ": " + quoted(file.name);
  }
  return format("{\n  \"metadata\": {\"total_size\": %lld},\n  \"weight_map\": {\n    ",
                static_cast<long long>(total)) +
         map + "\n  }\n}\n";
}

std::string json_value(const Deck& deck, const std::string& path, KeyType type) {
  const auto real = [](double x) { return format("%.17g", x); };
  const auto whole = [](index_t n) { return std::to_string(n); };
  switch (type) {
    case KeyType::integer:
      return whole(deck.integer(path));
    case KeyType::real:
      return real(deck.real(path));
    case KeyType::flag:
      return deck.flag(path) ? "true" : "false";
    case KeyType::integers:
      return "[" + joined(deck.integers(path), whole) + "]";
    case KeyType::reals:
      return "[" + joined(deck.reals(path), real) + "]";
    case KeyType::texts:
      return "[" + joined(deck.texts(path), quoted) + "]";
    default:
      return quoted(deck.text(path));
  }
}

std::string block_json(const Deck& deck, const std::string& name) {
  const auto entry = [&](const Key& key) {
    const std::string path = name + "/" + key.name;
    return "\n    " + quoted(key.name) + ": " + json_value(deck, path, key.type);
  };
  return "  " + quoted(name) + ": {" + joined(find_block(name)->keys, entry) + "\n  }";
}

/// The model's and the experts' keys with every default, and where the weights are from.
std::string config(const CheckpointInfo& info) {
  const Deck deck = Deck::parse(info.text("deck"), info.path + " (deck)");
  std::string out = "{\n  \"architectures\": [\"Capstan\"],\n  \"format\": 1,\n";
  out += "  \"convention\": \"y = x W, W is [in, out]\",\n";
  for (const char* name : {"run", "deck_hash", "state_hash", "version", "scalar"})
    out += "  " + quoted(name) + ": " + quoted(info.text(name)) + ",\n";
  for (const char* name : {"step", "tokens"})
    out += "  " + quoted(name) + ": " + std::to_string(info.integer(name)) + ",\n";
  out += "  \"tokenizer\": " + quoted(deck.text("data/tokenizer")) + ",\n";
  out += block_json(deck, "model") + ",\n" + block_json(deck, "moe") + ",\n";
  return out + "  \"deck\": " + quoted(deck.dump()) + "\n}\n";
}

}  // namespace

ExportResult export_weights(const ExportSpec& spec) {
  const CheckpointInfo info = readable_checkpoint(spec.checkpoint, spec.folder);
  if (fs::exists(spec.out))
    throw Error(Exit::file, "export: " + spec.out + " is there already");
  const Index index = read_index(info.path);
  const auto problems = structure_problems(info.path, index);
  if (!problems.empty())
    throw Error(Exit::file, info.path + " is damaged:\n  " + join(problems, "\n  "));
  const std::string part = spec.out + kPart;
  fs::remove_all(part);
  make_folders(part);
  const auto files = place(index, spec.file_bytes);
  ExportResult result;
  for (const TensorFile& file : files) {
    write_tensors(info.path, index, file, part + "/" + file.name);
    result.tensors += static_cast<index_t>(file.tensors.size());
    result.bytes += file.bytes();
  }
  result.files = static_cast<index_t>(files.size());
  if (files.size() > 1)
    publish_text(part + "/model.safetensors.index.json", file_map(index, files));
  publish_text(part + "/config.json", config(info));
  publish(spec.out);
  return result;
}

}  // namespace capstan
