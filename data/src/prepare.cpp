#include "rf/data/prepare.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "manifest.h"
#include "rf/data/read_progress.h"
#include "rf/io/error.h"
#include "rf/io/processors.h"
#include "rf/text/segmenter.h"
#include "rf/text/tokenizer.h"
#include "rf/text/word_boundaries.h"
#include "rf/text/workers.h"
#include "split_writer.h"
#include "staging_directory.h"

namespace rf::data {
namespace {

constexpr size_t kBatchBytes = size_t{1} << 18;  // documents are tokenized in batches of about this many bytes
constexpr int kMaxThreads = 1024;

// A document's part in a batch, up to `end` in the batch's text or tokens.
struct Part {
  size_t end;
  DocumentPart::End ends;
};

struct TokenBatch {
  text::Encoding tokens;
  std::vector<Part> parts;
};

// Jobs run by several threads in any order, with results in the order of submission. The thread that takes the results
// also runs jobs while it waits for a result.
class OrderedPool {
 public:
  explicit OrderedPool(int threads) : workers_(threads) {}  // pending jobs are dropped with the pool

  void submit(std::function<TokenBatch()> job) {
    auto task = std::make_shared<std::packaged_task<TokenBatch()>>(std::move(job));
    results_.push_back(task->get_future());
    workers_.submit([task](size_t) { (*task)(); });
  }
  size_t pending() const { return results_.size(); }  // submitted but not taken
  TokenBatch take() {                                 // the oldest; waits for it and rethrows the exception of its job
    std::future<TokenBatch> result = std::move(results_.front());
    results_.pop_front();
    while (result.wait_for(std::chrono::seconds(0)) != std::future_status::ready && workers_.run_one()) {
    }
    return result.get();
  }

 private:
  std::deque<std::future<TokenBatch>> results_;
  text::Workers workers_;
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

void check(const PrepareOptions& options) {
  if (!(options.valid_fraction >= 0 && options.valid_fraction < 1)) {
    fail("prepare", "valid_fraction must be in [0, 1), got {}", options.valid_fraction);
  }
  if (options.output_dir.empty()) fail("prepare", "the output must be a directory, got no name");
  if (options.shard_tokens < 1) fail("prepare", "shard_tokens must be at least 1, got {}", options.shard_tokens);
  if (options.threads < 0 || options.threads > kMaxThreads) {
    fail("prepare", "threads must be in [0, {}], got {}", kMaxThreads, options.threads);
  }
  if (!options.part) return;
  if (options.part->number < 1 || options.part->number > options.part->parts) {
    fail("prepare", "a part must have a number from 1 to the number of parts, got {} of {}", options.part->number,
         options.part->parts);
  }
}

// The fraction of the documents of `input` to hold out.
double drawn_fraction(const PrepareOptions& options) {
  return options.valid_inputs.empty() ? options.valid_fraction : 0;
}

// Documents and their split.
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
    if (split != kTrain) read.field_of_text = FieldOfText::kIgnored;
    read.outputs = StagingDirectory::paths_of(options.output_dir);
    sources.push_back({split, DocumentReader(read)});
    for (const std::string& file : sources.back().reader.files()) {
      const auto [other, is_new] = split_of.emplace(file, split);
      if (!is_new) fail("prepare", "a file must be of one split, got {} for {} and {}", file, other->second, split);
    }
  }
  return sources;
}

// The files of the part: a range of consecutive files. Each part has at least one file, and about as many bytes as the
// others if the file sizes allow it. number is from 1 to parts, which is at most the number of files.
struct FileRange {
  size_t begin, end;
};
FileRange files_of_part(const std::vector<int64_t>& sizes, int64_t number, int64_t parts) {
  const int64_t total = std::accumulate(sizes.begin(), sizes.end(), int64_t{0}), files = std::ssize(sizes);
  std::vector<int64_t> ends{0};  // ends of the parts, in files
  int64_t bytes = 0, file = 0;
  for (int64_t part = 1; part <= parts; ++part) {
    // A file belongs to the part that contains its midpoint.
    const int64_t share = total / parts * part + total % parts * part / parts;
    while (file < files && bytes + sizes[static_cast<size_t>(file)] / 2 < share) {
      bytes += sizes[static_cast<size_t>(file++)];
    }
    ends.push_back(part == parts ? files : std::clamp(file, ends.back() + 1, files - (parts - part)));
  }
  return {static_cast<size_t>(ends[static_cast<size_t>(number - 1)]),
          static_cast<size_t>(ends[static_cast<size_t>(number)])};
}

// The size of each file. Throws Error for one without a size, such as a pipe.
std::vector<int64_t> sizes_of(const std::vector<std::string>& files) {
  std::vector<int64_t> sizes;
  for (const std::string& path : files) {
    std::error_code error;
    if (!std::filesystem::is_regular_file(path, error)) {
      fail("prepare", "the inputs of a part must be files, which every machine sees, got {}", path);
    }
    sizes.push_back(static_cast<int64_t>(std::filesystem::file_size(path)));
  }
  return sizes;
}

// Identifies parts of the same input.
std::string hash_of_files(const std::vector<std::string>& files, const std::vector<int64_t>& sizes) {
  std::string text;
  for (size_t i = 0; i < files.size(); ++i) text += fmt::format("{}\n{}\n", files[i], sizes[i]);
  return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
}

// Removes files outside the part from the sources, and returns the part's entry for data.json.
ManifestPart take_part(const PrepareOptions& options, std::vector<Source>& sources) {
  std::vector<std::string> files;
  for (const Source& source : sources) {
    files.insert(files.end(), source.reader.files().begin(), source.reader.files().end());
  }
  const auto [number, parts] = *options.part;
  if (parts > std::ssize(files)) {
    fail("prepare", "there must be a file for each part, got {} files for {} parts", files.size(), parts);
  }
  const std::vector<int64_t> sizes = sizes_of(files);
  const FileRange range = files_of_part(sizes, number, parts);
  size_t first = 0;
  for (Source& source : sources) {
    const size_t count = source.reader.files().size();
    const size_t begin = std::clamp(range.begin, first, first + count) - first;
    const size_t end = std::clamp(range.end, first, first + count) - first;
    source.reader.keep_files(begin, end);
    first += count;
  }
  return {.number = number,
          .parts = parts,
          .shard_tokens = options.shard_tokens,
          .input_hash = hash_of_files(files, sizes),
          .quotes = options.input.quotes == Quotes::kRead ? "read" : "text",
          .bad_records = options.input.bad_records == BadRecords::kRefuse ? "refuse" : "skip"};
}

// Tokenizes the documents of a source in several threads and passes them on in input order.
struct SourceTokenizer {
  const text::Tokenizer& tokenizer;
  std::shared_ptr<const text::Dictionary> dictionary;  // for WordRule::kJieba
  DocumentReader& reader;
  std::function<void(const Tokens&, DocumentPart::End)> take_tokens;
  ReadProgress& progress;
  PrepareReport& report;
  OrderedPool pool;
  size_t max_pending;
  bool is_part;               // other parts may contain the tokens
  std::string text{};         // of pieces that are not yet submitted
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
    if (reader.files().empty()) return;  // allowed for a part
    reader.read([this](const DocumentPart& piece) { add(piece); });
    if (!parts.empty()) submit();
    while (pool.pending() > 0) take();
    report.input_bytes += reader.counts().bytes;
    report.skipped_records += reader.counts().skipped_records;
    if (tokens > 0 || is_part) return;
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

// The splits to write. A part writes splits that are drawn from the same input as one split; merge() draws them.
SplitWriters open_splits(const PrepareOptions& options, const text::Vocabulary& vocabulary,
                         const std::string& directory) {
  SplitWriters splits;
  for (const std::string_view split : {kTrain, kValid, kTest}) {
    if (split == kTest && options.test_inputs.empty()) continue;
    if (split == kValid && options.valid_inputs.empty() && options.part) continue;
    splits.try_emplace(std::string(split), directory, split, vocabulary.size(), vocabulary.hash(),
                       options.shard_tokens);
  }
  return splits;
}

// Tokenizes all documents and writes them to the splits.
void tokenize_sources(const PrepareOptions& options, const text::Tokenizer& tokenizer,
                      const std::shared_ptr<const text::Dictionary>& dictionary, std::vector<Source>& sources,
                      SplitWriters& splits, PrepareReport& report, io::Progress& progress) {
  using Take = std::function<void(const Tokens&, DocumentPart::End)>;
  std::optional<SplitAssigner> assigner;
  if (!options.part) {
    assigner.emplace(drawn_fraction(options), options.seed, splits.at("train"), splits.at("valid"));
  }
  int64_t bytes = 0;
  for (const Source& source : sources) bytes += source.reader.total_bytes();
  ReadProgress line(progress, "tokenizing", bytes);
  const int threads = options.threads > 0 ? options.threads : io::available_processors();
  for (Source& source : sources) {
    SplitWriter& split = splits.find(source.split)->second;
    Take take = [&](auto& tokens, auto end) { split.add(tokens, end); };
    if (assigner && source.split == kTrain) take = [&](auto& tokens, auto end) { assigner->add(tokens, end); };
    SourceTokenizer source_tokenizer{tokenizer,
                                     dictionary,
                                     source.reader,
                                     take,
                                     line,
                                     report,
                                     OrderedPool(threads),
                                     4 * size_t(threads),
                                     options.part.has_value()};
    source_tokenizer.run();
  }
  if (assigner) assigner->finish();
}

// The manifest without the splits and the files.
Manifest describe(const PrepareOptions& options, const text::Vocabulary& vocabulary, const text::Dictionary* dictionary,
                  const std::vector<Source>& sources, const PrepareReport& report) {
  Manifest manifest{.vocab_hash = vocabulary.hash(),
                    .vocab_size = vocabulary.size(),
                    .splits = {},
                    .tokenizer_files = {},
                    .part = {},
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

// Saves into a directory without tokenizer files; returns the names of the files.
std::vector<std::string> save_tokenizer(const text::Tokenizer& tokenizer, const std::filesystem::path& directory) {
  tokenizer.save(directory.string());
  std::vector<std::string> names;
  for (const std::string_view name : text::kTokenizerFiles) {
    if (std::filesystem::exists(directory / name)) names.emplace_back(name);
  }
  return names;
}

}  // namespace

const char* word_rule_name(WordRule rule) { return rule == WordRule::kJieba ? "jieba" : "tokenizer"; }

PrepareReport prepare(const PrepareOptions& options, io::Progress& progress) {
  check(options);
  std::vector<Source> sources = open_sources(options);
  PrepareReport report;
  for (const Source& source : sources) {
    const auto& files = source.reader.left_out();
    report.left_out.insert(report.left_out.end(), files.begin(), files.end());
  }
  std::optional<ManifestPart> part;
  if (options.part) part = take_part(options, sources);
  const text::Tokenizer tokenizer = text::Tokenizer::load(options.model_dir, options.tokenizer);
  const std::shared_ptr<const text::Dictionary> dictionary = word_dictionary(options, tokenizer);
  StagingDirectory staging(options.output_dir);

  SplitWriters splits = open_splits(options, tokenizer.vocabulary(), staging.directory());
  tokenize_sources(options, tokenizer, dictionary, sources, splits, report, progress);
  const text::Dictionary* used = dictionary ? dictionary.get() : tokenizer.options().dictionary.get();
  Manifest manifest = describe(options, tokenizer.vocabulary(), used, sources, report);
  manifest.part = std::move(part);
  finish_splits(splits, manifest, report);
  progress.finish();

  manifest.tokenizer_files = save_tokenizer(tokenizer, staging.directory());
  write_manifest(staging.directory(), manifest);
  staging.publish();
  return report;
}

}  // namespace rf::data
