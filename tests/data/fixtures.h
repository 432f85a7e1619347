// A temporary directory with a model (a vocabulary of words), texts and splits in it.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "rf/data/batcher.h"
#include "rf/data/prepare.h"
#include "rf/data/random.h"
#include "rf/data/shard.h"
#include "rf/data/split.h"
#include "rf/text/tokenizer.h"
#include "temporary_files.h"

namespace rf::data {

using namespace tests;

// Every file under a directory by name.
inline std::map<std::string, std::string> contents(const std::string& directory) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    if (entry.is_regular_file()) {
      files[std::filesystem::relative(entry.path(), directory).string()] = read(entry.path().string());
    }
  }
  return files;
}

// Changes one byte in place, as a disk does.
inline void change_byte(const std::string& path, int64_t offset) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(offset);
  const char old = static_cast<char>(file.get());
  file.seekp(offset);
  file.put(static_cast<char>(old ^ 1));
}

// A document as a shard has it.
inline void add_document(ShardWriter& writer, const std::vector<int32_t>& ids,
                         const std::vector<uint8_t>& starts_word) {
  writer.append(ids, starts_word);
  writer.end_document();
}

// Document `d` of a split.
struct TestDocument {
  std::vector<int32_t> ids;
  std::vector<uint8_t> starts_word;
};
inline TestDocument read_document(const Split& split, int64_t d) {
  TestDocument document;
  document.ids.resize(static_cast<size_t>(split.document_tokens(d)));
  document.starts_word.resize(document.ids.size());
  split.copy(d, 0, std::ssize(document.ids), document.ids.data(), document.starts_word.data());
  return document;
}

// Sizes from `least` to below `end` from the generator (the truth does not depend on how they are drawn).
inline std::vector<int64_t> sizes(int64_t count, int64_t least, int64_t end) {
  std::vector<int64_t> made;
  for (uint32_t i = 0; i < count; ++i) made.push_back(least + scale_to(philox4x32(99, {i, 0, 0, 0})[0], end - least));
  return made;
}

// Documents whose tokens are numbered through: 5, 6, 7, ... A word has one token or, with `words`, some.
inline std::vector<TestDocument> numbered(const std::vector<int64_t>& sizes, bool words = false) {
  std::vector<TestDocument> documents;
  uint32_t next = 5;
  for (const int64_t size : sizes) {
    TestDocument& made = documents.emplace_back();
    for (int64_t i = 0; i < size; ++i, ++next) {
      made.ids.push_back(static_cast<int32_t>(next));
      made.starts_word.push_back(i == 0 || !words || philox4x32(3, {next, 0, 0, 0})[0] % 2 == 0);
    }
  }
  return documents;
}

inline std::vector<Batch> batches_in_order(const Batcher& batcher) {
  std::vector<Batch> all;
  Batch batch;
  for (int64_t row = 0; batcher.next_in_order(row, batch);) all.push_back(batch);
  return all;
}

inline constexpr text::SpecialIds kSpecial{.pad = 0, .unk = 1, .cls = 2, .sep = 3, .mask = 4};

// [PAD] [UNK] [CLS] [SEP] [MASK], then w0 ... and ##x0 ..., half each.
inline text::Vocabulary make_vocabulary(int size) {
  std::vector<std::string> tokens{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  for (int i = 0; std::ssize(tokens) < size; ++i) {
    tokens.push_back(fmt::format("w{}", i));
    if (std::ssize(tokens) < size) tokens.push_back(fmt::format("##x{}", i));
  }
  return text::Vocabulary(tokens);
}

inline std::string make_model(const Directory& directory, int size = 1000, const text::TokenizerOptions& options = {}) {
  const std::string model = directory / "model";
  std::filesystem::create_directories(model);
  text::Tokenizer(make_vocabulary(size), options).save(model);
  return model;
}

// A prepared directory made by hand: documents in shards of `documents_per_shard`, all in `train`.
std::shared_ptr<const Split> make_split(const Directory& directory, const std::vector<TestDocument>& documents,
                                        int64_t vocab_size, size_t documents_per_shard = 1000);

// A temporary directory in which prepare() runs.
class Prepare : public testing::Test {
 protected:
  PrepareReport run(PrepareOptions options) {
    io::Progress progress;
    if (options.input.inputs.empty()) options.input.inputs = {directory_ / "text"};
    if (options.model_dir.empty()) options.model_dir = make_model(directory_);
    if (options.output_dir.empty()) options.output_dir = directory_ / "out";
    return prepare(options, progress);
  }
  std::string run_error(const PrepareOptions& options) {
    return error_of([&] { run(options); });
  }
  // `lines` documents of a few words each.
  void write_lines(int64_t lines) {
    std::string text;
    for (int64_t i = 0; i < lines; ++i) {
      for (int64_t j = 0; j <= i % 17; ++j) {
        text += fmt::format("W{}{} ", (i * 31 + j) % 300, j % 3 == 0 ? fmt::format("x{}", j) : "");
      }
      text += "zzz\n";
    }
    write(directory_ / "text/a.txt", text);
  }
  std::vector<int32_t> tokens(const std::string& split_name) {
    const Split split(directory_ / "out", split_name, "");
    std::vector<int32_t> ids;
    for (int64_t d = 0; d < split.documents(); ++d) {
      const TestDocument document = read_document(split, d);
      ids.insert(ids.end(), document.ids.begin(), document.ids.end());
    }
    return ids;
  }
  const Directory directory_;
};

}  // namespace rf::data
