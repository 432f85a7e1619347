#include "fixtures.h"

#include "manifest.h"

namespace rf::data {

std::shared_ptr<const Split> make_split(const Directory& directory, const std::vector<TestDocument>& documents,
                                        int64_t vocab_size, size_t documents_per_shard) {
  const std::string hash(32, '0');
  std::vector<std::string> shards;
  int64_t tokens = 0;
  for (size_t begin = 0; begin < documents.size(); begin += documents_per_shard) {
    shards.push_back("train-" + std::to_string(begin) + ".rfs");
    ShardWriter writer(directory / shards.back(), vocab_size, hash);
    for (size_t i = begin; i < std::min(documents.size(), begin + documents_per_shard); ++i) {
      add_document(writer, documents[i].ids, documents[i].starts_word);
    }
    tokens += writer.tokens();
    writer.finish();
  }
  std::vector<int64_t> counts(static_cast<size_t>(vocab_size));
  for (const TestDocument& document : documents) {
    for (const int32_t id : document.ids) ++counts[id];
  }
  write_token_counts(directory / "train.counts.npy", counts);
  Manifest manifest;
  manifest.vocab_hash = hash;
  manifest.vocab_size = vocab_size;
  manifest.splits["train"] = {std::ssize(documents), tokens, shards, "train.counts.npy"};
  write_manifest(directory.path(), manifest);
  return std::make_shared<const Split>(directory.path(), "train", hash);
}

}  // namespace rf::data
