// AdamW against its formula in double (R-TRN-03: 20 steps), clipping, and gradients that are not finite.
#include "optimizer.h"

#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>

#include <cmath>
#include <limits>

#include "rf/train/run_config.h"
#include "support.h"
#include "tolerances.h"

namespace rf::train {
namespace {

// Loshchilov and Hutter, algorithm 2, one number at a time in double.
struct DoubleAdamW {
  double w, decay;
  double m = 0, v = 0;
  void step(double g, double rate, int t, const AdamWOptions& o) {
    w -= rate * decay * w;
    m = o.beta1 * m + (1 - o.beta1) * g;
    v = o.beta2 * v + (1 - o.beta2) * g * g;
    const double m_hat = m / (1 - std::pow(o.beta1, t)), v_hat = v / (1 - std::pow(o.beta2, t));
    w -= rate * m_hat / (std::sqrt(v_hat) + o.epsilon);
  }
};

Parameter parameter(const char* name, std::vector<float> values, Decay decay) {
  return {name, at::tensor(values).requires_grad_(true), decay};
}

void set_gradient(const Parameter& p, std::vector<float> values) { p.weight.mutable_grad() = at::tensor(values); }

TEST(AdamW, TwentyStepsOfTheFormula) {
  const AdamWOptions options{0.1, 0.9, 0.98, 1e-6, /*clip_norm=*/2.0};
  const Parameter matrix = parameter("matrix", {0.5f, -1.25f}, Decay::kApplied);
  const Parameter bias = parameter("bias", {2.0f}, Decay::kNone);
  AdamW optimizer({matrix, bias}, options);
  std::vector<DoubleAdamW> expected = {{0.5, 0.1}, {-1.25, 0.1}, {2.0, 0.0}};
  int clipped = 0;
  for (int t = 1; t <= 20; ++t) {
    const std::vector<float> g = {float(std::sin(t)), float(2 * std::cos(t)), float(1.5 * std::sin(2 * t))};
    set_gradient(matrix, {g[0], g[1]});
    set_gradient(bias, {g[2]});
    const double norm = std::sqrt(double(g[0]) * g[0] + double(g[1]) * g[1] + double(g[2]) * g[2]);
    const double factor = std::min(1.0, options.clip_norm / (norm + 1e-6));
    clipped += factor < 1;
    const double rate = 0.01 * t;
    EXPECT_NEAR(optimizer.step(rate, t), norm, rf::tests::kFloat32Primitive * norm);
    for (size_t i = 0; i < 3; ++i) expected[i].step(g[i] * factor, rate, t, options);
  }
  EXPECT_GT(clipped, 0);
  EXPECT_LT(clipped, 20);
  for (size_t i = 0; i < 3; ++i) {
    const double got = i < 2 ? matrix.weight[static_cast<int64_t>(i)].item<float>() : bias.weight[0].item<float>();
    EXPECT_NEAR(got, expected[i].w, rf::tests::kFloat32Primitive * 10);
  }
  EXPECT_EQ(optimizer.updates(), 20);
}

// torch.optim.AdamW, which is another implementation than the fused kernel: groups with and without decay, clipping by
// torch's own clip_grad_norm_, and every schedule of the run file.
TEST(AdamW, IsTorchs) {
  const AdamWOptions options{0.1, 0.9, 0.98, 1e-6, /*clip_norm=*/1.0};
  constexpr int64_t kSteps = 12;
  for (const Schedule kind : {Schedule::kConstant, Schedule::kLinear, Schedule::kCosine, Schedule::kInverseSqrt}) {
    ScheduleConfig schedule;
    schedule.kind = kind;
    schedule.learning_rate = 0.05;
    schedule.warmup_steps = 4;
    at::manual_seed(11);
    std::vector<Parameter> ours;
    std::vector<at::Tensor> theirs;
    for (const Decay decay : {Decay::kApplied, Decay::kNone, Decay::kApplied, Decay::kNone}) {
      const at::Tensor start = at::randn({3, 5});
      ours.push_back({std::to_string(ours.size()), start.clone().requires_grad_(true), decay});
      theirs.push_back(start.clone().requires_grad_(true));
    }
    const auto adamw = [&](double decay) {
      return torch::optim::AdamWOptions(0.05)
          .betas({options.beta1, options.beta2})
          .eps(options.epsilon)
          .weight_decay(decay);
    };
    std::vector<torch::optim::OptimizerParamGroup> groups;
    groups.emplace_back(std::vector<at::Tensor>{theirs[0], theirs[2]},
                        std::make_unique<torch::optim::AdamWOptions>(adamw(options.weight_decay)));
    groups.emplace_back(std::vector<at::Tensor>{theirs[1], theirs[3]},
                        std::make_unique<torch::optim::AdamWOptions>(adamw(0)));
    torch::optim::AdamW reference(groups, adamw(0));
    AdamW optimizer(ours, options);
    for (int64_t t = 1; t <= kSteps; ++t) {
      for (size_t i = 0; i < theirs.size(); ++i) {
        theirs[i].mutable_grad() = at::randn({3, 5}) * (t % 3 == 0 ? 3.0 : 0.1);
        ours[i].weight.mutable_grad() = theirs[i].grad().clone();
      }
      const double rate = learning_rate(schedule, t, kSteps);
      for (auto& group : reference.param_groups()) group.options().set_lr(rate);
      const double norm = torch::nn::utils::clip_grad_norm_(theirs, options.clip_norm);
      EXPECT_NEAR(optimizer.step(rate, t), norm, rf::tests::kFloat32Primitive * norm);
      reference.step();
    }
    for (size_t i = 0; i < theirs.size(); ++i) {
      const double error = (ours[i].weight - theirs[i]).abs().max().item<double>();
      EXPECT_LE(error, rf::tests::kFloat32Primitive * 10) << i;
    }
  }
}

TEST(AdamW, GoesOnFromItsMoments) {
  const auto run = [](bool restart) {
    const Parameter p = parameter("w", {1.0f, -2.0f}, Decay::kApplied);
    AdamW first({p}, {}), second({{"w", p.weight, Decay::kApplied}}, {});
    for (int t = 1; t <= 6; ++t) {
      set_gradient(p, {float(t), float(-1 / double(t))});
      if (restart && t == 4) {
        for (size_t i = 0; i < 2; ++i) second.moments()[i].values.copy_(first.moments()[i].values);
        second.set_updates(first.updates());
      }
      (restart && t >= 4 ? second : first).step(1e-2, t);
    }
    return p.weight;
  };
  EXPECT_TRUE(run(true).equal(run(false)));
}

TEST(AdamW, StopsAtAGradientThatIsNotFinite) {
  const Parameter p = parameter("layer.weight", {1.0f, 2.0f}, Decay::kApplied);
  AdamW optimizer({p}, {});
  set_gradient(p, {0.5f, std::numeric_limits<float>::quiet_NaN()});
  EXPECT_NE(message_of([&] { optimizer.step(0.1, 37); }).find("got nan in layer.weight at step 37"), std::string::npos);
  EXPECT_TRUE(p.weight.equal(at::tensor({1.0f, 2.0f})));
}

}  // namespace
}  // namespace rf::train
