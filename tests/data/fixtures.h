// A temporary directory with a model (a vocabulary of words), texts and splits in it.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "rf/data/prepare.h"
#include "rf/data/shard.h"
#include "rf/data/split.h"
#include "rf/io/error.h"
#include "rf/text/tokenizer.h"

namespace rf::data {

class Directory {
 public:
  Directory() {
    std::string name = (std::filesystem::temp_directory_path() / "rf_data_XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~Directory() { std::filesystem::remove_all(path_); }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  std::string operator/(const std::string& name) const { return fmt::format("{}/{}", path_, name); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline void write(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

inline std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

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

// The message of the Error that `action` throws; a failure when it throws none.
template <typename Action>
std::string error_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "no rf::Error";
  return "";
}

inline void expect_has(const std::string& message, const std::string& part) {
  EXPECT_NE(message.find(part), std::string::npos) << message;
}
inline void expect_parts(const std::string& message, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) expect_has(message, part);
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

inline std::string make_model(const Directory& directory, int size = 1000) {
  const std::string model = directory / "model";
  std::filesystem::create_directories(model);
  text::Tokenizer(make_vocabulary(size), {}).save(model);
  return model;
}

// A prepared directory made by hand: documents in shards of `documents_per_shard`, all in `train`.
std::shared_ptr<const Split> make_split(const Directory& directory, const std::vector<TestDocument>& documents,
                                        int64_t vocab_size, size_t documents_per_shard = 1000);

}  // namespace rf::data
