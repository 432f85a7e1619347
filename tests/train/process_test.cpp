// What training leaves alone in the process that calls it: malloc's options, which only a program may choose, and
// torch's random numbers.
#include <ATen/Context.h>
#include <ATen/ops/rand.h>
#include <gtest/gtest.h>

#ifdef __GLIBC__
#include <malloc.h>

#include <cstdlib>

#include "rf/data/prepare.h"
#include "rf/ops/attention.h"
#include "rf/train/finetune.h"
#include "rf/train/pretrain.h"
#include "rf/train/pretrain_bench.h"
#include "rf/train/runtime.h"
#include "support.h"

namespace rf::train {
namespace {

// Whether malloc takes a large block from the system and gives it back, as it does unless it was told otherwise.
bool gives_large_blocks_back() {
  const size_t before = ::mallinfo2().hblks;
  void* const block = std::malloc(size_t{64} << 20);  // above the largest threshold that malloc chooses by itself
  *static_cast<volatile char*>(block) = 1;            // so that the compiler keeps the call
  const size_t with_block = ::mallinfo2().hblks;
  std::free(block);
  return with_block == before + 1 && ::mallinfo2().hblks == before;
}

std::string make_data(const TemporaryPath& folder) {
  std::filesystem::create_directory(folder / "v");
  folder.write("v/vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\nd\n");
  std::string text;
  for (int line = 0; line < 40; ++line) text += "a b c d a b c d a b\n\n";
  data::PrepareOptions options;
  options.input.inputs = {folder.write("a.txt", text)};
  options.model_dir = folder / "v";
  options.output_dir = folder / "data";
  io::Progress silent;
  data::prepare(options, silent);
  return options.output_dir;
}

TEST(Process, PretrainingLeavesMallocAndTorchsGeneratorAlone) {
  ASSERT_TRUE(gives_large_blocks_back());
  const TemporaryPath folder;
  PretrainOptions options;
  options.data_dir = make_data(folder);
  options.output_dir = folder / "run";
  options.config_path = folder.write(
      "run.json",
      R"({"model": {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8,
                    "max_position_embeddings": 16},
          "stages": [{"max_length": 16, "batch": 2, "steps": 2}], "precision": "float32"})");
  at::manual_seed(3);
  const at::Tensor expected = at::rand({4});
  at::manual_seed(3);
  io::Progress silent;
  EXPECT_EQ(pretrain(options, silent).steps, 2);
  EXPECT_TRUE(at::rand({4}).equal(expected));
  EXPECT_TRUE(gives_large_blocks_back());
}

TEST(Process, FineTuningAndTimingLeaveMallocAlone) {
  io::Progress silent;
  error_of([&] { finetune({}, silent); });
  error_of([] { bench_pretrain_steps({}, {}, {}); });
  EXPECT_TRUE(gives_large_blocks_back());
}

// What commands turn into exit code 1: the refusals of operators, and no other error of torch.
TEST(Process, RefusedArgumentsAreTold) {
  const auto told = [](const std::function<void()>& run) -> std::optional<std::string> {
    try {
      run();
    } catch (const std::exception& error) {
      const std::optional<Error> refusal = error_to_tell(error);
      return refusal ? std::optional<std::string>(refusal->what()) : std::nullopt;
    }
    return "nothing was thrown";
  };
  EXPECT_EQ(told([] { ops::attention_fused({}); }), "[attention] q must be [batch, tokens, heads, size], got nothing");
  EXPECT_EQ(told([] { TORCH_CHECK_VALUE(false, "of torch itself"); }), std::nullopt);
  EXPECT_EQ(told([] { throw std::runtime_error("[other] error"); }), std::nullopt);
}

}  // namespace
}  // namespace rf::train
#endif
