#include "deck/tables.hpp"

#include <cctype>

namespace capstan {
namespace {

Key make_key(const char* name, KeyType type, const char* fallback) {
  Key k;
  k.name = name;
  k.type = type;
  k.fallback = std::string(fallback);
  return k;
}

}  // namespace

Key integer(const char* name) {
  return make_key(name, KeyType::integer, "0");
}
Key real(const char* name) {
  return make_key(name, KeyType::real, "0");
}
Key flag(const char* name) {
  return make_key(name, KeyType::flag, "false");
}
Key text(const char* name) {
  return make_key(name, KeyType::text, "");
}
Key integers(const char* name) {
  return make_key(name, KeyType::integers, "");
}
Key reals(const char* name) {
  return make_key(name, KeyType::reals, "");
}
Key texts(const char* name) {
  return make_key(name, KeyType::texts, "");
}

Key&& Key::otherwise(const char* value) && {
  fallback = std::string(value);
  return std::move(*this);
}

const std::vector<Block>& deck_blocks() {
  static const std::vector<Block> blocks = {
      job_table(),     grid_table(),       topology_table(),   model_table(),
      moe_table(),     scale_table(),      batch_table(),      data_table(),
      mixture_table(), optimizer_table(),  group_table(),      schedule_table(),
      eval_table(),    checkpoint_table(), health_table(),     diagnostics_table(),
      memory_table(),  rehearsal_table(),  experiment_table(),
  };
  return blocks;
}

const Block* find_block(const std::string& heading) {
  for (const auto& block : deck_blocks()) {
    if (!block.numbered) {
      if (heading == block.name) return &block;
      continue;
    }
    const std::size_t stem = block.name.size();
    if (heading.size() <= stem || heading.size() > stem + 4) continue;
    if (heading.compare(0, stem, block.name) != 0 || heading[stem] == '0') continue;
    bool digits = true;
    for (std::size_t i = stem; i < heading.size(); ++i)
      digits = digits && std::isdigit(static_cast<unsigned char>(heading[i]));
    if (digits) return &block;
  }
  return nullptr;
}

const Key* find_key(const std::string& path) {
  const auto slash = path.find('/');
  if (slash == std::string::npos) return nullptr;
  const Block* block = find_block(path.substr(0, slash));
  return block ? block->find(path.substr(slash + 1)) : nullptr;
}

}  // namespace capstan
