// What prepare() replaces and removes, and what it leaves alone: only files that it wrote go.
#include <nlohmann/json.hpp>

#include "prepare_fixture.h"
#include "rf/text/byte_tokenizer.h"
#include "rf/text/segmenter.h"

namespace rf::data {
namespace {

class PrepareReplace : public Prepare {
 protected:
  // Of word pieces, of bytes, and of words that a dictionary segments.
  std::vector<std::string> models() {
    for (const char* name : {"bytes", "words"}) std::filesystem::create_directories(directory_ / name);
    text::byte_tokenizer().save(directory_ / "bytes");
    write(directory_ / "words.txt", "w0w1 10\n");
    text::TokenizerOptions options;
    options.pipeline = text::Pipeline::kRoformer;
    options.dictionary = text::Dictionary::load(directory_ / "words.txt", {}, {""});
    text::Tokenizer(make_vocabulary(1000), options).save(directory_ / "words");
    return {make_model(directory_), directory_ / "bytes", directory_ / "words"};
  }
  // Makes data.json one of an earlier version, which did not name the tokenizer's files.
  void make_older() {
    nlohmann::json manifest = nlohmann::json::parse(read(directory_ / "out/data.json"));
    EXPECT_EQ(manifest.erase("tokenizer_files"), 1u);
    write(directory_ / "out/data.json", manifest.dump());
  }
  // Files of the user's own that have a name of a tokenizer's.
  void expect_refused(const std::string& model) {
    const auto first = contents(directory_ / "out");
    for (const std::string_view name : text::kTokenizerFiles) {
      if (first.contains(std::string(name))) continue;
      const std::string precious = fmt::format("{}/{}", directory_ / "out", name);
      write(precious, "precious");
      EXPECT_NE(run_error({.model_dir = model}).find(directory_ / "out"), std::string::npos) << precious;
      EXPECT_EQ(std::filesystem::exists(precious) ? read(precious) : "gone", "precious") << precious;
      std::filesystem::remove(precious);
    }
    EXPECT_EQ(contents(directory_ / "out"), first);
  }
};

TEST_F(PrepareReplace, NoTokenizerFilesThatItDidNotWrite) {
  write_lines(10);
  for (const std::string& model : models()) {
    std::filesystem::remove_all(directory_ / "out");
    run({.model_dir = model});
    expect_refused(model);
    run({.model_dir = model});
  }
}

TEST_F(PrepareReplace, NoTokenizerFilesInADirectoryOfAnEarlierVersion) {
  write_lines(10);
  for (const std::string& model : models()) {
    std::filesystem::remove_all(directory_ / "out");
    run({.model_dir = model});
    const auto whole = contents(directory_ / "out");
    make_older();
    expect_refused(model);
    run({.model_dir = model});
    EXPECT_EQ(contents(directory_ / "out"), whole);
  }
}

TEST_F(PrepareReplace, NoOlderDirectoryWithoutItsTokenizer) {
  write_lines(10);
  run({});
  make_older();
  for (const char* name : {"tokenizer.json", "vocab.txt"}) std::filesystem::remove(directory_ / "out/" + name);
  const std::string message = run_error({});
  EXPECT_NE(message.find(directory_ / "out must have its tokenizer"), std::string::npos) << message;
  EXPECT_NE(message.find("remove the directory"), std::string::npos) << message;
}

}  // namespace
}  // namespace rf::data
