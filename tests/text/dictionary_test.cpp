// The files of a dictionary, their errors, and the cache of what is built; odd values and long texts. The words cut
// with it against rjieba and jieba: tests/oracles/test_segmenter.py.
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <span>

#include "rf/text/segmenter.h"
#include "segmenter/dictionary_image.h"
#include "support.h"

namespace rf::text {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kLines =
    "\xE4\xB8\xAD\xE5\x9B\xBD 10 ns\n\xE4\xB8\xAD 3 n\n\xE5\x9B\xBD 4 n\nC++ 3 nz\n";  // "zhong guo", its halves, C++
const DictionaryCache kNoCache{""};

std::vector<uint32_t> ends(const std::shared_ptr<const Dictionary>& dictionary, std::u32string_view text) {
  std::vector<uint32_t> result;
  Segmenter(dictionary).cut(text, result);
  return result;
}

void expect_works(const std::shared_ptr<const Dictionary>& dictionary) {
  EXPECT_EQ(dictionary->size(), 4);
  EXPECT_EQ(dictionary->total(), 20);
  EXPECT_EQ(ends(dictionary, U"\u4E2D\u56FDC++ \u56FD"), (std::vector<uint32_t>{2, 5, 6, 7}));
}

std::vector<fs::path> files_in(const std::string& directory) {
  return {fs::directory_iterator(directory), fs::directory_iterator()};
}

// The message about dict.txt with these lines or, where there are some, about a user dictionary.
std::string load_error(std::string_view lines, std::string_view user_lines = "") {
  const Directory dir;
  const std::string path = dir.write("dict.txt", lines);
  std::vector<std::string> users;
  if (!user_lines.empty()) users.push_back(dir.write("user.txt", user_lines));
  return error_of([&] { Dictionary::load(path, users, kNoCache); });
}

TEST(Dictionary, BadLinesAreNamed) {
  const std::pair<std::string, const char*> cases[] = {
      {"a 1 n\nword\n", "dict.txt:2] a line must be a word and a frequency, got \"word\""},
      {"a 1 n\n\nb -3 n\n", "dict.txt:3] a frequency must be an integer"},
      {"a  1 n\n", "got \"\""},
      {"a 1.5 n\n", "got \"1.5\""},
      {"a 9007199254740993 n\n", "from 0 to 2^53"},
      {"a 9007199254740992 n\nb 1\n", "dict.txt:2] the frequencies must add up to at most 2^53"},
      {"\xE4\xB8 1 n\n", "dict.txt:1] a dictionary must be UTF-8"},
      {std::string(256, 'a') + " 1 n\n", "at most 255 characters, got 256"},
      {"", "must have a word with a frequency above 0"},
      {"a 0 n\n", "must have a word with a frequency above 0"},
  };
  for (const auto& [lines, message] : cases) expect_has(load_error(lines), message);
  expect_has(load_error(kLines, "ok 3\n\xFF 3\n"), "user.txt:2] a dictionary must be UTF-8");
  expect_has(load_error(kLines, "ok 99999999999999999999\n"), "user.txt:1] a frequency must be an integer");
  expect_has(error_of([] { Dictionary::load("/nonexistent/dict.txt", {}, kNoCache); }), "/nonexistent/dict.txt");
}

TEST(Segmenter, OddValuesAndARunOfMillions) {
  const Directory dir;
  auto dictionary = Dictionary::load(dir.write("dict.txt", kLines), {}, kNoCache);
  Segmenter segmenter(dictionary);
  dictionary.reset();  // which the segmenter keeps
  std::vector<uint32_t> found = {77};
  segmenter.cut(U"", found);
  EXPECT_TRUE(found.empty());
  const char32_t odd[] = {0xD800, 0xDFFF, 0x110000, 0xFFFFFFFF, 'a', 0};
  segmenter.cut({odd, 6}, found);
  EXPECT_EQ(found, (std::vector<uint32_t>{1, 2, 3, 4, 5, 6}));
  std::u32string text;
  constexpr size_t kWords = 1'000'000;
  for (size_t i = 0; i < kWords; ++i) text += U"\u4E2D\u56FD";
  segmenter.cut(text, found);
  ASSERT_EQ(found.size(), kWords);
  for (size_t i = 0; i < kWords; ++i) ASSERT_EQ(found[i], 2 * (i + 1));
  for (const char32_t c : {U'\n', U' ', U'\u3002', U'\u0130'}) EXPECT_TRUE(Segmenter::may_part_after(c));
  for (const char32_t c : {U'\r', U'-', U'7', U'x', U'\u4ECA', U'\U00020000'}) {
    EXPECT_FALSE(Segmenter::may_part_after(c));
  }
}

TEST(Dictionary, LongestWordAndByteOrderMark) {
  const Directory dir;
  const std::string path = dir.write("dict.txt", "\xEF\xBB\xBFx+ 1\n" + std::string(255, 'a') + " 5\n");
  const auto dictionary = Dictionary::load(path, {}, kNoCache);
  EXPECT_EQ(ends(dictionary, std::u32string(255, 'a') + U"x+"), (std::vector<uint32_t>{255, 257}));
}

TEST(Dictionary, UserDictionariesMayTakeAllWordsAway) {
  const Directory dir;
  const auto dictionary = Dictionary::load(dir.write("dict.txt", "\xE4\xB8\xAD\xE5\x9B\xBD 10 ns\n"),
                                           {dir.write("user.txt", "\xE4\xB8\xAD\xE5\x9B\xBD 0\n")}, kNoCache);
  EXPECT_EQ(dictionary->size(), 0);
  EXPECT_EQ(ends(dictionary, U"\u4E2D\u56FD"), (std::vector<uint32_t>{1, 2}));
}

// The files change in place, or go, after they were read.
TEST(Dictionary, SavesWhatWasRead) {
  const Directory dir;
  const std::string users[] = {"C++ 7\nx+ 1", "y+ 2\n"};
  const std::string path = dir.write("main.txt", kLines);
  const std::vector<std::string> user_paths = {dir.write("first.txt", users[0]), dir.write("second.txt", users[1])};
  const auto dictionary = Dictionary::load(path, user_paths, kNoCache);
  dir.write("main.txt", "other 1\n");
  dir.write("first.txt", "");
  fs::remove(user_paths[1]);
  const std::string saved = dir / "saved";
  fs::create_directory(saved);
  dictionary->save(saved);
  EXPECT_EQ(read(saved + "/dict.txt"), kLines);
  EXPECT_EQ(read(saved + "/user_dict.txt"), users[0] + "\n" + users[1]);
  EXPECT_EQ(Dictionary::load(saved + "/dict.txt", {saved + "/user_dict.txt"}, kNoCache)->hash(), dictionary->hash());
  fs::remove(path);
  dictionary->save(saved);
  EXPECT_EQ(read(saved + "/dict.txt"), kLines);
}

// A dictionary, and the image of it in the cache.
class CachedImage : public testing::Test {
 protected:
  std::shared_ptr<const Dictionary> load() { return Dictionary::load(path_, {}, cache_); }
  // Writing over the file would change what a dictionary has mapped.
  void replace(const std::string& bytes) {
    fs::remove(file_);
    write(file_, bytes);
  }
  void expect_repaired(const std::string& bytes, const std::string& what) {
    replace(bytes);
    const auto again = load();
    expect_works(again);
    EXPECT_TRUE(again->mapped() && read(file_) == good_) << what;
  }

  const Directory dir_;
  const DictionaryCache cache_{dir_ / "cache"};
  const std::string path_ = dir_.write("dict.txt", kLines);
  const std::shared_ptr<const Dictionary> first_ = load();
  const std::string file_ = files_in(cache_.directory).at(0).string(), good_ = read(file_);
  ImageHeader header_{};
  const size_t nodes_ = [this] {  // where they begin
    std::memcpy(&header_, good_.data(), sizeof header_);
    return good_.size() - header_.nodes * sizeof(DictionaryImage::Node);
  }();
};

// An image with a right hash.
std::string signed_image(std::string bytes) {
  ImageHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  header.content_hash = content_hash(std::as_bytes(std::span(bytes)));
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

TEST(DictionaryCache, IsWrittenOnceForEachContent) {
  const Directory dir;
  const DictionaryCache cache{dir.path() + "/new/folder"};
  const std::string path = dir.write("dict.txt", kLines), copy = dir.write("copy.txt", kLines);
  const auto built = Dictionary::load(path, {}, cache);
  expect_works(built);
  EXPECT_TRUE(built->mapped());
  expect_works(Dictionary::load(copy, {}, cache));
  EXPECT_EQ(files_in(cache.directory).size(), 1U);
  Dictionary::load(path, {copy}, cache);
  EXPECT_EQ(files_in(cache.directory).size(), 2U);
  dir.write("dict.txt", std::string(kLines) + "a 1\n");
  EXPECT_EQ(Dictionary::load(path, {}, cache)->size(), 5);
  EXPECT_FALSE(Dictionary::load(path, {}, kNoCache)->mapped());
}

TEST_F(CachedImage, DamageIsRepaired) {
  for (const std::string& bytes : {std::string(), std::string("garbage"), std::string(good_.size(), '\0'),
                                   good_.substr(0, 100), good_.substr(0, good_.size() - 1), good_ + '\0'}) {
    expect_repaired(bytes, std::to_string(bytes.size()));
  }
  std::vector<size_t> places = {good_.size() / 2, good_.size() - 1, 12};  // and every field of the header
  for (size_t at = 0; at < sizeof(ImageHeader); at += 8) places.push_back(at);
  for (const size_t at : places) {
    std::string bytes = good_;
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    expect_repaired(bytes, std::to_string(at));
  }
  expect_works(first_);
}

// Files that somebody made, with a good hash: what look-up would take from outside is found before.
TEST_F(CachedImage, WhatLeadsOutOfTheFileIsRepaired) {
  const size_t pages = sizeof header_, codes = pages + DictionaryImage::kPages * sizeof(uint16_t);
  const size_t of_word = codes + 'C' * sizeof(uint32_t);  // the code of a letter that begins a word
  const std::tuple<size_t, uint64_t, size_t> changes[] = {
      {nodes_, 0x40000000, 4},                                    // the root's base
      {nodes_ + sizeof(DictionaryImage::Node), 0xFFFFFFF0, 4},    // another's
      {of_word, 0x3FFFFFFF | kInRun | kAlphanumeric, 4},          // a character's number
      {pages + 0x4E * sizeof(uint16_t), 0xFFFF, 2},               // a page
      {offsetof(ImageHeader, nodes), header_.nodes + 1, 8},       // more than the file has
      {offsetof(ImageHeader, nodes), 1, 8},                       // fewer
      {offsetof(ImageHeader, code_pages), uint64_t{1} << 60, 8},  // that times 1024 is 0
      {offsetof(ImageHeader, code_pages), 0, 8}};
  for (const auto& [at, value, size] : changes) {
    std::string bytes = good_;
    std::memcpy(bytes.data() + at, &value, size);
    expect_repaired(signed_image(bytes), std::to_string(at));
  }
}

// A way through the words that never ends: no word is longer than kMaxWordChars all the same.
TEST_F(CachedImage, WordsThatGoRoundEnd) {
  DictionaryImage good{};
  ASSERT_TRUE(open_image(std::as_bytes(std::span(good_)), header_.key, good));
  uint32_t node = DictionaryImage::root();
  ASSERT_TRUE(good.step(node, good.code(U'C') & kCodeMask));
  // From the node behind "C", a letter that no word has leads back to the root.
  ASSERT_EQ(good.code(U'Z') & kCodeMask, 0U);
  DictionaryImage::Node changed{0, DictionaryImage::root(), -1}, root = good.nodes[DictionaryImage::root()];
  root.parent = node;
  std::string bytes = good_;
  std::memcpy(bytes.data() + nodes_ + node * sizeof changed, &changed, sizeof changed);
  std::memcpy(bytes.data() + nodes_, &root, sizeof root);
  bytes = signed_image(bytes);
  replace(bytes);
  std::u32string text;
  while (text.size() < 1000) text += U"CZ";
  const std::vector<uint32_t> words = ends(load(), text);
  EXPECT_TRUE(read(file_) == bytes) << "the file was not used";
  ASSERT_FALSE(words.empty());
  EXPECT_EQ(words.back(), text.size());
  for (size_t i = 1; i < words.size(); ++i) EXPECT_LE(words[i] - words[i - 1], kMaxWordChars);
}

TEST_F(CachedImage, WhereItCannotBeWrittenMemoryServes) {
  for (const std::string& directory : {path_, std::string("/proc/nowhere"), path_ + "/under/a/file"}) {
    const auto dictionary = Dictionary::load(path_, {}, {directory});
    expect_works(dictionary);
    EXPECT_FALSE(dictionary->mapped());
  }
  fs::remove(file_);
  fs::create_directory(file_);
  expect_works(load());
}

TEST(DictionaryCache, ProcessesMayBuildAtOnce) {
  const Directory dir;
  const DictionaryCache cache{dir / "cache"};
  const std::string path = dir.write("dict.txt", kLines);
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      bool good = true;
      for (int round = 0; round < 20; ++round) {
        std::error_code gone;
        if (round % 5 == i) fs::remove_all(cache.directory, gone);
        const auto dictionary = Dictionary::load(path, {}, cache);
        good = good && ends(dictionary, U"\u4E2D\u56FDC++") == std::vector<uint32_t>{2, 5};
      }
      _exit(good ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  Dictionary::load(path, {}, cache);
  EXPECT_EQ(files_in(cache.directory).size(), 1U) << "no temporary files stay behind";
}

TEST(DictionaryCache, DefaultDirectoryFollowsTheEnvironment) {
  const auto with = [](const char* cache, const char* home) {
    setenv("XDG_CACHE_HOME", cache, 1);
    setenv("HOME", home, 1);
    return DictionaryCache{}.directory;
  };
  const char* old_cache = std::getenv("XDG_CACHE_HOME");
  const char* old_home = std::getenv("HOME");
  const std::string cache = old_cache ? old_cache : "", home = old_home ? old_home : "";
  EXPECT_EQ(with("/c", "/h"), "/c/roformer");
  EXPECT_EQ(with("", "/h"), "/h/.cache/roformer");
  EXPECT_EQ(with("relative", "/h"), "/h/.cache/roformer");
  EXPECT_EQ(with("", ""), "");
  with(cache.c_str(), home.c_str());
  if (old_cache == nullptr) unsetenv("XDG_CACHE_HOME");
}

TEST(FindDictionary, GivenThenModelThenProgram) {
  const Directory dir;
  const fs::path program = fs::read_symlink("/proc/self/exe").parent_path();
  EXPECT_EQ(find_dictionary(dir.path(), "/some/dict.txt"), "/some/dict.txt");
  try {
    const std::string found = find_dictionary(dir.path(), "");  // after scripts/setup.sh
    EXPECT_EQ(found, (program.parent_path() / "share/roformer/dict.txt").string());
  } catch (const Error& error) {
    const std::string share = "share/roformer/dict.txt";
    expect_parts(error.what(),
                 {dir / "dict.txt", (program / share).string(), (program.parent_path() / share).string(), "--dict"});
  }
  const std::string own = dir.write("dict.txt", kLines);
  EXPECT_EQ(find_dictionary(dir.path(), ""), own);
}

}  // namespace
}  // namespace rf::text
