#include "rf/data/prepare.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <optional>
#include <thread>

#include "manifest.h"
#include "ordered_pool.h"
#include "rf/data/random.h"
#include "rf/data/shard.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/text/tokenizer.h"

namespace rf::data {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBatchBytes = size_t{1} << 18;     // documents are tokenized in batches of about this many bytes
constexpr size_t kPieceBytes = size_t{1} << 16;     // and a long one piece by piece, so that offsets stay small
constexpr size_t kInFlightBytes = size_t{1} << 27;  // text waiting for tokens, or tokens waiting to be written
constexpr int kMostThreads = 1024;
constexpr std::string_view kTrain = "train", kValid = "valid";

struct TokenDocument {
  std::vector<int32_t> ids;
  std::vector<uint8_t> starts_word;
};

struct TokenBatch {
  std::vector<TokenDocument> documents;
  int64_t replaced_bytes = 0;
  size_t text_bytes = 0;
};

// Words do not cross white space, so a text may be encoded in pieces that end before some.
void encode(const text::Tokenizer& tokenizer, std::string_view text, TokenBatch& batch) {
  TokenDocument& document = batch.documents.emplace_back();
  text::Encoding piece;
  while (!text.empty()) {
    const size_t end = text.size() > kPieceBytes ? text.find_first_of(" \n", kPieceBytes) : std::string_view::npos;
    piece.clear();
    tokenizer.encode(text.substr(0, end), piece);
    document.ids.insert(document.ids.end(), piece.ids.begin(), piece.ids.end());
    document.starts_word.insert(document.starts_word.end(), piece.starts_word.begin(), piece.starts_word.end());
    batch.replaced_bytes += piece.replaced_bytes;
    text.remove_prefix(std::min(end, text.size()));
  }
}

// The shards of one split, a new one when one is full.
class SplitWriter {
 public:
  SplitWriter(std::string directory, std::string_view name, const text::Vocabulary& vocabulary, int64_t shard_tokens)
      : directory_(std::move(directory)),
        name_(name),
        size_(vocabulary.size()),
        hash_(vocabulary.hash()),
        shard_tokens_(shard_tokens) {}

  void add(const TokenDocument& document) {
    if (!shard_) {
      contents_.shards.push_back(fmt::format("{}-{:05}.rfs", name_, contents_.shards.size()));
      shard_.emplace(directory_ + "/" + contents_.shards.back(), size_, hash_);
    }
    shard_->add(document.ids, document.starts_word);
    contents_.documents += 1;
    contents_.tokens += std::ssize(document.ids);
    if (shard_->tokens() >= shard_tokens_) finish();
  }
  void finish() {
    if (shard_) shard_->finish();
    shard_.reset();
  }
  const ManifestSplit& contents() const { return contents_; }

 private:
  std::string directory_, name_;
  int64_t size_;
  std::string hash_;
  int64_t shard_tokens_;
  ManifestSplit contents_;
  std::optional<ShardWriter> shard_;
};

// Sends each document to its split. The first document waits until both splits have one or the input ends.
class Divider {
 public:
  Divider(const PrepareOptions& options, SplitWriter& train, SplitWriter& valid)
      : options_(options), train_(train), valid_(valid) {}

  void add(TokenDocument&& document) {
    const int64_t number = number_++;
    if (document.ids.empty()) return;
    if (!any_ && options_.valid_fraction > 0) {
      waiting_ = std::move(document);
      waiting_number_ = number;
    } else {
      choose(number).add(document);
      if (waiting_ && train_.contents().documents > 0 && valid_.contents().documents > 0)
        release(choose(waiting_number_));
    }
    any_ = true;
  }
  void finish() {
    if (waiting_) release(train_.contents().documents == 0 ? train_ : valid_);
  }

 private:
  SplitWriter& choose(int64_t number) const {
    const bool valid = draw(options_.seed, Stream::kSplit, 0, 0, number)[0] < threshold(options_.valid_fraction);
    return valid ? valid_ : train_;
  }
  void release(SplitWriter& split) {
    split.add(*waiting_);
    waiting_.reset();
  }

  const PrepareOptions& options_;
  SplitWriter& train_;
  SplitWriter& valid_;
  int64_t number_ = 0, waiting_number_ = 0;
  std::optional<TokenDocument> waiting_;
  bool any_ = false;
};

class ProgressLine {
 public:
  ProgressLine(io::Progress& progress, int64_t total_bytes) : progress_(progress), total_(double(total_bytes)) {}
  void add(size_t bytes) {
    done_ += double(bytes);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
    const double rate = done_ / std::max(elapsed.count(), 1e-9);
    progress_.update(fmt::format("prepare {:.1f} of {:.1f} MB, {:.1f} MB/s, {:.0f} s left", done_ / 1e6, total_ / 1e6,
                                 rate / 1e6, std::max(total_ - done_, 0.0) / rate));
  }

 private:
  io::Progress& progress_;
  double total_, done_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

void check(const PrepareOptions& options) {
  if (!(options.valid_fraction >= 0 && options.valid_fraction < 1)) {
    fail("prepare", "valid_fraction must be in [0, 1), got {}", options.valid_fraction);
  }
  if (options.shard_tokens < 1) fail("prepare", "shard_tokens must be at least 1, got {}", options.shard_tokens);
  if (options.threads < 0 || options.threads > kMostThreads) {
    fail("prepare", "threads must be in [0, {}], got {}", kMostThreads, options.threads);
  }
}

// The directory that is built beside `output`, empty. Removed unless it is renamed to `output`. Locked, so that a
// second process does not take it for one that a killed process left behind.
class Workplace {
 public:
  explicit Workplace(const std::string& output)
      : output_(fs::weakly_canonical(fs::absolute(output).lexically_normal())) {
    if (!output_.has_filename()) output_ = output_.parent_path();
    check_output();
    directory_ = output_.string() + ".preparing";
    std::error_code error;
    fs::create_directories(output_.parent_path(), error);
    lock();
    if (!error) fs::remove_all(directory_, error);
    if (!error) fs::create_directory(directory_, error);
    if (error) fail("prepare", "{} must be writable, got: {}", directory_.string(), error.message());
    lock();
  }
  ~Workplace() {
    std::error_code ignored;
    fs::remove_all(directory_, ignored);
    if (lock_ >= 0) ::close(lock_);
  }
  Workplace(const Workplace&) = delete;
  Workplace& operator=(const Workplace&) = delete;
  std::string directory() const { return directory_.string(); }

  // What was in `output` is moved away, and removed when the new directory has its name.
  void publish() const {
    const fs::path old = directory_.string() + ".old";
    std::error_code error;
    io::sync_directory(directory_.string());
    fs::remove_all(old, error);
    if (fs::exists(output_)) fs::rename(output_, old, error);
    if (!error) fs::rename(directory_, output_, error);
    if (error) {
      fail("prepare", "{} must be replaceable by {}, got: {}", output_.string(), directory_.string(), error.message());
    }
    io::sync_directory(output_.parent_path().string());
    fs::remove_all(old, error);
  }

 private:
  // Nothing happens where there is no directory yet or the file system knows no locks.
  void lock() {
    if (lock_ >= 0) ::close(lock_);
    lock_ = ::open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (lock_ < 0 || ::flock(lock_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
    ::close(lock_);
    fail("prepare", "the output must be written by one process, got {}, which another one holds", directory_.string());
  }
  void check_output() const {
    std::error_code error;
    if (!fs::exists(output_, error)) return;
    if (!fs::is_directory(output_))
      fail("prepare", "the output must be a directory, got the file {}", output_.string());
    if (!fs::is_empty(output_)) read_manifest_of_output();
  }
  void read_manifest_of_output() const {
    if (!fs::exists(output_ / kManifestName)) {
      fail("prepare", "the output must be a new or empty directory or one that prepare made, got {} without {}",
           output_.string(), kManifestName);
    }
    read_manifest(output_.string());
  }

  fs::path output_, directory_;
  int lock_ = -1;
};

// Reads, tokenizes on `threads` workers and divides all files, in input order.
struct Pipeline {
  const text::Tokenizer& tokenizer;
  Divider& divider;
  ProgressLine& progress;
  PrepareReport& report;
  OrderedPool<TokenBatch> pool;
  size_t most_pending;
  std::string text{};          // of the documents not yet submitted
  std::vector<size_t> ends{};  // of each document in `text`
  size_t in_flight_bytes = 0;

  void add(std::string_view document) {
    text += document;
    ends.push_back(text.size());
    if (text.size() >= kBatchBytes) submit();
  }
  void submit() {
    in_flight_bytes += text.size();
    pool.submit([this, text = std::move(text), ends = std::move(ends)] {
      TokenBatch batch;
      batch.text_bytes = text.size();
      size_t begin = 0;
      for (const size_t end : ends) {
        encode(tokenizer, std::string_view(text).substr(begin, end - begin), batch);
        begin = end;
      }
      return batch;
    });
    text.clear();
    ends.clear();
    while (pool.pending() >= most_pending || (in_flight_bytes > kInFlightBytes && pool.pending() > 0)) take();
  }
  void take() {
    TokenBatch batch = pool.take();
    in_flight_bytes -= batch.text_bytes;
    report.replaced_bytes += batch.replaced_bytes;
    const int32_t unknown = tokenizer.vocabulary().special().unk;
    for (TokenDocument& document : batch.documents) {
      report.unknown_tokens += std::count(document.ids.begin(), document.ids.end(), unknown);
      divider.add(std::move(document));
    }
    progress.add(batch.text_bytes);
  }
  void finish() {
    if (!ends.empty()) submit();
    while (pool.pending() > 0) take();
  }
};

}  // namespace

PrepareReport prepare(const PrepareOptions& options, io::Progress& progress) {
  check(options);
  const std::vector<std::string> files = list_text_files(options.inputs);
  const text::Tokenizer tokenizer = text::Tokenizer::load(options.model_dir);
  const Workplace workplace(options.output_dir);
  const std::string directory = workplace.directory();
  PrepareReport report;
  for (const std::string& file : files) report.input_bytes += static_cast<int64_t>(fs::file_size(file));

  SplitWriter train(directory, kTrain, tokenizer.vocabulary(), options.shard_tokens);
  SplitWriter valid(directory, kValid, tokenizer.vocabulary(), options.shard_tokens);
  Divider divider(options, train, valid);
  ProgressLine line(progress, report.input_bytes);
  const int threads = options.threads > 0 ? options.threads : std::max(1u, std::thread::hardware_concurrency());
  Pipeline pipeline{tokenizer, divider, line, report, OrderedPool<TokenBatch>(threads), 2 * size_t(threads) + 1};
  for (const std::string& file : files) {
    read_documents(file, options.document_rule, [&](std::string_view document) { pipeline.add(document); });
  }
  pipeline.finish();
  divider.finish();
  train.finish();
  valid.finish();
  progress.finish();

  report.train_tokens = train.contents().tokens;
  report.valid_tokens = valid.contents().tokens;
  report.documents = train.contents().documents + valid.contents().documents;
  if (report.documents == 0) {
    fail("prepare", "the input must hold at least one document with a token, got none in {} files ({} bytes), first {}",
         files.size(), report.input_bytes, files.front());
  }
  tokenizer.save(directory);
  write_manifest(directory,
                 {.vocab_hash = tokenizer.vocabulary().hash(),
                  .vocab_size = tokenizer.vocabulary().size(),
                  .splits = {{std::string(kTrain), train.contents()}, {std::string(kValid), valid.contents()}},
                  .document_rule = document_rule_name(options.document_rule),
                  .valid_fraction = options.valid_fraction,
                  .seed = options.seed,
                  .input_files = std::ssize(files),
                  .input_bytes = report.input_bytes,
                  .unknown_tokens = report.unknown_tokens,
                  .replaced_bytes = report.replaced_bytes});
  workplace.publish();
  return report;
}

}  // namespace rf::data
