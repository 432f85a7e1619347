#include "rf/data/batcher.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "chunks.h"
#include "masking.h"
#include "rf/data/random.h"
#include "rf/io/error.h"
#include "segment_pairs.h"

namespace rf::data {
namespace {

constexpr int64_t kBlockRows = 64;          // a block holds about this many packed rows,
constexpr int64_t kMaxBlockChunks = 16384;  // also if documents are very short
constexpr int64_t kMaxBatchTokens = int64_t{1} << 24;

struct Piece {
  int64_t chunk, length;  // length with special tokens, at most
};
using Row = std::vector<Piece>;

// The rows of a batch, and the epoch of each.
struct BatchRows {
  std::vector<Row> rows;
  std::vector<int64_t> epochs;
};

// A batch and the token or word with the smallest draw, if any may be chosen.
struct Drawn {
  Batch batch;
  std::optional<MaskCandidate> least = {};
};

bool has_places(const std::optional<Drawn>& drawn) { return drawn && !drawn->batch.places.empty(); }

// Chooses the smallest draw; if several are equal, the first.
void choose_least(const Masking& masking, std::vector<std::optional<Drawn>>& drawn) {
  Drawn* closest = nullptr;
  for (std::optional<Drawn>& each : drawn) {
    if (each->least && (closest == nullptr || each->least->draw < closest->least->draw)) closest = &*each;
  }
  if (closest != nullptr) masking.choose(*closest->least, closest->batch);
}

const ChunkForm& form_of(Pairs pairs) { return pairs == Pairs::kNone ? kSingle : kPair; }

int64_t checked_max_length(const BatchOptions& options) {
  const ChunkForm& form = form_of(options.pairs);
  const int64_t least = form.specials + form.min_tokens;
  if (options.max_length < least || options.max_length > kMaxBatchTokens) {
    fail("batch", "max_length must be in [{}, 2^24]{}, got {}", least,
         options.pairs == Pairs::kNone ? "" : " with pairs", options.max_length);
  }
  if (options.pairs != Pairs::kNone && options.objective == Objective::kCausal) {
    fail("batch", "pairs go with the masked objective, got causal");
  }
  if (options.batch_size < 1 || options.batch_size > kMaxBatchTokens / options.max_length) {
    fail("batch", "batch_size must be at least 1 and batch_size times max_length at most 2^24, got {} of {}",
         options.batch_size, options.max_length);
  }
  return options.max_length;
}

// Puts each piece, longest first, into the first row with enough space.
std::vector<Row> first_fit_decreasing(Row pieces, int64_t max_length) {
  std::stable_sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.length > b.length; });
  std::vector<Row> rows;
  std::vector<int64_t> room;
  size_t first_open = 0;  // earlier rows lack space even for the shortest piece
  for (const Piece& piece : pieces) {
    while (first_open < rows.size() && room[first_open] < pieces.back().length) ++first_open;
    size_t row = first_open;
    while (row < rows.size() && room[row] < piece.length) ++row;
    if (row == rows.size()) {
      rows.emplace_back();
      room.push_back(max_length);
    }
    rows[row].push_back(piece);
    room[row] -= piece.length;
  }
  return rows;
}

void check_row_specials(const text::SpecialIds& special, int64_t vocab_size) {
  for (const int32_t id : {special.pad, special.cls, special.sep}) {
    if (id < 0 || id >= vocab_size) {
      fail("batch", "special ids must be in the vocabulary of the data, [0, {}), got {}", vocab_size, id);
    }
  }
}

// kCausal: appends the labels of [CLS] chunk [SEP], which begins at flat index `at`.
void label_next_tokens(const text::SpecialIds& special, int64_t at, int64_t length, Batch& batch) {
  const auto specials = {special.pad, special.unk, special.cls, special.sep, special.mask};
  for (int64_t next = at + 1; next < at + length; ++next) {
    const int64_t id = batch.ids[next];
    if (std::find(specials.begin(), specials.end(), id) != specials.end()) continue;
    batch.places.push_back(next - 1);
    batch.labels.push_back(id);
  }
}

}  // namespace

std::initializer_list<text::SpecialRole> required_roles(Objective objective) {
  using text::SpecialRole;
  static constexpr std::initializer_list<SpecialRole> kRows = {SpecialRole::kPad, SpecialRole::kCls, SpecialRole::kSep};
  static constexpr std::initializer_list<SpecialRole> kMasks = {SpecialRole::kPad, SpecialRole::kUnk, SpecialRole::kCls,
                                                                SpecialRole::kSep, SpecialRole::kMask};
  return objective == Objective::kCausal ? kRows : kMasks;
}

struct Batcher::Impl {
  Impl(std::shared_ptr<const Split> data, const text::SpecialIds& ids, const BatchOptions& batch_options)
      : options(batch_options),
        special(ids),
        chunks(std::move(data), checked_max_length(batch_options), form_of(batch_options.pairs)) {
    if (options.objective == Objective::kMasked) {
      masking.emplace(options.mask, special, chunks.split().vocab_size(), options.seed);
    } else {
      check_row_specials(special, chunks.split().vocab_size());
    }
    if (options.pairs != Pairs::kNone) pairs.emplace(options.pairs, chunks, special.sep, options.seed);
    if (options.packing == Packing::kPacked) {
      const double chunks_per_row = double(options.max_length) * double(chunks.count()) / double(chunks.total_length());
      block_chunks = std::clamp(int64_t(double(kBlockRows) * chunks_per_row), kBlockRows, kMaxBlockChunks);
    }
  }

  // The rows of a block, starting at a row number. Without an epoch: in document order.
  std::vector<Row> rows_from(std::optional<int64_t> epoch, int64_t row) const {
    const int64_t block = row / block_chunks, begin = block * block_chunks;
    const int64_t end = std::min(begin + block_chunks, chunks.count());
    Row pieces;
    const Permutation order(chunks.count(), options.seed, Stream::kChunkOrder, epoch.value_or(0));
    for (int64_t i = begin; i < end; ++i) {
      const int64_t chunk = epoch ? order(i) : i;
      pieces.push_back({chunk, chunks.length(chunk)});
    }
    const std::vector<Row> packed = first_fit_decreasing(std::move(pieces), options.max_length);
    const Permutation shuffle(std::ssize(packed), options.seed, Stream::kRowOrder, epoch.value_or(0), block);
    std::vector<Row> rows;
    for (int64_t i = row - begin; i < std::ssize(packed); ++i) rows.push_back(packed[epoch ? shuffle(i) : i]);
    return rows;
  }

  // Appends to `rows` until it has batch_size rows or the epoch ends; advances `row`, to chunks.count() at the end.
  void take(std::optional<int64_t> epoch, int64_t& row, std::vector<Row>& rows) const {
    while (std::ssize(rows) < options.batch_size && row < chunks.count()) {
      std::vector<Row> rest = rows_from(epoch, row);
      const int64_t taken = std::min<int64_t>(std::ssize(rest), options.batch_size - std::ssize(rows));
      std::move(rest.begin(), rest.begin() + taken, std::back_inserter(rows));
      row = taken == std::ssize(rest) ? (row / block_chunks + 1) * block_chunks : row + taken;
    }
    row = std::min(row, chunks.count());
  }

  // The rows of the batch at the cursor, which then moves to the next batch.
  BatchRows take_batch(BatchCursor& cursor) const {
    if (cursor.epoch < 0 || cursor.epoch > std::numeric_limits<uint32_t>::max() || cursor.row < 0) {
      fail("batch", "a cursor must have an epoch in [0, 2^32) and a row from 0, got {} and {}", cursor.epoch,
           cursor.row);
    }
    BatchRows taken;
    while (true) {
      take(cursor.epoch, cursor.row, taken.rows);
      taken.epochs.resize(taken.rows.size(), cursor.epoch);
      if (cursor.row == chunks.count()) cursor = {cursor.epoch + 1, 0};
      if (std::ssize(taken.rows) == options.batch_size) return taken;
    }
  }

  // The batch of the next rows in order.
  std::optional<Drawn> make_in_order(int64_t& row) const {
    BatchRows taken;
    take(std::nullopt, row, taken.rows);
    if (taken.rows.empty()) return std::nullopt;
    taken.epochs.assign(taken.rows.size(), 0);
    return make(taken);
  }

  Drawn make(const BatchRows& taken) const {
    const auto& [rows, epochs] = taken;
    Drawn drawn;
    Batch& batch = drawn.batch;
    batch.batch_size = std::ssize(rows);
    for (const Row& row : rows) batch.length = std::max(batch.length, row.front().length);  // kPadded: one piece
    if (options.packing == Packing::kPacked) batch.length = options.max_length;
    const auto slots = static_cast<size_t>(batch.batch_size * batch.length);
    batch.ids.assign(slots, special.pad);
    batch.segments.assign(slots, -1);
    batch.positions.assign(slots, 0);
    if (pairs) batch.types.assign(slots, 0);
    for (int64_t b = 0; b < batch.batch_size; ++b) {
      int64_t at = b * batch.length;
      int32_t segment = 0;
      for (const Piece& piece : rows[b]) {
        at += place(piece, segment++, at, epochs[b], drawn);
        ++batch.runs;
      }
      if (at < (b + 1) * batch.length) ++batch.runs;
    }
    return drawn;
  }

  // The text of a chunk between [CLS] and the last [SEP], and its word starts. With pairs, also records the class and
  // the types of the tokens from flat index `at` on.
  std::pair<std::vector<int32_t>, std::vector<uint8_t>> text_of(const Piece& piece, int64_t at, int64_t epoch,
                                                                Batch& batch) const {
    if (!pairs) {
      std::vector<int32_t> ids(static_cast<size_t>(piece.length - kSingle.specials));
      std::vector<uint8_t> starts_word(ids.size());
      chunks.copy(piece.chunk, ids.data(), starts_word.data());
      return {std::move(ids), std::move(starts_word)};
    }
    SegmentPair pair = pairs->at(chunks, piece.chunk, epoch);
    batch.pair_places.push_back(at);
    batch.pair_labels.push_back(pair.label);
    const int64_t second = at + 1 + pair.first_tokens + 1;
    std::fill(batch.types.begin() + second, batch.types.begin() + at + std::ssize(pair.ids) + 2, 1);
    return {std::move(pair.ids), std::move(pair.starts_word)};
  }

  // Writes [CLS] text [SEP] from flat index `at` on, and returns the number of tokens.
  int64_t place(const Piece& piece, int32_t segment, int64_t at, int64_t epoch, Drawn& drawn) const {
    Batch& batch = drawn.batch;
    const auto [ids, starts_word] = text_of(piece, at, epoch, batch);
    const int64_t length = std::ssize(ids) + 2;
    batch.ids[at] = special.cls;
    std::copy(ids.begin(), ids.end(), batch.ids.begin() + at + 1);
    batch.ids[at + length - 1] = special.sep;
    std::fill_n(batch.segments.begin() + at, length, segment);
    std::iota(batch.positions.begin() + at, batch.positions.begin() + at + length, 0);
    batch.real_tokens += length;
    if (masking) {
      masking->mask_chunk({.epoch = epoch, .chunk = piece.chunk, .at = at + 1}, starts_word, batch, drawn.least);
    } else {
      label_next_tokens(special, at, length, batch);
    }
    return length;
  }

  BatchOptions options;
  text::SpecialIds special;
  Chunks chunks;
  std::optional<Masking> masking;  // for Objective::kMasked
  std::optional<SegmentPairs> pairs;
  int64_t block_chunks = 1;  // kPadded: a block is one chunk, which packs into one row
};

Batcher::Batcher(std::shared_ptr<const Split> split, const text::SpecialIds& special, BatchOptions options)
    : impl_(std::make_unique<Impl>(std::move(split), special, options)) {}
Batcher::~Batcher() = default;

int64_t Batcher::rows_per_epoch() const {
  const Chunks& chunks = impl_->chunks;
  if (impl_->options.packing == Packing::kPadded) return chunks.count();
  return (chunks.total_length() + impl_->options.max_length - 1) / impl_->options.max_length;
}

Batch Batcher::next(BatchCursor& cursor) const {
  return std::move(next_step(cursor, 1, [](int64_t) { return true; }).front());
}

std::vector<Batch> Batcher::next_step(BatchCursor& cursor, int64_t micro_batches,
                                      const std::function<bool(int64_t)>& wanted) const {
  std::vector<BatchRows> taken;
  for (int64_t i = 0; i < micro_batches; ++i) taken.push_back(impl_->take_batch(cursor));
  std::vector<std::optional<Drawn>> drawn(taken.size());
  std::vector<size_t> own;
  for (size_t i = 0; i < taken.size(); ++i) {
    if (!wanted(static_cast<int64_t>(i))) continue;
    own.push_back(i);
    drawn[i] = impl_->make(taken[i]);
  }
  const bool may_lack = impl_->masking && !own.empty();
  for (size_t i = 0; may_lack && i < taken.size() && std::none_of(drawn.begin(), drawn.end(), has_places); ++i) {
    if (!drawn[i]) drawn[i] = impl_->make(taken[i]);
  }
  if (may_lack && std::none_of(drawn.begin(), drawn.end(), has_places)) choose_least(*impl_->masking, drawn);
  std::vector<Batch> batches;
  for (const size_t i : own) batches.push_back(std::move(drawn[i]->batch));
  return batches;
}

bool Batcher::next_in_order(int64_t& row, Batch& batch) const {
  if (row < 0) fail("batch", "a row must be at least 0, got {}", row);
  std::optional<Drawn> drawn = impl_->make_in_order(row);
  if (drawn) batch = std::move(drawn->batch);
  return drawn.has_value();
}

Batch Batcher::least_in_order(int64_t batches) const {
  std::vector<std::optional<Drawn>> drawn(1);  // the smallest so far
  int64_t row = 0;
  for (int64_t i = 0; i < batches; ++i) {
    std::optional<Drawn> next = impl_->make_in_order(row);
    if (!next) break;
    const bool closer = !drawn[0] || (next->least && (!drawn[0]->least || next->least->draw < drawn[0]->least->draw));
    if (closer) drawn[0] = std::move(next);
  }
  if (impl_->masking && drawn[0]) choose_least(*impl_->masking, drawn);
  return drawn[0] ? std::move(drawn[0]->batch) : Batch{};
}

}  // namespace rf::data
