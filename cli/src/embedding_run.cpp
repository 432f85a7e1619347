// Computes vectors of texts, and reads and computes in parallel (embedding_run.h).
#include "embedding_run.h"

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdint>
#include <new>
#include <optional>
#include <thread>

#include "bounded_queue.h"
#include "command.h"
#include "rf/engine/schedule.h"
#include "rf/io/finite.h"
#include "rf/io/progress.h"

namespace rf::cli {

namespace {

constexpr size_t kBlockTexts = 4096;
constexpr size_t kBlockBytes = size_t{1} << 20;
constexpr int64_t kBlockFloats = int64_t{1} << 23;
constexpr size_t kAddedTokens = 32;  // of a text, in an estimate of its tokens
constexpr size_t kWaitingBlocks = 2;

using BlockQueue = BoundedQueue<std::shared_ptr<TextBlock>>;

// A running digest of texts and their ids.
class TextDigest {
 public:
  TextDigest() : state_(XXH3_createState(), XXH3_freeState) {
    if (state_ == nullptr) throw std::bad_alloc();
    XXH3_128bits_reset(state_.get());
  }
  void add(std::string_view text) {
    const uint64_t size = text.size();
    XXH3_128bits_update(state_.get(), &size, sizeof size);
    XXH3_128bits_update(state_.get(), text.data(), text.size());
  }
  std::string value() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
    return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
  }

 private:
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state_;
};

// The work of the reading thread.
class BlockReader {
 public:
  BlockReader(const EmbeddingRun& run, const engine::Computation& computation, engine::RequestQueue& requests,
              BlockQueue& queue)
      : run_(run), computation_(computation), requests_(requests), queue_(queue) {
    const auto rows = static_cast<size_t>(std::max<int64_t>(1, kBlockFloats / computation.columns));
    if (computation.rows == engine::Computation::Rows::kTokens) {
      block_tokens_ = rows;
    } else {
      block_texts_ = std::min(block_texts_, rows);
    }
  }

  void read() {
    run_.reader.read([this](const data::SourceText& text) { add(text); });
    if (count_ < run_.finished) throw OtherTexts{run_.finished};
    flush();
  }

 private:
  void add(const data::SourceText& text) {
    digest_.add(text.text);
    if (!text.id.empty()) digest_.add(text.id);
    if (++count_ <= run_.finished) {
      if (count_ == run_.finished && digest_.value() != run_.finished_digest) throw OtherTexts{run_.finished};
      bytes_ = run_.reader.bytes_read();
      return;
    }
    if (block_ == nullptr) {
      block_ = std::make_shared<TextBlock>();
      block_->first = count_ - 1;
      block_->bytes_before = bytes_;
    }
    if (source_ == nullptr || *source_ != text.source) source_ = std::make_shared<const std::string>(text.source);
    block_->texts.push_back(
        {block_->characters.size(), text.text.size(), text.line, source_, digest_.value(), std::string(text.id)});
    block_->characters += text.text;
    block_bytes_ += text.text.size() + text.id.size();
    bytes_ = run_.reader.bytes_read();
    const size_t tokens =
        block_->characters.size() + kAddedTokens * block_->texts.size();  // an upper bound, except for long texts
    if (block_->texts.size() >= block_texts_ || block_bytes_ >= kBlockBytes || tokens >= block_tokens_) flush();
  }

  void flush() {
    if (block_ == nullptr) return;
    std::vector<std::string_view> texts;
    for (size_t i = 0; i < block_->texts.size(); ++i) texts.push_back(block_->text(i));
    block_->tokens = run_.embedder.tokenize(texts);
    block_->computation = computation_;
    block_->vectors.resize(static_cast<size_t>(computation_.rows_of(block_->tokens.tokens()) * computation_.columns));
    block_->bytes = bytes_;
    block_bytes_ = 0;
    const auto tell = [block = block_](int64_t done, const std::exception_ptr& error) {
      if (error) block->error = error;
      block->done = error ? -1 - done : done;
      block->done.notify_one();
    };
    requests_.submit(computation_, block_->tokens.tokens(), block_->vectors.data(), tell);
    queue_.push(std::move(block_));
  }

  const EmbeddingRun& run_;
  const engine::Computation& computation_;
  engine::RequestQueue& requests_;
  BlockQueue& queue_;
  TextDigest digest_;
  std::shared_ptr<const std::string> source_;
  std::shared_ptr<TextBlock> block_;
  size_t block_bytes_ = 0;            // of its texts and ids
  size_t block_texts_ = kBlockTexts;  // at most
  size_t block_tokens_ = SIZE_MAX;    // about
  int64_t count_ = 0, bytes_ = 0;
};

// Ends the reading thread before its data are destroyed.
struct ReadingThread {
  engine::RequestQueue& requests;
  BlockQueue& queue;
  std::thread thread;
  ~ReadingThread() {
    requests.stop();
    queue.stop();
    thread.join();
  }
};

// The work of the calling thread.
class RowTaker {
 public:
  RowTaker(const EmbeddingRun& run, const std::function<void(const EmbeddedRows&)>& take, EmbeddingCounts& counts)
      : run_(run), take_(take), counts_(counts), total_bytes_(run.reader.total_bytes()) {}

  // Passes each row on once it is finished.
  void take(const TextBlock& block) {
    if (!estimate_) estimate_.emplace(static_cast<double>(total_bytes_), static_cast<double>(block.bytes_before));
    const std::vector<int64_t>& offsets = block.tokens.offsets;
    size_t row = 0;
    for (int64_t done = 0; done < block.tokens.sequences();) {
      block.done.wait(done);
      const int64_t told = block.done;
      done = told < 0 ? -1 - told : told;
      row = pass_on(block, row, done);
      if (told < 0) std::rethrow_exception(block.error);
      report(block, static_cast<double>(offsets[done]) / static_cast<double>(std::max<int64_t>(1, offsets.back())));
    }
    counts_.full_texts += block.tokens.full_texts;
    counts_.replaced_bytes += block.tokens.replaced_bytes;
  }

  double seconds() const { return estimate_ ? estimate_->seconds() : 0; }

 private:
  // Passes on the rows from `row` up to the sequence `end`; returns the first row after them.
  size_t pass_on(const TextBlock& block, size_t row, int64_t end) {
    EmbeddedRows rows{block, row, row};
    for (; rows.end < block.texts.size() && block.tokens.sequence_of_text[rows.end] < end; ++rows.end) {
      const auto place = [&](int64_t) {
        return fmt::format("{} line {}", *block.texts[rows.end].source, block.texts[rows.end].line);
      };
      const std::span<const float> vector = block.vector(rows.end);
      io::check_finite(
          vector, std::max<int64_t>(1, std::ssize(vector)), place, [](int64_t) { return "the vector"; }, run_.largest);
      const int64_t sequence = block.tokens.sequence_of_text[rows.end];
      counts_.tokens += block.tokens.offsets[sequence + 1] - block.tokens.offsets[sequence];
      ++counts_.texts;
    }
    if (rows.end > row) take_(rows);
    return rows.end;
  }

  void report(const TextBlock& block, double part) {
    const double bytes =
        static_cast<double>(block.bytes_before) + part * static_cast<double>(block.bytes - block.bytes_before);
    const double seconds = std::max(1e-9, estimate_->seconds());
    std::string share;
    if (total_bytes_ > 0) {
      share = fmt::format(", {:.0f}%", std::min(100.0, 100 * bytes / static_cast<double>(total_bytes_)));
    }
    progress().update(fmt::format("embedding: {} texts{}, {:.0f} texts/s, {:.0f} tokens/s{}",
                                  run_.finished + counts_.texts, share, static_cast<double>(counts_.texts) / seconds,
                                  static_cast<double>(counts_.tokens) / seconds, estimate_->left(bytes)));
  }

  const EmbeddingRun& run_;
  const std::function<void(const EmbeddedRows&)>& take_;
  EmbeddingCounts& counts_;
  const int64_t total_bytes_;
  std::optional<io::TimeEstimate> estimate_;
};

}  // namespace

EmbeddingCounts embed_texts(const EmbeddingRun& run, const std::function<void(const EmbeddedRows&)>& take) {
  EmbeddingCounts counts;
  const engine::Computation computation = run.embedder.computation();
  BlockQueue queue(kWaitingBlocks);
  engine::RequestQueue requests(
      {.token_budget = run.token_budget, .order = engine::RequestQueue::Options::Order::kGiven});
  RowTaker taker(run, take, counts);
  const ReadingThread reading{requests, queue, std::thread([&] {
                                try {
                                  BlockReader(run, computation, requests, queue).read();
                                  queue.finish();
                                } catch (...) {
                                  queue.finish(std::current_exception());
                                }
                              })};
  while (const auto block = queue.take()) taker.take(**block);
  counts.seconds = taker.seconds();
  return counts;
}

}  // namespace rf::cli
