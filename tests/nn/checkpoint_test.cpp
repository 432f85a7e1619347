// Model directories: round trip and every refusal. What transformers writes is read in tests/oracles.
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>

#include "error_of.h"
#include "rf/io/files.h"
#include "rf/io/safetensors.h"
#include "small_model.h"
#include "tolerances.h"

namespace rf::nn {
namespace {

using namespace rf::tests;

namespace fs = std::filesystem;

class ModelDirectory : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = fs::temp_directory_path() / "rf_nn_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
    model_ = small_model(small_config());
    save_model(*model_, dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }

  // Writes the checkpoint again after `change` has had its tensors, by name.
  void rewrite(const std::function<void(std::map<std::string, at::Tensor>&)>& change) {
    std::map<std::string, at::Tensor> tensors;
    {
      const io::SafetensorsFile file(dir_ / "model.safetensors");
      for (const io::TensorView& view : file.tensors()) {
        tensors[view.name] = at::from_blob(const_cast<std::byte*>(view.data.data()), view.shape, at::kFloat).clone();
      }
    }
    change(tensors);
    std::vector<io::TensorView> views;
    for (const auto& [name, tensor] : tensors) {
      views.push_back({name,
                       io::DType::kF32,
                       tensor.sizes().vec(),
                       {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()}});
    }
    io::write_safetensors(dir_ / "model.safetensors", views, {{"format", "pt"}});
  }

  std::string load_error(std::optional<Head> head = std::nullopt) {
    return error_of([&] { load_model(dir_, head, at::kFloat); });
  }

  fs::path dir_;
  std::shared_ptr<Model> model_;
};

#define EXPECT_CONTAINS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST_F(ModelDirectory, RoundTripIsExact) {
  const at::Tensor generator = at::detail::getDefaultCPUGenerator().get_state();
  const auto again = load_model(dir_, std::nullopt, at::kFloat);
  EXPECT_TRUE(at::detail::getDefaultCPUGenerator().get_state().equal(generator)) << "nothing is drawn";
  EXPECT_EQ(again->head(), Head::kMaskedLm);
  const auto expected = model_->named_parameters(), got = again->named_parameters();
  ASSERT_EQ(got.size(), expected.size());
  for (const auto& item : expected) EXPECT_TRUE(got[item.key()].equal(item.value())) << item.key();
  EXPECT_TRUE(got["roformer.embeddings.word_embeddings.weight"].requires_grad());
  EXPECT_FALSE(again->position_table().defined());
  const auto wide = load_model(dir_, std::nullopt, at::kDouble);
  EXPECT_EQ(wide->parameters()[0].scalar_type(), at::kDouble);
}

TEST_F(ModelDirectory, NotANumberIsNamed) {
  const std::string name = "roformer.encoder.layer.1.output.dense.weight";
  rewrite([&](auto& tensors) { tensors[name][2][5] = std::numeric_limits<float>::quiet_NaN(); });
  EXPECT_CONTAINS(load_error(), "got nan in " + name + "[2, 5]");
  rewrite([&](auto& tensors) { tensors[name][2][5] = -std::numeric_limits<float>::infinity(); });
  EXPECT_CONTAINS(load_error(), "got -inf in " + name + "[2, 5]");
  rewrite([&](auto& tensors) { tensors[name][2][5] = std::numeric_limits<float>::max(); });
  EXPECT_EQ(load_error(), "no error");
}

TEST_F(ModelDirectory, ValuesMustFitTheDtypeAskedFor) {
  const double large = 1e300;
  const std::string name = "cls.predictions.bias";
  const std::vector<double> values(37, large);
  {
    const io::SafetensorsFile file(dir_ / "model.safetensors");
    std::vector<io::TensorView> views = file.tensors();
    for (io::TensorView& view : views) {
      if (view.name == name) view = {name, io::DType::kF64, {37}, std::as_bytes(std::span(values))};
    }
    io::write_safetensors(dir_ / "model.safetensors", views, {});
  }
  EXPECT_CONTAINS(load_error(), "finite in Float, got 1e+300 in " + name + "[0] (37 such values)");
  const auto wide = load_model(dir_, std::nullopt, at::kDouble);
  EXPECT_EQ(wide->named_parameters()[name][0].item<double>(), large);
}

TEST_F(ModelDirectory, ShapesAndNamesAreStrict) {
  rewrite([](auto& tensors) { tensors["cls.predictions.bias"] = at::zeros({38}); });
  EXPECT_CONTAINS(load_error(), "[37]");
  EXPECT_CONTAINS(load_error(), "[38]");
  rewrite([](auto& tensors) { tensors.erase("cls.predictions.bias"); });
  EXPECT_CONTAINS(load_error(), "cls.predictions.bias");
  rewrite([](auto& tensors) { tensors["roformer.surprise"] = at::zeros({1}); });
  EXPECT_CONTAINS(load_error(), "roformer.surprise");
}

// The numbers are compared with transformers' in tests/oracles/test_tied_heads.py.
TEST_F(ModelDirectory, AStoredDecoderIsNotTied) {
  rewrite([](auto& tensors) { tensors["cls.predictions.decoder.bias"] = tensors["cls.predictions.bias"] + 1; });
  testing::internal::CaptureStderr();
  const auto model = load_model(dir_, std::nullopt, at::kFloat);
  EXPECT_CONTAINS(testing::internal::GetCapturedStderr(), "\"cls.predictions.decoder.bias\" and");
  EXPECT_FALSE(model->config().tie_word_embeddings);
  const auto parameters = model->named_parameters();
  EXPECT_TRUE(parameters["cls.predictions.decoder.bias"].equal(parameters["cls.predictions.bias"] + 1));
}

// Loader rule (a): a table that is not the computed one is used all the same.
TEST_F(ModelDirectory, AStoredTableIsHonoured) {
  const Input input = input_of(small_ids(2, 9));
  const at::Tensor computed = load_model(dir_, std::nullopt, at::kFloat)->encode(input);
  rewrite([](auto& tensors) { tensors["roformer.encoder.embed_positions.weight"][15][0] += 1e-5; });
  testing::internal::CaptureStderr();
  const auto close = load_model(dir_, std::nullopt, at::kFloat);
  EXPECT_CONTAINS(testing::internal::GetCapturedStderr(), "embed_positions");
  EXPECT_LE((close->encode(input) - computed).abs().max().item<double>(),
            kFloat32Model * computed.abs().max().item<double>());
  // Rows of zero angle: no rotation, as if every token stood at position 0.
  rewrite([](auto& tensors) {
    at::Tensor& table = tensors["roformer.encoder.embed_positions.weight"];
    table.narrow(1, 0, 6).zero_();
    table.narrow(1, 6, 6).fill_(1);
  });
  const at::Tensor still = load_model(dir_, std::nullopt, at::kFloat)->encode(input);
  Input at_zero = input;
  at_zero.positions_BT = at::zeros({9}, at::kLong);
  const at::Tensor expected = model_->encode(at_zero);
  EXPECT_LE((still - expected).abs().max().item<double>(), kFloat32Model * expected.abs().max().item<double>());
}

TEST_F(ModelDirectory, MissingFilesAreNamed) {
  fs::rename(dir_ / "model.safetensors", dir_ / "away");
  fs::create_symlink("model.safetensors", dir_ / "model.safetensors");
  EXPECT_CONTAINS(load_error(), "model.safetensors] cannot open: Too many levels of symbolic links");
  fs::remove(dir_ / "model.safetensors");
  EXPECT_CONTAINS(load_error(), "must hold model.safetensors");
  std::ofstream(dir_ / "pytorch_model.bin.index.json") << "{}";
  EXPECT_CONTAINS(load_error(), "only pytorch_model.bin");
  fs::remove(dir_ / "pytorch_model.bin.index.json");
  std::ofstream(dir_ / "pytorch_model.bin") << "x";
  EXPECT_CONTAINS(load_error(), "only pytorch_model.bin");
  EXPECT_CONTAINS(load_error(), "roformer_cpp.convert");
  io::write_file(dir_ / "model.safetensors.index.json", R"({"weight_map": {"a": "../away"}})");
  EXPECT_CONTAINS(load_error(), "in the directory of the index, got \"../away\"");
  io::write_file(dir_ / "model.safetensors.index.json", R"({"metadata": {}})");
  EXPECT_CONTAINS(load_error(), "weight_map");
  fs::remove(dir_ / "config.json");
  EXPECT_CONTAINS(load_error(), "config.json");
}

TEST_F(ModelDirectory, ATruncatedFileIsRefused) {
  fs::resize_file(dir_ / "model.safetensors", fs::file_size(dir_ / "model.safetensors") - 4);
  EXPECT_NE(load_error(), "no error");
}

TEST_F(ModelDirectory, AnotherHeadMustBeAllowed) {
  EXPECT_CONTAINS(load_error(Head::kTokenClassification), "cls.predictions");
  const auto model = load_model(dir_, Head::kTokenClassification, at::kFloat, FreshHead::kAllowed);
  const Input input = input_of(small_ids(2, 9));
  EXPECT_TRUE(model->encode(input).equal(model_->encode(input)));
}

TEST_F(ModelDirectory, AnUnwritablePlaceIsAnError) {
  const std::string message = error_of([&] { save_model(*model_, (dir_ / "config.json" / "below").string()); });
  EXPECT_CONTAINS(message, "config.json");
}

}  // namespace
}  // namespace rf::nn
