#include "rf/data/prepare.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "manifest.h"
#include "ordered_pool.h"
#include "rf/data/random.h"
#include "rf/data/read_progress.h"
#include "rf/data/shard.h"
#include "rf/io/error.h"
#include "rf/text/segmenter.h"
#include "rf/text/tokenizer.h"
#include "rf/text/word_boundaries.h"
#include "staging_directory.h"

namespace rf::data {
namespace {

constexpr size_t kBatchBytes = size_t{1} << 18;        // documents are tokenized in batches of about this many bytes
constexpr size_t kMaxWaitingTokens = size_t{1} << 22;  // of a document that waits for its split
constexpr int kMaxThreads = 1024;
constexpr std::string_view kTrain = "train", kValid = "valid", kTest = "test";

// The part of a document in a batch: it ends at `end` in the batch's text, or in its tokens.
struct Part {
  size_t end;
  DocumentPart::End ends;
};

struct TokenBatch {
  text::Encoding tokens;
  std::vector<Part> parts;
};

// Consecutive tokens of a document.
struct Tokens {
  std::span<const int32_t> ids;
  std::span<const uint8_t> starts_word;
};

// Words are the dictionary's, or the tokenizer's if `dictionary` is null.
TokenBatch tokenize(const text::Tokenizer& tokenizer, const std::shared_ptr<const text::Dictionary>& dictionary,
                    std::string_view text, std::vector<Part> parts) {
  TokenBatch batch;
  std::optional<text::WordBoundaries> words;
  if (dictionary) words.emplace(dictionary);
  size_t begin = 0;
  for (Part& part : parts) {
    const std::string_view piece = text.substr(begin, part.end - begin);
    const size_t first = batch.tokens.size();
    tokenizer.encode(piece, batch.tokens);
    if (words) words->mark(piece, first, batch.tokens);
    begin = std::exchange(part.end, batch.tokens.size());
  }
  batch.parts = std::move(parts);
  return batch;
}

// Writes the shards of one split; a new shard begins when one is full.
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
  void add(const Tokens& tokens, DocumentPart::End end) {
    append(tokens);
    if (end == DocumentPart::End::kOfDocument) end_document();
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

// Writes each document to its split. The first document that is not too long waits until both splits have one or the
// input ends.
class SplitAssigner {
 public:
  SplitAssigner(double valid_fraction, uint64_t seed, SplitWriter& train, SplitWriter& valid)
      : valid_fraction_(valid_fraction), seed_(seed), train_(train), valid_(valid), wanted_(valid_fraction > 0) {}

  void add(const Tokens& tokens, DocumentPart::End end) {
    if (current_ == nullptr && wanted_) {
      wait(tokens);
    } else {
      if (current_ == nullptr) current_ = &choose(number_);
      current_->append(tokens);
    }
    if (end == DocumentPart::End::kOfDocument) end_document();
  }
  void finish() {
    if (!waiting_ids_.empty()) release(train_.contents().documents == 0 ? train_ : valid_);
  }

 private:
  // Adds to the document that waits; writes it to its split if it becomes too long to wait.
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
  bool wanted_;                     // no document waits yet, and one should
  SplitWriter* current_ = nullptr;  // the split of the current document, unless that waits
  int64_t number_ = 0, waiting_number_ = 0;
  std::vector<int32_t> waiting_ids_;
  std::vector<uint8_t> waiting_starts_;
};

void check(const PrepareOptions& options) {
  if (!(options.valid_fraction >= 0 && options.valid_fraction < 1)) {
    fail("prepare", "valid_fraction must be in [0, 1), got {}", options.valid_fraction);
  }
  if (options.output_dir.empty()) fail("prepare", "the output must be a directory, got no name");
  if (options.shard_tokens < 1) fail("prepare", "shard_tokens must be at least 1, got {}", options.shard_tokens);
  if (options.threads < 0 || options.threads > kMaxThreads) {
    fail("prepare", "threads must be in [0, {}], got {}", kMaxThreads, options.threads);
  }
}

// The fraction of the documents of `input` that is held out.
double drawn_fraction(const PrepareOptions& options) {
  return options.valid_inputs.empty() ? options.valid_fraction : 0;
}

// Documents and the split that they belong to.
struct Source {
  std::string_view split;
  DocumentReader reader;
};

// The inputs of each split. Throws Error for a file in two splits.
std::vector<Source> open_sources(const PrepareOptions& options) {
  const std::vector<std::pair<std::string_view, const std::vector<std::string>*>> inputs_of = {
      {kTrain, &options.input.inputs}, {kValid, &options.valid_inputs}, {kTest, &options.test_inputs}};
  std::vector<Source> sources;
  std::map<std::string, std::string_view> split_of;
  for (const auto& [split, inputs] : inputs_of) {
    if (split != kTrain && inputs->empty()) continue;
    ReadOptions read = options.input;
    read.inputs = *inputs;
    read.outputs = StagingDirectory::paths_of(options.output_dir);
    sources.push_back({split, DocumentReader(read)});
    for (const std::string& file : sources.back().reader.files()) {
      const auto [other, is_new] = split_of.emplace(file, split);
      if (!is_new) fail("prepare", "a file must be of one split, got {} for {} and {}", file, other->second, split);
    }
  }
  return sources;
}

// Tokenizes the documents of a source on several threads and passes them on in input order.
struct SourceTokenizer {
  const text::Tokenizer& tokenizer;
  std::shared_ptr<const text::Dictionary> dictionary;  // of WordRule::kJieba
  DocumentReader& reader;
  std::function<void(const Tokens&, DocumentPart::End)> take_tokens;
  ReadProgress& progress;
  PrepareReport& report;
  OrderedPool<TokenBatch> pool;
  size_t max_pending;
  std::string text{};         // of the pieces not yet submitted
  std::vector<Part> parts{};  // in `text`
  int64_t tokens = 0;         // passed on

  void add(const DocumentPart& piece) {
    text += piece.text;
    parts.push_back({text.size(), piece.end});
    if (text.size() >= kBatchBytes) submit();
  }
  void submit() {
    pool.submit([this, text = std::move(text), parts = std::move(parts)]() mutable {
      return tokenize(tokenizer, dictionary, text, std::move(parts));
    });
    text.clear();
    parts.clear();
    while (pool.pending() >= max_pending) take();
  }
  void take() {
    const TokenBatch batch = pool.take();
    const std::vector<int32_t>& ids = batch.tokens.ids;
    report.replaced_bytes += batch.tokens.replaced_bytes;
    report.unknown_tokens += std::count(ids.begin(), ids.end(), tokenizer.vocabulary().special().unk);
    size_t begin = 0;
    for (const Part& part : batch.parts) {
      const size_t count = part.end - begin;
      take_tokens({std::span(ids).subspan(begin, count), std::span(batch.tokens.starts_word).subspan(begin, count)},
                  part.ends);
      begin = part.end;
    }
    tokens += std::ssize(ids);
    progress.update(report.input_bytes + reader.counts().bytes);
  }
  void run() {
    reader.read([this](const DocumentPart& piece) { add(piece); });
    if (!parts.empty()) submit();
    while (pool.pending() > 0) take();
    report.input_bytes += reader.counts().bytes;
    report.skipped_records += reader.counts().skipped_records;
    if (tokens > 0) return;
    fail("prepare", "the input must hold at least one document with a token, got none in {} files ({} bytes), first {}",
         reader.files().size(), reader.counts().bytes, reader.files().front());
  }
};

// The dictionary for WordRule::kJieba, otherwise null.
std::shared_ptr<const text::Dictionary> word_dictionary(const PrepareOptions& options,
                                                        const text::Tokenizer& tokenizer) {
  if (options.words == WordRule::kTokenizer) return nullptr;
  if (tokenizer.options().dictionary != nullptr) return tokenizer.options().dictionary;
  return text::load_dictionary(options.model_dir, options.tokenizer);
}

// The manifest without the splits and the files.
Manifest describe(const PrepareOptions& options, const text::Vocabulary& vocabulary, const text::Dictionary* dictionary,
                  const std::vector<Source>& sources, const PrepareReport& report) {
  Manifest manifest{.vocab_hash = vocabulary.hash(),
                    .vocab_size = vocabulary.size(),
                    .splits = {},
                    .tokenizer_files = {},
                    .inputs = options.input.inputs,
                    .split_inputs = {},
                    .format = format_name(options.input.format),
                    .field = options.input.field,
                    .document_rule = document_rule_name(options.input.document_rule),
                    .words = word_rule_name(options.words),
                    .dictionary = dictionary == nullptr ? "" : dictionary->hash(),
                    .valid_fraction = drawn_fraction(options),
                    .seed = options.seed,
                    .input_bytes = report.input_bytes,
                    .skipped_records = report.skipped_records,
                    .unknown_tokens = report.unknown_tokens,
                    .replaced_bytes = report.replaced_bytes};
  for (const Source& source : sources) {
    manifest.input_files += std::ssize(source.reader.files());
    if (source.split != kTrain) manifest.split_inputs[std::string(source.split)] = source.reader.options().inputs;
  }
  return manifest;
}

// Into a directory without one; the names of its files.
std::vector<std::string> save_tokenizer(const text::Tokenizer& tokenizer, const std::filesystem::path& directory) {
  tokenizer.save(directory.string());
  std::vector<std::string> names;
  for (const std::string_view name : text::kTokenizerFiles) {
    if (std::filesystem::exists(directory / name)) names.emplace_back(name);
  }
  return names;
}

}  // namespace

const char* word_rule_name(WordRule rule) {
  return rule == WordRule::kJieba ? "jieba" : "tokenizer";
}

PrepareReport prepare(const PrepareOptions& options, io::Progress& progress) {
  check(options);
  std::vector<Source> sources = open_sources(options);
  const text::Tokenizer tokenizer = text::Tokenizer::load(options.model_dir, options.tokenizer);
  const std::shared_ptr<const text::Dictionary> dictionary = word_dictionary(options, tokenizer);
  StagingDirectory staging(options.output_dir);
  const std::string directory = staging.directory();
  PrepareReport report;
  for (const Source& source : sources) {
    const auto& files = source.reader.left_out();
    report.left_out.insert(report.left_out.end(), files.begin(), files.end());
  }

  std::map<std::string_view, SplitWriter> splits;
  for (const std::string_view split : {kTrain, kValid, kTest}) {
    if (split == kTest && options.test_inputs.empty()) continue;
    splits.try_emplace(split, directory, split, tokenizer.vocabulary(), options.shard_tokens);
  }
  SplitAssigner assigner(drawn_fraction(options), options.seed, splits.at(kTrain), splits.at(kValid));
  int64_t bytes = 0;
  for (const Source& source : sources) bytes += source.reader.total_bytes();
  ReadProgress line(progress, "tokenizing", bytes);
  const int threads = options.threads > 0 ? options.threads : std::max(1u, std::thread::hardware_concurrency());
  for (Source& source : sources) {
    std::function<void(const Tokens&, DocumentPart::End)> take = [&](auto& tokens, auto end) {
      assigner.add(tokens, end);
    };
    if (source.split != kTrain) take = [&](auto& tokens, auto end) { splits.at(source.split).add(tokens, end); };
    SourceTokenizer source_tokenizer{
        tokenizer,          dictionary, source.reader, take, line, report, OrderedPool<TokenBatch>(threads),
        4 * size_t(threads)};
    source_tokenizer.run();
  }
  assigner.finish();
  const text::Dictionary* used = dictionary ? dictionary.get() : tokenizer.options().dictionary.get();
  Manifest manifest = describe(options, tokenizer.vocabulary(), used, sources, report);
  for (auto& [name, split] : splits) {
    split.finish();
    report.documents += split.contents().documents;
    manifest.splits[std::string(name)] = split.contents();
  }
  progress.finish();
  report.train_tokens = splits.at(kTrain).contents().tokens;
  report.valid_tokens = splits.at(kValid).contents().tokens;
  if (splits.contains(kTest)) report.test_tokens = splits.at(kTest).contents().tokens;

  manifest.tokenizer_files = save_tokenizer(tokenizer, directory);
  write_manifest(directory, manifest);
  staging.publish();
  return report;
}

}  // namespace rf::data
