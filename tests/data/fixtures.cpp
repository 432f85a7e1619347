#include "fixtures.h"

#include <nlohmann/json.hpp>

namespace rf::data {

std::shared_ptr<const Split> make_split(const Directory& directory, const std::vector<TestDocument>& documents,
                                        int64_t vocab_size, size_t documents_per_shard) {
  const std::string hash(32, '0');
  nlohmann::json shards = nlohmann::json::array();
  int64_t tokens = 0;
  for (size_t begin = 0; begin < documents.size(); begin += documents_per_shard) {
    shards.push_back("train-" + std::to_string(begin) + ".rfs");
    ShardWriter writer(directory / shards.back().get<std::string>(), vocab_size, hash);
    for (size_t i = begin; i < std::min(documents.size(), begin + documents_per_shard); ++i) {
      add_document(writer, documents[i].ids, documents[i].starts_word);
    }
    tokens += writer.tokens();
    writer.finish();
  }
  const nlohmann::json manifest = {
      {"format", "roformer-data"},
      {"version", 1},
      {"vocab_hash", hash},
      {"vocab_size", vocab_size},
      {"document_rule", "line"},
      {"seed", 1},
      {"valid_fraction", 0},
      {"input_files", 1},
      {"input_bytes", 1},
      {"unknown_tokens", 0},
      {"replaced_bytes", 0},
      {"splits", {{"train", {{"documents", documents.size()}, {"tokens", tokens}, {"shards", shards}}}}}};
  write(directory / "data.json", manifest.dump());
  return std::make_shared<const Split>(directory.path(), "train", hash);
}

}  // namespace rf::data
