// The targets of fuzz/ on the files of fuzz/corpus, and on 2,000 mutations of them with a fixed seed. A failure
// is a crash, an exception, or a report of a sanitizer; the input is in the file that is named before.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>

#include "rf/fuzz/targets.h"

namespace rf::fuzz {
namespace {

constexpr int kRounds = 2000;

std::vector<std::string> corpus_of(std::string_view target) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(RF_FUZZ_CORPUS) / target))
    paths.push_back(entry.path());
  std::ranges::sort(paths);
  std::vector<std::string> files;
  for (const auto& path : paths) {
    std::ostringstream bytes;
    bytes << std::ifstream(path, std::ios::binary).rdbuf();
    files.push_back(bytes.str());
  }
  return files;
}

// Of JSON, of vocabularies, of HTTP, and between sections.
std::vector<std::string> words() {
  std::istringstream text(
      "\" { } [ ] , : null true -1 0 1e400 9223372036854775807 0.5 \xff \xe4\xbb\x8a \\u0000 \\ud800 \"type\": [UNK] "
      "##");
  std::vector<std::string> all{"\n", "\n=====\n", "\r\n", "Transfer-Encoding: chunked\r\n", "Content-Length: 9\r\n"};
  all.insert(all.end(), std::istream_iterator<std::string>(text), {});
  return all;
}

class Mutator {
 public:
  explicit Mutator(const std::vector<std::string>& files) : files_(files) {}

  std::string next() {
    std::string bytes = files_[below(files_.size())];
    for (size_t edits = 1 + below(4); edits > 0; --edits) edit(bytes);
    return bytes;
  }

 private:
  size_t below(size_t end) { return static_cast<size_t>(random_()) % end; }

  void edit(std::string& bytes) {
    const size_t at = below(bytes.size() + 1);
    const std::string& other = files_[below(files_.size())];
    switch (below(6)) {
      case 0: bytes.insert(at, words_[below(words_.size())]); return;
      case 1: bytes.erase(at, 1 + below(16)); return;
      case 2: bytes.insert(at, bytes.substr(below(bytes.size() + 1), below(64))); return;
      case 3: bytes.insert(at, other.substr(below(other.size() + 1), below(64))); return;
      case 4: bytes.resize(at); return;
      default:
        if (at < bytes.size()) bytes[at] = static_cast<char>(random_());
    }
  }

  const std::vector<std::string>& files_;
  const std::vector<std::string> words_ = words();
  std::mt19937 random_{1};
};

class Fuzz : public ::testing::TestWithParam<Target> {};
INSTANTIATE_TEST_SUITE_P(Targets, Fuzz, ::testing::ValuesIn(targets().begin(), targets().end()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(Fuzz, CorpusAndMutations) {
  const std::vector<std::string> files = corpus_of(GetParam().name);
  ASSERT_FALSE(files.empty());
  for (const std::string& file : files) ASSERT_NO_THROW(GetParam().run(file));
  Mutator mutator(files);
  for (int round = 0; round < kRounds; ++round) {
    const std::string bytes = mutator.next();
    ASSERT_NO_THROW(GetParam().run(bytes)) << "round " << round << ": " << bytes.substr(0, 2000);
  }
}

}  // namespace
}  // namespace rf::fuzz
