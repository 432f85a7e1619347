// GGUF files: every truncation and every changed byte ends in success or in an Error. What values mean is tested in
// tests/cli/test_doctor_gguf.py. Run under the address and undefined-behaviour sanitizers too; fuzz/ edits at random.
#include "rf/io/gguf.h"

#include <cstring>
#include <nlohmann/json.hpp>

#include "io/support.h"

namespace rf::io {
namespace {

using rf::testing::expect_error;
using rf::testing::MemoryFile;

// The format's bytes, as its description has them.
class GgufWriter {
 public:
  template <typename T>
  GgufWriter& number(T value) {
    char bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);
    text_.append(bytes, sizeof value);
    return *this;
  }
  GgufWriter& text(std::string_view value) {
    number<uint64_t>(value.size());
    text_ += value;
    return *this;
  }
  GgufWriter& pad() {
    constexpr size_t kAlignment = 32;
    while (text_.size() % kAlignment != 0) text_ += '\0';
    return *this;
  }
  const std::string& bytes() const { return text_; }

 private:
  std::string text_ = "GGUF";
};

constexpr uint32_t kU32 = 4, kF32 = 6, kString = 8, kArray = 9;

std::string valid_gguf() {
  GgufWriter out;
  out.number<uint32_t>(3).number<uint64_t>(2).number<uint64_t>(4);
  out.text("general.architecture").number(kString).text("llama");
  out.text("count").number(kU32).number<uint32_t>(7);
  out.text("base").number(kF32).number(0.5f);
  out.text("words").number(kArray).number(kString).number<uint64_t>(2).text("a").text("\xff");
  out.text("first").number<uint32_t>(1).number<uint64_t>(3).number<uint32_t>(0).number<uint64_t>(0);
  out.text("second").number<uint32_t>(2).number<uint64_t>(32).number<uint64_t>(4).number<uint32_t>(12);
  out.number<uint64_t>(32).pad();
  out.number(1.0f).number(2.0f).number(3.0f);
  return out.pad().bytes();
}

// True when the file is read, and what it shows can be read too.
bool opens(std::string_view bytes) {
  const MemoryFile memory(bytes);
  const std::string path = memory.path();
  try {
    const GgufFile file(path);
    EXPECT_FALSE(file.metadata().dump().empty());
    for (const GgufTensor& tensor : file.tensors()) {
      EXPECT_EQ(file.find(tensor.name), &tensor);
      if (tensor.type != 0) continue;
      EXPECT_LE(file.numbers(tensor).size(), bytes.size());
    }
    return true;
  } catch (const Error& error) {
    EXPECT_NE(std::string_view(error.what()).find(path), std::string_view::npos) << error.what();
    EXPECT_LT(std::string_view(error.what()).size(), 1000u);
    return false;
  }
}

TEST(Gguf, ReadsWhatWasWritten) {
  const MemoryFile memory(valid_gguf());
  const GgufFile file(memory.path());
  EXPECT_EQ(file.version(), 3u);
  EXPECT_EQ(file.metadata()["general.architecture"], "llama");
  EXPECT_EQ(file.metadata()["count"], 7);
  EXPECT_EQ(file.metadata()["base"], 0.5);
  EXPECT_EQ(file.metadata()["words"]["count"], 2);
  ASSERT_EQ(file.tensors().size(), 2u);
  EXPECT_EQ(file.tensors()[1].shape, (std::vector<uint64_t>{32, 4}));
  EXPECT_EQ(file.numbers(file.tensors()[0]), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(file.find("third"), nullptr);
  expect_error([&] { file.numbers(file.tensors()[1]); }, {"second", "F32, F16", "got Q4_K"});
}

TEST(Gguf, ReadsArrays) {
  const MemoryFile memory(valid_gguf());
  const GgufFile file(memory.path());
  EXPECT_EQ(file.strings("words"), (std::vector<std::string>{"a", "\xff"}));
  EXPECT_TRUE(file.strings("none").empty());
  EXPECT_TRUE(file.integers("none").empty());
  expect_error([&] { file.strings("count"); }, {"count", "must be an array of strings"});
  expect_error([&] { file.integers("words"); }, {"words", "must be an array of 32-bit integers"});
}

TEST(Gguf, ReadsBlocks) {
  GgufWriter out;
  out.number<uint32_t>(3).number<uint64_t>(2).number<uint64_t>(0);
  out.text("blocks").number<uint32_t>(2).number<uint64_t>(32).number<uint64_t>(2).number<uint32_t>(8);
  out.number<uint64_t>(0);
  out.text("odd").number<uint32_t>(1).number<uint64_t>(33).number<uint32_t>(8).number<uint64_t>(96).pad();
  out.number<uint16_t>(0x3800);  // 0.5
  for (int i = 0; i < 32; ++i) out.number(static_cast<int8_t>(i - 16));
  out.number<uint16_t>(0xC000);  // -2
  for (int i = 0; i < 32; ++i) out.number(static_cast<int8_t>(4 * i));
  const MemoryFile memory(out.pad().bytes());
  const GgufFile file(memory.path());
  const std::vector<float> values = file.numbers(file.tensors()[0]);
  ASSERT_EQ(values.size(), 64u);
  for (int i = 0; i < 32; ++i) {
    EXPECT_EQ(values[i], 0.5f * static_cast<float>(i - 16));
    EXPECT_EQ(values[32 + i], -2.0f * static_cast<float>(4 * i));
  }
  std::vector<float> row(32);
  file.read(file.tensors()[0], 32, 32, row.data());
  EXPECT_EQ(row[31], -248.0f);
  expect_error([&] { file.check(file.tensors()[1]); }, {"odd", "rows of whole blocks of 32", "got 33"});
}

std::string two_tensors(uint64_t second_offset) {
  GgufWriter out;
  out.number<uint32_t>(3).number<uint64_t>(2).number<uint64_t>(0);
  out.text("first").number<uint32_t>(1).number<uint64_t>(9).number<uint32_t>(0).number<uint64_t>(32);
  out.text("second").number<uint32_t>(1).number<uint64_t>(8).number<uint32_t>(0).number<uint64_t>(second_offset).pad();
  for (int i = 0; i < 32; ++i) out.number(1.0f);
  return out.bytes();
}

TEST(Gguf, TensorsMayNotOverlap) {
  for (const uint64_t offset : {0, 96}) EXPECT_TRUE(opens(two_tensors(offset))) << offset;
  for (const uint64_t offset : {32, 64}) {
    const MemoryFile memory(two_tensors(offset));
    expect_error([&] { GgufFile(memory.path()); }, {"must not overlap", "first", "second", std::to_string(offset)});
  }
}

// Ids by the texts of tokens, and by keys {key, id}.
std::vector<int32_t> end_tokens(const std::vector<std::string>& tokens,
                                const std::vector<std::pair<std::string, uint32_t>>& keys) {
  GgufWriter out;
  out.number<uint32_t>(3).number<uint64_t>(0).number<uint64_t>(keys.size() + 1);
  for (const auto& [key, id] : keys) out.text("tokenizer.ggml." + key).number(kU32).number(id);
  out.text("tokenizer.ggml.tokens").number(kArray).number(kString).number<uint64_t>(tokens.size());
  for (const std::string& token : tokens) out.text(token);
  const MemoryFile memory(out.pad().bytes());
  std::vector<int32_t> found = gguf_end_tokens(GgufFile(memory.path()));
  std::ranges::sort(found);
  return found;
}

// By hand, from load_tokens() in llama.cpp's src/llama-vocab.cpp.
TEST(Gguf, TokensThatEndTextsAreThoseOfLlamaCpp) {
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(end_tokens({"a", "b", "c", "d"}, {}), Ids());
  EXPECT_EQ(end_tokens({"a", "b", "c", "d"}, {{"eos_token_id", 2}, {"eot_token_id", 0}, {"eom_token_id", 2}}),
            (Ids{0, 2}));
  EXPECT_EQ(
      end_tokens({"<end_of_turn>", "x", "<|eot_id|>", "<|im_end|>", "<|im_start|>", "</s>"}, {{"eos_token_id", 1}}),
      (Ids{0, 1, 2, 3, 5}));
  // Infilling: a key is used instead of a text, and the beginnings of its parts end nothing.
  EXPECT_EQ(end_tokens({"<|fim_pad|>", "<|fim_repo|>", "<|file_sep|>", "<|fim_prefix|>", "x"}, {}), (Ids{0, 1, 2}));
  EXPECT_EQ(end_tokens({"<|fim_pad|>", "x"}, {{"fim_pad_token_id", 1}}), Ids{1});
  // Messages within a turn.
  EXPECT_EQ(end_tokens({"<|end|>", "<|return|>"}, {}), (Ids{0, 1}));
  EXPECT_EQ(end_tokens({"<|end|>", "<|return|>", "<|call|>"}, {{"eos_token_id", 0}}), (Ids{1, 2}));
  EXPECT_EQ(end_tokens({"<|end|>", "<|flush|>", "<|calls|>"}, {}), (Ids{1, 2}));
  EXPECT_EQ(end_tokens({"</s>", "<|tool_response>"}, {}), Ids{1});
  expect_error(
      [] {
        end_tokens({"a", "b"}, {{"eot_token_id", 2}});
      },
      {"tokenizer.ggml.eot_token_id", "a token from 0 to 1", "got 2"});
}

TEST(Gguf, EveryTruncationOfTheHeaderIsRefused) {
  const std::string good = valid_gguf();
  ASSERT_TRUE(opens(good));
  for (size_t length = 0; length < good.size() - 32; ++length) EXPECT_FALSE(opens(good.substr(0, length))) << length;
}

TEST(Gguf, EveryChangedByteIsSurvived) {
  const std::string good = valid_gguf();
  for (size_t i = 0; i < good.size(); ++i) {
    for (int value = 0; value < 256; value += 17) {
      std::string bad = good;
      bad[i] = static_cast<char>(value);
      opens(bad);
    }
  }
}

}  // namespace
}  // namespace rf::io
