// Tokens of pairs (translation_data.h).
#include "translation_data.h"

#define XXH_INLINE_ALL
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <xxhash.h>

#include <algorithm>

#include "rf/data/random.h"
#include "rf/io/error.h"
#include "rf/io/processors.h"
#include "rf/nn/devices.h"
#include "rf/text/workers.h"

namespace rf::train {

namespace {

struct EncodedSide {
  std::vector<int32_t> ids;
  bool is_utf8 = true;
};
struct EncodedPair {
  EncodedSide source, target;
};

// A text's tokens and its end.
EncodedSide encode_side(const text::Tokenizer& tokenizer, const std::string& sentence) {
  text::Encoding encoding;
  tokenizer.encode(sentence, encoding);
  encoding.ids.push_back(tokenizer.vocabulary().special().eos);
  return {std::move(encoding.ids), encoding.replaced_bytes == 0};
}

std::vector<EncodedPair> encode_pairs(const data::SentencePairs& pairs, const text::Tokenizer& tokenizer) {
  std::vector<EncodedPair> encoded(pairs.sources.size());
  text::Workers workers(io::available_processors());
  workers.for_each_index(encoded.size(), [&](size_t i) {
    encoded[i] = {encode_side(tokenizer, pairs.sources[i]), encode_side(tokenizer, pairs.targets[i])};
  });
  return encoded;
}

}  // namespace

PairTokens::PairTokens(const data::PairFiles& files, const text::Tokenizer& tokenizer, int64_t max_length,
                       const std::function<void(const std::string&)>& note) {
  const data::SentencePairs pairs = data::read_sentence_pairs(files);
  if (pairs.empty > 0 && note) {
    note(fmt::format("{} pairs with an empty side are left out, the first in {}", pairs.empty, pairs.first_empty));
  }
  const std::vector<EncodedPair> encoded = encode_pairs(pairs, tokenizer);
  int64_t too_long = 0, not_utf8 = 0;
  std::string first_too_long, first_not_utf8;
  for (size_t i = 0; i < encoded.size(); ++i) {
    const std::vector<int32_t>&source_ids = encoded[i].source.ids, &target_ids = encoded[i].target.ids;
    const auto source = std::ssize(source_ids), target = std::ssize(target_ids);
    if (!encoded[i].source.is_utf8 || !encoded[i].target.is_utf8) {
      const std::string& file = encoded[i].source.is_utf8 ? files.back() : files.front();
      if (not_utf8++ == 0) first_not_utf8 = fmt::format("{}, line {}", file, pairs.lines[i]);
    }
    if (std::max(source, target) > max_length) {
      if (too_long++ == 0) {
        first_too_long = fmt::format("{}, line {}, of {} tokens", source > max_length ? files.front() : files.back(),
                                     pairs.lines[i], std::max(source, target));
      }
      continue;
    }
    ids_.insert(ids_.end(), source_ids.begin(), source_ids.end());
    const size_t end_of_source = ids_.size();
    ids_.insert(ids_.end(), target_ids.begin(), target_ids.end());
    ends_.push_back({end_of_source, ids_.size()});
  }
  if (not_utf8 > 0 && note) {
    note(fmt::format("{} pairs have bytes that are not UTF-8, which are read as U+FFFD, the first in {}", not_utf8,
                     first_not_utf8));
  }
  if (too_long > 0 && note) {
    note(fmt::format("{} pairs of more than {} tokens are left out, the first in {}", too_long, max_length,
                     first_too_long));
  }
  if (ends_.empty()) {
    fail("translation", "there must be a pair of at most {} tokens on each side, got none in {}", max_length,
         files.front());
  }
}

std::span<const int32_t> PairTokens::source(int64_t pair) const {
  const size_t begin = begin_of(pair);
  return {ids_.data() + begin, ends_[static_cast<size_t>(pair)].source - begin};
}

std::span<const int32_t> PairTokens::target(int64_t pair) const {
  const Ends& ends = ends_[static_cast<size_t>(pair)];
  return {ids_.data() + ends.source, ends.target - ends.source};
}

std::string PairTokens::identity() const {
  return fmt::format("{:016x}", XXH3_64bits_withSeed(ids_.data(), ids_.size() * sizeof(int32_t), ends_.size()));
}

std::vector<std::vector<int64_t>> pair_batches(const PairTokens& pairs, int64_t max_tokens, uint64_t seed,
                                               int64_t epoch) {
  const data::Permutation order(pairs.size(), seed, data::Stream::kExampleOrder, epoch);
  std::vector<int64_t> drawn;
  for (int64_t i = 0; i < pairs.size(); ++i) drawn.push_back(order(i));
  const auto lengths = [&](int64_t pair) { return std::pair(pairs.target(pair).size(), pairs.source(pair).size()); };
  std::stable_sort(drawn.begin(), drawn.end(), [&](int64_t a, int64_t b) { return lengths(a) < lengths(b); });
  std::vector<std::vector<int64_t>> batches;
  size_t longest = 0;
  for (const int64_t pair : drawn) {
    const auto [target, source] = lengths(pair);
    const size_t with_pair = std::max({longest, target, source});
    const size_t tokens = batches.empty() ? 0 : (batches.back().size() + 1) * with_pair;
    if (batches.empty() || tokens > static_cast<size_t>(max_tokens)) {
      batches.emplace_back();
      longest = std::max(target, source);
    } else {
      longest = with_pair;
    }
    batches.back().push_back(pair);
  }
  const data::Permutation batch_order(std::ssize(batches), seed, data::Stream::kExampleOrder, epoch, /*index=*/1);
  std::vector<std::vector<int64_t>> shuffled;
  for (int64_t i = 0; i < std::ssize(batches); ++i) {
    shuffled.push_back(std::move(batches[static_cast<size_t>(batch_order(i))]));
  }
  return shuffled;
}

TranslationBatch make_translation_batch(const PairTokens& pairs, std::span<const int64_t> batch,
                                        const ModelConfig& config, at::Device device) {
  size_t sources = 0, targets = 0;
  for (const int64_t pair : batch) {
    sources = std::max(sources, pairs.source(pair).size());
    targets = std::max(targets, pairs.target(pair).size());
  }
  const auto rows = [&](size_t length) {
    return at::full({std::ssize(batch), static_cast<int64_t>(length)}, config.pad_token_id, at::kLong);
  };
  TranslationBatch out;
  out.input.source_BS = rows(sources);
  out.input.target_BT = rows(targets);
  auto* source = out.input.source_BS.mutable_data_ptr<int64_t>();
  auto* target = out.input.target_BT.mutable_data_ptr<int64_t>();
  std::vector<int64_t> places, labels;
  for (size_t b = 0; b < batch.size(); ++b, source += sources, target += targets) {
    const std::span<const int32_t> from = pairs.source(batch[b]), to = pairs.target(batch[b]);
    std::copy(from.begin(), from.end(), source);
    target[0] = config.decoder->start_token_id;
    std::copy(to.begin(), to.end() - 1, target + 1);  // its end is only predicted
    for (size_t t = 0; t < to.size(); ++t) {
      places.push_back(static_cast<int64_t>(b * targets + t));
      labels.push_back(to[t]);
    }
  }
  out.input.source_mask_BS = out.input.source_BS.ne(config.pad_token_id);
  out.places_N = at::tensor(places, at::kLong);
  out.labels_N = at::tensor(labels, at::kLong);
  for (at::Tensor* x : {&out.input.source_BS, &out.input.target_BT, &out.places_N, &out.labels_N}) {
    *x = nn::on_device(*x, device);
  }
  return out;
}

}  // namespace rf::train
