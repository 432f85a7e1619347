// RoFormer by itself: initialisation, masks, packing, dropout, errors. Comparisons with transformers are in
// tests/oracles/test_encoder_parity.py.
#include "rf/nn/model.h"
#include "error_of.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "rf/io/error.h"
#include "small_model.h"
#include "tolerances.h"

namespace rf::nn {
namespace {

using namespace rf::tests;

#define EXPECT_ERROR(call, text) \
  EXPECT_NE(error_of([&] { (void)(call); }).find(text), std::string::npos) << error_of([&] { (void)(call); })

double largest(const at::Tensor& x) { return x.abs().max().item<double>(); }

// R-HF-14.
TEST(RoFormerInit, HasTheStatisticsOfTheRoles) {
  at::manual_seed(1);
  const ModelConfig config = small_config();
  const Model model(config, Head::kMaskedLm);
  const auto parameters = model.named_parameters();
  int normal = 0;
  for (const WeightSpec& spec : weight_specs(config, Head::kMaskedLm)) {
    if (spec.role == WeightRole::kTable) continue;
    ASSERT_TRUE(parameters.contains(spec.name)) << spec.name;
    at::Tensor value = parameters[spec.name].detach().to(at::kDouble);
    EXPECT_EQ(value.sizes(), at::IntArrayRef(spec.shape));
    if (value.dim() == 1) {
      EXPECT_TRUE(value.eq(spec.role == WeightRole::kNormGain ? 1 : 0).all().item<bool>()) << spec.name;
      continue;
    }
    if (spec.name == "roformer.embeddings.word_embeddings.weight") {
      EXPECT_EQ(largest(value[config.pad_token_id]), 0);
      value = value.narrow(0, 1, value.size(0) - 1);
    }
    const double n = static_cast<double>(value.numel()), s = config.initializer_range;
    EXPECT_LE(std::abs(value.mean().item<double>()), kSigmas * s / std::sqrt(n)) << spec.name;
    EXPECT_LE(std::abs(value.std().item<double>() - s), kSigmas * s / std::sqrt(2 * n)) << spec.name;
    ++normal;
  }
  EXPECT_EQ(normal, 2 + 1 + 2 * 6 + 1);
}

// R-CONV-11: a query without a key gives attention output 0, so nothing of the values reaches it, and gradient 0.
TEST(RoFormerMasks, AFullyMaskedSequenceAttendsToNothing) {
  for (const double attention_dropout :
       {0.0, 1e-6}) {  // the fused and the explicit path; 1e-6 rounds to nothing dropped
    ModelConfig config = small_config();
    config.attention_probs_dropout_prob = attention_dropout;
    config.hidden_dropout_prob = 0;
    const auto model = small_model(config), valueless = small_model(config);
    model->train();
    Input input = input_of(small_ids(3, 7));
    const at::Tensor alone = model->encode(input);
    input.mask_BT = at::ones({3, 7}, at::kLong);
    input.mask_BT[1].zero_();
    const at::Tensor hidden = model->encode(input);
    EXPECT_TRUE(at::isfinite(hidden).all().item<bool>());
    for (const int64_t row : {0, 2}) EXPECT_LE(largest(hidden[row] - alone[row]), kFloat32Model * largest(alone));
    {
      const at::NoGradGuard no_grad;
      for (auto& item : valueless->named_parameters()) {
        if (item.key().find("self.value") != std::string::npos) item.value().zero_();
      }
      EXPECT_TRUE(hidden[1].equal(valueless->encode(input)[1]));
    }
    hidden[1].square().sum().backward();
    for (auto& item : model->named_parameters()) {
      const at::Tensor gradient = item.value().grad();
      if (item.key().find(".self.") != std::string::npos) {
        EXPECT_EQ(largest(gradient), 0) << item.key();
      }
      if (gradient.defined()) {
        EXPECT_TRUE(at::isfinite(gradient).all().item<bool>()) << item.key();
      }
    }
  }
}

// By the fused kernel, which takes rows of a batch as one; segments that come back are for a mask.
void expect_packed_rows_to_be_their_sequences(bool is_decoder) {
  ModelConfig config = small_config();
  config.is_decoder = config.rotary_value = is_decoder;
  const auto model = small_model(config);
  const at::Tensor ids = small_ids(3, 8);
  Input input = input_of(ids);
  input.segments_BT = at::tensor({0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 5, 5, 5, 5, -1, -1, 0, 1, 1, 0, 0, 1, 0, 1}, at::kInt);
  input.positions_BT = at::tensor({0, 1, 2, 0, 1, 2, 3, 4, 0, 1, 0, 1, 2, 3, 0, 0, 0, 0, 1, 1, 2, 2, 3, 3}, at::kLong);
  input.segments_BT = input.segments_BT.view({3, 8}), input.positions_BT = input.positions_BT.view({3, 8});
  const auto expect = [&](int64_t rows) {
    Input some = input_of(ids.narrow(0, 0, rows));
    some.segments_BT = input.segments_BT.narrow(0, 0, rows), some.positions_BT = input.positions_BT.narrow(0, 0, rows);
    const at::Tensor hidden = model->encode(some);
    EXPECT_TRUE(at::isfinite(hidden).all().item<bool>());
    for (int64_t row = 0; row < rows; ++row) {
      for (const int segment : {0, 1, 2, 5}) {
        const at::Tensor at = input.segments_BT[row].eq(segment);
        if (!at.any().item<bool>()) continue;
        const at::Tensor alone = model->encode(input_of(ids[row].masked_select(at).unsqueeze(0)))[0];
        EXPECT_LE(largest(hidden[row].index({at}) - alone), kFloat32Model * largest(alone)) << rows << ' ' << row;
      }
    }
    return hidden;
  };
  // Padding too, which attends to nothing, not even to padding.
  const at::Tensor packed = expect(2), masked = expect(3).narrow(0, 0, 2);
  EXPECT_LE(largest(packed - masked), kFloat32Model * largest(masked));
}

TEST(RoFormerMasks, RowsMayBePackedDifferently) {
  for (const bool is_decoder : {false, true}) expect_packed_rows_to_be_their_sequences(is_decoder);
}

// Encodings whose terms depend on a sequence's length or start, too, and linear attention.
TEST(RoFormerMasks, EndsThatAreGivenAreThoseThatAreFound) {
  const EncodingConfig dynamic = {"rope", R"({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}})"};
  for (const EncodingConfig& encoding : {EncodingConfig{"rope", "{}"}, dynamic, EncodingConfig{"xpos", "{}"}}) {
    for (const char* attention : {"softmax", "linear"}) {
      ModelConfig config = small_config();
      config.is_decoder = true;
      config.max_position_embeddings = 4;
      config.position_encodings = {encoding};
      config.attention.type = attention;
      const auto model = small_model(config, Head::kCausalLm);
      Input input = input_of(small_ids(2, 8));
      input.segments_BT = at::tensor({0, 0, 0, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, -1, -1}, at::kInt).view({2, 8});
      input.positions_BT = at::tensor({0, 1, 2, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 0, 0}, at::kLong).view({2, 8});
      const at::Tensor found = model->encode(input);
      input.ends_N = at::tensor({0, 3, 8, 14, 16}, at::kLong);
      EXPECT_TRUE(model->encode(input).equal(found)) << encoding.type << ' ' << attention;
    }
  }
}

TEST(RoFormerInput, PositionsShiftNothingButRotatedValues) {
  ModelConfig config = small_config();
  for (const bool rotary_value : {false, true}) {
    config.rotary_value = rotary_value;
    const auto model = small_model(config);
    model->to(at::kDouble);
    Input input = input_of(small_ids(2, 9));
    const at::Tensor here = model->encode(input);
    input.positions_BT = at::arange(9, at::kLong) + 100000;
    const double shift = largest(model->encode(input) - here) / largest(here);
    EXPECT_EQ(shift > kRotaryValueShift, rotary_value) << shift;
    EXPECT_EQ(shift <= kFloat64Model, !rotary_value) << shift;
  }
}

TEST(RoFormerInput, AnEmptyBatchGivesEmptyOutputs) {
  for (const Head head :
       {Head::kMaskedLm, Head::kSequenceClassification, Head::kMultipleChoice, Head::kQuestionAnswering}) {
    const Output out = small_model(small_config(), head)->forward(input_of(small_ids(0, 5)));
    EXPECT_EQ(out.hidden_BTC.sizes(), at::IntArrayRef({0, 5, 24}));
    EXPECT_EQ((out.logits.defined() ? out.logits : out.start_logits_BT).numel(), 0);
  }
}

TEST(RoFormerInput, ErrorsNameTheValueAndItsPlace) {
  const auto model = small_model(small_config());
  Input input = input_of(small_ids(2, 5).clone());
  input.ids_BT[1][3] = 37;
  EXPECT_ERROR(model->forward(input), "[input] token ids must be in 0..36, got 37 at row 1, column 3");
  input.ids_BT[0][2] = -1;
  EXPECT_ERROR(model->forward(input), "got -1 at row 0, column 2");
  EXPECT_ERROR(model->forward(input_of(small_ids(2, 0))), "at least one token, got shape [2, 0]");
  EXPECT_ERROR(model->forward(input_of(small_ids(2, 5)[0])), "must be [batch, tokens], got 1 dimensions");
  EXPECT_ERROR(model->forward(Input{}), "must be [batch, tokens]");
  EXPECT_ERROR(model->forward(input_of(small_ids(2, 5).to(at::kInt))), "token ids must be Long, got Int");
  input = input_of(small_ids(2, 5));
  input.types_BT = at::full({2, 5}, 3, at::kLong);
  EXPECT_ERROR(model->forward(input), "token types must be in 0..2, got 3 at row 0, column 0");
  input = input_of(small_ids(2, 5));
  input.mask_BT = at::ones({2, 4}, at::kLong);
  EXPECT_ERROR(model->forward(input), "the mask must have the shape [2, 5] of the token ids, got [2, 4]");
  input.mask_BT = at::ones({2, 5}, at::kLong);
  input.segments_BT = at::zeros({2, 5}, at::kInt);
  EXPECT_ERROR(model->forward(input), "segments and a mask must not be given together");
  input.mask_BT = at::Tensor();
  input.segments_BT = at::full({2, 5}, -2, at::kInt);
  EXPECT_ERROR(model->forward(input), "segments must be in -1..2147483647, got -2");
  input.segments_BT = at::zeros({2, 5}, at::kInt);
  input.ends_N = at::tensor({0, 5, 9}, at::kLong);
  EXPECT_ERROR(model->forward(input), "ends must rise from 0 to the 10 tokens of the batch");
  input = input_of(small_ids(2, 5));
  input.positions_BT = at::tensor({0, 1, 2, 3, -4}, at::kLong);
  EXPECT_ERROR(model->forward(input), "got -4 at row 0, column 4");
  input.positions_BT = at::arange(5).to(at::kFloat);
  EXPECT_ERROR(model->forward(input), "positions must be Long, got Float");
}

TEST(RoFormerInput, ErrorsOfHeads) {
  EXPECT_ERROR(small_model(small_config())->forward(input_of(small_ids(2, 5)), 2), "num_choices must be 1");
  const auto choice = small_model(small_config(), Head::kMultipleChoice);
  EXPECT_ERROR(choice->forward(input_of(small_ids(3, 5)), 2), "a multiple of the 2 choices, got 3");
  EXPECT_ERROR(choice->masked_lm_logits(at::zeros({1, 24})), "need a language model, got RoFormerForMultipleChoice");
  const auto language = small_model(small_config());
  EXPECT_ERROR(language->masked_lm_logits(at::zeros({2, 23})), "hidden states must be [.., 24], got [2, 23]");
  EXPECT_ERROR(language->masked_lm_logits(at::zeros({})), "hidden states must be [.., 24], got []");
  EXPECT_ERROR(choice->set_position_table(at::zeros({4, 10})), "must be [rows, 12], got [4, 10]");
}

TEST(RoFormerHeads, MultipleChoiceReadsTheLastTokenOrTheFirst) {
  ModelConfig config = small_config();
  for (const char* summary : {"last", "first"}) {
    config.summary_type = summary;
    const auto model = small_model(config, Head::kMultipleChoice);
    const Output out = model->forward(input_of(small_ids(6, 5)), 3);
    const auto parameters = model->named_parameters();
    const at::Tensor token = out.hidden_BTC.select(1, summary == std::string("last") ? 4 : 0);
    const at::Tensor expected =
        at::matmul(token, parameters["classifier.weight"].t()) + parameters["classifier.bias"];  // R-HF-12
    EXPECT_LE(largest(out.logits - expected.view({2, 3})), kFloat32Model * largest(expected));
  }
}

// Beam search: beams go on from rows of the step before; fox and path keep numbers of each token, too.
TEST(RoFormerCache, SelectedRowsGoOnAsTheirOwn) {
  const at::NoGradGuard no_grad;
  for (const char* name : {"rope", "fox", "path"}) {
    ModelConfig config = small_config();
    config.is_decoder = true;
    config.position_encodings = {EncodingConfig{name, "{}"}};
    const auto model = small_model(config, Head::kCausalLm);
    const at::Tensor ids = small_ids(3, 8), rows = at::tensor({2, 0, 2}, at::kLong);
    KeyValueCache cache;
    model->encode(input_of(ids.narrow(1, 0, 6)), &cache);
    select_rows(cache, rows);
    const at::Tensor all = ids.index_select(0, rows);
    const at::Tensor expected = model->encode(input_of(all)).narrow(1, 6, 2);
    const at::Tensor last = model->encode(input_of(all.narrow(1, 6, 2)), &cache);
    EXPECT_LE(largest(last - expected), kFloat32Model * largest(expected)) << name;
  }
}

// The mean over many draws of a linear quantity is what evaluation gives: the scale of what is kept is right.
TEST(RoFormerDropout, KeepsTheMeanOfTheClassifiersInput) {
  ModelConfig config = small_config();
  config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0;
  config.classifier_dropout = 0.5;
  config.num_hidden_layers = 1;
  const auto model = small_model(config, Head::kTokenClassification);
  const at::NoGradGuard no_grad;
  Input input = input_of(small_ids(1, 2));
  const at::Tensor expected = model->forward(input).logits.to(at::kDouble);
  model->train();
  constexpr int kDraws = 300;
  at::Tensor sum = at::zeros_like(expected), squares = at::zeros_like(expected);
  for (uint64_t step = 0; step < kDraws; ++step) {
    input.dropout_key = DropoutKey{.seed = 3, .step = step};
    const at::Tensor logits = model->forward(input).logits.to(at::kDouble);
    sum += logits;
    squares += logits.square();
  }
  const at::Tensor mean = sum / kDraws;
  const at::Tensor error = (squares / kDraws - mean.square()).div(kDraws).sqrt();
  EXPECT_TRUE((mean - expected).abs().le(kSigmas * error).all().item<bool>());
}

}  // namespace
}  // namespace rf::nn
