// GGUF files: what is read and refused. What values mean is tested in tests/cli/test_doctor_gguf.py and
// tests/engine/test_gguf.py; tests/fuzz changes bytes of files.
#include "rf/io/gguf.h"

#include <cstring>
#include <nlohmann/json.hpp>

#include "io/support.h"

namespace rf::io {
namespace {

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
  out.text("second").number<uint32_t>(2).number<uint64_t>(32).number<uint64_t>(4).number<uint32_t>(16);
  out.number<uint64_t>(32).pad();
  out.number(1.0f).number(2.0f).number(3.0f);
  return out.pad().bytes();
}

// tests/oracles/test_gguf_blocks.py has rows of parts of blocks.
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
  expect_error([&] { file.numbers(file.tensors()[1]); }, {"second", "F32, F16", "got IQ2_XXS"});
  EXPECT_EQ(file.strings("words"), (std::vector<std::string>{"a", "\xff"}));
  EXPECT_TRUE(file.strings("none").empty());
  EXPECT_TRUE(file.integers("none").empty());
  expect_error([&] { file.strings("count"); }, {"count", "must be an array of strings"});
  expect_error([&] { file.integers("words"); }, {"words", "must be an array of 32-bit integers"});
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
  for (const uint64_t offset : {0, 96}) EXPECT_NO_THROW(GgufFile(MemoryFile(two_tensors(offset)).path())) << offset;
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
  const std::vector<std::pair<std::string, uint32_t>> outside = {{"eot_token_id", 2}};
  expect_error(
      [&] {
        end_tokens({"a", "b"}, outside);
      },
      {"tokenizer.ggml.eot_token_id", "a token from 0 to 1", "got 2"});
}

TEST(Gguf, EveryTruncationOfTheHeaderIsRefused) {
  const std::string good = valid_gguf();
  for (size_t length = 0; length < good.size() - 32; ++length) {
    const MemoryFile memory(good.substr(0, length));
    const auto read = [&] {
      const GgufFile file(memory.path());
      file.numbers(file.tensors().at(0));
    };
    EXPECT_THROW(read(), Error) << length;
  }
}

}  // namespace
}  // namespace rf::io
