// Writes the shards of a split and chooses the split of a document. prepare() and merge() share this code, so that both
// write the same bytes.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "manifest.h"
#include "rf/data/prepare.h"
#include "rf/data/random.h"
#include "rf/data/reader.h"
#include "rf/data/shard.h"

namespace rf::data {

inline constexpr std::string_view kTrain = "train", kValid = "valid", kTest = "test";

// Consecutive tokens of a document.
struct Tokens {
  std::span<const int32_t> ids;
  std::span<const uint8_t> starts_word;
};

// Writes the shards of one split, and the number of occurrences of each token; a new shard begins when one is full.
class SplitWriter {
 public:
  SplitWriter(std::string directory, std::string_view name, int64_t vocab_size, std::string vocab_hash,
              int64_t shard_tokens)
      : directory_(std::move(directory)),
        name_(name),
        size_(vocab_size),
        hash_(std::move(vocab_hash)),
        shard_tokens_(shard_tokens),
        token_counts_(static_cast<size_t>(vocab_size)) {}

  void append(const Tokens& tokens) {
    if (tokens.ids.empty()) return;
    if (!shard_) {
      contents_.shards.push_back(fmt::format("{}-{:05}.rfs", name_, contents_.shards.size()));
      shard_.emplace(directory_ + "/" + contents_.shards.back(), size_, hash_);
    }
    shard_->append(tokens.ids, tokens.starts_word);
    contents_.tokens += std::ssize(tokens.ids);
    for (const int32_t id : tokens.ids) ++token_counts_[static_cast<size_t>(id)];
    inside_document_ = true;
  }
  // Ignored for a document without tokens.
  void end_document() {
    if (!inside_document_) return;
    inside_document_ = false;
    contents_.documents += 1;
    shard_->end_document();
    if (shard_->tokens() >= shard_tokens_) finish_shard();
  }
  void add(const Tokens& tokens, DocumentPart::End end) {
    append(tokens);
    if (end == DocumentPart::End::kOfDocument) end_document();
  }
  // After the last document.
  void finish() {
    finish_shard();
    contents_.token_counts = name_ + ".counts.npy";
    write_token_counts(directory_ + "/" + contents_.token_counts, token_counts_);
  }
  const ManifestSplit& contents() const { return contents_; }

 private:
  void finish_shard() {
    if (shard_) shard_->finish();
    shard_.reset();
  }

  std::string directory_, name_;
  int64_t size_;
  std::string hash_;
  int64_t shard_tokens_;
  ManifestSplit contents_;
  std::optional<ShardWriter> shard_;
  std::vector<int64_t> token_counts_;
  bool inside_document_ = false;
};

using SplitWriters = std::map<std::string, SplitWriter, std::less<>>;
// Finishes all splits; adds their counts to the manifest and the report.
inline void finish_splits(SplitWriters& splits, Manifest& manifest, PrepareReport& report) {
  const auto tokens_of = [&](std::string_view name) {
    const auto found = splits.find(name);
    return found == splits.end() ? 0 : found->second.contents().tokens;
  };
  for (auto& [name, split] : splits) {
    split.finish();
    report.documents += split.contents().documents;
    manifest.splits[name] = split.contents();
  }
  report.train_tokens = tokens_of(kTrain);
  report.valid_tokens = tokens_of(kValid);
  report.test_tokens = tokens_of(kTest);
}

// Assigns each document of the input to a split by a hash of its number. Documents without a token are not numbered.
// The first document that is not too long waits until both splits have one or the input ends.
class SplitAssigner {
 public:
  SplitAssigner(double valid_fraction, uint64_t seed, SplitWriter& train, SplitWriter& valid)
      : valid_fraction_(valid_fraction), seed_(seed), train_(train), valid_(valid), wanted_(valid_fraction > 0) {}

  void add(const Tokens& tokens, DocumentPart::End end) {
    if (!tokens.ids.empty()) {
      if (current_ == nullptr && wanted_) {
        wait(tokens);
      } else {
        if (current_ == nullptr) current_ = &choose(number_);
        current_->append(tokens);
      }
    }
    if (end == DocumentPart::End::kOfDocument) end_document();
  }
  void finish() {
    if (!waiting_ids_.empty()) release(train_.contents().documents == 0 ? train_ : valid_);
  }

 private:
  static constexpr size_t kMaxWaitingTokens = size_t{1} << 22;  // for a document that waits for its split

  // Adds to the waiting document; writes it to its split if it becomes too long to wait.
  void wait(const Tokens& tokens) {
    waiting_ids_.insert(waiting_ids_.end(), tokens.ids.begin(), tokens.ids.end());
    waiting_starts_.insert(waiting_starts_.end(), tokens.starts_word.begin(), tokens.starts_word.end());
    if (waiting_ids_.size() <= kMaxWaitingTokens) return;
    current_ = &choose(number_);
    current_->append({waiting_ids_, waiting_starts_});
    clear_waiting();
  }
  void end_document() {
    if (current_ != nullptr) {
      current_->end_document();
    } else if (wanted_ && !waiting_ids_.empty()) {
      waiting_number_ = number_;
      wanted_ = false;
    } else {
      return;  // a document without a token
    }
    current_ = nullptr;
    ++number_;
    if (!wanted_ && !waiting_ids_.empty() && train_.contents().documents > 0 && valid_.contents().documents > 0) {
      release(choose(waiting_number_));
    }
  }
  SplitWriter& choose(int64_t number) const {
    const bool valid = draw(seed_, Stream::kSplit, 0, 0, number)[0] < threshold(valid_fraction_);
    return valid ? valid_ : train_;
  }
  void release(SplitWriter& split) {
    split.append({waiting_ids_, waiting_starts_});
    split.end_document();
    clear_waiting();
  }
  void clear_waiting() {
    std::vector<int32_t>().swap(waiting_ids_);
    std::vector<uint8_t>().swap(waiting_starts_);
  }

  double valid_fraction_;
  uint64_t seed_;
  SplitWriter& train_;
  SplitWriter& valid_;
  bool wanted_;                     // a document should wait, and none waits yet
  SplitWriter* current_ = nullptr;  // the split of the current document; null while it waits or is empty
  int64_t number_ = 0, waiting_number_ = 0;
  std::vector<int32_t> waiting_ids_;
  std::vector<uint8_t> waiting_starts_;
};

}  // namespace rf::data
