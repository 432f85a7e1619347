// Joins the parts of an input to one data directory (prepare.h).
#include <algorithm>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>
#include <vector>

#include "manifest.h"
#include "rf/data/prepare.h"
#include "rf/data/read_progress.h"
#include "rf/data/shard.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/written_files.h"
#include "split_writer.h"
#include "staging_directory.h"

namespace rf::data {
namespace {

using nlohmann::json;

struct PartDirectory {
  std::string path;
  Manifest manifest;
};

// The user's settings for a part, named like the options, and its inputs.
std::vector<std::pair<const char*, json>> settings(const Manifest& manifest) {
  const ManifestPart& part = *manifest.part;
  return {{"number of parts", part.parts},
          {"--input", manifest.inputs},
          {"--valid-input and --test-input", manifest.split_inputs},
          {"--format", manifest.format},
          {"--field", manifest.field},
          {"--documents", manifest.document_rule},
          {"--no-quotes", part.quotes},
          {"--skip-bad-records", part.bad_records},
          {"--words", manifest.words},
          {"--valid-fraction", manifest.valid_fraction},
          {"--seed", manifest.seed},
          {"--shard-tokens", part.shard_tokens},
          {"vocabulary", manifest.vocab_hash},
          {"vocabulary size", manifest.vocab_size},
          {"dictionary", manifest.dictionary},
          {"input files (a hash of their names and sizes)", part.input_hash}};
}

void check_same_settings(const PartDirectory& first, const PartDirectory& other) {
  const auto want = settings(first.manifest), got = settings(other.manifest);
  for (size_t i = 0; i < want.size(); ++i) {
    if (want[i].second == got[i].second) continue;
    fail("merge", "all parts must have the same {}, got {} in {} and {} in {}", want[i].first, want[i].second.dump(),
         first.path, got[i].second.dump(), other.path);
  }
}

void check_same_tokenizer(const PartDirectory& first, const PartDirectory& other) {
  const std::vector<std::string>& names = first.manifest.tokenizer_files;
  bool is_same = names == other.manifest.tokenizer_files;
  for (size_t i = 0; is_same && i < names.size(); ++i) {
    is_same = io::read_file(first.path + "/" + names[i]) == io::read_file(other.path + "/" + names[i]);
  }
  if (!is_same)
    fail("merge", "all parts must have the same tokenizer, got others in {} and {}", first.path, other.path);
}

// The parts, sorted by number.
std::vector<PartDirectory> read_parts(const std::vector<std::string>& inputs) {
  if (inputs.empty()) fail("merge", "the parts must be given, got none");
  std::vector<PartDirectory> parts;
  for (const std::string& input : inputs) {
    parts.push_back({input, read_manifest(input)});
    if (!parts.back().manifest.part) {
      fail("merge", "an input must be a part that prepare --part made, got {}, which is whole", input);
    }
    check_same_settings(parts.front(), parts.back());
    check_same_tokenizer(parts.front(), parts.back());
  }
  const auto number = [](const PartDirectory& part) { return part.manifest.part->number; };
  std::ranges::stable_sort(parts, {}, number);
  const int64_t count = parts.front().manifest.part->parts;
  for (size_t i = 1; i < parts.size(); ++i) {
    if (number(parts[i]) != number(parts[i - 1])) continue;
    fail("merge", "each part must be given once, got part {} of {} in {} and {}", number(parts[i]), count,
         parts[i - 1].path, parts[i].path);
  }
  for (int64_t want = 1; want <= count; ++want) {
    const auto at = static_cast<size_t>(want - 1);
    if (at < parts.size() && number(parts[at]) == want) continue;
    fail("merge", "all {} parts must be given, got none with number {}", count, want);
  }
  return parts;
}

// Passes on the documents of a shard in order, in pieces. `bytes_read`: of the shards before it.
void read_shard(const ShardReader& shard, int64_t bytes_read, ReadProgress& progress,
                const std::function<void(const Tokens&, DocumentPart::End)>& take) {
  constexpr int64_t kPieceTokens = int64_t{1} << 14, kReleaseTokens = int64_t{1} << 24;
  std::vector<int32_t> ids(kPieceTokens);
  std::vector<uint8_t> starts_word(kPieceTokens);
  int64_t begin = 0, resident = 0;
  for (int64_t document = 0; document < shard.documents(); ++document) {
    const int64_t end = shard.document_begin(document + 1);
    resident += end - begin;
    for (; begin < end; begin = std::min(begin + kPieceTokens, end)) {
      const auto count = static_cast<size_t>(std::min(kPieceTokens, end - begin));
      const Tokens piece{std::span(ids).first(count), std::span(starts_word).first(count)};
      shard.copy(begin, std::span(ids).first(count), std::span(starts_word).first(count));
      shard.check_whole();
      take(piece, end - begin <= kPieceTokens ? DocumentPart::End::kOfDocument : DocumentPart::End::kNo);
    }
    if (resident < kReleaseTokens && document + 1 < shard.documents()) continue;
    resident = 0;
    shard.release_pages();
    progress.update(bytes_read + shard.bytes() / shard.tokens() * end);
  }
}

// The manifest of the whole without its splits: the first part's manifest with the total counts.
Manifest describe(const std::vector<PartDirectory>& parts) {
  Manifest whole = parts.front().manifest;
  whole.part.reset();
  whole.splits.clear();
  for (size_t i = 1; i < parts.size(); ++i) {
    const Manifest& part = parts[i].manifest;
    whole.input_files += part.input_files;
    whole.input_bytes += part.input_bytes;
    whole.skipped_records += part.skipped_records;
    whole.unknown_tokens += part.unknown_tokens;
    whole.replaced_bytes += part.replaced_bytes;
  }
  return whole;
}

SplitWriters open_splits(const Manifest& whole, const std::string& directory, int64_t shard_tokens) {
  SplitWriters splits;
  for (const std::string_view split : {kTrain, kValid, kTest}) {
    if (split == kTest && !whole.split_inputs.contains("test")) continue;
    splits.try_emplace(std::string(split), directory, split, whole.vocab_size, whole.vocab_hash, shard_tokens);
  }
  return splits;
}

void copy_documents(const std::vector<PartDirectory>& parts, const Manifest& whole, SplitWriters& splits,
                    io::Progress& progress) {
  int64_t bytes = 0, bytes_read = 0;
  for (const PartDirectory& part : parts) bytes += shard_bytes(part.path, part.manifest);
  ReadProgress line(progress, "merging", bytes);
  SplitAssigner assigner(whole.valid_fraction, whole.seed, splits.at("train"), splits.at("valid"));
  for (const PartDirectory& part : parts) {
    for (const auto& [name, contents] : part.manifest.splits) {
      const auto split = splits.find(name);
      if (split == splits.end()) fail("merge", "{} must have known splits, got \"{}\"", part.path, name);
      int64_t documents = 0, tokens = 0;
      for (const std::string& shard_name : contents.shards) {
        const ShardReader shard(part.path + "/" + shard_name);
        check_vocabulary(part.manifest, shard);
        shard.verify();
        read_shard(shard, bytes_read, line, [&](const Tokens& piece, DocumentPart::End end) {
          name == kTrain ? assigner.add(piece, end) : split->second.add(piece, end);
        });
        bytes_read += shard.bytes();
        documents += shard.documents();
        tokens += shard.tokens();
      }
      check_counts(part.path + ": " + name, contents, documents, tokens);
    }
  }
  assigner.finish();
}

// The files to read, with links resolved.
std::vector<std::string> files_of(const std::vector<PartDirectory>& parts) {
  std::vector<std::string> files;
  for (const PartDirectory& part : parts) {
    files.push_back(part.path);
    for (const auto& entry : std::filesystem::directory_iterator(part.path)) files.push_back(entry.path());
  }
  return files;
}

// As in prepare(), each input must contain a token.
void check_inputs(const std::vector<PartDirectory>& parts) {
  std::map<std::string, int64_t> tokens;
  for (const PartDirectory& part : parts) {
    for (const auto& [name, split] : part.manifest.splits) tokens[name] += split.tokens;
  }
  for (const auto& [name, count] : tokens) {
    if (count == 0) fail("merge", "the parts must hold a document with a token for the split {}, got none", name);
  }
}

}  // namespace

PrepareReport merge(const MergeOptions& options, io::Progress& progress) {
  if (options.output_dir.empty()) fail("merge", "the output must be a directory, got no name");
  const std::vector<PartDirectory> parts = read_parts(options.inputs);
  check_inputs(parts);
  io::WrittenFiles(StagingDirectory::written_paths(options.output_dir)).check_inputs(files_of(parts));
  Manifest whole = describe(parts);
  StagingDirectory staging(options.output_dir);
  SplitWriters splits = open_splits(whole, staging.directory(), parts.front().manifest.part->shard_tokens);
  copy_documents(parts, whole, splits, progress);
  PrepareReport report;
  finish_splits(splits, whole, report);
  progress.finish();
  report.unknown_tokens = whole.unknown_tokens;
  report.replaced_bytes = whole.replaced_bytes;
  report.skipped_records = whole.skipped_records;
  report.input_bytes = whole.input_bytes;

  for (const std::string& name : parts.front().manifest.tokenizer_files) {
    io::write_file(staging.directory() + "/" + name, io::read_file(parts.front().path + "/" + name));
  }
  write_manifest(staging.directory(), whole);
  staging.publish();
  return report;
}

}  // namespace rf::data
