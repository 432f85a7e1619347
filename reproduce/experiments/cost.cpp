// What rotations and attention cost, on this machine:
//
//   rotation-cost   X-13, C-07  the sparse form of R (Eq. 34) compared with the matrix product with R, an addition of
//                               the same size, and a whole layer, for [tokens, batch, heads, head size] as in
//                               EleutherAI's post
//   attention-time  X-14, C-09  attention and linear attention by the number of tokens
#include <ATen/ATen.h>
#include <fmt/format.h>

#include "experiment.h"
#include "rf/nn/linear_attention.h"
#include "rf/nn/model.h"
#include "rf/ops/ops.h"
#include "statistics.h"
#include "tensors.h"
#include "timing.h"

namespace rf::reproduce {

namespace {

struct RotationSettings {
  int64_t tokens, batch, rounds;
  int64_t heads = 12, head_dim = 64;
  double window_seconds = 0.05;
  int64_t dense_at_least = 10, addition_at_most = 5;  // times
  double layer_share_at_most = 0.05;
  Seeds seeds = {1};
  RF_MEMBERS(RotationSettings, tokens, batch, rounds, heads, head_dim, window_seconds, dense_at_least, addition_at_most,
             layer_share_at_most, seeds)
};

RotationSettings rotation_settings(Scale scale) {
  return scale == Scale::kTiny ? RotationSettings{.tokens = 256, .batch = 2, .rounds = 3}
                               : RotationSettings{.tokens = 2048, .batch = 16, .rounds = 9};
}

// A layer of this width, and the embeddings before it, as a model of one layer.
std::shared_ptr<nn::Model> one_layer(const RotationSettings& settings) {
  ModelConfig config;
  config.num_attention_heads = settings.heads;
  config.hidden_size = config.embedding_size = settings.heads * settings.head_dim;
  config.intermediate_size = 4 * config.hidden_size;
  config.num_hidden_layers = 1;
  config.vocab_size = 1000;
  config.max_position_embeddings = settings.tokens;
  auto model = std::make_shared<nn::Model>(config, Head::kNone);
  model->eval();
  return model;
}

// The ratio of two times of one round: its mean over the rounds, with the interval.
Estimate ratio(const std::vector<double>& of, const std::vector<double>& to) {
  std::vector<double> ratios;
  for (size_t round = 0; round < of.size(); ++round) ratios.push_back(of[round] / to[round]);
  return estimate(ratios, kConfidence);
}

Result run_rotation(const RotationSettings& settings, const Context&) {
  const at::NoGradGuard no_grad;
  const int64_t tokens = settings.tokens, batch = settings.batch, heads = settings.heads;
  const int64_t head_dim = settings.head_dim;
  at::manual_seed(settings.seeds[0]);
  const at::Tensor x_BTHD = at::randn({batch, tokens, heads, head_dim}), positions = integers(0, tokens);
  const ops::Rotation rows = rotation(positions, head_dim, at::kFloat);
  const at::Tensor added_THD = at::randn({tokens, 1, head_dim});
  // R of each position as a matrix: its columns are the rotated basis.
  const at::Tensor basis_THD = at::eye(head_dim).unsqueeze(0).expand({tokens, head_dim, head_dim}).contiguous();
  const at::Tensor transposed_TDD = rotated(basis_THD, positions);
  const at::Tensor x_TND = x_BTHD.transpose(0, 1).reshape({tokens, batch * heads, head_dim});
  const auto model = one_layer(settings);
  nn::Input input;
  input.ids_BT = integers(0, batch * tokens).remainder(1000).view({batch, tokens});
  const std::vector<std::vector<double>> seconds =
      seconds_by_round({[&] { ops::rotate(x_BTHD, rows.cos, rows.sin, "pairs"); }, [&] { at::add(x_BTHD, added_THD); },
                        [&] { at::bmm(x_TND, transposed_TDD); }, [&] { model->encode(input); }},
                       settings.rounds, settings.window_seconds);
  const auto &rope = seconds[0], &addition = seconds[1], &dense = seconds[2], &layer = seconds[3];
  const double error = largest(at::bmm(x_TND, transposed_TDD).view({tokens, batch, heads, head_dim}).transpose(0, 1) -
                               ops::rotate(x_BTHD, rows.cos, rows.sin, "pairs"));
  Result result{.columns = {"work", "milliseconds", "times the rotation"}, .rows = {}};
  const char* names[] = {"rotation", "addition of positions", "product with the matrix R", "a layer, forward"};
  for (size_t i = 0; i < seconds.size(); ++i) {
    result.rows.push_back({names[i], 1000 * median(seconds[i]), median(seconds[i]) / median(rope)});
  }
  const Estimate product = ratio(dense, rope), added = ratio(rope, addition), of_layer = ratio(rope, layer);
  result.findings = {
      {"C-07",
       product.low >= static_cast<double>(settings.dense_at_least) &&
           added.high <= static_cast<double>(settings.addition_at_most) &&
           2 * of_layer.high <= settings.layer_share_at_most && error < 1e-4,
       fmt::format("the matrix product takes {} times as long as the rotation (and gives the same to {:.0e}), the "
                   "rotation {} times as long as an addition; queries and keys are {} % of a layer's forward pass",
                   text(product), error, text(added), text(of_layer, 200))}};
  return result;
}

struct AttentionSettings {
  std::vector<int64_t> tokens;
  int64_t power_from, rounds;  // with fewer tokens, constant costs matter too
  int64_t heads = 4, head_dim = 64;
  double window_seconds = 0.05, tolerance = 0.2;
  Seeds seeds = {1};
  RF_MEMBERS(AttentionSettings, tokens, power_from, rounds, heads, head_dim, window_seconds, tolerance, seeds)
};

AttentionSettings attention_settings(Scale scale) {
  if (scale == Scale::kTiny) return {.tokens = {128, 256, 512, 1024}, .power_from = 256, .rounds = 3};
  return {.tokens = {256, 512, 1024, 2048, 4096, 8192}, .power_from = 1024, .rounds = 5};
}

// The power with which times grow: fitted in each round, its mean over the rounds, and the interval of that.
Estimate power_by_round(const std::vector<double>& tokens, const std::vector<std::vector<double>>& seconds) {
  std::vector<double> powers;
  for (size_t round = 0; round < seconds.front().size(); ++round) {
    std::vector<double> of_round;
    for (const std::vector<double>& of_tokens : seconds) of_round.push_back(of_tokens[round]);
    powers.push_back(power(tokens, of_round));
  }
  return estimate(powers, kConfidence);
}

Result run_attention(const AttentionSettings& settings, const Context&) {
  const at::NoGradGuard no_grad;
  at::manual_seed(settings.seeds[0]);
  const int64_t heads = settings.heads, head_dim = settings.head_dim;
  Result result{.columns = {"tokens", "softmax, ms", "linear, ms"}, .rows = {}};
  Series softmax{"softmax", {}, {}}, linear{"linear", {}, {}};
  std::vector<double> power_tokens;                            // tokens from which on powers are fitted
  std::vector<std::vector<double>> softmax_from, linear_from;  // times with them, by round
  for (const int64_t tokens : settings.tokens) {
    const auto draw = [&] { return at::randn({1, tokens, heads, head_dim}); };
    const at::Tensor q = draw(), k = draw(), v = draw();
    const nn::AttentionContext all(nn::make_positions(integers(0, tokens)), /*attend=*/{}, {});
    const std::vector<std::vector<double>> seconds = seconds_by_round(
        {[&] { nn::attention(q, k, v, {}, all); }, [&] { nn::linear_attention(q, k, v, {}, {}, {}, {}); }},
        settings.rounds, settings.window_seconds);
    softmax.x.push_back(static_cast<double>(tokens));
    softmax.y.push_back(median(seconds[0]));
    linear.x.push_back(static_cast<double>(tokens));
    linear.y.push_back(median(seconds[1]));
    result.rows.push_back({tokens, 1000 * softmax.y.back(), 1000 * linear.y.back()});
    if (tokens < settings.power_from) continue;
    power_tokens.push_back(static_cast<double>(tokens));
    softmax_from.push_back(seconds[0]);
    linear_from.push_back(seconds[1]);
  }
  result.series = {softmax, linear};
  const Estimate softmax_power = power_by_round(power_tokens, softmax_from);
  const Estimate linear_power = power_by_round(power_tokens, linear_from);
  const double tolerance = settings.tolerance;
  result.findings = {
      {"C-09",
       softmax_power.is_within(2 - tolerance, 2 + tolerance) && linear_power.is_within(1 - tolerance, 1 + tolerance),
       fmt::format("from {} tokens on, time grows with the tokens to the power {} for softmax "
                   "attention and {} for linear attention",
                   settings.power_from, text(softmax_power), text(linear_power))}};
  return result;
}

}  // namespace

Experiment rotation_cost() {
  return {.name = "rotation-cost",
          .spec = "X-13",
          .title = "What the rotation costs",
          .claims = {"C-07"},
          .expected =
              "Multiplying by the matrix R takes at least 10 times as long as the rotation; the rotation takes "
              "at most 5 times as long as adding positions, and for queries and keys at most 5 % of a layer's forward "
              "pass; with the whole 95 % interval of nine rounds.",
          .budget = "1 minute",
          .method = {rotation_settings, run_rotation},
          .kind = Kind::kMeasurement,
          .revision = 2};
}

Experiment attention_time() {
  return {.name = "attention-time",
          .spec = "X-14",
          .title = "Time of attention by the number of tokens",
          .claims = {"C-09"},
          .expected =
              "Time grows with the tokens to the power 2 for softmax and 1 for linear attention, within 0.2 with the "
              "whole 95 % interval of five rounds.",
          .budget = "2 minutes",
          .method = {attention_settings, run_attention},
          .kind = Kind::kMeasurement,
          .revision = 2};
}

}  // namespace rf::reproduce
