#include "rf/data/prepare.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <optional>
#include <span>
#include <system_error>
#include <thread>
#include <utility>

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

constexpr size_t kBatchBytes = size_t{1} << 18;   // documents are tokenized in batches of about this many bytes
constexpr size_t kMostWaiting = size_t{1} << 22;  // tokens of the document that waits for its split
constexpr int kMostThreads = 1024;
constexpr std::string_view kTrain = "train", kValid = "valid";

// The part of a document in a batch: up to `end`, of the text or of the tokens.
struct Part {
  size_t end;
  Piece::End ends;
};

struct TokenBatch {
  text::Encoding tokens;
  std::vector<Part> parts;
};

// Tokens that follow each other in a document.
struct Tokens {
  std::span<const int32_t> ids;
  std::span<const uint8_t> starts_word;
};

TokenBatch tokenize(const text::Tokenizer& tokenizer, std::string_view text, std::vector<Part> parts) {
  TokenBatch batch;
  size_t begin = 0;
  for (Part& part : parts) {
    tokenizer.encode(text.substr(begin, part.end - begin), batch.tokens);
    begin = std::exchange(part.end, batch.tokens.size());
  }
  batch.parts = std::move(parts);
  return batch;
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

  void append(const Tokens& tokens) {
    if (tokens.ids.empty()) return;
    if (!shard_) {
      contents_.shards.push_back(fmt::format("{}-{:05}.rfs", name_, contents_.shards.size()));
      shard_.emplace(directory_ + "/" + contents_.shards.back(), size_, hash_);
    }
    shard_->append(tokens.ids, tokens.starts_word);
    contents_.tokens += std::ssize(tokens.ids);
    inside_document_ = true;
  }
  void end_document() {
    if (!inside_document_) return;
    inside_document_ = false;
    contents_.documents += 1;
    shard_->end_document();
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
  bool inside_document_ = false;
};

// Sends each document to its split. The first one that is not too long waits until both splits have one or the input
// ends.
class Divider {
 public:
  Divider(const PrepareOptions& options, SplitWriter& train, SplitWriter& valid)
      : options_(options), train_(train), valid_(valid), wanted_(options.valid_fraction > 0) {}

  void add(const Tokens& tokens, Piece::End end) {
    if (current_ == nullptr && wanted_) {
      wait(tokens);
    } else {
      if (current_ == nullptr) current_ = &choose(number_);
      current_->append(tokens);
    }
    if (end == Piece::End::kOfDocument) end_document();
  }
  void finish() {
    if (!waiting_ids_.empty()) release(train_.contents().documents == 0 ? train_ : valid_);
  }

 private:
  // Adds to the document that waits, or gives up the wish when it becomes too long.
  void wait(const Tokens& tokens) {
    waiting_ids_.insert(waiting_ids_.end(), tokens.ids.begin(), tokens.ids.end());
    waiting_starts_.insert(waiting_starts_.end(), tokens.starts_word.begin(), tokens.starts_word.end());
    if (waiting_ids_.size() <= kMostWaiting) return;
    current_ = &choose(number_);
    current_->append({waiting_ids_, waiting_starts_});
    clear_waiting();
  }
  void end_document() {
    if (current_ != nullptr) {
      current_->end_document();
    } else if (!waiting_ids_.empty()) {
      waiting_number_ = number_;
      wanted_ = false;
    }
    current_ = nullptr;
    ++number_;
    if (!wanted_ && !waiting_ids_.empty() && train_.contents().documents > 0 && valid_.contents().documents > 0) {
      release(choose(waiting_number_));
    }
  }
  SplitWriter& choose(int64_t number) const {
    const bool valid = draw(options_.seed, Stream::kSplit, 0, 0, number)[0] < threshold(options_.valid_fraction);
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

  const PrepareOptions& options_;
  SplitWriter& train_;
  SplitWriter& valid_;
  bool wanted_;                     // a document that waits
  SplitWriter* current_ = nullptr;  // of the document that is not at its end, unless that waits
  int64_t number_ = 0, waiting_number_ = 0;
  std::vector<int32_t> waiting_ids_;
  std::vector<uint8_t> waiting_starts_;
};

class ProgressLine {
 public:
  ProgressLine(io::Progress& progress, const DocumentReader& reader)
      : progress_(progress), reader_(reader), total_(double(reader.total_bytes())) {}
  void update() {
    const auto done = double(reader_.counts().bytes);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
    const double rate = done / std::max(elapsed.count(), 1e-9);
    const std::string so_far = fmt::format("prepare {:.1f} MB, {:.1f} MB/s", done / 1e6, rate / 1e6);
    // Pipes do not say how much they will give.
    progress_.update(total_ < done ? so_far
                                   : fmt::format("{}, of {:.1f} MB, {:.0f} s left", so_far, total_ / 1e6,
                                                 (total_ - done) / std::max(rate, 1.0)));
  }

 private:
  io::Progress& progress_;
  const DocumentReader& reader_;
  double total_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

void check(const PrepareOptions& options) {
  if (!(options.valid_fraction >= 0 && options.valid_fraction < 1)) {
    fail("prepare", "valid_fraction must be in [0, 1), got {}", options.valid_fraction);
  }
  if (options.output_dir.empty()) fail("prepare", "the output must be a directory, got no name");
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
    try {
      fs::create_directories(directory_);
      lock();
      for (const auto& left : fs::directory_iterator(directory_)) fs::remove_all(left.path());
    } catch (const fs::filesystem_error& error) {
      if (lock_ >= 0) ::close(lock_);
      fail_to_write(error.code());
    }
  }
  ~Workplace() {
    std::error_code ignored;
    // Where it has become `output`, what is called `directory_` is another process's.
    if (!published_) fs::remove_all(directory_, ignored);
    ::close(lock_);
  }
  Workplace(const Workplace&) = delete;
  Workplace& operator=(const Workplace&) = delete;
  std::string directory() const { return directory_.string(); }

  // What was in `output` is moved away, and removed when the new directory has its name.
  void publish() {
    const fs::path old = directory_.string() + ".old";
    std::error_code error;
    io::sync_directory(directory_.string());
    fs::remove_all(old, error);
    if (fs::exists(output_)) fs::rename(output_, old, error);
    if (!error) fs::rename(directory_, output_, error);
    if (error) {
      fail("prepare", "{} must be replaceable by {}, got: {}", output_.string(), directory_.string(), error.message());
    }
    published_ = true;
    io::sync_directory(output_.parent_path().string());
    fs::remove_all(old, error);
  }

 private:
  // Takes the lock, unless the file system knows none.
  void lock() {
    lock_ = ::open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (lock_ < 0) fail_to_write({errno, std::generic_category()});
    const bool is_held = ::flock(lock_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    // A process that ended meanwhile has removed the directory or given it its last name.
    struct stat locked {};
    struct stat named {};
    const bool is_gone = ::fstat(lock_, &locked) != 0 || ::lstat(directory_.c_str(), &named) != 0 ||
                         locked.st_dev != named.st_dev || locked.st_ino != named.st_ino;
    if (!is_held && !is_gone) return;
    ::close(lock_);
    fail("prepare", "the output must be written by one process, got {}, which another one holds", directory_.string());
  }
  [[noreturn]] void fail_to_write(const std::error_code& error) const {
    fail("prepare", "{} must be writable, got: {}", directory_.string(), error.message());
  }
  void check_output() const {
    std::error_code error;
    if (!fs::exists(output_, error) && !fs::is_symlink(output_, error)) return;
    if (!fs::is_directory(output_, error))
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
  bool published_ = false;
};

// Tokenizes documents on several threads and divides them, in input order.
struct Pipeline {
  const text::Tokenizer& tokenizer;
  Divider& divider;
  ProgressLine& progress;
  PrepareReport& report;
  OrderedPool<TokenBatch> pool;
  size_t most_pending;
  std::string text{};         // of the pieces not yet submitted
  std::vector<Part> parts{};  // in `text`

  void add(const Piece& piece) {
    text += piece.text;
    parts.push_back({text.size(), piece.end});
    if (text.size() >= kBatchBytes) submit();
  }
  void submit() {
    pool.submit([this, text = std::move(text), parts = std::move(parts)]() mutable {
      return tokenize(tokenizer, text, std::move(parts));
    });
    text.clear();
    parts.clear();
    while (pool.pending() >= most_pending) take();
  }
  void take() {
    const TokenBatch batch = pool.take();
    const std::vector<int32_t>& ids = batch.tokens.ids;
    report.replaced_bytes += batch.tokens.replaced_bytes;
    report.unknown_tokens += std::count(ids.begin(), ids.end(), tokenizer.vocabulary().special().unk);
    size_t begin = 0;
    for (const Part& part : batch.parts) {
      const size_t count = part.end - begin;
      divider.add({std::span(ids).subspan(begin, count), std::span(batch.tokens.starts_word).subspan(begin, count)},
                  part.ends);
      begin = part.end;
    }
    progress.update();
  }
  void finish() {
    if (!parts.empty()) submit();
    while (pool.pending() > 0) take();
  }
};

}  // namespace

PrepareReport prepare(const PrepareOptions& options, io::Progress& progress) {
  check(options);
  DocumentReader reader(options.input);
  const text::Tokenizer tokenizer = text::Tokenizer::load(options.model_dir, options.tokenizer);
  Workplace workplace(options.output_dir);
  const std::string directory = workplace.directory();
  PrepareReport report;

  SplitWriter train(directory, kTrain, tokenizer.vocabulary(), options.shard_tokens);
  SplitWriter valid(directory, kValid, tokenizer.vocabulary(), options.shard_tokens);
  Divider divider(options, train, valid);
  ProgressLine line(progress, reader);
  const int threads = options.threads > 0 ? options.threads : std::max(1u, std::thread::hardware_concurrency());
  Pipeline pipeline{tokenizer, divider, line, report, OrderedPool<TokenBatch>(threads), 4 * size_t(threads)};
  reader.read([&](const Piece& piece) { pipeline.add(piece); });
  pipeline.finish();
  divider.finish();
  train.finish();
  valid.finish();
  progress.finish();

  report.train_tokens = train.contents().tokens;
  report.valid_tokens = valid.contents().tokens;
  report.documents = train.contents().documents + valid.contents().documents;
  report.input_bytes = reader.counts().bytes;
  report.skipped_records = reader.counts().skipped_records;
  if (report.documents == 0) {
    fail("prepare", "the input must hold at least one document with a token, got none in {} files ({} bytes), first {}",
         reader.files().size(), report.input_bytes, reader.files().front());
  }
  tokenizer.save(directory);
  write_manifest(directory,
                 {.vocab_hash = tokenizer.vocabulary().hash(),
                  .vocab_size = tokenizer.vocabulary().size(),
                  .splits = {{std::string(kTrain), train.contents()}, {std::string(kValid), valid.contents()}},
                  .inputs = options.input.inputs,
                  .format = format_name(options.input.format),
                  .field = options.input.field,
                  .document_rule = document_rule_name(options.input.document_rule),
                  .valid_fraction = options.valid_fraction,
                  .seed = options.seed,
                  .input_files = std::ssize(reader.files()),
                  .input_bytes = report.input_bytes,
                  .skipped_records = report.skipped_records,
                  .unknown_tokens = report.unknown_tokens,
                  .replaced_bytes = report.replaced_bytes});
  workplace.publish();
  return report;
}

}  // namespace rf::data
