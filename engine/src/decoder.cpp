// Sequences with a cache (rf/engine/decoder.h): checks of a call, and the rows that the head reads.
#include "rf/engine/decoder.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "encoder.h"
#include "heads.h"
#include "rf/io/error.h"

namespace rf::engine {

namespace {

constexpr const char* kDecoderWhere = "generate";

void check_causal(const ModelInfo& info) {
  if (info.head != Head::kCausalLm) {
    fail(kDecoderWhere, "the model must be a causal language model, as RoFormerForCausalLM or BertLMHeadModel, got {}",
         info.architecture);
  }
  if (!info.causal) {
    fail(kDecoderWhere, "the model must attend to earlier tokens only (is_decoder), got a bidirectional {}",
         info.architecture);
  }
}

}  // namespace

struct Decoder::Impl {
  LoadedModel model;
  ModelInfo info;
  std::unique_ptr<SequenceCache> cache;
  Workspace work;
  std::vector<std::byte> wanted_rows;
  HeadLayers::Memory head_memory;
  int64_t longest = 0;  // tokens that a sequence has had

  void note_lengths(std::span<const int64_t> sequences) {
    for (const int64_t sequence : sequences) longest = std::max(longest, cache->length(sequence));
  }
  void check_sequence(int64_t sequence) const {
    if (sequence < 0 || sequence >= cache->sequences())
      fail(kDecoderWhere, "sequences must be in 0..{}, got {}", cache->sequences() - 1, sequence);
  }

  void check(std::span<const int64_t> sequences, std::span<const int64_t> offsets, std::span<const int32_t> ids) const {
    if (offsets.size() != sequences.size() + 1 || offsets.front() != 0 || offsets.back() != std::ssize(ids)) {
      fail(kDecoderWhere, "offsets must be one more than the sequences, from 0 to the number of ids, got {} for {}",
           offsets.size(), sequences.size());
    }
    for (size_t i = 0; i < sequences.size(); ++i) {
      check_sequence(sequences[i]);
      if (i > 0 && sequences[i] <= sequences[i - 1])
        fail(kDecoderWhere, "sequences must ascend, got {} after {}", sequences[i], sequences[i - 1]);
      const int64_t added = offsets[i + 1] - offsets[i], before = cache->length(sequences[i]);
      if (added < 1)
        fail(kDecoderWhere, "a sequence must grow by at least one token, got {} for {}", added, sequences[i]);
      if (added > cache->capacity() - before) {
        fail(kDecoderWhere, "a sequence must have at most the {} tokens that there is room for, got {}",
             cache->capacity(), before + added);
      }
    }
    model.encoder.check_ids(ids);
  }

  // Whether a sequence passes the length beyond which its rotation changes, so that all its tokens are recomputed.
  bool begins_anew(int64_t sequence, int64_t added) const {
    const Position& position = model.encoder.position();
    const int64_t before = cache->length(sequence);
    return !position.changes_within(before) && position.changes_within(before + added);
  }

  struct Tokens {
    std::vector<int64_t> offsets = {0};
    std::vector<int32_t> ids;
  };

  Tokens begun_anew(std::span<const int64_t> sequences, std::span<const int64_t> offsets,
                    std::span<const int32_t> ids) {
    Tokens all;
    for (size_t i = 0; i < sequences.size(); ++i) {
      const int64_t sequence = sequences[i];
      const auto added = ids.subspan(offsets[i], static_cast<size_t>(offsets[i + 1] - offsets[i]));
      if (begins_anew(sequence, std::ssize(added))) {
        const std::span<const int32_t> kept = cache->ids(sequence);
        all.ids.insert(all.ids.end(), kept.begin(), kept.end());
        cache->truncate(sequence, 0);
      }
      all.ids.insert(all.ids.end(), added.begin(), added.end());
      all.offsets.push_back(std::ssize(all.ids));
    }
    return all;
  }

  // offsets: of the new tokens, the last ones of each sequence of `input`.
  void append(const Extension& input, std::span<const int64_t> offsets, float* logits, Logits of) {
    const auto* hidden = static_cast<const std::byte*>(model.encoder.extend(input, work));
    const int64_t row_bytes = info.hidden_size * bytes_of(model.encoder.dtype());
    const int64_t rows = of == Logits::kAll ? offsets.back() : std::ssize(input.sequences);
    wanted_rows.resize(static_cast<size_t>(rows * row_bytes));
    std::byte* to = wanted_rows.data();
    for (size_t i = 0; i < input.sequences.size(); ++i) {
      const int64_t count = of == Logits::kAll ? offsets[i + 1] - offsets[i] : 1;
      to = std::copy_n(hidden + (input.offsets[i + 1] - count) * row_bytes, count * row_bytes, to);
    }
    model.head(rows, wanted_rows.data(), info.hidden_size, logits, head_memory);
  }
};

Decoder::Decoder(const Model& model, int64_t sequences, int64_t max_tokens) {
  check_causal(model.info());
  if (sequences < 1 || max_tokens < 1)
    fail(kDecoderWhere, "sequences and max_tokens must be at least 1, got {} and {}", sequences, max_tokens);
  const LoadedModel loaded = model.loaded();
  loaded.encoder.check_length(max_tokens);
  impl_.reset(new Impl{.model = loaded,
                       .info = model.info(),
                       .cache = loaded.encoder.make_cache(sequences, max_tokens),
                       .work = {},
                       .wanted_rows = {},
                       .head_memory = {},
                       .longest = 0});
}

Decoder::~Decoder() = default;
Decoder::Decoder(Decoder&&) noexcept = default;
Decoder& Decoder::operator=(Decoder&&) noexcept = default;

SequenceCache& Decoder::cache() { return *impl_->cache; }

bool Decoder::grow(int64_t tokens) {
  auto* const rows = dynamic_cast<KeyValueCache*>(impl_->cache.get());
  if (rows == nullptr) return false;
  impl_->model.encoder.check_length(tokens);
  const int64_t doubled = std::min(2 * rows->capacity(), impl_->info.max_position_embeddings);  // of several calls
  rows->grow(std::max(tokens, doubled));
  return true;
}

bool Decoder::keeps_states(int64_t tokens) const {
  return dynamic_cast<const KeyValueCache*>(impl_->cache.get()) != nullptr && !impl_->info.prefix_lm &&
         !impl_->model.encoder.position().changes_within(std::max(impl_->longest, tokens));
}

int64_t Decoder::sequences() const { return impl_->cache->sequences(); }

int64_t Decoder::max_tokens() const { return impl_->cache->capacity(); }

std::span<const int32_t> Decoder::ids(int64_t sequence) const {
  impl_->check_sequence(sequence);
  return impl_->cache->ids(sequence);
}

void Decoder::append(std::span<const int64_t> sequences, std::span<const int64_t> offsets, std::span<const int32_t> ids,
                     float* logits, Logits of) {
  if (sequences.empty()) return;
  impl_->check(sequences, offsets, ids);
  SequenceCache* const cache = impl_->cache.get();
  const Impl::Tokens all = impl_->begun_anew(sequences, offsets, ids);
  impl_->append({{&cache, 1}, sequences, all.offsets, all.ids.data()}, offsets, logits, of);
  impl_->note_lengths(sequences);
}

void Decoder::append(std::span<const Growth> all, float* logits) {
  std::vector<SequenceCache*> caches;
  std::vector<int64_t> sequences, offsets{0};
  std::vector<int32_t> ids;
  for (const Growth& each : all) {
    each.decoder->impl_->check(each.sequences, each.offsets, each.ids);
    caches.insert(caches.end(), each.sequences.size(), each.decoder->impl_->cache.get());
    sequences.insert(sequences.end(), each.sequences.begin(), each.sequences.end());
    for (const int64_t offset : each.offsets.subspan(1)) offsets.push_back(std::ssize(ids) + offset);
    ids.insert(ids.end(), each.ids.begin(), each.ids.end());
  }
  all[0].decoder->impl_->append({caches, sequences, offsets, ids.data()}, offsets, logits, Logits::kLast);
  for (const Growth& each : all) each.decoder->impl_->note_lengths(each.sequences);
}

bool Decoder::may_join(std::span<const int64_t> sequences, std::span<const int64_t> offsets) const {
  if (dynamic_cast<const KeyValueCache*>(impl_->cache.get()) == nullptr) return false;
  for (size_t i = 0; i < sequences.size(); ++i)
    if (impl_->begins_anew(sequences[i], offsets[i + 1] - offsets[i])) return false;
  return true;
}

void Decoder::copy(int64_t from, int64_t to) {
  impl_->check_sequence(from);
  impl_->check_sequence(to);
  impl_->cache->copy(from, to);
}

void Decoder::truncate(int64_t sequence, int64_t tokens) {
  impl_->check_sequence(sequence);
  const int64_t length = impl_->cache->length(sequence);
  if (tokens < 0 || tokens > length) fail(kDecoderWhere, "truncate must leave 0..{} tokens, got {}", length, tokens);
  if (!impl_->cache->can_truncate(sequence, tokens)) {
    fail(kDecoderWhere, "truncate must leave 0 or all {} tokens with linear attention, whose sums lose none, got {}",
         length, tokens);
  }
  impl_->cache->truncate(sequence, tokens);
}

}  // namespace rf::engine
